"""Convolutions of one's own, edge by edge: what a source says to a destination, and how what is said is merged.

The easiest way through the door of convolutions. Rows of edges are made and held, so a kernel of one's own is faster and
smaller; but it runs under every placement, and its gradients are torch's.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.nn import functional, sums
from weft.nn.attention import join_by_softmax
from weft.nn.convolution import Call, Convolution
from weft.nn.sums import split_max
from weft.placements import Edges, Merge, SplitLayer
from weft.sampling import Block


class MessageConvolution(Convolution):
    """A convolution as finish(merge over edges of message(prepare(x)[source], describe(x)[destination]), x[destination]).

    Derive from it, set `module` to the PyG class that it serves, and write what differs from the rows themselves. All but
    `message` and `score` act on each row by itself. `self.conv` is the module, whose parameters are used.
    """

    join: ClassVar[str] = "sum"  # of messages: sum, mean, max, or softmax: a mean by the soft-max of `score`
    weighted: ClassVar[bool] = False  # messages know no weights: with some the module runs as it is
    columnwise: ClassVar[bool] = False  # does all of it act on each column by itself, but for `finish`?

    def prepare(self, x: Tensor) -> Tensor:
        """What each row has to say, whoever it is said to."""
        return x

    def describe(self, own: Tensor) -> Tensor:
        """What messages need to know of their destination, [rows, numbers]; nothing, unless this says otherwise."""
        return own[:, :0]

    def message(self, source: Tensor, destination: Tensor) -> Tensor:
        """What is said along each edge, of prepared rows of sources and descriptions of destinations, [edges, columns]."""
        return source

    def score(self, source: Tensor, destination: Tensor) -> Tensor:
        """With join = softmax: how much each edge counts for, before the soft-max, [edges, heads]."""
        raise AssertionError("join = softmax needs a score")

    @abstractmethod
    def finish(self, merged: Tensor, own: Tensor) -> Tensor:
        """The destinations' rows, of merged messages and their own rows."""

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self.adds_up = self.join in ("sum", "mean")

    def run(self, call: Call) -> Tensor:
        x, depth, by_row = (call.x if self.columnwise else call.whole_rows), call.depth, call.run.by_row
        said, own = by_row(self.prepare, depth, x), call.own
        merged = call.layer.merge(_Messages(self, by_row(self.describe, depth + 1, own)), said)
        return by_row(self.finish, depth + 1, merged, own)


class _Messages(Merge):
    """Messages of edges, merged."""

    def __init__(self, convolution: MessageConvolution, described: Tensor) -> None:
        self._of, self._described = convolution, described
        self.columnwise = convolution.columnwise

    def __str__(self) -> str:
        return str(self._of.conv)

    def given(self, own: Tensor) -> Tensor:
        """Descriptions of the destinations here, which were made of their whole rows; of slices, made of these."""
        return self._of.describe(own) if self.columnwise else self._described

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        """Of some edges: their sum; or with soft-max their mean, and the log of its sum."""
        said, ends, each = self._said(edges.block, sources, given)
        if self._of.join != "softmax":
            return (sums.aggregate(each, said, edges.times(None, said), "sum"),)
        scores = self._of.score(*ends)
        return functional.attention_part(each, said.view(len(said), scores.shape[1], -1), scores, 1.0)

    def over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        given = self.given(own)
        if self._of.join == "max":
            said, _, each = self._said(edges.block, sources, given)
            return sums.aggregate(each, said, None, "max")
        rows = self.partial(edges, sources, given)[0]
        return self._divided(rows.flatten(1), edges.totals)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        if self._of.join == "softmax":
            return join_by_softmax(layer, here, there).flatten(1)
        return self._divided(here[0] + layer.summed(there[0]), layer.degrees)

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        if self._of.join != "max":
            return super().split(layer, x)
        given, others = self._described, self._described[:0]
        if given.shape[1]:
            others = layer.to_others(given)
        here, _, each = self._said(layer.here.block, layer.sources(x), given)
        there, _, each_there = self._said(layer.there.block, x, others)
        return split_max(layer, here, there, each, each_there)

    def _said(self, block: Block, sources: Tensor, given: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor], Block]:
        """Messages, both ends of their edges, and a block of which each edge is a source."""
        src, dst = block.src.long(), block.dst().long()
        described = given[dst] if given.shape[1] else given.new_empty(len(dst), 0)
        ends = sources.index_select(0, src), described
        each = Block(block.indptr, torch.arange(block.num_edges, dtype=torch.int32, device=src.device), block.num_edges)
        return self._of.message(*ends), ends, each

    def _divided(self, rows: Tensor, counts: Tensor) -> Tensor:
        return rows * sums.inverse(counts, rows) if self._of.join == "mean" else rows
