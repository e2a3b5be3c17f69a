"""Rows of owners, mixed over the whole graph again and again on slices of their columns, and back to their owners.

    rows by owner -> slices of all rows -> mixed -> ... -> mixed -> rows by owner

Nothing travels but at both ends, whatever the number of mixings. The first one begins with the rows that have come, and what
the last one makes is sent while it goes on, round by round. Backward all of it is done transposed: by the turned lists, from
the last mixing to the first. Where memory is short arrays are in files, and of all that is mixed only one range's part is in
memory at a time.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Background, SliceLayout, gather_rows, send_rows, send_slices
from weft.placements import EdgeLists, New, Rounds, SliceLayer
from weft.scratch import scratch_array

_MIXES = 4  # that are remembered: a model weighs its edges in one way, seldom in two
_EDGES = 1 << 18  # whose weights are turned around at a time
_TYPES = {torch.float32: "f4", torch.float64: "f8", torch.int32: "i4", torch.int64: "i8"}
_FEW = 16  # edges are a range's, if the graph has as many times more vertices: then it is not looked through

Files = Callable[[tuple[int, ...], torch.dtype], Tensor]  # makes arrays
# Weights and own coefficients of a mixing, in the order of the lists that it goes over.
AttentionPair = tuple[Tensor | None, Tensor | None]


@dataclass(eq=False)
class Mix:
    """One aggregation: out = loop x row + sum over edges of weight x neighbour's row."""

    weight: Tensor | None  # [edges]; None: 1
    loops: Tensor | None  # [vertices or 1, 1]; None: 0
    like: "Mix | None" = None  # another one with the same weights
    _turned: Tensor | None = field(default=None, repr=False)

    def turned(self, turned: EdgeLists, new: New = torch.empty) -> Tensor | None:
        """The weights by the edges' other end."""
        if self.like is not None:
            return self.like.turned(turned, new)
        if self.weight is not None and self._turned is None:
            assert turned.edge is not None
            self._turned = room_like(self.weight, new)
            for first in range(0, len(self.weight), _EDGES):
                some = slice(first, first + _EDGES)
                self._turned[some] = self.weight.detach()[turned.edge[some].long()]
        return self._turned


def room_like(x: Tensor, new: New, length: int | None = None) -> Tensor:
    """Room for as many numbers as x has, or some other number of them."""
    return new((len(x) if length is None else length,), dtype=x.dtype, **({} if x.is_cpu else {"device": x.device}))


def mix(lists: EdgeLists, rows: slice, weight: Tensor | None, loops: Tensor | None, h: Tensor, out: Tensor) -> None:
    """out[v] = loops[v] h[v] + sum over v's edges of weight x h[other end], for a range of v; `loops` [vertices or 1, 1]."""
    to = out[rows]
    if loops is not None:
        torch.mul(h[rows], loops if len(loops) == 1 else loops[rows], out=to)
    lists.sum_onto(to, rows, weight, h, loops is not None)


class Course:
    """The ways there and back, and the room for slices, which is used again in every epoch."""

    def __init__(
        self, there: Rounds, back: Callable[[], Rounds], background: Background, files: Files | None = None
    ) -> None:
        """`files`: where slices are, and what there is an edge of; None: in memory."""
        self.there, self._make_back, self.background, self.files = there, back, background, files
        self._back: Rounds | None = None
        self._spreads: dict[int, SliceLayout] = {}
        self._rooms: dict[tuple[object, ...], Tensor] = {}  # for slices of all widths
        self._last: dict[tuple[object, ...], SliceLayout] = {}  # which slices were in it last
        self._loaded: dict[int, Loaded] = {}
        self.mixes: list[Mix] = []  # that are remembered

    @property
    def back(self) -> Rounds:
        """The way back: over the edges turned around."""
        if self._back is None:
            self._back = self._make_back()
        return self._back

    def spread(self, total: int) -> SliceLayout:
        """Whose are which of so many columns."""
        if total not in self._spreads:
            bounds = self.there.bounds
            self._spreads[total] = SliceLayout(self.there.rank, len(bounds) - 1, total, bounds)
        return self._spreads[total]

    def room(self, number: int, like: Tensor, spread: SliceLayout) -> Tensor:
        """Room for a slice of all rows, the same for all widths; padding is zero, and stays so while slices are alike."""
        key, size = (number, like.dtype, like.device), spread.num_rows * spread.width
        if key not in self._rooms or len(self._rooms[key]) < size:
            self._rooms.pop(key, None)  # before there is another
            self._rooms[key], self._last[key] = self.fresh(like, spread).view(-1), spread
        room = self._rooms[key][:size].view(spread.num_rows, spread.width)
        if self._last[key] is not spread:
            room[:, spread.columns(spread.rank) :], self._last[key] = 0, spread
        return room

    def leave(self) -> None:
        """Give up the room for slices."""
        self._rooms.clear()

    def fresh(self, like: Tensor, spread: SliceLayout) -> Tensor:
        """Room that is unused."""
        shape = (spread.num_rows, spread.width)
        return like.new_zeros(shape) if self.files is None else self.files(shape, like.dtype)

    def mix_range(self, rounds: Rounds, rows: slice, pair: AttentionPair, h: Tensor, to: Tensor) -> None:
        """One range of one round."""
        if self.files is None:
            mix(rounds.lists, rows, *pair, h, to)
            return
        which = id(rounds)
        if which not in self._loaded:
            self._loaded[which] = Loaded(rounds, self.files)
        self._loaded[which].mix(rows, *pair, h, to)


def propagate(x: Tensor, course: Course, mixes: list[Mix]) -> Tensor:
    """This worker's rows x [own rows, columns], after all mixings. All workers call it, and go backward, together."""
    flat = [part for mix in mixes for part in (mix.weight, mix.loops)]
    return _Propagate.apply(x, course, mixes, *flat)


def sum_on_slices(layer: SliceLayer, x: Tensor, weight: Tensor | None) -> Tensor:
    """Own rows x, summed over the whole graph's edges by weights; the same weights are turned around once."""
    course = _course(layer)
    found = next((mix for mix in course.mixes if mix.weight is weight), None)
    if found is None:
        found = Mix(weight, None)
        course.mixes = [*course.mixes[-_MIXES + 1 :], found]
    out = propagate(x, course, [found])
    if layer.inputs.making:  # of other epochs' slices, which may be much narrower, there are none yet
        course.leave()
    return out


def _course(layer: SliceLayer) -> Course:
    """The way that sums go; made once for all layers."""
    span, block = layer.span, layer.here.block
    background = span.background or Background(layer.comm)

    def rounds(lists: EdgeLists) -> Rounds:
        return Rounds(lists, span.bounds, span.rank, span.rounds)

    def make() -> Course:
        there = rounds(EdgeLists(block.indptr, block.src))
        return Course(there, lambda: rounds(EdgeLists(*block.transposed())), background)

    course = block.remembered("course", make)
    course.background = background
    return course


class _Propagate(torch.autograd.Function):
    """Forward: the mixings in order. Backward: transposed, the last one first.

    Where anything of them is learned, its gradient is made of the slices that went into a mixing, and the gradients of those
    that came out: this worker's columns' part of it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, course: Course, mixes: list[Mix], *flat: Tensor | None) -> Tensor:
        ctx.course, ctx.mixes, ctx.flat = course, mixes, flat
        learned = any(ctx.needs_input_grad[3:])
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        out, ctx.entered = _run(x, course, course.there, pairs, learned, course.background)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        course, mixes, flat = ctx.course, ctx.mixes, ctx.flat
        back, loops = course.back, flat[1::2]
        new = course.files or torch.empty
        pairs = [(mix.turned(back.lists, new), of_rows) for mix, of_rows in zip(mixes, loops, strict=True)]
        gx, came = _run(g, course, back, pairs[::-1], bool(ctx.entered), course.background.of_gradients)
        gradients: list[Tensor | None] = [None] * len(flat)
        for number, (h, g_out) in enumerate(zip(ctx.entered, came[::-1], strict=True)):
            if ctx.needs_input_grad[3 + 2 * number]:
                gradients[2 * number] = course.there.lists.products(g_out, h)
            if ctx.needs_input_grad[4 + 2 * number]:
                of_rows = (g_out * h).sum(1, keepdim=True)
                gradients[2 * number + 1] = of_rows.sum_to_size(loops[number].shape)
        return gx, None, None, *gradients


def _run(
    x: Tensor, course: Course, rounds: Rounds, pairs: list[AttentionPair], keep: bool, background: Background
) -> tuple[Tensor, list[Tensor]]:
    """Rows after all mixings; and, to `keep`, the slices that each of them took in."""
    spread, kept = course.spread(x.shape[1]), list[Tensor]()

    def room(number: int) -> Tensor:
        return course.fresh(x, spread) if keep else course.room(number % 2, x, spread)

    h, out = room(0), x.new_empty(x.shape)
    coming = [background(send_rows, x, one.own_needs, h, one.needs, spread) for one in rounds.all]
    going = []
    for number, pair in enumerate(pairs, 1):
        to = room(number)
        for arrived, one in zip(coming, rounds.all, strict=True):
            _wait(arrived, background)
            for rows in one.ranges:
                course.mix_range(rounds, rows, pair, h, to)
            if number == len(pairs):
                going.append(background(send_slices, to, one.ranges, out, one.own_range, spread))
        kept += [h] if keep else []
        h = to
    for gone in going:
        _wait(gone, background)
    return out, kept


def _wait(exchange: "Future[None]", background: Background) -> None:
    with background.meter.stage("wait"):
        exchange.result()


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
