"""The largest value over edges, column by column: a part is its values, and how many edges attain each."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.nn import functional
from weft.nn.convolution import REDUCE
from weft.nn.merges.base import PartialMerge
from weft.nn.merges.sums import Sums
from weft.placements import Edges, SplitLayer
from weft.sampling import Block


class Largest(PartialMerge):
    """The largest of the sources' values; none gives zero. Edges that attain it share its gradient evenly."""

    columnwise: ClassVar[bool] = True

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        """The largest over some edges."""
        return (functional.aggregate(edges.block, sources, None, "max"),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """Parts are joined as they are made (`split`), for ties count over all of them."""
        raise AssertionError("maxima are joined by `split`")

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        """The largest of what is here and of what others made."""
        return split_max(layer, layer.sources(x), x, layer.here.block, layer.there.block)


def merge_by(aggr: str) -> PartialMerge:
    """The merge of one of PyG's aggregations, without weights."""
    return Largest() if REDUCE[aggr] == "max" else Sums(REDUCE[aggr])


def split_max(layer: SplitLayer, sources: Tensor, x: Tensor, here: Block, there: Block) -> Tensor:
    """The largest of rows of `sources` by the block `here` and of x by the block `there`, whose destinations others hold."""
    return _SplitMax.apply(sources, x, layer, here, there)


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
