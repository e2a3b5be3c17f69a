"""The whole graph's edges, in rounds that all workers go through alike.

A round has a range of each owner's vertices, with all their edges: so what a round needs comes from all owners, and what it
makes goes to all of them, as evenly as the whole does. Rows that an earlier round needed are not requested again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from weft.errors import ConfigError
from weft.exchange import RowSelection
from weft.operations import Lists, operations_on
from weft.sampling import Block, turned
from weft.threads import cached_property

# Makes room for an array: of a shape, and a dtype.
New = Callable[..., Tensor]

_EDGES = 1 << 18  # that are gone over at a time


@dataclass(frozen=True)
class EdgeLists:
    """Edges by the vertex that they go into; or, turned around, by the one that they come from."""

    indptr: Tensor  # [vertices + 1] int64
    other: Tensor  # [edges] int32: the vertex at the other end
    edge: Tensor | None = None  # [edges] int32: their numbers; None: in order
    offsets: Tensor = field(init=False)  # indptr in host memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", self.indptr.cpu())

    @property
    def num_vertices(self) -> int:
        """How many vertices."""
        return len(self.indptr) - 1

    def turned(self, new: New = torch.empty) -> "EdgeLists":
        """The same edges by their other end; `new` makes room for them."""
        assert self.edge is None
        if len(self.other) > np.iinfo(np.int32).max:
            raise ConfigError(
                f"the graph has {len(self.other):,} edges, more than tp-decoupled can turn around: choose plan = 'halo', on "
                f"several workers"
            )
        return EdgeLists(*turned(Block(self.indptr, self.other, self.num_vertices), new))

    def some(self, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """The edges of a range of vertices, some at a time: which, and their other ends, int64."""
        edges = self.edges_of(rows)
        for start in range(edges.start, edges.stop, _EDGES):
            part = slice(start, min(start + _EDGES, edges.stop))
            yield part, self.other[part].long()

    def pieces(self, edges: int = _EDGES) -> Iterator[tuple[slice, slice, Tensor]]:
        """Ranges of vertices of about so many edges: the vertices, their edges, and each edge's vertex."""
        first, offsets = 0, self.offsets
        while first < self.num_vertices:
            end = max(int(torch.searchsorted(offsets, offsets[first] + edges, right=True)) - 1, first + 1)
            some, degrees = self.edges_of(slice(first, end)), self.indptr[first : end + 1].diff()
            vertices = torch.arange(first, end, device=degrees.device)
            yield slice(first, end), some, vertices.repeat_interleave(degrees, output_size=some.stop - some.start)
            first = end

    def edges_of(self, rows: slice) -> slice:
        """The edges of a range of vertices."""
        return slice(int(self.offsets[rows.start]), int(self.offsets[rows.stop]))

    def sum_onto(self, to: Tensor, rows: slice, weight: Tensor | None, h: Tensor, onto: bool) -> None:
        """to[i] (+)= sum over the edges of vertex rows[i] of weight x h[other end]."""
        edges = self.edges_of(rows)
        part = Lists(self.indptr[rows.start : rows.stop + 1] - edges.start, self.other[edges])
        operations_on(h.device).sum_rows(part, None if weight is None else weight[edges], h, to, False, onto)

    def products(self, g: Tensor, h: Tensor) -> Tensor:
        """<g[vertex], h[other end]> for each edge: the gradient of what edges count for."""
        return operations_on(g.device).edge_dot(Lists(self.indptr, self.other), g, h)


@dataclass(frozen=True)
class Round:
    """What is computed in a round, and which rows must have come for it. Ranges and rows are by owner."""

    ranges: list[slice]
    needs: list[RowSelection]  # rows that no earlier round needed
    own_range: slice  # this worker's range among its own rows
    own_needs: RowSelection  # and those of its own rows that are needed


@dataclass(frozen=True)
class Rounds:
    """All rounds of one direction."""

    lists: EdgeLists
    bounds: tuple[int, ...]  # worker p owns vertices bounds[p] to bounds[p + 1]
    rank: int
    count: int

    @cached_property
    def all(self) -> list[Round]:
        """The rounds, in order."""
        cuts = [_cut(self.lists.offsets, first, end, self.count) for first, end in self._parts]
        if self.count == 1:
            whole = [slice(first, end) for first, end in self._parts]
            own = slice(0, whole[self.rank].stop - whole[self.rank].start)
            return [Round(whole, list(whole), own, own)]
        ranges = [[slice(cut[number], cut[number + 1]) for cut in cuts] for number in range(self.count)]
        first = _first_needed(self.lists, ranges)
        needs = [self._by_round(first, *part) for part in self._parts]
        start = self.bounds[self.rank]
        return [
            Round(
                of_round,
                [of_owner[number] for of_owner in needs],
                slice(of_round[self.rank].start - start, of_round[self.rank].stop - start),
                needs[self.rank][number] - start,
            )
            for number, of_round in enumerate(ranges)
        ]

    @property
    def _parts(self) -> list[tuple[int, int]]:
        return list(zip(self.bounds, self.bounds[1:], strict=False))

    def _by_round(self, first: Tensor, start: int, end: int) -> Sequence[Tensor]:
        """An owner's vertices by the round that needs them first."""
        of_owner = first[start:end]
        order = torch.argsort(of_owner, stable=True) + start
        return order.split(torch.bincount(of_owner, minlength=self.count).tolist())


def _cut(offsets: Tensor, first: int, end: int, count: int) -> list[int]:
    """Bounds of ranges of about equal edges and vertices."""
    work = offsets[first : end + 1] + torch.arange(end - first + 1)
    targets = work[0] + (work[-1] - work[0]) * torch.arange(1, count) // count
    inner = first + torch.searchsorted(work, targets)
    return [first, *inner.tolist(), end]


def _first_needed(lists: EdgeLists, ranges: list[list[slice]]) -> Tensor:
    """The first round that each vertex's row is needed in: for itself, or for a neighbour."""
    first = torch.zeros(lists.num_vertices, dtype=torch.int32, device=lists.indptr.device)
    for number in reversed(range(len(ranges))):
        for rows in ranges[number]:
            for _, some in lists.some(rows):
                first[some] = number
            first[rows] = number
    return first
