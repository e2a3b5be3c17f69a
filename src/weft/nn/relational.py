"""Convolutions over typed edges: R-GCN and R-GAT, with the parameters of the user's own module.

R-GCN merges first: a row for each relation that a destination has edges of, each times its relation's matrix, their sum.
A mean is divided by the number of all drawn edges of that relation, wherever they are computed: it travels with pushed
edges, whose partial rows are multiplied and summed where they are made, so that one row of the result's width goes home.

R-GAT's rows differ by relation, so each (relation, source) is multiplied once. Soft-max goes over all relations' edges.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.nn import crossing, functional, sliced_relations
from weft.nn.attention import masks
from weft.nn.call import REDUCE, Call, drops, edge_mask
from weft.nn.linear import linear
from weft.nn.relations import BySource, by_destination, by_source, dense, joined, products
from weft.parallel.hops import RELATION_COUNT
from weft.sampling import Block


def rgcn(call: Call) -> Tensor:
    conv: Any = call.conv
    layer = call.layer
    if layer.columns is not None:
        out = _rgcn_columns(call)
        return out if conv.bias is None else out + conv.bias
    matrices = _matrices(conv)
    out = _rgcn_sums(call, matrices) if layer.slices is None else sliced_relations.rgcn(call, matrices)
    if conv.root is not None:
        return linear(call.x_dst, conv.root.T, conv.bias, out)
    return out if conv.bias is None else out + conv.bias


def _rgcn_sums(call: Call, matrices: Tensor) -> Tensor:
    """Each relation's merged rows by its matrix, summed, wherever edges are computed."""
    conv: Any = call.conv
    layer, name = call.layer, f"{conv.aggr} of {conv.num_relations} relations"
    (rows,) = call.once(name, lambda: (_merged(call, layer.block, layer.gather(call.x, call.comm)),))
    out = _mapped(call, layer.block, rows, matrices)
    if layer.pushed is None:
        return out
    there = layer.pushed.block
    (rows,) = call.once(f"pushed {name}", lambda: (_merged(call, there, call.x),))
    return out + layer.pushed.route.push(_mapped(call, there, rows, matrices), call.comm)


def _merged(call: Call, block: Block, x: Tensor) -> Tensor:
    """A row for each pair of a relation and a destination: the sum of its edges here, over all of its edges for a mean."""
    conv: Any = call.conv
    pairs = by_destination(block, lambda: call.types(block), conv.num_relations)
    counted = block.values.get(RELATION_COUNT)
    if counted is None or REDUCE[conv.aggr] != "mean":
        return functional.aggregate(pairs.block, x, reduce=REDUCE[conv.aggr])
    return functional.aggregate(pairs.block, x, counted[pairs.edges].to(x.dtype).reciprocal())


def _mapped(call: Call, block: Block, rows: Tensor, matrices: Tensor) -> Tensor:
    """Rows of pairs, each by its relation's matrix, summed for each destination."""
    pairs = by_destination(block, lambda: call.types(block), len(matrices))
    return joined(pairs, products(rows, matrices, pairs.bounds))


def _rgcn_columns(call: Call) -> Tensor:
    """Each worker multiplies its slices of the columns; the products are summed where they were asked for."""
    conv: Any = call.conv
    layer = call.layer
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None and layer.dst_at is not None and pushed.dst_at is not None
    first, end = columns.span
    x, matrices = call.x[:, : end - first], _matrices(conv)[:, first:end]

    def product(block: Block, dst_at: Tensor) -> Tensor:
        out = _mapped(call, block, _merged(call, block, x), matrices)
        return out if conv.root is None else out + x[dst_at] @ conv.root[first:end]

    there = product(pushed.block, pushed.dst_at)
    return product(layer.block, layer.dst_at) + pushed.route.push(there, call.comm)


def rgat(call: Call) -> Tensor:
    conv: Any = call.conv
    layer, matrices = call.layer, _matrices(call.conv)
    if layer.columns is not None:
        return _finish(conv, _rgat_columns(call, matrices))
    if layer.slices is not None:
        return _finish(conv, sliced_relations.rgat(call, matrices))
    sources = layer.gather(call.x, call.comm)
    to = _terms(call.x_dst, matrices, conv.q)
    if layer.pushed is None:
        return _finish(conv, _attention(call, layer.block, sources, to, matrices, _mask(call))[0])
    keep, keep_there = masks(call, (layer.block, layer.pushed.block))
    there_to = layer.pushed.route.pull(to, call.comm)
    there = _attention(call, layer.pushed.block, call.x, there_to, matrices, keep_there)
    here = _attention(call, layer.block, sources, to, matrices, keep)
    return _finish(conv, crossing.merge_attention(layer, call.comm, here, there))


def _attention(
    call: Call, block: Block, x: Tensor, to: Tensor, matrices: Tensor, keep: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rows summed by soft-max over a block's edges, and the logs of its sums; `to`: the destinations' terms."""
    conv: Any = call.conv
    pairs, rows = _rows(call, block, x, matrices)
    logits = _of_edges(pairs.block.src, linear(rows, conv.k.T)) + _to_edges(call, block, to)
    shape = (-1, conv.heads, conv.out_channels)
    return functional.attention_part(
        pairs.block, rows.view(shape), F.leaky_relu(logits, conv.negative_slope), 1.0, keep
    )


def _rows(call: Call, block: Block, x: Tensor, matrices: Tensor) -> tuple[BySource, Tensor]:
    """Each source's row by the matrix of each relation that it has edges of."""
    pairs = by_source(block, lambda: call.types(block), len(matrices))
    return pairs, products(functional.aggregate(pairs.rows, x), matrices, pairs.bounds)


def _terms(x: Tensor, matrices: Tensor, vectors: Tensor) -> Tensor:
    """What rows would add to logits in each relation, [rows, relations x heads]."""
    return linear(x, (matrices @ vectors).transpose(1, 2).flatten(0, 1))


def _of_edges(at: Tensor, terms: Tensor) -> Tensor:
    return terms.index_select(0, at.long())


def _to_edges(call: Call, block: Block, terms: Tensor) -> Tensor:
    """Of each edge: its destination's term in its relation, [num_edges, heads]."""
    conv: Any = call.conv
    at = block.dst().long() * conv.num_relations + call.types(block).long()
    return terms.reshape(-1, conv.heads).index_select(0, at)


def _rgat_columns(call: Call, matrices: Tensor) -> Tensor:
    """Logits are linear in slices of the columns, so their parts are summed over the workers; then each sums its slice."""
    conv: Any = call.conv
    layer = call.layer
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None and layer.dst_at is not None and pushed.dst_at is not None
    first, end = columns.span
    x, matrices = call.x[:, : end - first], matrices[:, first:end]
    parts = torch.cat([_terms(x, matrices, vectors) for vectors in (conv.k, conv.q)], 1)
    a_src, a_dst = crossing.Summed.apply(parts, call.comm).chunk(2, 1)
    blocks, totals = (layer.block, pushed.block), []
    for block, dst_at, keep in zip(blocks, (layer.dst_at, pushed.dst_at), masks(call, blocks), strict=True):
        at = block.src.long() * conv.num_relations + call.types(block).long()
        logits = a_src.reshape(-1, conv.heads).index_select(0, at) + _to_edges(call, block, a_dst[dst_at])
        pairs, rows = _rows(call, block, x, matrices)
        edges = F.leaky_relu(logits, conv.negative_slope)
        rows = rows.view(-1, conv.heads, conv.out_channels)
        totals.append(functional.edge_softmax_aggregate(pairs.block, edges, rows, keep))
    return totals[0] + pushed.route.push(totals[1].flatten(1), call.comm).view_as(totals[0])


def _mask(call: Call) -> Tensor | None:
    """Dropout of the edges of whole lists."""
    conv: Any = call.conv
    if not drops(call):
        return None
    block = call.layer.block
    return edge_mask(call, call.run.next_dropout(), block.dst(), block.places(), conv.heads, conv.dropout)


def _finish(conv: Any, out: Tensor) -> Tensor:
    out = out.flatten(1) if conv.concat else out.mean(1)
    return out if conv.bias is None else out + conv.bias


def _matrices(conv: Any) -> Tensor:
    """The matrix of each relation, [relations, in, out]: its own, a mix of shared ones, or block-diagonal."""
    if conv.num_bases is None:
        return dense(conv.weight)
    mix, shared = (conv.att, conv.basis) if hasattr(conv, "basis") else (conv.comp, conv.weight)
    return torch.einsum("rb,bio->rio", mix, shared)
