"""Starting the workers of a run."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.cluster.checks import Finding, checkup
    from weft.cluster.launcher import Launcher, Recovery, Request
    from weft.cluster.local import LocalProcesses
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["Launcher", "Request"]
