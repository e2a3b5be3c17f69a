"""How a convolution runs on a block: known ones on the fast kernels, all others as they are, on the block as a graph.

A known convolution is written as what it is: a linear map of sources, a weight per edge, a merge, a finish by the
destination's own row. Its parameters are the user's module's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import FiLMConv, GATConv, GATv2Conv, GCNConv, GINConv, Linear, MessagePassing, SAGEConv

from weft.errors import ModelError
from weft.nn import functional
from weft.nn.rows import Pass, edge_keys
from weft.sampling import Block, Sample


@dataclass
class Call:
    """One call of a convolution within a forward pass: its input rows, its block, and what else it was given."""

    conv: MessagePassing
    x: Tensor  # [block.num_src, width]
    block: Block
    sample: Sample
    run: Pass
    edge_weight: Tensor | None = None
    others: dict[str, Any] | None = None  # arguments that no fast path knows

    @property
    def x_dst(self) -> Tensor:
        """The destinations' own rows."""
        return self.x[: self.block.num_dst]


def convolve(call: Call) -> Tensor:
    """The convolution's rows for the block's destinations."""
    fast = fast_path(call.conv)
    out = _black_box(call) if fast is None or call.others else fast(call)
    if len(out) != call.block.num_dst:
        raise ModelError(f"{call.conv} gave {len(out)} rows for {call.block.num_dst} vertices: one row each is needed")
    return out


def fast_path(conv: MessagePassing) -> Callable[[Call], Tensor] | None:
    """The function that runs this convolution on kernels, or None when only its own code can."""
    run, can = _FAST.get(type(conv), (None, None))
    plain = conv.flow == "source_to_target" and not conv.explain and conv.decomposed_layers == 1
    return run if can is not None and plain and can(conv) else None


def _dense(module: nn.Module, x: Tensor, plus: Tensor | None = None) -> Tensor:
    """A dense layer on rows, plus other rows; on the fast kernel unless the module does something of its own."""
    if _plain_linear(module):
        return functional.linear(x, cast(Tensor, module.weight), cast("Tensor | None", module.bias), plus)
    out = module(x)
    return out if plus is None else out + plus


def _plain_linear(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, Linear) and not module._forward_hooks and not module._forward_pre_hooks


def _sage(call: Call) -> Tensor:
    conv: Any = call.conv
    x = _dense(conv.lin, call.x).relu() if conv.project else call.x
    neighbours, own = functional.aggregate_with_own(call.block, x, _REDUCE[conv.aggr])
    own = call.x_dst if conv.project else own
    if conv.root_weight and _plain_linear(conv.lin_l) and _plain_linear(conv.lin_r) and conv.lin_r.bias is None:
        out = functional.linear_of_two(neighbours, conv.lin_l.weight, own, conv.lin_r.weight, conv.lin_l.bias)
    else:
        out = _dense(conv.lin_l, neighbours)
        out = _dense(conv.lin_r, own, out) if conv.root_weight else out
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _gin(call: Call) -> Tensor:
    conv: Any = call.conv
    neighbours, own = functional.aggregate_with_own(call.block, call.x, _REDUCE[conv.aggr])
    return conv.nn(neighbours + (1 + conv.eps) * own)


def _gcn(call: Call) -> Tensor:
    """Degrees are the whole graph's, so that a row does not depend on its batch; sampled sums are scaled to full ones."""
    conv: Any = call.conv
    project_first = conv.lin.weight.shape[1] > conv.lin.weight.shape[0]
    x = _dense(conv.lin, call.x) if project_first else call.x
    if conv.normalize:
        # PyG's own rule: `improved` doubles self-loops only where edges have weights.
        fill = 2.0 if conv.improved and call.edge_weight is not None else 1.0
        weight, own = _gcn_weights(call, fill, conv.add_self_loops)
        out = functional.aggregate(call.block, x, weight.to(x.dtype))
        if own is not None:
            out = out + own.to(x.dtype)[:, None] * x[: call.block.num_dst]
    else:
        out = functional.aggregate(call.block, x, call.edge_weight)
    if not project_first:
        out = _dense(conv.lin, out)
    return out if conv.bias is None else out + conv.bias


def _gcn_weights(call: Call, fill: float, loops: bool) -> tuple[Tensor, Tensor | None]:
    """Each edge's weight D^-1/2 A D^-1/2 and, with self-loops, each destination's own (float64)."""
    block, sample = call.block, call.sample
    if sample.graph is None or sample.weighted:
        raise ModelError("GCNConv needs uniform sampling from a graph whose degrees are known: drop weighted sampling")
    weighted = call.edge_weight is not None
    others, own, own_total = sample.graph.self_loops.of(sample.vertices[: block.num_src], weighted)
    own = torch.where(own.isnan(), fill, own)
    inverse = (others + (own if loops else own_total)).rsqrt()
    inverse = torch.where(inverse.isinf(), 0.0, inverse)
    src, dst = block.src.long(), block.dst().long()
    drawn, full = block.indptr.diff(), sample.graph.self_loops.in_degrees(sample.vertices[: block.num_dst])
    weight = inverse[src] * (inverse[: block.num_dst] * full / drawn.clamp(min=1))[dst]
    if call.edge_weight is not None:
        weight = weight * call.edge_weight
    if not loops:
        return weight, None
    return weight * (src != dst), own[: block.num_dst] * inverse[: block.num_dst].square()


def _gat(call: Call) -> Tensor:
    conv: Any = call.conv
    block = call.block.with_self_loops() if conv.add_self_loops else call.block
    x = _dense(conv.lin, call.x).view(-1, conv.heads, conv.out_channels)
    keep = _attention_dropout(call, block)
    out = functional.gat(block, x, conv.att_src.squeeze(0), conv.att_dst.squeeze(0), conv.negative_slope, keep)
    return _finish_attention(call, out)


def _gatv2(call: Call) -> Tensor:
    conv: Any = call.conv
    block = call.block.with_self_loops() if conv.add_self_loops else call.block
    shape = (-1, conv.heads, conv.out_channels)
    xl = _dense(conv.lin_l, call.x).view(shape)
    xr = xl[: block.num_dst] if conv.share_weights else _dense(conv.lin_r, call.x_dst).view(shape)
    keep = _attention_dropout(call, block)
    out = functional.gatv2(block, xl, xr, conv.att.squeeze(0), conv.negative_slope, keep)
    return _finish_attention(call, out)


def _attention_dropout(call: Call, block: Block) -> Tensor | None:
    conv: Any = call.conv
    if not (conv.training and conv.dropout):
        return None
    return _edge_mask(call.run, block, conv.heads, conv.dropout, call.x.dtype)


def _edge_mask(run: Pass, block: Block, columns: int, p: float, dtype: torch.dtype) -> Tensor:
    key = run.next_dropout()
    assert run.keys is not None
    keys = edge_keys(run.keys, block.indptr, block.dst())
    return functional.dropout_mask(block.num_edges, columns, p, keys, key, dtype)


def _finish_attention(call: Call, out: Tensor) -> Tensor:
    conv: Any = call.conv
    out = out.flatten(1) if conv.concat else out.mean(1)
    if conv.res is not None:
        out = _dense(conv.res, call.x_dst, out)
    return out if conv.bias is None else out + conv.bias


def _film(call: Call) -> Tensor:
    conv: Any = call.conv
    beta, gamma = conv.film_skip(call.x_dst).split(conv.out_channels, dim=-1)
    out = conv.act(gamma * _dense(conv.lin_skip, call.x_dst) + beta)
    beta, gamma = conv.films[0](call.x_dst).split(conv.out_channels, dim=-1)
    return out + functional.film(call.block, _dense(conv.lins[0], call.x), gamma, beta, _REDUCE[conv.aggr])


def _black_box(call: Call) -> Tensor:
    """The module's own forward, on the block as a square graph whose first vertices are the destinations."""
    block = call.block
    edge_index = torch.stack([block.src.long(), block.dst().long()])
    options = dict(call.others or {})
    if call.edge_weight is not None:
        options["edge_weight"] = call.edge_weight
    with _BlackBoxDropout(call):
        out = type(call.conv).forward(call.conv, call.x, edge_index, **options)
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

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.dropout:
            return func(*args, **kwargs)
        return self._dropout(*args, **kwargs)

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        call, block = self._call, self._call.block
        if not training or p == 0:
            return x
        columns = x[:1].numel()
        if len(x) == block.num_edges:
            return x * _edge_mask(call.run, block, columns, p, x.dtype).view(x.shape)
        if len(x) == block.num_src and call.run.keys is not None:
            keys = call.run.keys[: block.num_src]
            return x * functional.dropout_mask(len(x), columns, p, keys, call.run.next_dropout(), x.dtype).view(x.shape)
        return torch.dropout(x, p, True)


_REDUCE = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max"}


def _no_edge_features(conv: Any) -> bool:
    return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")


def _plain_film(conv: Any) -> bool:
    relu = isinstance(conv.act, torch.nn.ReLU)
    return (
        isinstance(conv.in_channels, int) and conv.num_relations == 1 and relu and conv.aggr in ("add", "sum", "mean")
    )


# Which convolutions have a fast path, and for which of their options.
_FAST: dict[type | None, tuple[Callable[[Call], Tensor], Callable[[Any], bool]]] = {
    SAGEConv: (_sage, lambda conv: conv.aggr in _REDUCE),
    GINConv: (_gin, lambda conv: conv.aggr in _REDUCE),
    GCNConv: (_gcn, lambda conv: not conv.cached and conv.aggr in ("add", "sum")),
    GATConv: (_gat, _no_edge_features),
    GATv2Conv: (_gatv2, _no_edge_features),
    FiLMConv: (_film, _plain_film),
}
