"""Running PyG models, unchanged, on blocks."""

from typing import TYPE_CHECKING

import weft.nn.generated  # before any model is made
from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.nn.block_model import BlockModel, make_call, takes_types, walk
    from weft.nn.conv import (
        BlackBox,
        MessageConvolution,
        Split,
        check_adds_up,
        check_split,
        convolution_of,
        convolve,
    )
    from weft.nn.convolution import Convolution
    from weft.nn.costs import crossing_costs, row_costs
    from weft.nn.decoupled import Decoupled
    from weft.nn.decoupled_model import DecoupledModel
    from weft.nn.functional import merged
    from weft.nn.layerwise import LayerwiseRunner, Pending
    from weft.nn.links import LinkPredictor, encoder_of, link_loss, loss_terms, make_decoder
    from weft.nn.models import DEFAULT_LAYERS, build
    from weft.nn.ranges import needs
    from weft.nn.rows import Handle, Pass
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["Convolution", "Decoupled", "LinkPredictor", "MessageConvolution", "Split", "check_split"]
