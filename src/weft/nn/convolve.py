"""How a convolution runs on a block: known ones on the fast kernels, all others as they are, on the block as a graph.

A known convolution is written as what it is: a linear map of sources, a weight per edge, a merge, a finish by the
destination's own row. Its parameters are the user's module's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import FiLMConv, GATConv, GATv2Conv, GCNConv, GINConv, Linear, MessagePassing, SAGEConv

from weft.errors import ModelError
from weft.exchange import Wire
from weft.nn import crossing, functional
from weft.nn.binding import Handle
from weft.nn.rows import Pass, edge_keys
from weft.parallel.program import Layer, Program
from weft.sampling import Block


@dataclass
class Call:
    """One call of a convolution within a forward pass: the rows that are here, the layer, and what else it was given."""

    conv: MessagePassing
    x: Tensor  # [rows here, width]
    depth: int  # of those rows
    program: Program
    run: Pass
    edge_weight: bool = False  # was it given the graph's edge weights?
    others: dict[str, Any] | None = None  # arguments that no fast path knows

    @property
    def layer(self) -> Layer:
        """The edges, and who computes them."""
        return self.program.layers[self.depth]

    @property
    def wire(self) -> Wire:
        """The way to the other workers."""
        return self.program.wire

    @cached_property
    def x_dst(self) -> Tensor:
        """The destinations' own rows."""
        return self.layer.own_rows(self.x, self.wire)

    def weights(self, block: Block, drop: Tensor | None = None) -> Tensor | None:
        """The weights of a block's edges, zero for those dropped; None where all are one."""
        given = self.program.edge_values("edge_weight", block).to(self.x.dtype) if self.edge_weight else None
        if drop is None or not drop.any():
            return given
        return (~drop).to(self.x.dtype) if given is None else given * ~drop

    def aggregate(self, x: Tensor, reduce: str = "sum") -> tuple[Tensor, Tensor]:
        """Rows x, merged into each destination without weights; and the destinations' own."""
        return crossing.aggregate(self.layer, self.wire, x, reduce)


def convolve(call: Call) -> Tensor:
    """The convolution's rows for the layer's destinations."""
    fast = fast_path(call.conv)
    if call.layer.columns is not None and type(call.conv) not in _BY_COLUMN:
        raise ModelError(
            f"{call.conv} needs whole rows, so its layer can't be placed by columns: place it local, pull or push"
        )
    out = _black_box(call) if fast is None or call.others else fast(call)
    if len(out) != call.layer.num_dst:
        raise ModelError(f"{call.conv} gave {len(out)} rows for {call.layer.num_dst} vertices: one row each is needed")
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
    if call.layer.columns is not None and _project_columns(call):
        out = _sage_columns(call)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out
    layer = call.layer
    pulls = layer.sources is not None and layer.own is None
    crosses = layer.columns is None and (layer.pushed is not None or pulls)
    linear = conv.aggr != "max" and not conv.project and _plain_linear(conv.lin_l)
    if crosses and linear and _narrow_first(call, conv.lin_l):
        return _sage_narrow(call)
    x = _dense(conv.lin, call.x).relu() if conv.project else call.x
    neighbours, own = call.aggregate(x, _REDUCE[conv.aggr])
    if conv.project and conv.root_weight:
        own = call.x_dst
    if conv.root_weight and _plain_linear(conv.lin_l) and _plain_linear(conv.lin_r) and conv.lin_r.bias is None:
        out = functional.linear_of_two(neighbours, conv.lin_l.weight, own, conv.lin_r.weight, conv.lin_l.bias)
    else:
        out = _dense(conv.lin_l, neighbours)
        out = _dense(conv.lin_r, own, out) if conv.root_weight else out
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _narrow_first(call: Call, lin: nn.Module) -> bool:
    """Do rows (or sums of them) that cross cost less behind the dense layer? What needs no gradient crosses once."""
    out, wide = cast(Tensor, lin.weight).shape
    return 2 * out < wide * (2 if call.x.requires_grad else 1)


def _sage_narrow(call: Call) -> Tensor:
    """GraphSAGE with its dense layers before the sums, so that narrow rows cross."""
    conv: Any = call.conv
    neighbours, _ = call.aggregate(functional.linear(call.x, conv.lin_l.weight), _REDUCE[conv.aggr])
    out = neighbours if conv.lin_l.bias is None else neighbours + conv.lin_l.bias
    if conv.root_weight:
        if call.layer.own is None:
            out = _dense(conv.lin_r, call.x_dst, out)
        else:
            out = out + call.layer.own_rows(_dense(conv.lin_r, call.x), call.wire)
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _project_columns(call: Call) -> bool:
    """Is it cheaper to send sums of projected slices, forward and backward, than the slices of whole rows, forward?"""
    conv: Any = call.conv
    columns = call.layer.columns
    assert columns is not None
    linear = conv.aggr != "max" and conv.root_weight and conv.lin_r.bias is None
    return linear and _plain_linear(conv.lin_l) and conv.lin_l.weight.shape[0] < columns.width


def _sage_columns(call: Call) -> Tensor:
    """Each worker projects its slices of the columns; the products are summed where they were asked for."""
    conv: Any = call.conv
    columns, pushed = call.layer.columns, call.layer.pushed
    assert columns is not None and pushed is not None
    first, end = columns.span
    here, there = crossing.column_slices(call.layer, call.x, _REDUCE[conv.aggr])

    def product(slices: Tensor) -> Tensor:
        neighbours, own = (part[:, : end - first] for part in slices.chunk(2, 1))
        return neighbours @ conv.lin_l.weight[:, first:end].T + own @ conv.lin_r.weight[:, first:end].T

    out = product(here) + pushed.route.push(product(there), call.wire)
    return out if conv.lin_l.bias is None else out + conv.lin_l.bias


def _gin(call: Call) -> Tensor:
    conv: Any = call.conv
    neighbours, own = call.aggregate(call.x, _REDUCE[conv.aggr])
    return conv.nn(neighbours + (1 + conv.eps) * own)


def _gcn(call: Call) -> Tensor:
    """Degrees are the whole graph's, so that a row does not depend on its batch; sampled sums are scaled to full ones."""
    conv: Any = call.conv
    layer = call.layer
    crosses = layer.pushed is not None or layer.sources is not None
    narrows = _narrow_first(call, conv.lin) if crosses else conv.lin.weight.shape[1] > conv.lin.weight.shape[0]
    project_first = narrows and layer.columns is None
    x = _dense(conv.lin, call.x) if project_first else call.x
    if conv.normalize:
        # PyG's own rule: `improved` doubles self-loops only where edges have weights.
        fill = 2.0 if conv.improved and call.edge_weight else 1.0
        at_src, at_dst, own_weight = _gcn_factors(call, fill, conv.add_self_loops)
        x = x * at_src.to(x.dtype)[:, None]
        loops = conv.add_self_loops
        weight = call.weights(layer.block, layer.self_edges() if loops else None)
        push_weight = _push_weights(call, loops)
        out, own = crossing.aggregate(layer, call.wire, x, "sum", weight, push_weight)
        out = out * at_dst.to(x.dtype)[:, None]
        if loops:
            out = out + own_weight.to(x.dtype)[:, None] * own
    else:
        weight, push_weight = call.weights(layer.block), _push_weights(call, False)
        out, _ = crossing.aggregate(layer, call.wire, x, "sum", weight, push_weight)
    if not project_first:
        out = _dense(conv.lin, out)
    return out if conv.bias is None else out + conv.bias


def _push_weights(call: Call, loops: bool) -> Tensor | None:
    if call.layer.pushed is None:
        return None
    return call.weights(call.layer.pushed.block, call.layer.pushed_self_edges() if loops else None)


def _gcn_factors(call: Call, fill: float, loops: bool) -> tuple[Tensor, Tensor, Tensor]:
    """D^-1/2 A D^-1/2 in parts (float64): a factor of each row here, one of each destination, the weight of its own row.

    The own row's weight is meant for rows that have their own factor already.
    """
    program, layer = call.program, call.layer
    if program.graph is None or program.weighted:
        raise ModelError("GCNConv needs uniform sampling from a graph whose degrees are known: drop weighted sampling")

    def inverse(vertices: Tensor) -> tuple[Tensor, Tensor]:
        assert program.graph is not None
        others, own, own_total = program.graph.self_loops.of(vertices, call.edge_weight)
        own = torch.where(own.isnan(), fill, own)
        roots = (others + (own if loops else own_total)).rsqrt()
        return torch.where(roots.isinf(), 0.0, roots), own

    here, there = program.vertices[call.depth : call.depth + 2]
    (at_src, _), (at_dst, own) = inverse(here), inverse(there)
    full = program.graph.self_loops.in_degrees(there)
    return at_src, at_dst * full / layer.degrees.clamp(min=1), own * at_dst


def _gat_columns(call: Call) -> Tensor:
    """Logits are linear in slices of the columns, so their parts are summed over the workers; then each sums its slice."""
    conv: Any = call.conv
    layer = call.layer
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None
    first, end = columns.span
    x = (call.x[:, : end - first] @ conv.lin.weight[:, first:end].T).view(-1, conv.heads, conv.out_channels)
    parts = torch.cat([(x * conv.att_src).sum(-1), (x * conv.att_dst).sum(-1)], 1)
    a_src, a_dst = crossing.Summed.apply(parts, call.wire).chunk(2, 1)
    assert layer.dst_at is not None and pushed.dst_at is not None
    dropped = bool(conv.training and conv.dropout)
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, dropped)
    totals = []
    for block, dst_at, keep in zip(blocks, (layer.dst_at, pushed.dst_at), _masks(call, blocks), strict=True):
        raw = a_src[block.src.long()] + a_dst[dst_at][block.dst().long()]
        logits = F.leaky_relu(raw, conv.negative_slope)
        totals.append(functional.edge_softmax_aggregate(block, logits, x, keep))
    out = totals[0] + pushed.route.push(totals[1].flatten(1), call.wire).view_as(totals[0])
    return _finish_attention(call, out)


def _gat(call: Call) -> Tensor:
    conv: Any = call.conv
    if call.layer.columns is not None:
        return _gat_columns(call)
    x = _dense(conv.lin, call.x).view(-1, conv.heads, conv.out_channels)
    layer, slope = call.layer, conv.negative_slope
    att_src, att_dst = conv.att_src.squeeze(0), conv.att_dst.squeeze(0)
    sources = layer.gather(x, call.wire)
    if layer.pushed is None:
        block, keep = _attended(call)
        return _finish_attention(call, functional.gat(block, sources, att_src, att_dst, slope, keep))
    own = layer.own_rows(x, call.wire)
    a_src, a_dst = (x * att_src).sum(-1), (own * att_dst).sum(-1)
    a_there = layer.pushed.route.pull(a_dst, call.wire)
    rows, a_rows = (x, a_src) if layer.sources is None else (sources, (sources * att_src).sum(-1))
    if layer.own is not None:
        rows, a_rows = torch.cat([rows, own]), torch.cat([a_rows, (own * att_src).sum(-1)])
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, bool(conv.training and conv.dropout))
    keep, keep_there = _masks(call, blocks)
    here = functional.attention_part(blocks[0], rows, (a_rows, a_dst), slope, keep)
    there = functional.attention_part(blocks[1], x, (a_src, a_there), slope, keep_there)
    return _finish_attention(call, crossing.merge_attention(layer, call.wire, here, there))


def _gatv2(call: Call) -> Tensor:
    conv: Any = call.conv
    layer = call.layer
    shape = (-1, conv.heads, conv.out_channels)
    x = _dense(conv.lin_l, call.x).view(shape)
    sources = layer.gather(x, call.wire)
    pushed_apart = layer.pushed is not None and layer.own is not None  # own rows are not among the sources here
    own = layer.own_rows(x, call.wire) if conv.share_weights or pushed_apart else None
    to = own if conv.share_weights else _dense(conv.lin_r, call.x_dst).view(shape)
    assert to is not None
    att, slope = conv.att.squeeze(0), conv.negative_slope
    if layer.pushed is None:
        block, keep = _attended(call)
        return _finish_attention(call, functional.gatv2(block, sources, to, att, slope, keep))
    to_there = layer.pushed.route.pull(to, call.wire)
    rows = torch.cat([sources, own]) if pushed_apart and own is not None else sources
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, bool(conv.training and conv.dropout))
    parts = []
    for block, side, terms, keep in zip(blocks, (rows, x), (to, to_there), _masks(call, blocks), strict=True):
        joined = F.leaky_relu(side[block.src.long()] + terms[block.dst().long()], slope)
        parts.append(functional.attention_part(block, side, (joined * att).sum(-1), 1.0, keep))
    return _finish_attention(call, crossing.merge_attention(layer, call.wire, *parts))


def _attended(call: Call) -> tuple[Block, Tensor | None]:
    """The block that attention goes over, with self-loops if the convolution adds them, and its edges' dropout."""
    conv: Any = call.conv
    block = call.layer.block
    looped = block.with_self_loops() if conv.add_self_loops else block
    if not (conv.training and conv.dropout):
        return looped, None
    places = block.looped_places() if conv.add_self_loops else block.places()
    key = call.run.next_dropout()
    return looped, _edge_mask(call, key, looped.dst(), places, conv.heads, conv.dropout)


def _masks(call: Call, blocks: tuple[Block, Block]) -> list[Tensor | None]:
    """Dropout of the edges here and of the pushed ones."""
    conv: Any = call.conv
    if not (conv.training and conv.dropout):
        return [None, None]
    assert call.layer.pushed is not None
    key = call.run.next_dropout()
    return [
        _edge_mask(call, key, block.dst(), block.places(), conv.heads, conv.dropout, keys)
        for block, keys in zip(blocks, (None, call.layer.pushed.dst_keys), strict=True)
    ]


def _edge_mask(
    call: Call, key: int, dst: Tensor, places: Tensor, columns: int, p: float, dst_keys: Tensor | None = None
) -> Tensor:
    """Dropout of edges, keyed by destination and place in its list."""
    if dst_keys is None:
        assert call.run.keys is not None
        dst_keys = call.run.keys[call.depth + 1]
    return functional.dropout_mask(len(dst), columns, p, edge_keys(dst_keys, dst, places), key, call.x.dtype)


def _finish_attention(call: Call, out: Tensor) -> Tensor:
    conv: Any = call.conv
    out = out.flatten(1) if conv.concat else out.mean(1)
    if conv.res is not None:
        out = _dense(conv.res, call.x_dst, out)
    return out if conv.bias is None else out + conv.bias


def _film(call: Call) -> Tensor:
    conv: Any = call.conv
    x_dst = call.x_dst
    beta, gamma = conv.film_skip(x_dst).split(conv.out_channels, dim=-1)
    out = conv.act(gamma * _dense(conv.lin_skip, x_dst) + beta)
    beta, gamma = (part.contiguous() for part in conv.films[0](x_dst).split(conv.out_channels, dim=-1))
    x = _dense(conv.lins[0], call.x)
    return out + crossing.film(call.layer, call.wire, x, gamma, beta, _REDUCE[conv.aggr])


def _black_box(call: Call) -> Tensor:
    """The module's own forward, on the block as a square graph whose first vertices are the destinations."""
    if call.layer.pushed is not None:
        raise ModelError(
            f"{call.conv} has no known split, so layer {call.depth + 1} can't be pushed: place it local or pull, where "
            f"whole neighbourhoods meet"
        )
    block = call.layer.block
    x = call.layer.gather(call.x, call.wire)
    edge_index = torch.stack([block.src.long(), block.dst().long()])
    options = {
        name: call.program.edge_values(value.stands_for, block) if isinstance(value, Handle) else value
        for name, value in (call.others or {}).items()
    }
    if call.edge_weight:
        options["edge_weight"] = call.weights(block)
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
            return x * _edge_mask(call, key, block.dst(), block.places(), columns, p).to(x.dtype).view(x.shape)
        if len(x) == self._rows and call.run.keys is not None:
            keys, key = call.program.source_keys(call.depth), call.run.next_dropout()
            return x * functional.dropout_mask(len(x), columns, p, keys, key, x.dtype).view(x.shape)
        return torch.dropout(x, p, True)


_REDUCE = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max"}


def _no_edge_features(conv: Any) -> bool:
    return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")


def _plain_film(conv: Any) -> bool:
    relu = isinstance(conv.act, torch.nn.ReLU)
    return (
        isinstance(conv.in_channels, int) and conv.num_relations == 1 and relu and conv.aggr in ("add", "sum", "mean")
    )


_BY_COLUMN = (SAGEConv, GINConv, GCNConv, GATConv)

# Which convolutions have a fast path, and for which of their options.
_FAST: dict[type | None, tuple[Callable[[Call], Tensor], Callable[[Any], bool]]] = {
    SAGEConv: (_sage, lambda conv: conv.aggr in _REDUCE),
    GINConv: (_gin, lambda conv: conv.aggr in _REDUCE),
    GCNConv: (_gcn, lambda conv: not conv.cached and conv.aggr in ("add", "sum")),
    GATConv: (_gat, _no_edge_features),
    GATv2Conv: (_gatv2, _no_edge_features),
    FiLMConv: (_film, _plain_film),
}
