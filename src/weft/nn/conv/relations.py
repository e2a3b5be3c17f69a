"""A block's edges by relation: what convolutions over typed edges go over, made of blocks that know no types.

A relation's matrix maps one merged row for each pair of a relation and a destination, or one row for each pair of a
relation and a source, whichever the convolution needs; pairs without edges do not exist. Pairs of one relation stand
together, so that each matrix multiplies a range of rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.devices import Movable
from weft.errors import ModelError
from weft.exchange import Route
from weft.operations import linear
from weft.placements import SliceSpan, everyones
from weft.sampling import Block, are_few


@dataclass(frozen=True)
class ByDestination(Movable):
    """Edges by (relation, destination)."""

    block: Block  # its destinations are the pairs; the edges of each are in the order of the list
    bounds: list[int]  # where each relation's pairs begin, and the last one's end
    edges: Tensor  # [num_edges] int64: which edge of the whole block each edge here is
    join: Block  # from pairs to destinations


@dataclass(frozen=True)
class BySource(Movable):
    """Edges by (relation, source)."""

    rows: Block  # from sources to pairs: a copy each
    bounds: list[int]
    block: Block  # the whole block, its sources the pairs


Types = Callable[[Block], Tensor]  # the types of a block's edges


def by_destination(block: Block, types: Types, relations: int) -> ByDestination:
    """The block's edges by (relation, destination), for edges of some types; worked out once a block."""
    name = f"{relations} relations by destination"
    return block.worked_out(name, lambda block: _by_destination(block, types(block), relations))


def by_source(block: Block, types: Types, relations: int) -> BySource:
    """The block's edges by (relation, source), likewise."""
    name = f"{relations} relations by source"
    return block.worked_out(name, lambda block: _by_source(block, types(block), relations))


def products(rows: Tensor, matrices: Tensor, bounds: list[int]) -> Tensor:
    """Rows of pairs, each times its relation's matrix [in, out]."""
    parts = enumerate(zip(bounds, bounds[1:], matrices, strict=False))
    # Of relations without rows the first alone, so that the result hangs on the matrices whatever there is here.
    return torch.cat([linear(rows[a:b], matrix.T) for number, (a, b, matrix) in parts if b > a or not number])


def _whole(weight: Tensor) -> Tensor:
    """Matrices of relations, [relations, in, out], of block-diagonal ones, [relations, blocks, in, out]."""
    return weight if weight.dim() == 3 else torch.stack([torch.block_diag(*blocks) for blocks in weight])


def relation_slots(ends: Tensor, types: Tensor, count: int, relations: int) -> Tensor:
    """The pair of each edge's relation and one of its ends, relations first, [num_edges] int64."""
    check_types(types, relations)
    return types.long() * count + ends.long()


def check_types(types: Tensor, relations: int) -> None:
    """Refuse edges of more types than there are relations."""
    if len(types) and not 0 <= int(types.min()) <= int(types.max()) < relations:
        raise ModelError(
            f"edges are of types {int(types.min())} to {int(types.max())}, but the convolution has {relations} relations: "
            f"build it with num_relations = {int(types.max()) + 1} or more"
        )


def _by_destination(block: Block, types: Tensor, relations: int) -> ByDestination:
    count = block.num_dst
    pairs, lengths, edges = _grouped(block, relation_slots(block.dst(), types, count, relations), relations * count)
    indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    at = Block(torch.arange(len(pairs) + 1, device=pairs.device), (pairs % max(count, 1)).int(), count)
    to_destinations, of_pairs, _ = at.transposed()
    return ByDestination(
        Block(indptr, block.src[edges], block.num_src),
        _bounds(pairs, count, relations),
        edges,
        Block(to_destinations, of_pairs, len(pairs)),
    )


def _grouped(block: Block, slots: Tensor, possible: int) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs that a block's edges are of, rising; how many edges each has; and the edges by pair, in their order."""
    if possible < 1 << 31 and are_few(possible, block.num_edges):  # counted: as a block whose sources are the pairs
        offsets, _, edges = Block(block.indptr, slots.int(), possible).transposed()
        lengths = offsets.diff()
        pairs = lengths.nonzero().flatten()
        return pairs, lengths[pairs], edges.long()
    edges = slots.argsort(stable=True)
    return *slots[edges].unique_consecutive(return_counts=True), edges


def _by_source(block: Block, types: Tensor, relations: int) -> BySource:
    count = block.num_src
    slots = relation_slots(block.src, types, count, relations)
    if are_few(relations * count, block.num_edges):
        there = slots.new_zeros(relations * count, dtype=torch.bool)
        there[slots] = True
        pairs = there.nonzero().flatten()
        number = there.cumsum(0)[slots] - 1
    else:
        pairs, number = slots.unique(return_inverse=True)
    rows = Block(torch.arange(len(pairs) + 1, device=pairs.device), (pairs % max(count, 1)).int(), count)
    return BySource(rows, _bounds(pairs, count, relations), Block(block.indptr, number.int(), len(pairs)))


def _bounds(pairs: Tensor, count: int, relations: int) -> list[int]:
    firsts = torch.arange(relations + 1, device=pairs.device) * count
    return torch.searchsorted(pairs, firsts).tolist()


def matrices_of(conv: MessagePassing) -> Tensor:
    """The matrix of each relation, [relations, in, out]: its own, a mix of shared ones, or block-diagonal."""
    if conv.num_bases is None:
        return _whole(conv.weight)
    mix, shared = (conv.att, conv.basis) if hasattr(conv, "basis") else (conv.comp, conv.weight)
    return torch.einsum("rb,bio->rio", mix, shared)


@dataclass(frozen=True)
class SourcePairs(Movable):
    """On slices, rows that are multiplied first: pairs of a relation and a source, by owner."""

    rows: Block  # from own rows to own pairs: a copy each
    matrices: list[int]  # where each relation's own pairs begin, and the last one's end
    bounds: tuple[int, ...]  # where each owner's pairs begin
    block: Block  # the whole block, its sources the pairs
    to_all: Route  # own pairs -> everyone's, in order


def source_pairs(block: Block, span: SliceSpan, types: Types, relations: int) -> SourcePairs:
    """The whole graph's edges by (relation, source), and this worker's pairs; worked out once a block."""
    name = f"{relations} relations mapped"
    return block.worked_out(name, lambda block: _source_pairs(block, span, types, relations))


def _source_pairs(block: Block, span: SliceSpan, types: Types, relations: int) -> SourcePairs:
    whole = by_source(block, types, relations)
    sources = whole.rows.src.long()
    owners = torch.searchsorted(torch.tensor(span.bounds, device=sources.device), sources, right=True) - 1
    order = owners.argsort(stable=True)
    counts = torch.bincount(owners, minlength=span.size)
    bounds = (0, *counts.cumsum(0).tolist())
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    own = order[bounds[span.rank] : bounds[span.rank + 1]]
    at = (sources[own] - span.bounds[span.rank]).int()
    rows = Block(torch.arange(len(own) + 1, device=own.device), at, span.num_own)
    matrices = torch.searchsorted(own, torch.tensor(whole.bounds, device=own.device)).tolist()
    pairs = Block(block.indptr, place[whole.block.src.long()].int(), len(order))
    return SourcePairs(rows, matrices, bounds, pairs, everyones(bounds, span.rank))
