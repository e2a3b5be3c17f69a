"""What a model's layers cost on this machine's processor, found by running them.

Each convolution is timed, forward and backward, on random rows. A layer's time is linear in its rows, destinations and
edges, so a few runs tell it: with few rows, with many sources, with many destinations, and with edges besides; edges that
are pushed, or computed by column, by runs of their own. The model as a whole then tells what it does between its
convolutions, and with inputs before the first. Workers divide these runs among themselves; those of a layer are one
worker's, who holds them against each other.

Machines run faster and slower within seconds, by what else runs on them. So no run is told by itself, but by a fixed piece
of work right before and after it, which is slowed alike: times here are in pieces. On a device runs have more rows, and a
piece is a share of one with as many; what does not depend on rows is the processor's, which begins it.

What a layer makes of its edges (turned lists, self-loops, weights) a batch makes anew, and so does each run that stands for
one; on the full graph it is made once and stays.
"""

import copy
import inspect
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise, product
from resource import RUSAGE_SELF, getrusage
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.devices import finished
from weft.errors import ModelError
from weft.exchange import ColumnSpan, Communicator, Recorder, gather_rows
from weft.graph import Graph
from weft.nn import BlackBox, BlockModel, Handle, Met, Pass, convolution_of, convolve, dtype_of, merged
from weft.placements import ColumnLayer, Layer, Program, SplitLayer, WholeLayer
from weft.planner.cluster import PIECE_EDGES, PIECE_OUT, PIECE_ROWS, PIECE_WIDTH
from weft.planner.counts import Shape
from weft.planner.loads import LayerCost, ModelCost
from weft.planner.made_up import column_layer, random_block, split_layer, whole_layer
from weft.planner.task import shared_out

Module = TypeVar("Module", bound=nn.Module)

FEW = 8  # rows of a run that shows what does not depend on rows
MOST = 20_000  # rows of a run at most: beyond, they cost the same each;
_ENOUGH, _FAR = 4_000, 4 << 20  # so many do, if they are wide: of so many bytes, few are near a processor
_AT_ONCE = 5  # times as many rows at most of one that several threads compute: where there are few, these help little
_SLICES = 4  # times as many rows of a run that has slices of them
_CPU, _MORE = torch.device("cpu"), 16  # times as many rows, where they are a device's
_ROUNDS, _STEADY = 7, 15  # times that a run is repeated, and the most while memory grows
_NEAR = 1.03  # times as long as before: no longer
_SOME, _AGREE = 4, 1.05  # times that do, if all but the least and the most of them are so near each other
_LONG, _FEWEST = 0.005, 3  # seconds of runs that are repeated less
_OF_WHOLE, _OF_SPLIT, _OF_COLUMN, _OF_STEP = 4, 4, 3, 2  # runs that are timed for each
_FAULT, _WARM = 1e-6, 0.05  # about the seconds of a page that memory grows by, and their share of a run in warm memory


def model_cost(
    graph: Graph,
    model: nn.Module,
    layers: Sequence[Met],
    shapes: list[Shape],
    workers: int,
    comm: Communicator | None = None,
    device: torch.device = _CPU,
    stays: bool = False,
    maps: bool = False,
    threads: int = 1,
) -> ModelCost:
    """Time copies of the model and its layers of about these shapes; with a communicator, all its workers together.

    `stays`: do edges stay the same from step to step, with what was made of them? `maps`: does the model do something with
    inputs before its first convolution? `threads`: what so many spare one is found besides, if they are more.
    """
    model = copied(model).train().to(device)
    most = [most_rows((layer.wide, layer.out), device) for layer in layers]
    rows = [*(min(int(shape.sources), some) for shape, some in zip(shapes, most, strict=True)), FEW]
    rows = [max(rows[at:]) for at in range(len(rows))]
    few = [FEW] * len(rows)
    least = int(any(isinstance(layer.convolution, BlackBox) for layer in layers))  # edges a destination

    def bench(depth: int) -> _Bench:
        return _Bench(graph, layers[depth], depth, shapes[depth], workers, device, stays)

    def costs_of(depth: int) -> list[float]:
        return [float(figure) for figure in vars(bench(depth).cost(workers > 1, threads)).values()]

    def steps() -> list[float]:
        of_rows = [few, rows] + [[rows[0], *few[1:]]] * maps
        return [step_time(graph, model, each, device, least, stays) for each in of_rows]

    runs = _OF_WHOLE + _OF_SPLIT * (workers > 1)
    by_column = workers > 1 and not stays  # on the full graph slices are timed by themselves
    jobs: list[tuple[int, Callable[[], list[float]]]] = [  # about how many runs each worker times for each
        (_OF_STEP + maps, steps),
        *((runs, partial(costs_of, depth)) for depth in range(len(layers))),
        *[(_OF_COLUMN, lambda: [bench(0).by_column()])] * by_column,
    ]
    took, *figures = shared_out([find for _, find in jobs], comm, [size for size, _ in jobs])
    paced, there = paces(comm, device)
    costs = [LayerCost(*each) for each in figures[: len(layers)]]
    costs[0] = replace(costs[0], column=figures[-1][0] if by_column else 0.0)
    step, between, inputs = _besides(costs, took, rows, least)
    widths = [layer.wide for layer in layers] + [layers[-1].out]
    parameters = sum(p.nbytes for p in model.parameters())
    frozen = sum(p.nbytes for p in model.parameters() if not p.requires_grad)
    if device.type == "cpu":
        return ModelCost(costs, between, step, paced, parameters, widths, None, inputs, frozen)
    begun = there / paced  # in a processor's pieces
    costs = [replace(cost, fixed=cost.fixed * begun, more=cost.more * begun) for cost in costs]
    return ModelCost(costs, between, step * begun, paced, parameters, widths, there, inputs, frozen)


def _besides(
    costs: list[LayerCost], took: Sequence[float], rows: Sequence[int], least: int
) -> tuple[float, float, float]:
    """What a step takes besides its convolutions: whatever its rows, a row between two layers, and one of the inputs.

    `took`: steps with few rows, with these many, and with few but for the inputs, if it maps any.
    """

    def convolved(rows: Sequence[int]) -> float:
        each = zip(costs, rows[:-1], rows[1:], strict=True)
        return sum(of.fixed + of.source * n + (of.destination + of.edge * least) * out for of, n, out in each)

    few, many, by_inputs = [*took, 0.0][:3]
    step, more = max(0.0, few - convolved([FEW] * len(rows))), rows[0] - FEW
    inputs = max(0.0, by_inputs - few - costs[0].source * more) / max(1, more)
    between = max(0.0, many - convolved(rows) - step - inputs * rows[0]) / max(1, sum(rows[1:-1]))
    return step, between, inputs


def copied(module: Module) -> Module:
    """A copy to be run. It shares what PyG knows of its methods' arguments, which would take longest to be copied.

    What a forward has left on it (its attention, say) is copied without the way it was computed.
    """
    known = [conv.inspector for conv in module.modules() if isinstance(conv, MessagePassing)]
    there: dict[int, object] = {id(inspector): inspector for inspector in known}
    for part in module.modules():
        there |= {id(one): one.detach().clone() for one in _computed_in(vars(part)) if id(one) not in there}
    return copy.deepcopy(module, there)


def _computed_in(kept: object) -> Iterator[Tensor]:
    """The tensors among what is kept that know what they were computed of."""
    if isinstance(kept, Tensor) and kept.grad_fn is not None:
        yield kept
    elif isinstance(kept, dict | list | tuple | deque):
        for one in kept.values() if isinstance(kept, dict) else kept:
            yield from _computed_in(one)


class _Bench:
    """A copy of one convolution, run by itself on random rows and edges."""

    def __init__(
        self, graph: Graph, layer: Met, depth: int, shape: Shape, workers: int, device: torch.device, stays: bool
    ) -> None:
        conv, width = copied(layer.convolution.conv).train().to(device), layer.wide
        self._met, self._most = layer._replace(convolution=convolution_of(conv)), most_rows((width, layer.out), device)
        self._graph, self._depth, self._learned, self._device = graph, depth, layer.learned, device
        self._sources = max(FEW * 2, min(int(shape.sources), self._most))
        scale = self._sources / max(shape.sources, 1.0)
        self._destinations = max(FEW * 2, min(int(shape.destinations * scale), self._sources))
        self._edges, self._held = (max(self._destinations, int(n * scale)) for n in (shape.edges, shape.held))
        self._away, self._pairs = int(shape.pushed * self._edges), int(shape.pairs * scale)
        self._more = min(max(1.0, 1 / scale), _AT_ONCE)
        self._others = min(int(shape.away * scale), self._destinations)
        self._least = int(isinstance(self._met.convolution, BlackBox))  # edges a destination: its code may need some
        self._stays = stays
        self._columns, self._comm = ColumnSpan(0, workers, width), Recorder()
        self._x = some_rows(max(self._sources, self._held), width, layer.dtype, device)

    def cost(self, splits: bool, threads: int = 1) -> LayerCost:
        """All but what an edge takes by column; `splits`: are there others, for whom edges may be computed?"""
        fixed, source, destination, edge, ahead = self.whole()
        pushed, asked, begun, out, back = self.split(source, destination) if splits else [0.0] * 5
        pushed, asked = max(edge, pushed), max(edge, asked)  # partial rows come on top, whatever noise says
        pulled = source * self._least  # are rows mapped that others send?
        more = max(0.0, begun - fixed)
        alone = self.alone(threads) if threads > 1 and self._device.type == "cpu" else 1.0
        return LayerCost(fixed, source, destination, edge, pushed, asked, 0.0, ahead, pulled, out, back, more, alone)

    def whole(self) -> list[float]:
        """What is fixed, and what a source, a destination, an edge, and an edge merged ahead take."""
        fixed = self._time(self._rows(FEW, FEW))
        by_source = self._time(self._rows(self._sources, FEW))
        by_both = self._time(self._rows(self._sources, self._destinations))
        layer, x = self._there(whole_layer(self._sources, self._destinations, self._edges))
        whole = self._timed(layer, x)
        source = max(0.0, by_source - fixed) / (self._sources - FEW)
        edge = max(0.0, whole - by_both) / max(1, self._edges - self._least * self._destinations)
        destination = max(0.0, (by_both - by_source) / (self._destinations - FEW) - self._least * edge)
        ahead, asked = 0.0, layer.inputs.asked
        if asked is not None:

            def merge() -> None:
                self._drawn(layer)
                asked.ahead(layer.here, x)

            ahead = timed(merge, self._device) / self._edges
        return [fixed, source, destination, edge, ahead]

    def split(self, source: float, destination: float) -> list[float]:
        """What an edge takes where some are pushed, to owners and by request, where whole rows take so much without any.

        What is fixed there; and of an edge that is not pushed, what is computed while others travel. On the full graph all
        rows are at owners.
        """
        by_rows = source * (self._held - FEW) + destination * (self._destinations - FEW)
        figures, fixed, ran = list[float](), 0.0, None
        for others in (None,) if self._stays else (None, self._others):
            layer = self._split(self._held, self._destinations, self._edges, self._away, self._pairs, others)
            took = self._try(layer, self._x)
            few = self._try(self._split(FEW, FEW, 2 * FEW, FEW, FEW, others and FEW), self._x) if took else 0.0
            figures.append(max(0.0, took - few - by_rows) / self._edges)
            if took:
                fixed, ran = few, (layer, took)
        if ran is None:
            return [0.0] * 5
        layer, took = ran
        meanwhile = took * self._meanwhile(layer) / max(1, self._edges - self._away)
        return [figures[0], figures[-1], fixed, *meanwhile]

    def alone(self, threads: int) -> float:
        """The share of what rows and edges take that one thread does, by runs with one and with so many in turn."""
        counts = (int(n * self._more) for n in (self._sources, self._destinations, self._edges))
        layers = whole_layer(*counts), self._rows(FEW, FEW)
        x = some_rows(layers[0].here.block.num_src, self._met.wide, self._x.dtype)
        runs = [partial(self._run, *self._there(layer, x)) for layer in layers]
        least, before = np.full((2, 2), np.inf), torch.get_num_threads()
        for _ in range(1 + _SOME):
            for (row, many), (column, run) in product(enumerate((1, threads)), enumerate(runs)):
                torch.set_num_threads(many)
                start = time.perf_counter()
                run()
                least[row, column] = min(least[row, column], time.perf_counter() - start)
        torch.set_num_threads(before)
        one, several = least[:, 0] - least[:, 1]
        return float(np.clip((several / one - 1 / threads) / (1 - 1 / threads), 0.0, 1.0)) if one > 0 else 1.0

    def _split(
        self, sources: int, destinations: int, edges: int, away: int, pairs: int, others: int | None
    ) -> SplitLayer:
        """A layer with so many edges, `away` of them the other worker's; partial rows come for `pairs` of these."""
        here = random_block(sources, destinations, edges - away)
        there = random_block(sources, max(1, pairs), away)
        return split_layer(here, there, torch.arange(pairs) % destinations, self._comm, others)

    def by_column(self) -> float:
        """What an edge takes where each worker has a slice of the columns."""
        size, every = self._columns.size, self._held * self._columns.size  # rows of all workers, or a share of them
        share = min(1.0, _SLICES * self._most / every)
        rows, destinations, edges = (max(FEW, int(n * share)) for n in (every, self._destinations, self._edges))
        took = self._try(*self._of_columns(rows, destinations, edges))
        few = self._try(*self._of_columns(FEW, 1, 1)) if took else 0.0  # of each worker's, so that they are few of many
        return max(0.0, took - few) / ((edges - 1) * size)

    def _of_columns(self, rows: int, destinations: int, edges: int) -> tuple[ColumnLayer, Tensor]:
        """A layer of slices, so many destinations and edges of each worker's, and slices of rows."""
        others = self._columns.size - 1
        here = random_block(rows, destinations, edges)
        there = random_block(rows, destinations * others, edges * others)
        at = torch.arange(destinations).repeat(others)
        layer = column_layer(here, there, (torch.arange(destinations), at), at, self._columns, self._comm)
        return layer, some_rows(rows, self._columns.width, self._x.dtype, self._device)

    def _rows(self, sources: int, destinations: int) -> WholeLayer:
        """A layer of so many rows, and of no more edges than it can't do without."""
        return whole_layer(sources, destinations, self._least * destinations)

    def _try(self, layer: Layer, x: Tensor) -> float:
        try:
            return self._time(layer, x)
        except ModelError:  # its layer can't be placed so
            return 0.0

    def _time(self, layer: Layer, x: Tensor | None = None) -> float:
        return self._timed(*self._there(layer, x))

    def _timed(self, layer: Layer, x: Tensor) -> float:
        return timed(partial(self._run, layer, x), self._device)

    def _run(self, layer: Layer, x: Tensor) -> None:
        go_back(self._forward(layer, x))

    def _forward(self, layer: Layer, x: Tensor) -> Tensor:
        self._drawn(layer)
        return run_forward(self._graph, self._met, layer, x, self._depth)

    def _drawn(self, layer: Layer) -> None:
        """From here on the layer is the next batch's."""
        if not self._stays:
            _forget(layer)

    def _meanwhile(self, layer: Layer) -> np.ndarray:
        """The shares of a run in which its exchanges go on, forward and backward, while something is computed."""
        (layer, x), comm, took, shares = self._there(layer), self._comm, 0.0, np.zeros(2)
        for _ in range(_FEWEST):
            begun, comm.meanwhile = time.thread_time(), 0.0
            out = self._forward(layer, x)
            forward = comm.meanwhile
            go_back(out)
            shares += forward, comm.meanwhile - forward
            took += time.thread_time() - begun
        return shares / took

    def _there(self, layer: Layer, x: Tensor | None = None) -> tuple[Layer, Tensor]:
        """A layer on the device, and rows that go into it: some of these, or of whichever."""
        layer = layer.to(self._device)
        rows = (self._x if x is None else x)[: layer.here.block.num_src].detach().requires_grad_(self._learned)
        if self._depth == 0:
            layer.inputs.fetched(rows)
        return layer, rows


def most_rows(widths: tuple[int, int], device: torch.device = _CPU) -> int:
    """How many rows tell what a layer costs."""
    return min(MOST, max(_ENOUGH, _FAR // (4 * max(widths)))) * (1 if device.type == "cpu" else _MORE)


def step_time(
    graph: Graph, model: nn.Module, rows: list[int], device: torch.device = _CPU, least: int = 0, stays: bool = False
) -> float:
    """What a whole step takes without edges (or `least` a destination), with so many rows before and after each layer.

    From the graph's features on, which a model may map before its first convolution.
    """
    vertices = [some_vertices(graph, count) for count in rows]
    layers: list[Layer] = [whole_layer(sources, out, out * least) for sources, out in pairwise(rows)]
    for layer in layers:
        _give_features(layer, graph.num_edge_features)
    program = Program(layers, vertices, vertices, graph, comm=layers[0].comm).to(device)
    runner = BlockModel(model)
    x = 1 + some_rows(rows[0], graph.num_features, dtype_of(model), device) / 2  # ids among them are 1
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)

    def step() -> None:
        for layer in () if stays else program.layers:
            _forget(layer)
        optimizer.zero_grad(set_to_none=True)
        go_back(runner(x, program, ()))
        optimizer.step()

    return timed(step, device)


def _forget(layer: Layer) -> None:
    """Have nothing made of a layer's edges, as where they were just drawn."""
    for edges in layer.parts:
        edges.block.forget()


def _give_features(layer: Layer, columns: int) -> None:
    """Let a layer's edges have so many features, and weigh 1, unless they do."""
    for block in (edges.block for edges in layer.parts):
        like = torch.ones(block.num_edges, device=block.src.device)
        block.values.setdefault("edge_features", like[:, None].expand(-1, columns))
        block.values.setdefault("edge_weight", like)


def go_back(out: Tensor) -> None:
    """Backward from what came of a convolution."""
    if out.requires_grad:
        out.backward(out.detach())  # it has values of all kinds, which take their time


def run_forward(graph: Graph, met: Met, layer: Layer, x: Tensor, depth: int) -> Tensor:
    """What comes of a convolution on some layer and rows."""
    conv = met.convolution.conv
    held = [some_vertices(graph, len(x))] * (depth + 1) + [some_vertices(graph, layer.num_dst)]
    program = Program([layer] * (depth + 1), held, held, graph, comm=layer.comm, made_up=True)
    run = Pass([len(ids) for ids in held], held, (), program.descend)
    of_edges = {name: one for name, one in met.of_edges.items() if getattr(graph, one.stands_for, None) is not None}
    given = _edge_types(conv, layer) | of_edges | dict(met.alongside)
    if of_edges:
        _give_features(layer, graph.num_edge_features)
    return convolve(conv, x, depth, program, run, given, met.convolution)


def some_rows(count: int, width: int, dtype: torch.dtype, device: torch.device = _CPU) -> Tensor:
    """Rows that differ, below 1: of equal ones some convolutions make exact zeros, by which computing takes less."""
    return torch.rand(count, width, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def some_vertices(graph: Graph, count: int) -> Tensor:
    """So many of the graph's vertices, each once or more."""
    return torch.arange(count) % graph.num_vertices


def _edge_types(conv: MessagePassing, layer: Layer) -> dict[str, object]:
    """What a convolution that asks for edge types is given: those that are known, or edges of all its relations in turn."""
    relations = getattr(conv, "num_relations", None)
    if relations is None or "edge_type" not in inspect.signature(type(conv).forward).parameters:
        return {}
    for block in (edges.block for edges in layer.parts):
        if not block.values.get("edge_type", block.indptr[:1]).any():
            block.values["edge_type"] = torch.arange(block.num_edges) % relations
    return {"edge_type": Handle.of("edge_type")}


def pace(device: torch.device = _CPU) -> float:
    """Processor seconds of a piece here and now, or seconds of a device: the least of some runs."""
    return min(seconds_of(_piece(device), device) for _ in range(_ROUNDS)) / _pieces(device)


def paces(comm: Communicator | None, device: torch.device) -> tuple[float, float]:
    """What a piece takes, on the processor and on the device: the least of all workers together."""
    mine = torch.tensor([pace(), pace(device)], dtype=torch.float64)
    here, there = torch.stack(comm.gather(mine) if comm else [mine]).amin(0).tolist()
    return here, there


@cache
def _piece(device: torch.device) -> Callable[[], object]:
    """Work of every kind that training has, rows gathered, multiplied and merged: a piece, or on a device many of them."""
    rows, out, edges = (count * _pieces(device) for count in (PIECE_ROWS, PIECE_OUT, PIECE_EDGES))
    block, x = random_block(rows, out, edges).to(device), torch.ones(rows, PIECE_WIDTH, device=device)
    at, weight = torch.arange(rows) * 4999 % rows, torch.ones(PIECE_WIDTH, PIECE_WIDTH, device=device)
    at = at.to(device)
    return lambda: gather_rows(x, at) @ weight + merged(block, x, "sum").sum()


def _pieces(device: torch.device) -> int:
    """How many are timed at once."""
    return 1 if device.type == "cpu" else 4 * _MORE


def timed(run: Callable[[], object], device: torch.device = _CPU) -> float:
    """What a run takes, in pieces: the median of a few, after one that is not counted; of those in warm memory, if any.

    How much longer work takes in training, the rehearsal finds.
    """
    pieces = _pieces(device)
    run()
    told: list[float] = []
    warm: list[float] = []
    enough, before = _ROUNDS, _settled(device)
    while len(told) < _STEADY and len(warm) < enough:
        faults = getrusage(RUSAGE_SELF).ru_minflt
        took = seconds_of(run, device)
        grew = getrusage(RUSAGE_SELF).ru_minflt - faults
        after = _settled(device, before)
        told.append(2 * took * pieces / (before + after))
        before = after
        if grew * _FAULT < _WARM * took:
            warm = sorted([*warm, told[-1]])
            if len(warm) >= _SOME and warm[-2] <= _AGREE * warm[1]:
                break
        if took > _LONG:
            enough = _FEWEST
    return statistics.median(warm or told)


def _settled(device: torch.device, before: float = 0.0) -> float:
    """What pieces take once theirs is what a processor keeps near: a run of many rows leaves its own there.

    `before`: what they took before the run; the first one that takes no longer has found its rows.
    """
    piece, took = _piece(device), math.inf
    for _ in range(_ROUNDS):
        last, took = took, seconds_of(piece, device)
        if took <= _NEAR * before or took > last / _NEAR:
            break
    return min(last, took)


def seconds_of(run: Callable[[], object], device: torch.device = _CPU) -> float:
    """What a run takes of this thread's processor; or, where that only begins it, of a device."""
    if device.type == "cpu":
        start = time.thread_time()
        run()
        return time.thread_time() - start
    finished(device)
    start = time.perf_counter()
    run()
    finished(device)
    return time.perf_counter() - start
