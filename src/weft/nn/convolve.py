"""How a convolution runs on a layer: known ones on the fast kernels, all others as they are, on the block as a graph."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import (
    FiLMConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    MessagePassing,
    RGATConv,
    RGCNConv,
    SAGEConv,
)

from weft.errors import ModelError
from weft.nn import functional
from weft.nn.attention import gat, gatv2
from weft.nn.binding import Handle
from weft.nn.call import REDUCE, Call, edge_mask
from weft.nn.declared import declared, split_of
from weft.nn.relational import rgat, rgcn
from weft.nn.sums import film, gcn, gin, sage


def convolve(call: Call) -> Tensor:
    """The convolution's rows for the layer's destinations."""
    fast = fast_path(call.conv)
    if call.layer.columns is not None and type(call.conv) not in _BY_COLUMN and fast is not declared:
        raise ModelError(
            f"{call.conv} needs whole rows, so its layer can't be placed by columns: place it local, pull or push"
        )
    if call.layer.slices is not None and (fast is None or not _known(call)):
        raise ModelError(
            f"{call.conv} has no known split by columns, so it can't be computed on slices of them (plan tp): choose plan "
            f"halo, by pull where whole neighbourhoods meet, or declare its split (docs/models.md)"
        )
    if call.layer.weight is not None:
        _check_sums(call.conv, alone=_known(call))
    out = fast(call) if fast is not None and _known(call) else _black_box(call)
    if len(out) != call.layer.num_dst:
        raise ModelError(f"{call.conv} gave {len(out)} rows for {call.layer.num_dst} vertices: one row each is needed")
    return out


def _known(call: Call) -> bool:
    """Is what the convolution was given all that its fast path knows? Types are needed by some, and by others ignored."""
    typed = type(call.conv) in _BY_RELATION
    return not call.others and (call.edge_type if typed else not call.edge_type or type(call.conv) is FiLMConv)


def fast_path(conv: MessagePassing) -> Callable[[Call], Tensor] | None:
    """The function that runs this convolution on kernels, or None when only its own code can."""
    if split_of(conv) is not None:
        return declared
    run, can = _FAST.get(type(conv), (None, None))
    plain = conv.flow == "source_to_target" and not conv.explain and conv.decomposed_layers == 1
    return run if can is not None and plain and can(conv) else None


def check_sums(model: nn.Module) -> None:
    """Refuse a model with a convolution that does not sum (or average) edges that can be weighed."""
    for conv in model.modules():
        if isinstance(conv, MessagePassing):
            _check_sums(conv)


def _check_sums(conv: Any, alone: bool = True) -> None:
    split, sums = split_of(conv), alone and fast_path(conv) in (sage, gcn, gin, declared)
    if not sums or (conv.aggr if split is None else split.merge) == "max":
        raise ModelError(
            f"{conv} can't be sampled layer by layer, for its edges don't just add up: set sampler = 'labor' (or "
            f"'neighbor'), or use SAGEConv (mean or sum), GCNConv, GINConv or a declared split (docs/models.md)"
        )


def _black_box(call: Call) -> Tensor:
    """The module's own forward, on the block as a square graph whose first vertices are the destinations."""
    if call.layer.pushed is not None:
        raise ModelError(
            f"{call.conv} has no known split, so layer {call.depth + 1} can't be pushed: place it local or pull, where "
            f"whole neighbourhoods meet, or declare its split (docs/models.md)"
        )
    block = call.layer.block
    x = call.layer.gather(call.x, call.comm)
    edge_index = torch.stack([block.src.long(), block.dst().long()])
    options = {
        name: call.program.edge_values(value.stands_for, block) if isinstance(value, Handle) else value
        for name, value in (call.others or {}).items()
    }
    if call.edge_weight:
        options["edge_weight"] = call.weights(block)
    if call.edge_type:
        options["edge_type"] = call.types(block).long()
    with _BlackBoxDropout(call, len(x)):
        out = type(call.conv).forward(call.conv, x, edge_index, **options)
    if not isinstance(out, Tensor) or len(out) != block.num_src:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ModelError(
            f"{call.conv} gave {got} for {block.num_src} vertices: a convolution must give one row a vertex"
        )
    return out[: block.num_dst]


class _BlackBoxDropout(TorchFunctionMode):
    """Keys the dropout inside a black box: by vertex where a tensor has a row a vertex, by edge where a row an edge.

    Other shapes are left to torch, whose generator the trainer seeds for each batch.
    """

    def __init__(self, call: Call, rows: int) -> None:
        super().__init__()
        self._call, self._rows = call, rows

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.dropout:
            return func(*args, **kwargs)
        return self._dropout(*args, **kwargs)

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        call, block = self._call, self._call.layer.block
        if not training or p == 0:
            return x
        columns = x[:1].numel()
        if len(x) == block.num_edges:
            key = call.run.next_dropout()
            return x * edge_mask(call, key, block.dst(), block.places(), columns, p).to(x.dtype).view(x.shape)
        if len(x) == self._rows and call.run.keys is not None:
            keys, key = call.program.source_keys(call.depth), call.run.next_dropout()
            return x * functional.dropout_mask(len(x), columns, p, keys, key, x.dtype).view(x.shape)
        return torch.dropout(x, p, True)


def _no_edge_features(conv: Any) -> bool:
    return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")


def _plain_film(conv: Any) -> bool:
    relu = isinstance(conv.act, torch.nn.ReLU)
    return (
        isinstance(conv.in_channels, int) and conv.num_relations == 1 and relu and conv.aggr in ("add", "sum", "mean")
    )


def _across_relations(conv: Any) -> bool:
    additive = conv.attention_mode == "additive-self-attention" and conv.mod is None and conv.edge_dim is None
    return additive and conv.attention_mechanism == "across-relation" and conv.aggr in ("add", "sum")


_BY_RELATION = (RGCNConv, RGATConv)  # which need the types of edges
_BY_COLUMN = (SAGEConv, GINConv, GCNConv, GATConv, RGCNConv, RGATConv)

# Which convolutions have a fast path, and for which of their options.
_FAST: dict[type | None, tuple[Callable[[Call], Tensor], Callable[[Any], bool]]] = {
    SAGEConv: (sage, lambda conv: conv.aggr in REDUCE),
    GINConv: (gin, lambda conv: conv.aggr in REDUCE),
    GCNConv: (gcn, lambda conv: not conv.cached and conv.aggr in ("add", "sum")),
    GATConv: (gat, _no_edge_features),
    GATv2Conv: (gatv2, _no_edge_features),
    FiLMConv: (film, _plain_film),
    RGCNConv: (rgcn, lambda conv: isinstance(conv.in_channels, int) and conv.aggr in ("add", "sum", "mean")),
    RGATConv: (rgat, _across_relations),
}
