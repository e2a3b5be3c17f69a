"""Sums, means and maxima over edges, with their gradients, on one block or wherever a layer's edges are.

Forward passes go by destination; gradients of sources go over the transposed block, so that each row is written by one.
Partial sums travel as sums, a mean is divided once by the true count; a maximum travels as its value, and how many edges
attain it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Communicator, Portion, Route, add_rows, gather_rows
from weft.nn.convolution import REDUCE
from weft.nn.propagate import sum_on_slices
from weft.operations import Lists, Turned, operations_on
from weft.placements import ColumnLayer, Edges, Merge, SliceLayer, SplitLayer
from weft.sampling import Block

_DIGIT = 2048  # up to which float16 has all whole numbers
Weigh = Callable[[Edges], Tensor | None]


def aggregate(block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean or max of the sources' rows [num_src, ...] into [num_dst, ...]; no edges give zero. No weights for max."""
    assert weight is None or reduce != "max"
    rows = x.reshape(len(x), x[:0].flatten(1).shape[1])
    out = _Max.apply(block, rows) if reduce == "max" else _Sum.apply(block, rows, weight, reduce == "mean")[0]
    return out.view(len(out), *x.shape[1:])


def aggregate_with_own(
    block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum"
) -> tuple[Tensor, Tensor]:
    """`aggregate`, and the destinations' own rows: together, for their gradients meet in one tensor without a detour."""
    if reduce == "max" or x.dim() != 2:
        return aggregate(block, x, weight, reduce), x[: block.num_dst]
    return _Sum.apply(block, x, weight, reduce == "mean")


def summed(
    lists: Lists | Turned,
    x: Tensor,
    weight: Tensor | None = None,
    mean: bool = False,
    threads: int = 0,
    onto: Tensor | None = None,
) -> Tensor:
    """Weighted sums (means) of rows by lists, added to `onto` where that is given; without a gradient."""
    out = x.new_empty(len(lists.indptr) - 1, x.shape[1]) if onto is None else onto
    operations_on(x.device).sum_rows(lists, weight, x, out, mean, onto is not None, threads)
    return out


def block_sums(block: Block, x: Tensor, weight: Tensor | None = None, mean: bool = False, threads: int = 0) -> Tensor:
    """Weighted sums (means) of source rows x [num_src, columns] by destination; without a gradient."""
    return summed(Lists(block.indptr, block.src), x, weight, mean, threads)


def merged(block: Block, x: Tensor, reduce: str, weight: Tensor | None = None) -> Tensor:
    """Weighted sum or mean of source rows by destination, by one thread; without a gradient."""
    return block_sums(block, x, weight, reduce == "mean", threads=1)


def block_sums_backward(block: Block, g: Tensor, weight: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
    """The gradient of `block_sums` by its rows: sums of g by source; added to `onto`, where that is given."""
    return summed(block.transposed(), g, weight, onto=onto)


def inverse(degrees: Tensor, like: Tensor) -> Tensor:
    """One over each degree (or what its edges count for together), as a column; one where there are no edges."""
    return torch.where(degrees > 0, degrees, 1).to(like.dtype).reciprocal()[:, None]


def largest(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest source value of each column, and how many edges attain it; without a gradient."""
    return operations_on(x.device).max_rows(Lists(block.indptr, block.src), x)


def largest_backward(block: Block, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    """The sources' gradient: `share` for each edge that attains `best`."""
    return operations_on(x.device).max_rows_backward(block.transposed(), share, best, x)


class Sums(Merge):
    """The sum (mean) of sources' rows, weighted by what `weigh` gives for edges; what they count for as drawn is besides."""

    columnwise = True

    def __init__(self, reduce: str = "sum", weigh: Weigh | None = None) -> None:
        self._mean, self._weigh = reduce == "mean", weigh
        self.key = (reduce,) if weigh is None else None

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (aggregate(edges.block, sources, self._weights(edges, sources), "sum"),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """A mean is divided by all edges of a destination."""
        total = here[0] + layer.summed(there[0])
        return total * inverse(layer.degrees, total) if self._mean else total

    def over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        return self._divided(edges, aggregate(edges.block, sources, self._weights(edges, sources), self._way(edges)))

    def whole_with_own(self, edges: Edges, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Both by one function, for their gradients meet in one tensor without a detour."""
        weight = self._weights(edges, sources)
        total, own = aggregate_with_own(edges.block, sources, weight, self._way(edges))
        return self._divided(edges, total), own

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        """What others wait for is made first and travels while the rest is computed."""
        return self._apply(layer, x)[0]

    def split_with_own(self, layer: SplitLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        total, own = self._apply(layer, x)
        return total, own if layer.owns is None else layer.own(x)

    def shares(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        return layer.added_up(self.whole(layer.here, x), self.whole(layer.there, x))

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """In rounds, so that rows travel while others are summed."""
        rows = x.flatten(1)
        merged = sum_on_slices(layer, rows, self._weights(layer.here, rows))
        merged = merged * inverse(layer.degrees, merged) if self._mean else merged
        return merged.view(-1, *x.shape[1:])

    def ahead(self, edges: Edges, rows: Tensor) -> Tensor:
        weight = None if edges.drawn is None else edges.times(None, rows)
        return self._divided(edges, merged(edges.block, rows, self._way(edges), weight))

    def _apply(self, layer: SplitLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = (self._weights(edges, x) for edges in (layer.here, layer.there))
        return _SplitSum.apply(x, layer, *weights, self._mean)

    def _weights(self, edges: Edges, like: Tensor) -> Tensor | None:
        weight = None if self._weigh is None else self._weigh(edges)
        return weight if edges.drawn is None else edges.times(weight, like)

    def _way(self, edges: Edges) -> str:
        """Where all edges count the same, the kernel's own division serves for a mean."""
        return "mean" if self._mean and edges.drawn is None else "sum"

    def _divided(self, edges: Edges, total: Tensor) -> Tensor:
        if not self._mean or edges.drawn is None:
            return total
        return total * inverse(edges.block.remembered("totals", lambda: edges.totals), total)


class Largest(Merge):
    """The largest of the sources' values; none gives zero. Edges that attain it share its gradient evenly."""

    columnwise = True

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (aggregate(edges.block, sources, None, "max"),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """Parts are joined as they are made (`split`), for ties count over all of them."""
        raise AssertionError("maxima are joined by `split`")

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        return split_max(layer, layer.sources(x), x, layer.here.block, layer.there.block)


def merge_by(aggr: str) -> Merge:
    """The merge of one of PyG's aggregations, without weights."""
    return Largest() if REDUCE[aggr] == "max" else Sums(REDUCE[aggr])


def split_max(layer: SplitLayer, sources: Tensor, x: Tensor, here: Block, there: Block) -> Tensor:
    """The largest of rows of `sources` by the block `here` and of x by the block `there`, whose destinations others hold."""
    return _SplitMax.apply(sources, x, layer, here, there)


class _Sum(torch.autograd.Function):
    """Forward: sum (mean) of weighted source rows by destination, and the destinations' own rows.

    Backward: the same sum over the transposed block, plus the gradient of the own rows.
    """

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, weight: Tensor | None, mean: bool) -> tuple[Tensor, Tensor]:
        ctx.block, ctx.mean = block, mean
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if weight is not None and ctx.needs_input_grad[2] else None, weight)
        out = block_sums(block, x, weight, mean)
        return out, x[: len(out)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        block = ctx.block
        if g is None:
            assert g_own is not None
            g = g_own.new_zeros(g_own.shape)
        g = (g * inverse(block.indptr.diff(), g) if ctx.mean else g).contiguous()
        gx = g_weight = None
        if ctx.needs_input_grad[1]:
            gx = block_sums_backward(block, g, weight)
            if g_own is not None:
                gx[: len(g_own)] += g_own
        if x is not None:
            g_weight = operations_on(g.device).edge_dot(Lists(block.indptr, block.src), g, x)
        return None, gx, g_weight, None


class _Max(torch.autograd.Function):
    """Forward: the largest source value of each column. Backward: edges that attain it share the gradient evenly."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor) -> Tensor:
        out, ties = largest(block, x)
        ctx.block = block
        ctx.save_for_backward(x, out, ties)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, out, ties = ctx.saved_tensors
        return None, largest_backward(ctx.block, g / ties, out, x)


class _SplitSum(torch.autograd.Function):
    """Forward: the sum (mean) over edges here and pushed ones; and the destinations' own rows, where those come first.

    What others wait for is made first and travels while the rest is computed. Pulled rows and pushed sums share a message.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layer: SplitLayer, weight: Tensor | None, push_weight: Tensor | None, mean: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.layer, ctx.weights, ctx.mean = layer, (weight, push_weight), mean
        partial = block_sums(layer.there.block, x, push_weight)
        arrive = _crossing(layer.comm, None if layer.pulls is None else (layer.pulls, x), (layer.home, partial))
        if layer.pulls is None:
            total = block_sums(layer.here.block, x, weight)
            _, add = arrive()
        else:
            pulled, add = arrive()
            total = block_sums(layer.here.block, torch.cat([x, *pulled]), weight)
        add(total)
        if mean:
            total *= inverse(layer.degrees, total)
        return total, x[: layer.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        layer, (weight, push_weight) = ctx.layer, ctx.weights
        comm = layer.comm.of_gradients
        if g is None:
            assert g_own is not None
            g = torch.zeros_like(g_own)
        g = (g * inverse(layer.degrees, g) if ctx.mean else g).contiguous()
        if layer.pulls is None:
            arrive = _crossing(comm, (layer.home, g), None)
            gx = block_sums_backward(layer.here.block, g, weight)
            back, _ = arrive()
        else:
            gx, pulled = block_sums_backward(layer.here.block, g, weight).tensor_split([layer.pulls.num_here])
            back, add = _crossing(comm, (layer.home, g), (layer.pulls, pulled))()
            add(gx)
        block_sums_backward(layer.there.block, torch.cat(back), push_weight, onto=gx)
        if g_own is not None:
            gx[: layer.num_dst] += g_own
        return gx, None, None, None, None


def _crossing(
    comm: Communicator, copied: tuple[Route, Tensor] | None, added: tuple[Route, Tensor] | None
) -> Callable[[], tuple[tuple[Tensor, ...], Callable[[Tensor], None]]]:
    """In one message: the rows here that a route copies, and the rows there that a route brings back.

    The result waits: for the copies, by sender, and for what adds the others to the rows that they belong to.
    """
    parts: list[Portion] = []
    if added is not None:
        parts.append((added[1], added[0].receive_counts, added[0].send_counts))
    if copied is not None:
        route, x = copied
        parts.append((gather_rows(x, route.send), route.send_counts, route.receive_counts))
    wait = comm.together(parts, "exchange")

    def arrive() -> tuple[tuple[Tensor, ...], Callable[[Tensor], None]]:
        back, *copies = wait() if added is not None else [(), *wait()]

        def add(total: Tensor) -> None:
            places = () if added is None else added[0].send.split(added[0].send_counts)
            for rows, at in zip(back, places, strict=True):
                add_rows(total, at, rows)

        return copies[0] if copies else (), add

    return arrive


def _carried(layer: SplitLayer, best: Tensor, ties: Tensor) -> tuple[Tensor, Tensor]:
    """Partial maxima, and how many edges attain each: where rows are rounded, counts go as two digits, which float16 has."""
    if not layer.comm.half:
        theirs, their_ties = layer.carried(torch.cat([best, ties], 1)).chunk(2, 1)
        return theirs, their_ties
    theirs, high, low = layer.carried(torch.cat([best, ties // _DIGIT, ties % _DIGIT], 1)).chunk(3, 1)
    return theirs, high * _DIGIT + low


class _SplitMax(torch.autograd.Function):
    """Forward: the largest of what is here and what is pushed. Backward: edges that attain it share evenly, wherever."""

    @staticmethod
    def forward(ctx: Any, sources: Tensor, x: Tensor, layer: SplitLayer, here: Block, there: Block) -> Tensor:
        best, ties = largest(here, sources)
        best[here.indptr.diff() == 0] = -torch.inf
        partial = largest(there, x)
        theirs, their_ties = _carried(layer, *partial)
        at = layer.home.send
        highest = best.scatter_reduce(0, at[:, None].expand_as(theirs), theirs, "amax")
        ties = ties * (best == highest)
        attained = theirs == highest[at]
        ties = ties.index_add(0, at, their_ties * attained)
        highest[highest == -torch.inf] = 0
        ctx.layer, ctx.blocks = layer, (here, there)
        ctx.save_for_backward(sources, x, highest, ties, partial[0], attained)
        return highest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sources, x, best, ties, best_there, attained = ctx.saved_tensors
        (here, there), home, comm = ctx.blocks, ctx.layer.home, ctx.layer.comm.of_gradients
        share = g / ties.clamp(min=1)
        share_there = home.apart.pull(share[home.send] * attained, comm)  # of what attains nothing, nothing
        of_sources = largest_backward(here, share, best, sources)
        return of_sources, largest_backward(there, share_there, best_there, x), None, None, None, None
