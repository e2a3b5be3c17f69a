"""What a model's layers cost on this machine's processor: each convolution timed, forward and backward, on random rows.

A layer's time is linear in its rows, destinations and edges, so a few runs tell it: with few rows, with many sources, with
many destinations, and with edges besides; edges that are pushed, or computed by column, by runs of their own. The model as
a whole then tells what it does between its convolutions. Workers divide the runs among themselves.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from weft.exchange import Communicator
from weft.graph import Graph
from weft.nn import BlackBox, convolution_of, walk
from weft.placements import OWNER
from weft.planner.counts import HOME, CountedBatch, Key, others
from weft.planner.layer_bench import FEW, LayerBench, Shape, most_rows, pace, step_time


@dataclass(frozen=True)
class LayerCost:
    """Processor time of a layer, forward and backward, in pieces of work."""

    fixed: float
    source: float  # a row that goes in
    destination: float  # a row that comes out
    edge: float
    pushed: float = 0.0  # an edge where some are pushed to destinations' owners,
    asked: float = 0.0  # or to where destinations were asked for
    column: float = 0.0  # an edge where each worker has a slice of the columns, and its share of the rows
    ahead: float = 0.0  # an edge, where inputs are merged ahead by the threads that prepare batches; 0: they are not
    pulled: float = 0.0  # a row that others held; 0: they have mapped it already


@dataclass(frozen=True)
class ModelCost:
    """Processor time of a model's step on one worker, in pieces of work."""

    layers: list[LayerCost]
    between: float  # a row between two layers: activations, dropout, normalisation
    step: float  # each batch: what is left of a step where there are no rows; the optimiser
    pace: float  # processor seconds of a piece of work, at the same time
    parameters: int  # bytes
    widths: list[int]  # of the rows that go into each layer, and of those that come out of the last


def shapes_of(batch: CountedBatch, depth: int) -> list[Shape]:
    """Each layer's size on a mean worker; of edges and partial rows that go to others, of the placement with most."""
    shapes, workers = [], len(batch.held)
    for layer in range(depth):
        home, owner = (batch.drawn[Key(layer, state)] for state in (HOME, OWNER))
        sizes = (home.sources, home.destinations, home.lists, batch.held_below(layer), others(home.destinations))
        moves = [moves for placed, moves in batch.moves.items() if placed.key == Key(layer, OWNER)]
        split = max(moves, key=lambda moves: float(np.sum(moves.edges)))
        pushed = float(np.sum(split.edges)) / max(1.0, float(owner.lists.sum()))
        sources, destinations, edges, below, away = (float(size.sum()) / workers for size in sizes)
        shapes.append(Shape(sources, destinations, edges, below, away, pushed, float(np.sum(split.pairs)) / workers))
    return shapes


def model_cost(
    graph: Graph, model: nn.Module, shapes: list[Shape], workers: int, comm: Communicator | None = None
) -> ModelCost:
    """Time a copy of the model on layers of about these shapes; with a communicator, all its workers together."""
    model, comm = copy.deepcopy(model).train(), comm or Communicator()
    found = walk(model, graph.num_features)
    runs: list[Callable[[], list[float]]] = []
    for depth, shape in enumerate(shapes):
        stand = LayerBench(graph, found[depth + 1][0], found[depth + 1][1:3], depth, shape, workers)
        runs += [stand.whole, stand.split if workers > 1 else lambda: [0.0] * 3]
    sizes = [min(int(shape.sources), most_rows(found[depth + 1][1:3])) for depth, shape in enumerate(shapes)]
    rows = [*sizes, FEW]
    runs.append(lambda: [step_time(graph, model, [FEW] * (len(shapes) + 1)), step_time(graph, model, rows)])
    mine = torch.zeros(len(runs) + comm.size, 5, dtype=torch.float64)
    for number in range(comm.rank, len(runs), comm.size):
        took = torch.tensor(runs[number](), dtype=torch.float64)
        mine[number, : len(took)] = took
    mine[len(runs) + comm.rank, 0] = pace()
    told: list[list[float]] = comm.sum(mine).tolist()
    figures, paced = told[: len(runs)], min(row[0] for row in told[len(runs) :])
    halves = zip(figures[:-1:2], figures[1:-1:2], strict=True)
    maps = [isinstance(convolution_of(found[depth + 1][0]), BlackBox) for depth in range(len(shapes))]
    layers = [
        LayerCost(*(whole[:4] + split[:3] + [whole[4], whole[1] * of_all]))
        for (whole, split), of_all in zip(halves, maps, strict=True)
    ]
    few, many = figures[-1][:2]
    alone = sum(cost.fixed + (cost.source + cost.destination) * FEW for cost in layers)
    convolved = sum(
        cost.fixed + cost.source * sources + cost.destination * destinations
        for cost, sources, destinations in zip(layers, rows[:-1], rows[1:], strict=True)
    )
    step = max(0.0, few - alone)
    between = max(0.0, many - convolved - step) / max(1, sum(rows[1:-1]))
    widths = [found[depth][1] for depth in sorted(found)] + [found[len(shapes)][2]]
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return ModelCost(layers, between, step, paced, size, widths)
