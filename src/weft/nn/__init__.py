"""Running PyG models, unchanged, on blocks."""

import weft.nn.generated  # noqa: F401  (before any model is made)
from weft.nn.block_model import BlockModel
from weft.nn.conv import Convolution, MessageConvolution, Split, check_split
from weft.nn.costs import crossing_costs
from weft.nn.layerwise import LayerwiseRunner
from weft.nn.links import LinkPredictor
from weft.nn.models import DEFAULT_LAYERS, build

__all__ = [
    "DEFAULT_LAYERS",
    "BlockModel",
    "Convolution",
    "LayerwiseRunner",
    "LinkPredictor",
    "MessageConvolution",
    "Split",
    "build",
    "check_split",
    "crossing_costs",
]
