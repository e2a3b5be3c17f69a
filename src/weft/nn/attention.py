"""Attention: rows summed by a soft-max over a destination's edges, wherever these are.

A part is its rows, summed by the soft-max of its own edges, and the log of its sum of exponentials; two are joined by online
soft-max. On slices of columns a head that lies in one worker's slice whole is that worker's alone, logits and all. Of a head
that slices cut, everyone who has some of it needs all logits; each worker then makes the soft-max for itself, and what it
finds for the logits' gradient is its columns' part: the parts are summed by the exchange's own backward.

On blocks it is made by the kernels of the tensors' device. Forward passes go by destination; gradients of sources go over
the transposed block, so that each row is written by one.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import MessagePassing

from weft.exchange import Communicator, SliceLayout, to_owners
from weft.nn.convolution import Call, Convolution, Sliced, dense
from weft.nn.dropout import edge_mask
from weft.operations import JoinedTerms, Lists, Terms, Turned, operations_on
from weft.placements import ColumnLayer, Edges, Merge, SliceLayer, SplitLayer, in_ranges
from weft.sampling import Block, BlockRange


@dataclass(frozen=True)
class AttentionRun:
    """Neighbouring heads in a worker's slice: whole ones, or a part of one."""

    first: int
    heads: int
    before: int  # heads in the slice
    within: slice  # its columns of the worker's slice
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
        some = rows if self.within == slice(0, rows.shape[1]) else rows[:, self.within]
        return some.reshape(len(rows), self.heads, some.shape[1] // self.heads)


def join_by_softmax(layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
    """Rows [destinations, heads, columns] of parts that were each made by a soft-max, and the logs of its sums."""
    rows, lse = here
    arrived = layer.carried(torch.cat([there[0].flatten(1), there[1]], 1))
    at, heads = layer.home.send, lse.shape[1]
    their_rows, their_lse = arrived[:, :-heads].reshape(-1, *rows.shape[1:]), arrived[:, -heads:]
    top = lse.detach().scatter_reduce(0, at[:, None].expand_as(their_lse), their_lse.detach(), "amax")
    share, their_share = (lse - top).exp(), (their_lse - top[at]).exp()
    whole = share.index_add(0, at, their_share)
    total = (rows * share[:, :, None]).index_add(0, at, their_rows * their_share[:, :, None])
    return total / whole[:, :, None]


class AttentionConvolution(Convolution):
    """What attention convolutions share: rows are mapped, by head, and attended to."""

    slices = 2  # of mapped rows that stay where columns are sliced

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self.heads, self.columns = conv.heads, conv.heads * conv.out_channels
        self.given = conv.heads  # numbers of a destination that edges need

    @classmethod
    def serves(cls, conv: MessagePassing) -> bool:
        """One kind of rows, sums, and no edge features."""
        return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Mapped rows are pulled. For a part's rows and the log of its sum, what edges need goes to where it is made."""
        return 2 * self.columns, 2 * (self.columns + self.heads) + 2 * self.given

    def sliced(self, wide: int, out: int) -> Sliced:
        return Sliced(self.columns, self.slices, self.heads)

    def finished(self, call: Call, out: Tensor) -> Tensor:
        """Heads joined or averaged, the residual and the bias added."""
        conv = self.conv
        out = out.flatten(1) if conv.concat else out.mean(1)
        if getattr(conv, "res", None) is not None:
            out = dense(conv.res, call.own, out)
        return out if conv.bias is None else out + conv.bias


class Attention(Merge):
    """What attention convolutions share: self-loops, dropout of edges, and the joins. One for each call."""

    def __init__(self, call: Call) -> None:
        self.call, self.conv = call, call.conv
        self._loops = bool(getattr(call.conv, "add_self_loops", False))
        self._dropout = call.edge_dropout()

    def __str__(self) -> str:
        return str(self.conv)

    def edges(self, edges: Edges) -> tuple[Block, Tensor | None]:
        """The edges that attention goes over, with self-loops if the convolution adds them; and their dropout."""
        block = edges.looped(self._dropout is not None) if self._loops else edges.block
        return block, self.call.kept(self._dropout, block, edges)

    def gone_over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        return edges.extended(sources, own) if self._loops else sources

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        return join_by_softmax(layer, here, there)

    def attended(
        self, layer: SliceLayer, block: Block, spread: SliceLayout, attend: Callable[..., Tensor], *tensors: Tensor
    ) -> Tensor:
        """attend(piece, run, dropout, *tensors) of every run of heads, range by range of the destinations; to the owners.

        What a range keeps an edge is made again backward, where there are several.
        """
        conv = self.conv
        key, span, runs = self._dropout, layer.span, runs_of(spread, conv.out_channels)
        places = None if key is None else self.edges_of(layer).places()
        padding = spread.width - spread.columns(spread.rank)

        def merge(piece: BlockRange, *tensors: Tensor) -> Tensor:
            keep = None
            if key is not None and places is not None:
                dst, at, keys = piece.block.dst(), places[piece.edges], span.keys[piece.rows]
                keep = edge_mask(keys, key, dst, at, conv.heads, conv.dropout, self.call.x.dtype)
            parts = [
                attend(piece, run, None if keep is None else keep[:, run.all], *tensors).flatten(1) for run in runs
            ]
            parts += [tensors[0].new_zeros(piece.block.num_dst, padding)] if padding else []
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

        return to_owners(in_ranges(block.ranges(span.chunks), merge, *tensors), spread, layer.comm)

    def edges_of(self, layer: SliceLayer) -> Block:
        """The whole graph's edges that attention goes over."""
        return layer.here.looped(self._dropout is not None) if self._loops else layer.here.block


class LinearAttention(Attention):
    """Attention whose logits are linear in the columns of rows, so that shares of them add up over the workers."""

    @abstractmethod
    def terms(self, x: Tensor) -> Tensor:
        """What rows add to logits as sources, and behind it as destinations, [rows, 2 x numbers]."""

    @abstractmethod
    def of_edges(self, edges: Edges, x: Tensor, of_sources: Tensor, of_destinations: Tensor) -> Tensor:
        """Rows x summed over whole lists, by such terms."""

    def shares(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        """Terms are summed over the workers; then each sums its shares."""
        of_sources, of_destinations = Summed.apply(self.terms(x), layer.comm).chunk(2, 1)
        here, there = (
            self.of_edges(edges, x, of_sources, of_destinations[edges.own_at]) for edges in (layer.here, layer.there)
        )
        return layer.added_up(here.flatten(1), there.flatten(1)).view_as(here)


class Summed(torch.autograd.Function):
    """Forward: the sum over all workers, for each of them. Backward: the same, of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return comm.sum(x.contiguous().clone(), "exchange")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.comm.sum(g.contiguous().clone(), "exchange"), None


def runs_of(spread: SliceLayout, width: int) -> list[AttentionRun]:
    """The heads of `width` columns in this worker's slice: parts of heads by themselves, whole ones together."""
    first, end = spread.span(spread.rank)
    runs: list[AttentionRun] = []
    at = first
    while at < end:
        head, inside = divmod(at, width)
        heads = 1 if inside else max((end - at) // width, 1)
        stop = min(at - inside + heads * width, end)
        before = sum(run.heads for run in runs)
        runs.append(AttentionRun(head, heads, before, slice(at - first, stop - first), stop - at == heads * width))
        at = stop
    return runs


def part_of_head(spread: SliceLayout, head: int, width: int) -> tuple[slice, slice]:
    """A head's columns in this worker's slice: where they are there, and which of the head's they are."""
    first, end = spread.span(spread.rank)
    start = min(max(first, head * width), end)
    stop = max(min(end, (head + 1) * width), start)
    return slice(start - first, stop - first), slice(start - head * width, stop - head * width)


def cut_heads(spread: SliceLayout, width: int) -> list[int]:
    """The heads that several workers have columns of."""
    ends = {spread.span(worker)[1] for worker in range(spread.size)}
    return sorted({end // width for end in ends if end % width})


def edge_softmax_aggregate(block: Block, logits: Tensor, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Rows x [num_src, heads, columns], summed by the soft-max of logits [edges, heads] over a destination's edges."""
    return attention_part(block, x, logits, 1.0, keep)[0]


def attention_part(
    block: Block,
    x: Tensor,
    terms: tuple[Tensor, Tensor] | Tensor,
    slope: float = 1.0,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over parts of lists: rows summed by the part's own soft-max, and the log of its sum of exponentials.

    Logits are leaky(terms[0][source] + terms[1][destination]), or given for each edge. The log is -1e30 without edges.
    """
    of_edges = isinstance(terms, Tensor)
    a_src, a_dst = (None, None) if of_edges else terms
    return _Attention.apply(block, x, a_src, a_dst, terms if of_edges else None, keep, slope)


def gat(block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GAT's attention: logits leaky(<att_src, x[source]> + <att_dst, x[destination]>) per head, then times `keep`."""
    return _Gat.apply(block, x, att_src, att_dst, keep, slope)


def gatv2(block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GATv2's attention: logits <att, leaky(xl[source] + xr[destination])> per head."""
    return _AttentionV2.apply(block, xl, xr, att, keep, slope)


def _lists(block: Block) -> Lists:
    return Lists(block.indptr, block.src)


def _both(block: Block) -> tuple[Lists, Turned]:
    return _lists(block), block.transposed()


class _Attention(torch.autograd.Function):
    """Forward: weighted sum by soft-max, and the log of its sum of exponentials. Backward: by destination, by source."""

    @staticmethod
    def forward(
        ctx: Any,
        block: Block,
        x: Tensor,
        a_src: Tensor | None,
        a_dst: Tensor | None,
        edges: Tensor | None,
        keep: Tensor | None,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        out, lse, saved = operations_on(x.device).attend(_lists(block), x, Terms(a_src, a_dst, edges, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, a_src, a_dst, edges, keep, *saved)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a_src, a_dst, edges, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), x, Terms(a_src, a_dst, edges, keep, ctx.slope), tuple(saved))
        gx, g_src, g_dst, g_edges = operations_on(x.device).attend_backward(*given, g, g_lse)
        if edges is not None:
            return None, gx, None, None, g_edges, None, None
        return None, gx, g_src, g_dst, None, None, None


class _Gat(torch.autograd.Function):
    """Forward: each row's part of the logits, then as _Attention. Backward: likewise, and on to the attention vectors."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        device = operations_on(x.device)
        a_src, a_dst = device.head_terms(x, att_src, len(x)), device.head_terms(x, att_dst, block.num_dst)
        out, _, saved = device.attend(_lists(block), x, Terms(a_src, a_dst, None, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, att_src, att_dst, a_src, a_dst, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, att_src, att_dst, a_src, a_dst, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), x, Terms(a_src, a_dst, None, keep, ctx.slope), tuple(saved))
        device = operations_on(x.device)
        gx, g_src, g_dst, _ = device.attend_backward(*given, g, None)
        pairs = ((att_src, g_src), (att_dst, g_dst))
        return None, gx, *(device.head_terms_backward(x, att, part, gx) for att, part in pairs), None, None


class _AttentionV2(torch.autograd.Function):
    """As _Attention, with logits of joined rows."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        out, saved = operations_on(xl.device).attend_v2(_lists(block), JoinedTerms(xl, xr, att, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), JoinedTerms(xl, xr, att, keep, ctx.slope), tuple(saved))
        gradients = operations_on(xl.device).attend_v2_backward(*given, g)
        return None, *gradients, None, None
