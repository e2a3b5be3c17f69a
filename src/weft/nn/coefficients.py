"""What rows count for when the decoupled model's aggregations mix them: its own, and each neighbour's."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Wire
from weft.nn import functional, mixing
from weft.nn.decoupled import Scores, Step
from weft.nn.rows import Pass, edge_keys
from weft.parallel.program import Slices
from weft.parallel.rounds import Lists
from weft.sampling.block import Topology

_EDGES = 1 << 22  # whose coefficients are computed at a time


@dataclass(eq=False)
class Mix:
    """One aggregation: out = own x row + sum over edges of weight x neighbour's row."""

    weight: Tensor | None  # [edges]; None: 1
    own: Tensor | None  # [vertices or 1, 1]; None: 0
    _turned: Tensor | None = field(default=None, repr=False)

    def turned(self, turned: Lists) -> Tensor | None:
        """The weights by the edges' other end."""
        if self.weight is not None and self._turned is None:
            assert turned.edge is not None
            self._turned = self.weight.detach()[turned.edge.long()]
        return self._turned


class Coefficients:
    """Makes the mixes of a model's steps for the whole graph; those that nothing is learned of are made once."""

    def __init__(self, graph: Topology, slices: Slices, wire: Wire, lists: Lists) -> None:
        self._graph, self._slices, self._wire, self.lists = graph, slices, wire, lists
        self._made: dict[tuple[Any, ...], Mix] = {}

    @cached_property
    def turned(self) -> Lists:
        """The edges by their other end."""
        return self.lists.turned()

    def mixes(self, steps: list[Step], scores: Scores | None, dtype: torch.dtype, run: Pass) -> list[Mix]:
        """One for each step; steps that are alike share theirs."""
        attention = None
        if scores is not None:
            attention = self._by_attention(scores, run)
        found = []
        for step in steps:
            if step.kind == "attention":
                assert attention is not None
                found.append(attention)
            elif step.kind == "sum":
                found.append(Mix(None, (1 + step.conv.eps).to(dtype).view(1, 1)))
            else:
                found.append(self._constant(step, dtype))
        return found

    def _constant(self, step: Step, dtype: torch.dtype) -> Mix:
        conv = step.conv
        if step.kind == "mean":
            options: tuple[Any, ...] = (step.kind, conv.root_weight, dtype)
        else:
            options = (step.kind, conv.normalize, conv.improved, conv.add_self_loops, step.weighted, dtype)
        if options not in self._made:
            make = self._mean if step.kind == "mean" else self._gcn
            self._made[options] = make(step, dtype)
        return self._made[options]

    def _mean(self, step: Step, dtype: torch.dtype) -> Mix:
        """Half the own row, half the neighbours' mean; the mean alone where a convolution leaves out its own row."""
        half = 2 if step.conv.root_weight else 1
        degrees = self.lists.indptr.diff()
        each = 1 / (half * degrees.clamp(min=1)).to(dtype)
        weight = each.repeat_interleave(degrees, output_size=len(self.lists.other))
        return Mix(weight, weight.new_full((1, 1), 0.5) if step.conv.root_weight else None)

    def _gcn(self, step: Step, dtype: torch.dtype) -> Mix:
        """PyG's rule: D^-1/2 (A + I) D^-1/2, with self-loops that are there kept as their vertex's own."""
        conv, lists, device = step.conv, self.lists, self.lists.other.device
        given = self._edge_weight if step.weighted else None
        if not conv.normalize:
            return Mix(None if given is None else given.to(device, dtype), None)
        others, own, own_total = self._graph.self_loops.of(
            torch.arange(lists.num_vertices, device=device), step.weighted
        )
        own = torch.where(own.isnan(), 2.0 if conv.improved and step.weighted else 1.0, own)
        roots = (others + (own if conv.add_self_loops else own_total)).rsqrt()
        roots = torch.where(roots.isinf(), 0.0, roots)
        weight = torch.empty(len(lists.other), dtype=dtype, device=device)
        dst = torch.arange(lists.num_vertices, device=device).repeat_interleave(lists.indptr.diff())
        for first in range(0, len(weight), _EDGES):
            some = slice(first, first + _EDGES)
            src, to = lists.other[some].long(), dst[some]
            values = roots[src] * roots[to]
            values = values if given is None else values * given[some].to(values)
            weight[some] = torch.where(src == to, 0.0, values) if conv.add_self_loops else values
        return Mix(weight, (own * roots * roots)[:, None].to(dtype) if conv.add_self_loops else None)

    @property
    def _edge_weight(self) -> Tensor:
        assert self._graph.edge_weight is not None
        return torch.from_numpy(np.array(self._graph.edge_weight))

    def _by_attention(self, scores: Scores, run: Pass) -> Mix:
        """Every worker hears all vertices' scores, once, and takes the soft-max for itself."""
        conv, lists = scores.conv, self.lists
        whole = self._slices.to_all.pull(torch.cat([scores.src, scores.dst], 1), self._wire)
        a_src, a_dst = (part.contiguous() for part in whole.chunk(2, 1))
        keep = None
        if conv.training and conv.dropout:
            keep = self._kept(conv.heads, conv.dropout, run, whole)
        options = (conv.negative_slope, conv.add_self_loops, keep)
        return Mix(*mixing.shares(lists, self.turned, a_src, a_dst, *options))

    def _kept(self, heads: int, p: float, run: Pass, like: Tensor) -> tuple[Tensor, Tensor]:
        """Dropout of edges and own rows, keyed by vertex and place in its list: the same on all workers."""
        key, keys, indptr = run.next_dropout(), self._slices.keys, self.lists.indptr
        ids = torch.arange(len(keys), device=keys.device)
        dst = ids.repeat_interleave(indptr.diff())
        places = torch.arange(len(dst), device=dst.device) - indptr[dst]
        both = ((dst, places), (ids, torch.full_like(ids, -1)))
        of_edges, of_own = (
            functional.dropout_mask(len(to), heads, p, edge_keys(keys, to, at), key, like.dtype) for to, at in both
        )
        return of_edges, of_own
