"""Starting the workers of a run."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.cluster.local import launch
else:
    __getattr__ = lazy_face(__name__)
