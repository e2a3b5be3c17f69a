"""Which convolution serves a module, and a call of it."""

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft import plugins
from weft.errors import ModelError
from weft.nn.conv.blackbox import BlackBox
from weft.nn.conv.declared import Declared, split_of
from weft.nn.convolution import Call, Convolution


def convolution_of(conv: MessagePassing) -> Convolution:
    """How a module runs: as it declares, as the convolution that serves its class does, or as a black box."""
    if split_of(conv) is not None:
        return Declared(conv)
    kind = plugins.CONVOLUTIONS.find(plugins.class_name(type(conv)))
    plain = conv.flow == "source_to_target" and not conv.explain and conv.decomposed_layers == 1
    return kind(conv) if kind is not None and plain and kind.serves(conv) else BlackBox(conv)


def convolve(call: Call, known: Convolution | None = None) -> Tensor:
    """The rows of the layer's destinations, by the convolution that serves the module, which may be known already."""
    convolution = known or convolution_of(call.conv)
    if not convolution.knows(call):
        convolution = BlackBox(call.conv)
    if call.layer.here.drawn is not None:
        _check_adds_up(convolution)
    out = convolution.run(call)
    if len(out) != call.layer.num_dst:
        raise ModelError(f"{call.conv} gave {len(out)} rows for {call.layer.num_dst} vertices: one row each is needed")
    return out


def check_adds_up(model: nn.Module) -> None:
    """Refuse a model with a convolution that does not sum (or average) edges that can be weighed."""
    for conv in model.modules():
        if isinstance(conv, MessagePassing):
            _check_adds_up(convolution_of(conv))


def _check_adds_up(convolution: Convolution) -> None:
    if not convolution.adds_up:
        raise ModelError(
            f"{convolution.conv} can't be sampled layer by layer, for its edges don't just add up: set sampler = 'labor' "
            f"(or 'neighbor'), or use SAGEConv (mean or sum), GCNConv, GINConv or a declared split (docs/models.md)"
        )
