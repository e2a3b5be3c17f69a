"""What rows count for when the decoupled model's aggregations mix them: its own, and each neighbour's."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import GATConv

from weft.exchange import Communicator
from weft.nn.conv.gcn import roots_of_degrees
from weft.nn.conv.relations import relation_slots
from weft.nn.decoupled import Dense, Step, shares_sent
from weft.nn.dropout import edge_mask
from weft.nn.propagate import Mix, room_like
from weft.nn.rows import Pass
from weft.operations import Lists, Scores, Turned, ends, operations_on
from weft.placements import EdgeLists, New, SliceSpan
from weft.sampling import Topology
from weft.threads import cached_property


class Coefficients:
    """Makes the mixes of a model's steps for the whole graph; those that nothing is learned of are made once."""

    def __init__(
        self, graph: Topology, span: SliceSpan, comm: Communicator, lists: EdgeLists, new: New = torch.empty
    ) -> None:
        """`new`: makes room for what there is an edge of."""
        self._graph, self._span, self._comm, self.lists, self._new = graph, span, comm, lists, new
        self._made: dict[tuple[object, ...], Mix] = {}

    @cached_property
    def turned(self) -> EdgeLists:
        """The edges by their other end."""
        return self.lists.turned(self._new)

    def mixes(self, dense: Dense, run: Pass) -> list[list[Mix]]:
        """By head of the rows, one for each step; steps that are alike share theirs."""
        scores: Iterable[Tensor] = ()
        if dense.scores is not None:  # every worker hears all vertices' scores, once
            scores = self._span.to_all.pull(dense.scores, self._comm).split(dense.score_widths, 1)
        heard = iter(scores)
        each = [
            self._by_attention(step.conv, next(heard), dense.heads, run)
            if step.kind == "attention"
            else [self._alike(step, dense.rows.dtype)] * dense.heads
            for step in dense.steps
        ]
        return [[of_heads[head] for of_heads in each] for head in range(dense.heads)]

    def sends(self, relations: int) -> Tensor:
        """Of each own vertex the share of each relation among those that it is a source in, [own vertices, relations]."""
        first, end = self._span.bounds[self._span.rank : self._span.rank + 2]
        src, types = self.lists.other, self._of_edges("edge_type")
        own = (src >= first) & (src < end)
        return shares_sent(src[own].long() - first, types[own], end - first, relations)

    def _alike(self, step: Step, dtype: torch.dtype) -> Mix:
        """The same for all heads."""
        return self._summed(step, dtype) if step.kind == "sum" else self._constant(step, dtype)

    def _summed(self, step: Step, dtype: torch.dtype) -> Mix:
        """GIN's sum: of inputs as it is, later on as a mean."""
        own = (1 + step.conv.eps).to(dtype).view(1, 1)
        if step.first:
            return Mix(None, own)
        each = self._constant(Step(step.conv, "each", False), dtype)
        return Mix(each.weight, own * cast(Tensor, each.loops), each)

    def _constant(self, step: Step, dtype: torch.dtype) -> Mix:
        conv = step.conv
        options: tuple[object, ...] = (step.kind, dtype)
        if step.kind == "gcn":
            options += (conv.normalize, conv.improved, conv.add_self_loops, step.weighted)
        if options not in self._made:
            makers = {"gcn": self._gcn, "relations": self._by_relation}
            self._made[options] = makers.get(step.kind, self._mean)(step, dtype)
        return self._made[options]

    def _by_relation(self, step: Step, dtype: torch.dtype) -> Mix:
        """The mean over a vertex's relations of the mean over a relation's neighbours."""
        relations, types = step.conv.num_relations, self._of_edges("edge_type")
        weight = room_like(types.new_empty(0, dtype=dtype), self._new, len(types))
        for vertices, edges, dst in self.lists.pieces():
            count, own = vertices.stop - vertices.start, dst - vertices.start
            pairs, pair, each = relation_slots(own, types[edges], count, relations).unique(
                return_inverse=True, return_counts=True
            )
            of_vertex = torch.bincount(pairs % count, minlength=count)
            weight[edges] = (each[pair] * of_vertex[own]).to(dtype).reciprocal()
        return Mix(weight, None)

    def _mean(self, step: Step, dtype: torch.dtype) -> Mix:
        """The neighbours' mean; `each`: the mean of the own row and theirs."""
        degrees = self.lists.indptr.diff()
        each = 1 / (degrees + 1 if step.kind == "each" else degrees.clamp(min=1)).to(dtype)
        weight = room_like(each, self._new, len(self.lists.other))
        for _, edges, dst in self.lists.pieces():
            weight[edges] = each[dst]
        return Mix(weight, each[:, None] if step.kind == "each" else None)

    def _gcn(self, step: Step, dtype: torch.dtype) -> Mix:
        """PyG's rule: D^-1/2 (A + I) D^-1/2, with self-loops that are there kept as their vertex's own."""
        conv, lists = step.conv, self.lists
        given = self._of_edges("edge_weight") if step.weighted else None
        if not conv.normalize:
            return Mix(None if given is None else given.to(dtype), None)
        found = roots_of_degrees(conv, step.weighted, self._graph, torch.arange(lists.num_vertices))
        roots, own = (of_all.to(lists.other.device) for of_all in found)
        weight = room_like(roots.to(dtype), self._new, len(lists.other))
        for _, edges, dst in lists.pieces():
            src = lists.other[edges].long()
            values = roots[src] * roots[dst]
            values = values if given is None else values * given[edges].to(values)
            weight[edges] = torch.where(src == dst, 0.0, values).to(dtype) if conv.add_self_loops else values.to(dtype)
        return Mix(weight, (own * roots * roots)[:, None].to(dtype) if conv.add_self_loops else None)

    def _of_edges(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(getattr(self._graph, name))).to(self.lists.other.device)

    def _by_attention(self, conv: GATConv, scores: Tensor, heads: int, run: Pass) -> list[Mix]:
        """Every worker takes the soft-max of all edges for itself: of each head, or the mean where rows have others."""
        mixes = heads if conv.heads == heads else 1

        def apart(x: Tensor) -> list[Tensor]:
            return [part.contiguous() for part in x.chunk(mixes, 1)]

        keep: list[tuple[Tensor, Tensor] | None] = [None] * mixes
        if conv.training and conv.dropout:
            keep = list(zip(*map(apart, self._kept(conv.heads, conv.dropout, run, scores)), strict=True))
        a_src, a_dst = map(apart, scores.chunk(2, 1))
        options = (conv.negative_slope, conv.add_self_loops)
        found = [
            Mix(*shares(self.lists, self.turned, src, dst, *options, kept, self._new))
            for src, dst, kept in zip(a_src, a_dst, keep, strict=True)
        ]
        return found * (heads // mixes)

    def _kept(self, heads: int, p: float, run: Pass, like: Tensor) -> tuple[Tensor, Tensor]:
        """Dropout of edges and own rows, keyed by vertex and place in its list: the same on all workers."""
        key, keys, indptr = run.next_dropout(), self._span.keys, self.lists.indptr
        ids = torch.arange(len(keys), device=keys.device)
        dst = ends(Lists(indptr, self.lists.other))
        places = torch.arange(len(dst), device=dst.device) - indptr[dst]
        both = ((dst, places), (ids, torch.full_like(ids, -1)))
        of_edges, of_own = (edge_mask(keys, key, to, at, heads, p, like.dtype) for to, at in both)
        return of_edges, of_own


def shares(
    lists: EdgeLists,
    turned: EdgeLists,
    a_src: Tensor,
    a_dst: Tensor,
    slope: float,
    loops: bool,
    keep: tuple[Tensor, Tensor] | None = None,
    new: New = torch.empty,
) -> tuple[Tensor, Tensor | None]:
    """What edges [edges], and with `loops` own rows [vertices, 1], count for by attention: the mean over heads.

    By head, the soft-max over a vertex's edges (with loops: but those to itself, and one more) of leaky(a_src[source] +
    a_dst[vertex]), times `keep` (of edges, of own rows). `new`: makes room for those of edges.
    """
    of_all, of_own = _Shares.apply(lists, turned, a_src, a_dst, slope, loops, keep or (None, None), new)
    return of_all, of_own if loops else None


class _Shares(torch.autograd.Function):
    """Forward: the shares. Backward: through the soft-max again; sources' gradients are summed by turned lists."""

    @staticmethod
    def forward(
        ctx: Any,
        lists: EdgeLists,
        turned: EdgeLists,
        a_src: Tensor,
        a_dst: Tensor,
        slope: float,
        loops: bool,
        keep: tuple[Tensor | None, Tensor | None],
        new: New,
    ) -> tuple[Tensor, Tensor]:
        ctx.lists, ctx.turned, ctx.slope, ctx.loops, ctx.keep = lists, turned, slope, loops, keep
        edges, scores = Lists(lists.indptr, lists.other), Scores(a_src, a_dst, *keep, slope, loops)
        out, own, saved = operations_on(a_src.device).edge_shares(edges, scores)
        ctx.save_for_backward(a_src, a_dst, *saved)
        return out if new is torch.empty else room_like(out, new).copy_(out), own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_own: Tensor) -> tuple[Tensor | None, ...]:
        a_src, a_dst, *saved = ctx.saved_tensors
        lists, turned = ctx.lists, ctx.turned
        edges = (Lists(lists.indptr, lists.other), Turned(turned.indptr, turned.other, turned.edge))
        of_edges, of_own = ctx.keep
        scores = Scores(a_src, a_dst, of_edges, of_own, ctx.slope, ctx.loops)
        gradients = operations_on(a_src.device).edge_shares_backward(*edges, scores, tuple(saved), g, g_own)
        return None, None, *gradients, None, None, None, None
