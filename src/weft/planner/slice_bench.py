"""What a layer of the full graph costs and sends by column, and whether it is made of inputs once: found by running it.

One worker of several goes over a graph of some rows and edges with its slice of the columns, on a comm that only counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.nn import functional
from weft.placements import Layer, SliceLayer, SliceSpan, WholeLayer, everyones
from weft.planner.layer_bench import FEW, MOST, random_block, timed
from weft.planner.messages import run_layer
from weft.sampling import Block

_EDGES = 400_000  # of a run at most


@dataclass(frozen=True)
class SliceCosts:
    """A layer by column: a worker's processor time, in pieces of work, and bytes that a row sends to each other worker."""

    fixed: float
    row: float  # of a row of the whole graph,
    edge: float  # and an edge of it
    messages: tuple[float, ...]  # of every exchange, forward and backward: bytes a row, to each other worker
    edge_bytes: float = 0.0  # bytes an edge that are summed over the workers


class _Tally(Communicator):
    """A comm of several workers of whom only one is there: what is sent is counted, what comes is zero."""

    def __init__(self, rank: int, workers: int) -> None:
        super().__init__(rank, workers)
        self.sent: list[float] = []
        self.summed = 0.0

    def begin(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str, exact: bool = False
    ) -> Callable[[], Tensor]:
        each = x.element_size() * (1 if x.dim() == 1 else x[:1].numel() or x.new_zeros(1, *x.shape[1:]).numel())
        self.sent.append(float(sum(send) * each))
        out = x.new_zeros(sum(receive), *x.shape[1:])
        return lambda: out

    def sum(self, x: Tensor, stage: str = "sync") -> Tensor:
        self.summed += x.numel() * x.element_size()
        return x


def merges_once(graph: Graph, conv: MessagePassing, width: int) -> bool:
    """Is what the convolution merges made of the inputs alone, so that it is made once?"""
    layer = WholeLayer(random_block(FEW, FEW, FEW))
    layer.inputs.kept = {}
    _run(graph, conv, layer, _rows(conv, FEW, width, first=True), 0)
    return bool(layer.inputs.kept)


def sliced(graph: Graph, conv: MessagePassing, width: int, depth: int, workers: int) -> SliceCosts | None:
    """A layer by column among so many workers, its inputs kept if they can be; None where it can't be placed so."""
    own = max(FEW, min(MOST, graph.num_vertices) // workers)
    edges = max(1, min(_EDGES, own * workers * graph.num_edges // max(1, graph.num_vertices)))
    try:
        few, many, whole = (
            _Run(graph, conv, width, depth, (workers, rows), count).time()
            for rows, count in ((FEW, 1), (own, 1), (own, edges))  # relations map rows that an edge needs: there is one
        )
    except ModelError:
        return None
    row = max(0.0, many - few) / max(1, (own - FEW) * workers)
    counted = [_Run(graph, conv, width, depth, (workers, FEW), FEW, rank).counted() for rank in range(workers)]
    every = zip(*(comm.sent for comm in counted), strict=True)
    messages = tuple(sum(sent) / (FEW * workers * (workers - 1)) for sent in every)
    return SliceCosts(few, row, max(0.0, whole - many) / max(1, edges), messages, counted[0].summed / FEW)


def mixing(graph: Graph, width: int, workers: int) -> tuple[float, float]:
    """What a row and an edge take that are summed on a slice of so many columns, forward and backward, in pieces of work."""
    rows = max(FEW, min(MOST, graph.num_vertices))
    edges = min(_EDGES, rows * graph.num_edges // max(1, graph.num_vertices))
    x = torch.ones(rows, max(1, -(-width // workers)), requires_grad=True)

    def time_of(block: Block) -> float:
        return timed(lambda: functional.aggregate(block, x).sum().backward())

    by_row = time_of(random_block(rows, rows, 0))
    return by_row / rows, max(0.0, time_of(random_block(rows, rows, edges)) - by_row) / max(1, edges)


class _Run:
    """A layer by column on one worker, of a graph in which each worker has as many rows."""

    def __init__(
        self,
        graph: Graph,
        conv: MessagePassing,
        width: int,
        depth: int,
        size: tuple[int, int],
        edges: int,
        rank: int = 0,
    ) -> None:
        """`size`: workers, and rows of each."""
        self._graph, self._conv, self._depth, (self._workers, own), self._rank = graph, conv, depth, size, rank
        bounds = tuple(own * worker for worker in range(self._workers + 1))
        span = SliceSpan(bounds, rank, torch.arange(bounds[-1]), everyones(bounds, rank), (0, bounds[-1]))
        self._layer = SliceLayer(random_block(bounds[-1], bounds[-1], edges), span)
        self._layer.inputs.kept = None if depth else {}
        self._x = _rows(conv, own, width, first=depth == 0)
        self._go(_Tally(rank, self._workers))  # what is done once

    def counted(self) -> _Tally:
        """What an epoch sends that is not the first."""
        comm = _Tally(self._rank, self._workers)
        self._go(comm)
        return comm

    def time(self) -> float:
        """What it takes."""
        comm = _Tally(self._rank, self._workers)
        return timed(lambda: self._go(comm))

    def _go(self, comm: Communicator) -> None:
        self._layer.comm = comm
        _run(self._graph, self._conv, self._layer, self._x, self._depth)


def _rows(conv: MessagePassing, count: int, width: int, first: bool) -> Tensor:
    dtype = next((p.dtype for p in conv.parameters()), torch.float32)
    return torch.ones(count, width, dtype=dtype).requires_grad_(not first)


def _run(graph: Graph, conv: MessagePassing, layer: Layer, x: Tensor, depth: int) -> None:
    layer.inputs.fetched(x)
    run_layer(graph, conv, layer, x, depth)
