"""GAT: neighbours weighed by a soft-max of two numbers a head, one of each end of an edge."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from weft.exchange import to_columns
from weft.nn import functional
from weft.nn.attention import AttentionRun, LinearAttention, cut_heads, runs_of
from weft.nn.convolution import Call, Convolution, Sliced, dense
from weft.placements import Edges, SliceLayer
from weft.sampling import BlockRange


class Gat(Convolution):
    """GATConv without edge features."""

    module: ClassVar[type] = GATConv

    @classmethod
    def serves(cls, conv: Any) -> bool:
        """One kind of rows, sums, no edge features."""
        return without_edge_features(conv)

    @property
    def mixing(self) -> str | None:
        """By attention."""
        return "attention"

    def run(self, call: Call) -> Tensor:
        """Mapped, then attended to."""
        conv, layer = self.conv, call.layer
        x = call.mapped(conv.lin)
        out = layer.merge_mapped(_GatAttention(call), x.view(-1, conv.heads, conv.out_channels))
        return finished(call, out)

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Mapped rows are pulled; for a part's rows and the log of its sum, destinations' terms go to where it is made."""
        rows, heads = self.conv.heads * self.conv.out_channels, self.conv.heads
        return 2 * rows, 2 * (rows + heads) + 2 * heads

    def sliced(self, wide: int, out: int) -> Sliced:
        """Mapped rows, by head."""
        return Sliced(self.conv.heads * self.conv.out_channels, 2, self.conv.heads)


def without_edge_features(conv: Any) -> bool:
    """Has it one kind of rows, sums, and no edge features?"""
    return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")


def finished(call: Call, out: Tensor) -> Tensor:
    """Heads joined or averaged, the residual and the bias added."""
    conv: Any = call.conv
    out = out.flatten(1) if conv.concat else out.mean(1)
    if conv.res is not None:
        out = dense(conv.res, call.own, out)
    return out if conv.bias is None else out + conv.bias


class _GatAttention(LinearAttention):
    """Logits are leaky(<att_src, x[source]> + <att_dst, x[destination]>)."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        conv: Any = call.conv
        self._src, self._dst = conv.att_src.squeeze(0), conv.att_dst.squeeze(0)
        self._slope = conv.negative_slope

    def terms(self, x: Tensor) -> Tensor:
        """A number a head for each end."""
        return torch.cat([(x * self._src).sum(-1), (x * self._dst).sum(-1)], 1)

    def given(self, own: Tensor) -> Tensor:
        """The destinations' numbers."""
        return (own * self._dst).sum(-1)

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        """Rows by the soft-max of some edges, and the log of its sum."""
        block, keep = self.edges(edges)
        terms = (sources * self._src).sum(-1), given
        return functional.attention_part(block, sources, terms, self._slope, keep)

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        """By one kernel, terms and all."""
        block, keep = self.edges(edges)
        return functional.gat(block, sources, self._src, self._dst, self._slope, keep)

    def of_edges(self, edges: Edges, x: Tensor, of_sources: Tensor, of_destinations: Tensor) -> Tensor:
        """Shares of rows, by terms that are whole."""
        block, keep = self.edges(edges)
        logits = of_sources[block.src.long()] + of_destinations[block.dst().long()]
        return functional.edge_softmax_aggregate(block, F.leaky_relu(logits, self._slope), x, keep)

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Of heads that are cut both terms go to all workers; those of whole heads are made of their columns."""
        conv: Any = self.conv
        rows = x.flatten(1)
        spread = layer.span.spread(rows.shape[1])
        columns = to_columns(rows, spread, layer.comm)
        runs, cut = runs_of(spread, conv.out_channels), cut_heads(spread, conv.out_channels)
        terms = columns[:, :0]
        if cut:
            own = torch.cat([(x[:, cut] * att[cut]).sum(-1) for att in (self._src, self._dst)], 1)
            terms = layer.span.to_all.pull(own, layer.comm)
        sides = []
        for att, of_cut in zip(
            (self._src, self._dst), terms.split(len(cut) or 1, 1) if cut else (terms, terms), strict=True
        ):
            parts = [
                (run.of(columns) * att[run.all]).sum(-1) if run.whole else of_cut[:, cut.index(run.first), None]
                for run in runs
            ]
            sides.append(torch.cat([terms[:, :0], *parts], 1))

        def attend(
            piece: BlockRange, run: AttentionRun, keep: Tensor | None, columns: Tensor, *others: Tensor
        ) -> Tensor:
            a_src, a_dst = (side[:, run.here].contiguous() for side in others[:2])
            logits = (a_src, a_dst[piece.rows])
            return functional.attention_part(piece.block, run.of(columns), logits, self._slope, keep)[0]

        return self.attended(layer, self.edges_of(layer), spread, attend, columns, *sides, terms).view_as(x)
