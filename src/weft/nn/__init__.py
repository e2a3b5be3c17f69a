"""Running PyG models, unchanged, on blocks."""

from typing import TYPE_CHECKING

from weft.garbage import importing
from weft.lazy import lazy_face

with importing():
    import weft.nn.generated  # before any model is made

if TYPE_CHECKING:
    from weft.nn.as_built import NOTHING_BUILT, Built, in_words, other_sums
    from weft.nn.attributes import BY_ITS_OWN
    from weft.nn.batch_norm import running_averages
    from weft.nn.block_model import (
        BlockModel,
        Met,
        check_adds_up,
        convolution_of,
        convolutions,
        convolve,
        drops_edges,
        dtype_of,
    )
    from weft.nn.budget import least_budget
    from weft.nn.coefficients import shares
    from weft.nn.conv import BlackBox, MessageConvolution, Split, check_split
    from weft.nn.convolution import Convolution
    from weft.nn.costs import bytes_an_edge, crossing_costs, kept_of_edges, needs, pairs_of, row_costs
    from weft.nn.decoupled import Decoupled, takes_types
    from weft.nn.decoupled_model import DecoupledModel, forward_of, sizes_of
    from weft.nn.depths import Passage, check_can_run, check_hooks, check_tables, in_mode, passage, takes_slices, walk
    from weft.nn.dropout import KeyedDropout
    from weft.nn.handles import EDGE_ARGUMENTS, Handle
    from weft.nn.kept_state import (
        KeptAttributes,
        KeptState,
        Steps,
        built_with,
        kept_with_gradients,
        left_alone,
        make_room,
        plain_state,
        state_and_hooks,
        state_kept,
    )
    from weft.nn.layerwise import Layerwise, Pending
    from weft.nn.links import LinkPredictor, encoder_of, link_loss, loss_terms, make_decoder
    from weft.nn.models import DEFAULT_LAYERS, build
    from weft.nn.row_by_row import LeftOut, check_rows, of_random_numbers
    from weft.nn.rows import Pass
    from weft.nn.small_graph import alike
    from weft.nn.sums import merged
    from weft.nn.unlisted import KEEP_NUMBERS, NOTHING_KEPT, Kept, Rest, Unlisted, learned_by
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["BlockModel", "Convolution", "Decoupled", "LinkPredictor", "MessageConvolution", "Split", "check_split"]
