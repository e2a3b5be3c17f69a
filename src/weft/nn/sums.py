"""Sums, means and maxima over edges.

Partial sums travel as sums, a mean is divided once by the true count; a maximum travels as its value, and how many edges
attain it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import add_rows, gather_rows
from weft.nn import functional
from weft.nn.convolution import REDUCE
from weft.nn.propagate import sum_on_slices
from weft.placements import ColumnLayer, Edges, Merge, SliceLayer, SplitLayer
from weft.sampling import Block

Weigh = Callable[[Edges], Tensor | None]


class Sums(Merge):
    """The sum (mean) of sources' rows, weighted by what `weigh` gives for edges; what they count for as drawn is besides."""

    columnwise = True

    def __init__(self, reduce: str = "sum", weigh: Weigh | None = None) -> None:
        self._mean, self._weigh = reduce == "mean", weigh
        self.key = (reduce,) if weigh is None else None

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (functional.aggregate(edges.block, sources, self._weights(edges, sources), "sum"),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """A mean is divided by all edges of a destination."""
        total = here[0] + layer.summed(there[0])
        return total * functional.inverse(layer.degrees, total) if self._mean else total

    def over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        return self._divided(
            edges, functional.aggregate(edges.block, sources, self._weights(edges, sources), self._way(edges))
        )

    def whole_with_own(self, edges: Edges, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Both by one function, for their gradients meet in one tensor without a detour."""
        weight = self._weights(edges, sources)
        total, own = functional.aggregate_with_own(edges.block, sources, weight, self._way(edges))
        return self._divided(edges, total), own

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        """What others wait for is made first and travels while the rest is computed."""
        return self._apply(layer, x)[0]

    def split_with_own(self, layer: SplitLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        total, own = self._apply(layer, x)
        return total, own if layer.own_first else layer.own(x)

    def shares(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        return layer.added_up(self.whole(layer.here, x), self.whole(layer.there, x))

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """In rounds, so that rows travel while others are summed."""
        rows = x.flatten(1)
        merged = sum_on_slices(layer, rows, self._weights(layer.here, rows))
        merged = merged * functional.inverse(layer.degrees, merged) if self._mean else merged
        return merged.view(-1, *x.shape[1:])

    def ahead(self, edges: Edges, rows: Tensor) -> Tensor:
        weight = None if edges.drawn is None else edges.times(None, rows)
        return self._divided(edges, functional.merged(edges.block, rows, self._way(edges), weight))

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
        return total * functional.inverse(edges.block.remembered("totals", lambda: edges.totals), total)


class Largest(Merge):
    """The largest of the sources' values; none gives zero. Edges that attain it share its gradient evenly."""

    columnwise = True

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (functional.aggregate(edges.block, sources, None, "max"),)

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


class _SplitSum(torch.autograd.Function):
    """Forward: the sum (mean) over edges here and pushed ones; and the destinations' own rows, where those come first.

    What others wait for is made first and travels while the rest is computed. Pulled rows and pushed sums share a message.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layer: SplitLayer, weight: Tensor | None, push_weight: Tensor | None, mean: bool
    ) -> tuple[Tensor, Tensor]:
        pulls, home, comm = layer.pulls, layer.home, layer.comm
        ctx.set_materialize_grads(False)
        ctx.layer, ctx.weights, ctx.mean = layer, (weight, push_weight), mean
        parts = [(functional.sums(layer.there.block, x, push_weight), home.receive_counts, home.send_counts)]
        if pulls is not None:
            parts.append((gather_rows(x, pulls.send), pulls.send_counts, pulls.receive_counts))
        wait = comm.together(parts, "exchange")
        if pulls is None:
            total = functional.sums(layer.here.block, x, weight)
            (theirs,) = wait()
        else:
            theirs, pulled = wait()
            total = functional.sums(layer.here.block, torch.cat([x, *pulled]), weight)
        for rows, at in zip(theirs, home.send.split(home.send_counts), strict=True):
            add_rows(total, at, rows)
        if mean:
            total *= functional.inverse(layer.degrees, total)
        return total, x[: layer.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        layer, (weight, push_weight) = ctx.layer, ctx.weights
        pulls, home, comm = layer.pulls, layer.home, layer.comm
        if g is None:
            assert g_own is not None
            g = torch.zeros_like(g_own)
        g = (g * functional.inverse(layer.degrees, g) if ctx.mean else g).contiguous()
        parts = [(gather_rows(g, home.send), home.send_counts, home.receive_counts)]
        if pulls is None:
            wait = comm.together(parts, "exchange")
            gx = functional.sums_backward(layer.here.block, g, weight)
            (back,) = wait()
        else:
            gx, pulled = functional.sums_backward(layer.here.block, g, weight).tensor_split([pulls.num_here])
            back, returned = comm.together([*parts, (pulled, pulls.receive_counts, pulls.send_counts)], "exchange")()
            for rows, at in zip(returned, pulls.send.split(pulls.send_counts), strict=True):
                add_rows(gx, at, rows)
        functional.sums_backward(layer.there.block, torch.cat(back), push_weight, onto=gx)
        if g_own is not None:
            gx[: layer.num_dst] += g_own
        return gx, None, None, None, None


class _SplitMax(torch.autograd.Function):
    """Forward: the largest of what is here and what is pushed. Backward: edges that attain it share evenly, wherever."""

    @staticmethod
    def forward(ctx: Any, sources: Tensor, x: Tensor, layer: SplitLayer, here: Block, there: Block) -> Tensor:
        best, ties = functional.largest(here, sources)
        best[here.indptr.diff() == 0] = -torch.inf
        theirs, their_ties = layer.carried(torch.cat(functional.largest(there, x), 1)).chunk(2, 1)
        at = layer.at
        highest = best.scatter_reduce(0, at[:, None].expand_as(theirs), theirs, "amax")
        ties = ties * (best == highest)
        ties = ties.index_add(0, at, their_ties * (theirs == highest[at]))
        highest[highest == -torch.inf] = 0
        ctx.layer, ctx.blocks = layer, (here, there)
        ctx.save_for_backward(sources, x, highest, ties)
        return highest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sources, x, best, ties = ctx.saved_tensors
        here, there = ctx.blocks
        share = g / ties.clamp(min=1)
        share_there, best_there = ctx.layer.to_others(torch.cat([share, best], 1)).chunk(2, 1)
        of_sources = functional.largest_backward(here, share, best, sources)
        return of_sources, functional.largest_backward(there, share_there, best_there, x), None, None, None, None
