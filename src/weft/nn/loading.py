"""Where memory is short: arrays in files, and of all that is mixed only one range's part in memory at a time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from weft.exchange import gather_rows
from weft.placements import EdgeLists, Rounds
from weft.scratch import scratch_array

_TYPES = {torch.float32: "f4", torch.float64: "f8", torch.int32: "i4", torch.int64: "i8"}
_FEW = 16  # edges are a range's, if the graph has as many times more vertices: then it is not looked through
Files = Callable[[tuple[int, ...], torch.dtype], Tensor]  # makes arrays


def zeros_in_file(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An array of zeros that is mapped from a temporary file."""
    if not np.prod(shape):
        return torch.zeros(shape, dtype=dtype)
    return torch.from_numpy(scratch_array(tuple(shape), _TYPES[dtype]))


class Loaded:
    """A direction's ranges, each with the rows that its edges come from: loaded for it, mixed, and written back."""

    def __init__(self, rounds: Rounds, files: Files) -> None:
        lists = rounds.lists
        self._indptr, self._needs = lists.indptr, dict[int, Tensor]()
        self._local = files(lists.other.shape, torch.int32)  # edges' other ends, as places among their range's rows
        place = torch.empty(lists.num_vertices, dtype=torch.int32)
        for one in rounds.all:
            for rows in one.ranges:
                if rows.start < rows.stop:
                    self._needs[rows.start] = self._number(lists, rows, place, files)

    def mix(self, rows: slice, weight: Tensor | None, loops: Tensor | None, h: Tensor, to: Tensor) -> None:
        """As `mix`, of one of the rounds' ranges."""
        if rows.start == rows.stop:
            return
        indptr, edges = _within(self._indptr, rows)
        near = EdgeLists(indptr, self._local[edges].clone())
        loaded = None if weight is None else weight[edges].clone()
        out = h.new_empty(rows.stop - rows.start, h.shape[1])
        if loops is not None:
            torch.mul(h[rows], loops if len(loops) == 1 else loops[rows], out=out)
        needed = gather_rows(h, self._needs[rows.start])
        near.sum_onto(out, slice(0, len(out)), loaded, needed, loops is not None)
        to[rows] = out

    def _number(self, lists: EdgeLists, rows: slice, place: Tensor, files: Files) -> Tensor:
        """The rows that a range needs; where its edges find them is noted."""
        ids = _needed(lists, rows)
        place[ids] = torch.arange(len(ids), dtype=torch.int32)
        for edges, other in lists.some(rows):
            self._local[edges] = place[other]
        needs = files(ids.shape, torch.int64)
        needs.copy_(ids)
        return needs


def resident(rounds: Rounds, width: int, number: int) -> int:
    """The most bytes that a range needs in memory: its rows and those that it needs, its offsets, edges and weights."""
    lists, most = rounds.lists, 0
    for one in rounds.all:
        for rows in one.ranges:
            indptr, edges = _within(lists.indptr, rows)
            held = number * (len(_needed(lists, rows)) + rows.stop - rows.start) * width
            most = max(most, held + indptr.nbytes + (edges.stop - edges.start) * (4 + number))
    return most


def _needed(lists: EdgeLists, rows: slice) -> Tensor:
    """The rows at the other ends of a range's edges, rising."""
    edges = lists.edges_of(rows)
    if _FEW * (edges.stop - edges.start) < lists.num_vertices:
        return lists.other[edges].unique().long()
    found = torch.zeros(lists.num_vertices, dtype=torch.bool)
    for _, other in lists.some(rows):
        found[other] = True
    return found.nonzero().flatten()


def _within(indptr: Tensor, rows: slice) -> tuple[Tensor, slice]:
    """A range's offsets, from its own first edge on; and its edges."""
    part = indptr[rows.start : rows.stop + 1]
    return part - part[0], slice(int(part[0]), int(part[-1]))
