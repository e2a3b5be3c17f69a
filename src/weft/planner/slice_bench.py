"""What a layer of the full graph costs and sends by column, and whether it is made of inputs once: found by running it.

One worker of several goes over a graph of some rows and edges with its slice of the columns, on a comm that only counts.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise, takewhile

import numpy as np
import torch
from torch import Tensor

from weft.errors import ModelError
from weft.exchange import Background, Communicator, Recorded, Recorder
from weft.graph import Graph, ranges, running_sum
from weft.nn import Convolution, Met, shares, sums
from weft.placements import EdgeLists, Layer, SliceLayer, SliceSpan, WholeLayer, everyones
from weft.planner.loads import LayerCost, SlicedPart
from weft.planner.made_up import random_block
from weft.planner.model_cost import FEW, MOST, go_back, run_forward, some_rows, timed
from weft.sampling import Block

_EDGES = 400_000  # of a run at most
_RUN = 64  # workers at most, where each sends otherwise
_SAMPLED, _SAMPLED_EDGES = 256, 100_000  # vertices, and edges at most, of those that show what is sent


def rows_that_stay(layers: Sequence[Met]) -> int:
    """Of how many layers the rows are inputs that stay, or made of these alone: so they stay, too."""
    return 1 + sum(
        1 for _ in takewhile(lambda two: two[0].convolution.passes_on and not two[1].learned, pairwise(layers))
    )


def merges_once(graph: Graph, convolution: Convolution, width: int) -> bool:
    """Is what the convolution merges made of the inputs alone, so that it is made once?"""
    layer = WholeLayer(random_block(FEW, FEW, FEW))
    layer.inputs.kept = {}
    met = Met(convolution, width, width, learned=False)
    _run(graph, met, layer, _rows(met, FEW), 0)
    return bool(layer.inputs.kept)


def sliced(graph: Graph, met: Met, depth: int, workers: int, stay: bool) -> SlicedPart | None:
    """A layer by column among so many workers; None where it can't be placed so.

    `stay`: are its rows the inputs, of which is kept what can be?
    """
    own = max(FEW, min(MOST, graph.num_vertices) // workers)
    edges = max(1, min(_EDGES, own * workers * graph.num_edges // max(1, graph.num_vertices)))
    try:
        few, many, whole = (
            _Run(graph, met, (depth, stay), (workers, rows), random_block(workers * rows, workers * rows, count)).time()
            for rows, count in ((FEW, 1), (own, 1), (own, edges))  # relations map rows that an edge needs: there is one
        )
    except ModelError:
        return None
    row = max(0.0, many - few) / max(1, (own - FEW) * workers)
    few_own = max(FEW, -(-_SAMPLED // workers))
    some = _sampled(graph, few_own * workers)  # what is sent may hang on the edges that vertices have, and their types

    def run(rank: int) -> _Run:
        """Of a block of its own: what is made of it, it remembers."""
        own_block = Block(some.indptr, some.src, some.num_src, values=some.values)
        return _Run(graph, met, (depth, stay), (workers, few_own), own_block, rank)

    alike = not met.convolution.typed  # else it hangs on each one's own vertices' relations
    counted = _of_each(workers, lambda rank: run(rank).counted(), alike)
    every = list(zip(*counted, strict=True))  # each exchange, of all workers
    sent = [sum(one.sent * one.row for one in each) for each in every if not each[0].summed]
    summed = sum(each[0].sent * each[0].row for each in every if each[0].summed)
    messages = tuple(of_all / (few_own * workers * (workers - 1)) for of_all in sent)
    cost = LayerCost(few, 0.0, row, max(0.0, whole - many) / max(1, edges))
    return SlicedPart(depth, cost, messages, summed / max(1, some.num_edges), run(0).by_rounds())


def _of_each(workers: int, counted: Callable[[int], list[Recorded]], alike: bool) -> list[list[Recorded]]:
    """What each worker sends.

    All widths get narrower with the rank: between two that send the same, everybody does, where their rows are `alike`. Of
    others that are very many, some stand for those around them.
    """
    if not alike:
        some = sorted({round(rank) for rank in np.linspace(0, workers - 1, _RUN)})
        found = [counted(rank) for rank in some]
        return [found[at] for at in np.abs(np.subtract.outer(np.arange(workers), some)).argmin(1)]
    of_each = {rank: counted(rank) for rank in {0, workers - 1}}

    def fill(first: int, last: int) -> None:
        if of_each[first] == of_each[last]:
            of_each.update(dict.fromkeys(range(first + 1, last), of_each[first]))
        elif last - first > 1:
            middle = (first + last) // 2
            of_each[middle] = counted(middle)
            fill(first, middle)
            fill(middle, last)

    fill(0, workers - 1)
    return [of_each[rank] for rank in range(workers)]


def _sampled(graph: Graph, rows: int) -> Block:
    """As many edges as some of the graph's vertices have, with their types, from random ones: the same on every worker.

    A relation may join vertices of two types alone: sources are of the type that they have.
    """
    chosen = np.linspace(0, graph.num_vertices - 1, rows).astype(np.int64)
    first, counts = graph.indptr[chosen], np.diff(graph.indptr)[chosen]
    counts = np.minimum(counts, max(1, _SAMPLED_EDGES // rows))
    indptr, edges = running_sum(counts), ranges(first, counts)
    src = torch.from_numpy(_sources(graph, chosen, edges))
    values = {"edge_weight": torch.ones(len(edges))}
    if graph.edge_type is not None:
        values["edge_type"] = torch.from_numpy(graph.edge_type[edges].astype(np.int64))
    return Block(torch.from_numpy(indptr), src, rows, values=values)


def _sources(graph: Graph, chosen: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For each edge a random one of some chosen vertices, of its source's type if there is one: its place."""
    generator, src = torch.Generator().manual_seed(0), np.zeros(len(edges), dtype=np.int32)
    kinds, wanted = np.zeros(len(chosen), dtype=np.uint8), np.zeros(len(edges), dtype=np.uint8)
    if graph.vertex_type is not None:
        kinds, wanted = graph.vertex_type[chosen], graph.vertex_type[graph.indices[edges]]
    for kind in np.unique(wanted):
        at, places = np.flatnonzero(wanted == kind), np.flatnonzero(kinds == kind)
        places = places if len(places) else np.arange(len(chosen))
        src[at] = places[torch.randint(len(places), (len(at),), generator=generator).numpy()]
    return src


def mixing(graph: Graph, width: int, workers: int) -> tuple[float, float]:
    """What a row and an edge take that are summed on a slice of so many columns, forward and backward, in pieces of work."""
    rows = max(FEW, min(MOST, graph.num_vertices))
    edges = min(_EDGES, rows * graph.num_edges // max(1, graph.num_vertices))
    x = torch.ones(rows, max(1, -(-width // workers)), requires_grad=True)

    def time_of(block: Block) -> float:
        return timed(lambda: sums.aggregate(block, x).sum().backward())

    by_row = time_of(random_block(rows, rows, 0))
    return by_row / rows, max(0.0, time_of(random_block(rows, rows, edges)) - by_row) / max(1, edges)


def attending(graph: Graph) -> tuple[float, float]:
    """What a row and an edge take where attention weighs them, of one head, forward and backward, in pieces of work."""
    rows = max(FEW, min(MOST, graph.num_vertices))
    edges = min(_EDGES, rows * graph.num_edges // max(1, graph.num_vertices))
    logits = some_rows(rows, 2, torch.float32) - 0.5  # above zero and below
    a_src, a_dst = (part.contiguous().requires_grad_() for part in logits.split(1, dim=1))

    def time_of(block: Block) -> float:
        lists = EdgeLists(block.indptr, block.src)
        turned = lists.turned()
        return timed(lambda: shares(lists, turned, a_src, a_dst, 0.2, loops=False)[0].sum().backward())

    by_row = time_of(random_block(rows, rows, 0))
    return by_row / rows, max(0.0, time_of(random_block(rows, rows, edges)) - by_row) / max(1, edges)


class _Counted(Background):
    """Exchanges at once, of which it keeps a list: one with `of_gradients`."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm)
        self.begun: list[Callable[..., None]] = []

    def __call__(self, send: Callable[..., None], *given: object) -> "Future[None]":
        self.begun.append(send)
        return super().__call__(send, *given)


class _Run:
    """A layer by column on one worker, of a graph in which each worker has as many rows."""

    def __init__(
        self,
        graph: Graph,
        met: Met,
        place: tuple[int, bool],
        size: tuple[int, int],
        block: Block,
        rank: int = 0,
    ) -> None:
        """`place`: the layer's depth, and are its rows inputs that stay? `size`: workers, and rows of each."""
        (self._depth, stay), (workers, own) = place, size
        self._graph, self._met = graph, met
        bounds = tuple(own * worker for worker in range(workers + 1))
        self._comm = Recorder(rank, workers)
        self._background = _Counted(self._comm)
        all_rows, whole = torch.arange(bounds[-1]), (0, bounds[-1])
        span = SliceSpan(bounds, rank, all_rows, everyones(bounds, rank), whole, background=self._background)
        self._layer = SliceLayer(block, span)
        self._layer.inputs.kept = {} if stay else None
        self._x = _rows(met, own)
        self._layer.comm = self._comm
        self._go()  # what is done once

    def counted(self) -> list[Recorded]:
        """What an epoch sends that is not the first."""
        self._comm.exchanges.clear()
        self._go()
        return self._comm.exchanges

    def by_rounds(self) -> bool:
        """Do all its rows go by what exchanges in the background?"""
        self._background.begun.clear()
        return 0 < len(self.counted()) == len(self._background.begun)

    def time(self) -> float:
        """What it takes."""
        return timed(self._go)

    def _go(self) -> None:
        _run(self._graph, self._met, self._layer, self._x, self._depth)


def _rows(met: Met, count: int) -> Tensor:
    return some_rows(count, met.wide, met.dtype).requires_grad_(met.learned)


def _run(graph: Graph, met: Met, layer: Layer, x: Tensor, depth: int) -> None:
    layer.inputs.fetched(x)
    go_back(run_forward(graph, met, layer, x, depth))
