"""Attention on slices of columns: GAT and GATv2 over the whole graph, each worker on its columns of all rows.

A head that lies in one worker's slice whole is that worker's alone, logits and all. Of a head that slices cut, everyone who
has some of it needs all logits: GAT's hang on two numbers a row and head, which go to all; GATv2's are sums over columns,
which are summed over the workers, a number an edge. Either way each worker then makes the soft-max for itself, and what it
finds for the logits' gradient is its columns' part: the parts are summed by the exchange's own backward.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import SliceLayout, to_columns, to_owners
from weft.nn import functional
from weft.nn.call import Call, drops, edge_mask
from weft.nn.crossing import Summed
from weft.nn.slices import in_ranges
from weft.sampling import Block, Piece

_NUMBERS = 1 << 22  # of joined rows that GATv2's logits hold at a time


@dataclass(frozen=True)
class Run:
    """Neighbouring heads in a worker's slice: whole ones, or a part of one."""

    first: int
    heads: int
    before: int  # heads in the slice
    columns: slice  # of the worker's slice
    whole: bool

    @property
    def all(self) -> slice:
        """The heads, among all."""
        return slice(self.first, self.first + self.heads)

    @property
    def here(self) -> slice:
        """The heads, among those of the slice."""
        return slice(self.before, self.before + self.heads)

    def of(self, rows: Tensor) -> Tensor:
        """Its columns of rows of slices, by head."""
        some = rows if self.columns == slice(0, rows.shape[1]) else rows[:, self.columns]
        return some.reshape(len(rows), self.heads, -1) if len(rows) else some.reshape(0, self.heads, 1)


def gat(call: Call, x: Tensor) -> Tensor:
    """GAT's attention over own rows x [own, heads, columns], into own rows."""
    conv: Any = call.conv
    spread, columns = _sliced(call, x)
    runs, cut = runs_of(spread, conv.out_channels), _cut_heads(spread, conv.out_channels)
    vectors = (conv.att_src.squeeze(0), conv.att_dst.squeeze(0))
    terms = columns[:, :0]
    if cut:
        own = torch.cat([(x[:, cut] * att[cut]).sum(-1) for att in vectors], 1)
        assert call.layer.slices is not None
        terms = call.layer.slices.to_all.pull(own, call.comm)
    sides = []
    for att, of_cut in zip(vectors, terms.split(len(cut) or 1, 1) if cut else (terms, terms), strict=True):
        parts = [
            (run.of(columns) * att[run.all]).sum(-1) if run.whole else of_cut[:, cut.index(run.first), None]
            for run in runs
        ]
        sides.append(torch.cat([terms[:, :0], *parts], 1))

    def attend(piece: Piece, run: Run, keep: Tensor | None, columns: Tensor, *others: Tensor) -> Tensor:
        a_src, a_dst = (side[:, run.here].contiguous() for side in others[:2])
        logits = (a_src, a_dst[piece.rows])
        return functional.attention_part(piece.block, run.of(columns), logits, conv.negative_slope, keep)[0]

    return attended(call, _block(call), spread, runs, attend, columns, *sides, terms).view_as(x)


def gatv2(call: Call, x: Tensor, to: Tensor) -> Tensor:
    """GATv2's attention over own rows x of sources and `to` of destinations [own, heads, columns], into own rows."""
    conv: Any = call.conv
    width, slope, att = conv.out_channels, conv.negative_slope, conv.att.squeeze(0)
    spread, columns = _sliced(call, x)
    to_rows = columns if to is x else _sliced(call, to)[1]
    runs, cut = runs_of(spread, width), _cut_heads(spread, width)
    logits = columns[:0]
    if cut:
        block, parts = _block(call), []
        for head in cut:  # of a head that is not here, no columns
            here, within = _part(spread, head, width)
            rows, joined = (of[:, here].unsqueeze(1) for of in (columns, to_rows))
            parts.append(_JoinedLogits.apply(block, rows, joined, att[head : head + 1, within], slope))
        logits = Summed.apply(torch.cat(parts, 1), call.comm)

    def attend(piece: Piece, run: Run, keep: Tensor | None, columns: Tensor, *others: Tensor) -> Tensor:
        to_rows, logits, att = others
        if run.whole:
            return functional.gatv2(
                piece.block, run.of(columns), run.of(to_rows[piece.rows]), att[run.all], slope, keep
            )
        of_head = logits[piece.edges, cut.index(run.first), None]
        return functional.attention_part(piece.block, run.of(columns), of_head, 1.0, keep)[0]

    return attended(call, _block(call), spread, runs, attend, columns, to_rows, logits, att).view_as(x)


def _sliced(call: Call, x: Tensor) -> tuple[SliceLayout, Tensor]:
    assert call.layer.slices is not None
    rows = x.flatten(1)
    spread = call.layer.slices.spread(rows.shape[1])
    return spread, to_columns(rows, spread, call.comm)


def _block(call: Call) -> Block:
    """The edges that attention goes over."""
    conv: Any = call.conv
    return call.layer.block.with_self_loops() if conv.add_self_loops else call.layer.block


def _places(call: Call) -> Tensor | None:
    """Where some edges are dropped: the places of all in their lists."""
    if not drops(call):
        return None
    looped = getattr(call.conv, "add_self_loops", False)
    return call.layer.block.looped_places() if looped else call.layer.block.places()


def attended(
    call: Call, block: Block, spread: SliceLayout, runs: list[Run], attend: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    """attend(piece, run, dropout, *tensors) of every run of heads, range by range of the destinations; sent to the owners.

    What a range keeps an edge is made again backward, where there are several.
    """
    conv: Any = call.conv
    slices, places = call.layer.slices, _places(call)
    assert slices is not None
    key = 0 if places is None else call.run.next_dropout()
    padding = spread.width - spread.columns(spread.rank)

    def merge(piece: Piece, *tensors: Tensor) -> Tensor:
        keep = None
        if places is not None:
            dst, at, keys = piece.block.dst(), places[piece.edges], slices.keys[piece.rows]
            keep = edge_mask(call, key, dst, at, conv.heads, conv.dropout, keys)
        parts = [attend(piece, run, keep if keep is None else keep[:, run.all], *tensors).flatten(1) for run in runs]
        parts += [tensors[0].new_zeros(piece.block.num_dst, padding)] if padding else []
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    return to_owners(in_ranges(block.pieces(slices.chunks), merge, *tensors), spread, call.comm)


def runs_of(spread: SliceLayout, width: int) -> list[Run]:
    """The heads of `width` columns in this worker's slice: parts of heads by themselves, whole ones together."""
    first, end = spread.span(spread.rank)
    runs: list[Run] = []
    at = first
    while at < end:
        head, inside = divmod(at, width)
        heads = 1 if inside else max((end - at) // width, 1)
        stop = min(at - inside + heads * width, end)
        before = sum(run.heads for run in runs)
        runs.append(Run(head, heads, before, slice(at - first, stop - first), stop - at == heads * width))
        at = stop
    return runs


def _part(spread: SliceLayout, head: int, width: int) -> tuple[slice, slice]:
    """A head's columns in this worker's slice: where they are there, and which of the head's they are."""
    first, end = spread.span(spread.rank)
    start = min(max(first, head * width), end)
    stop = max(min(end, (head + 1) * width), start)
    return slice(start - first, stop - first), slice(start - head * width, stop - head * width)


def _cut_heads(spread: SliceLayout, width: int) -> list[int]:
    """The heads that several workers have columns of."""
    ends = {spread.span(worker)[1] for worker in range(spread.size)}
    return sorted({end // width for end in ends if end % width})


class _JoinedLogits(torch.autograd.Function):
    """Forward: <att, leaky(xl[source] + xr[destination])> of some columns, a number an edge; joined rows don't stay."""

    @staticmethod
    def forward(ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float) -> Tensor:
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att)
        out = xl.new_empty(block.num_edges, xl.shape[1])
        for edges, src, dst in _some_edges(block, xl):
            out[edges] = (F.leaky_relu(xl[src] + xr[dst], slope) * att).sum(-1)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att = ctx.saved_tensors
        gl, gr, g_att = torch.zeros_like(xl), torch.zeros_like(xr), torch.zeros_like(att)
        for edges, src, dst in _some_edges(ctx.block, xl):
            joined, of_edges = xl[src] + xr[dst], g[edges, :, None]
            g_att += (of_edges * F.leaky_relu(joined, ctx.slope)).sum(0)
            steep = att * of_edges
            bent = torch.where(joined > 0, steep, steep * ctx.slope)
            gl.index_add_(0, src, bent)
            gr.index_add_(0, dst, bent)
        return None, gl, gr, g_att, None


def _some_edges(block: Block, x: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some edges after the other, with their sources and destinations."""
    many, dst = max(_NUMBERS // max(x[:1].numel(), 1), 1), block.dst()
    for first in range(0, block.num_edges, many):
        some = slice(first, first + many)
        yield some, block.src[some].long(), dst[some].long()
