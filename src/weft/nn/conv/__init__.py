"""PyG's convolutions on layers: one file each, found by the class that they serve."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.nn.conv.blackbox import BlackBox
    from weft.nn.conv.declared import Declared, Split, check_split, split_of
    from weft.nn.conv.messages import MessageConvolution
else:
    __getattr__ = lazy_face(__name__)
