"""R-GCN and R-GAT on slices of columns, over the whole graph.

R-GCN: either rows are merged on slices, a row for each pair of a relation and a destination, and go to the destination's
owner, who multiplies them by the relations' matrices; or owners multiply first, a row for each pair of a relation and a
source, and the products are summed on slices. Whichever has fewer numbers to move, unless rows are inputs: these are merged
once.

R-GAT: owners multiply first. Logits hang on whole rows, so owners' parts of them go to all: a number a head for each pair of
a relation and a source, and for each vertex and relation; each worker makes the soft-max for itself.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.exchange import SliceLayout, to_columns, to_owners
from weft.nn import functional, slices
from weft.nn.call import REDUCE, Call
from weft.nn.linear import linear
from weft.nn.relations import ByDestination, by_destination, by_source, joined, products
from weft.nn.sliced_attention import Run, attended, runs_of
from weft.parallel.program import Slices
from weft.parallel.tensor import everyones
from weft.sampling import Block, Piece


@dataclass(frozen=True)
class _Merging:
    """Rows merged first: pairs of a relation and a destination."""

    pairs: ByDestination  # of all edges
    order: Tensor  # [pairs] int64: the pairs by owner, and in these by destination
    bounds: tuple[int, ...]  # where each owner's pairs begin among them
    own: ByDestination  # of the edges into own destinations
    back: Tensor  # [own pairs] int64: where they are among the own pairs as they come


@dataclass(frozen=True)
class _Mapping:
    """Rows multiplied first: pairs of a relation and a source."""

    rows: Block  # from own rows to own pairs: a copy each
    matrices: list[int]  # where each relation's own pairs begin, and the last one's end
    bounds: tuple[int, ...]  # where each owner's pairs begin
    block: Block  # the whole block, its sources the pairs


def rgcn(call: Call, matrices: Tensor) -> Tensor:
    """Own destinations' rows: each relation's merged rows by its matrix [relations, in, out], summed."""
    conv: Any = call.conv
    block, held, relations = call.layer.block, call.layer.slices, len(matrices)
    assert held is not None
    types = call.types(block)
    merging = block.remembered(f"{relations} relations merged", lambda: _merging(block, held, types, relations))
    mapping = block.remembered(f"{relations} relations mapped", lambda: _mapping(block, held, types, relations))
    merged = (block.num_dst + merging.bounds[-1]) * matrices.shape[1]
    mapped = (block.num_dst + mapping.bounds[-1]) * matrices.shape[2]
    if call.stays or merged <= mapped:
        (rows,) = call.once(f"{conv.aggr} of {relations} relations", lambda: (_merge(call, held, merging),))
        return joined(merging.own, products(rows, matrices, merging.own.bounds))
    own = products(functional.aggregate(mapping.rows, call.x), matrices, mapping.matrices)
    spread = SliceLayout(mapping.bounds, held.rank, held.size, own.shape[1])
    weight = _shares(block, merging.pairs).to(own.dtype) if REDUCE[conv.aggr] == "mean" else None
    columns = to_columns(own, spread, call.comm)
    sums = slices.sums(columns, mapping.block.pieces(held.chunks), weight)
    return to_owners(sums, held.spread(own.shape[1]), call.comm)


def rgat(call: Call, matrices: Tensor) -> Tensor:
    """Own destinations' rows [own, heads, columns], by soft-max over all relations' edges."""
    conv: Any = call.conv
    block, held, relations = call.layer.block, call.layer.slices, len(matrices)
    assert held is not None
    types = call.types(block)
    mapping = block.remembered(f"{relations} relations mapped", lambda: _mapping(block, held, types, relations))
    own = products(functional.aggregate(mapping.rows, call.x), matrices, mapping.matrices)
    columns = to_columns(own, SliceLayout(mapping.bounds, held.rank, held.size, own.shape[1]), call.comm)
    a_src = everyones(mapping.bounds, held.rank).pull(own @ conv.k, call.comm)
    to = linear(call.x, (matrices @ conv.q).transpose(1, 2).flatten(0, 1))
    a_dst = held.to_all.pull(to, call.comm).view(-1, conv.heads)  # by vertex and relation

    def attend(piece: Piece, run: Run, keep: Tensor | None, columns: Tensor, *terms: Tensor) -> Tensor:
        a_src, a_dst = terms
        dst = piece.block.dst().long() + piece.rows.start
        of_dst = a_dst[dst * relations + types[piece.edges].long(), run.all]
        logits = F.leaky_relu(a_src[piece.block.src.long(), run.all] + of_dst, conv.negative_slope)
        return functional.attention_part(piece.block, run.of(columns), logits, 1.0, keep)[0]

    spread = held.spread(own.shape[1])
    runs = runs_of(spread, conv.out_channels)
    out = attended(call, mapping.block, spread, runs, attend, columns, a_src, a_dst)
    return out.view(-1, conv.heads, conv.out_channels)


def _merge(call: Call, held: Slices, merging: _Merging) -> Tensor:
    """A row for each own pair of a relation and a destination, whole."""
    conv: Any = call.conv
    columns = to_columns(call.x, held.spread(call.x.shape[1]), call.comm)
    rows = functional.aggregate(merging.pairs.block, columns, reduce=REDUCE[conv.aggr])
    spread = SliceLayout(merging.bounds, held.rank, held.size, call.x.shape[1])
    return to_owners(rows.index_select(0, merging.order), spread, call.comm).index_select(0, merging.back)


def _merging(block: Block, held: Slices, types: Tensor, relations: int) -> _Merging:
    pairs = by_destination(block, lambda: types, relations)
    piece = block.pieces(held.bounds)[held.rank]
    own = by_destination(piece.block, lambda: types[piece.edges], relations)
    at = own.join.src.long()  # by destination, as they come
    back = torch.empty_like(at)
    back[at] = torch.arange(len(at), device=at.device)
    firsts = pairs.join.indptr[torch.tensor(held.bounds, device=at.device)]
    return _Merging(pairs, pairs.join.src.long(), tuple(firsts.tolist()), own, back)


def _mapping(block: Block, held: Slices, types: Tensor, relations: int) -> _Mapping:
    whole = by_source(block, lambda: types, relations)
    sources = whole.rows.src.long()
    owners = torch.searchsorted(torch.tensor(held.bounds, device=sources.device), sources, right=True) - 1
    order = owners.argsort(stable=True)
    counts = torch.bincount(owners, minlength=held.size)
    bounds = (0, *counts.cumsum(0).tolist())
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    own = order[bounds[held.rank] : bounds[held.rank + 1]]
    at = (sources[own] - held.bounds[held.rank]).int()
    rows = Block(torch.arange(len(own) + 1, device=own.device), at, held.num_own)
    matrices = torch.searchsorted(own, torch.tensor(whole.bounds, device=own.device)).tolist()
    return _Mapping(rows, matrices, bounds, Block(block.indptr, place[whole.block.src.long()].int(), len(order)))


def _shares(block: Block, pairs: ByDestination) -> Tensor:
    """What each edge counts for in the mean of its relation, [num_edges] float64."""

    def shares() -> Tensor:
        counts = pairs.block.indptr.diff()
        out = torch.empty(block.num_edges, dtype=torch.float64, device=counts.device)
        out[pairs.edges] = counts.double().reciprocal().repeat_interleave(counts, output_size=block.num_edges)
        return out

    return block.remembered(f"shares of {pairs.bounds}", shares)
