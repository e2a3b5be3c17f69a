"""What a plan makes workers do in a mean batch: units of work by stage, rows by layer, and bytes from worker to worker."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from weft.exchange import sent_whole
from weft.graph import Graph
from weft.placements import INPUT, OWNER, REQUEST, Moves, placement_named
from weft.plan import Plan
from weft.planner.counts import HOME, SPREAD, Counts, Drawn, Key, PlacedHop, others
from weft.planner.messages import Message
from weft.planner.model_cost import LayerCost

LayerMessages = Mapping[
    tuple[int, str, bool], list[Message] | None
]  # by layer, placement, and are destinations by request?


@dataclass(frozen=True)
class Move:
    """One exchange: bytes from each worker to each other."""

    stage: str
    sent: np.ndarray  # [from, to]


@dataclass(frozen=True)
class PlanLayer:
    """A layer of a plan, and all that its load hangs on."""

    placed: PlacedHop
    asks: bool = False  # are lists asked of their owners?
    top: bool = False  # is it the last layer?

    @property
    def layer(self) -> int:
        """Which layer it is, 0 nearest the inputs."""
        return self.placed.key.layer

    @property
    def placement(self) -> str:
        """How it is placed."""
        return self.placed.placement


@dataclass(frozen=True)
class SlicedPlanLayer:
    """A layer that every worker computes on its slice of the columns of all rows."""

    layer: int


@dataclass(frozen=True)
class DecoupledPlan:
    """All layers of a decoupled model: dense ones apart from mixings."""

    overlaps: bool  # does what they send go on while they are mixed?
    layer: int = 0


PlanPart = PlanLayer | SlicedPlanLayer | DecoupledPlan


def layers_of(plan: Plan) -> Iterator[PlanLayer]:
    """The layers of a plan, from the seeds to the inputs."""
    state = SPREAD if plan.seeds == "spread" else OWNER if OWNER in placement_named(plan.layers[-1]).leaves else HOME
    for layer in reversed(range(len(plan.layers))):
        above, below = plan.held(layer + 1), plan.held(layer) if layer else INPUT
        key = Key(layer, state, layer == 0 and plan.cache > 0)
        asks = plan.topology == "partitioned" and above == REQUEST
        yield PlanLayer(PlacedHop(key, plan.layers[layer], above, below), asks, layer + 1 == len(plan.layers))
        state = OWNER if below == OWNER else state


@dataclass
class Load:
    """What workers do, by stage; figures of a mean batch, [workers]."""

    units: dict[str, dict[str, np.ndarray]]  # by stage and kind
    moves: list[Move] = field(default_factory=list)
    sources: np.ndarray | float = 0.0  # of a layer's convolution: rows in, as many as the worker holds,
    pulled: np.ndarray | float = 0.0  # rows of others besides, which come as their holders mapped them,
    destinations: np.ndarray | float = 0.0  # rows out,
    edges: np.ndarray | float = 0.0  # and edges
    pushes: bool = False  # are some computed for others?
    by_request: bool = False  # are destinations where they were asked for?
    slices: float = 1.0  # the share of a row's columns that it works on
    inputs: np.ndarray | float = 0.0  # rows fetched
    ahead: bool = False  # are inputs merged by the threads that prepare batches?
    cost: LayerCost | None = None  # of the convolution, where it is not computed as layers of batches are
    overlaps: float = 0.0  # the share of what its rows out and edges take, in which its exchanges go on


@dataclass(frozen=True)
class EdgeValues:
    """Bytes that go with an edge besides its source: its place, what it weighs, of which relation it is."""

    pushed: int = 0
    column: int = 0
    listed: int = 0  # in lists that owners were asked for
    places: bool = False  # do pushed edges take their places along?

    @classmethod
    def of(cls, graph: Graph, types: bool, places: bool) -> Self:
        """On a graph, for a model that asks for types, and for places, or doesn't."""
        weights, typed = (4 * (values is not None) for values in (graph.edge_weight, graph.edge_type))
        asked = typed * types
        return cls(
            weights + 2 * asked + 4 * places, weights + asked, weights + typed + 8 * bool(weights + typed), places
        )


@dataclass(frozen=True)
class Setting:
    """What loads hang on besides counts."""

    messages: LayerMessages
    hosts: Sequence[int]  # of each worker
    row: float  # bytes of a stored row
    id_bytes: float
    parameters: float  # bytes of the model
    values: EdgeValues = EdgeValues()


class Loads:
    """The load of each part of a plan, as one dry run counted it."""

    def __init__(self, counts: Counts, setting: Setting, half: bool = False) -> None:
        """`half`: rows of float32 travel in half precision."""
        self._half = 0.5 if half else 1.0
        self._counts, self._messages, self._workers = counts, setting.messages, len(setting.hosts)
        self._row, self._id, self._parameters = setting.row, setting.id_bytes, setting.parameters
        self._values = setting.values
        self._near = np.equal.outer(np.array(setting.hosts), np.array(setting.hosts))

    def of(self, part: PlanPart) -> Load:
        """What a layer makes workers do, and fetching its inputs, if it is the first."""
        assert isinstance(part, PlanLayer)
        load, placed = self._empty(), part.placed
        drawn, moves = self._counts.batch.drawn[placed.key], self._counts.batch.moves[placed]
        self._draw(load, part, drawn)
        if placed.kind.splits or placed.below == OWNER:
            self._ask(load, part, drawn, moves)
            self._cross(load, part, moves)
        self._compute(load, part, drawn, moves)
        if part.layer == 0:
            self._fetch(load, part, drawn, moves)
        return load

    def step(self) -> Load:
        """What every batch takes besides its layers: gradients that are summed."""
        load = self._empty()
        load.units["sync"]["sum"] += self._parameters
        self._sum(load, "sync", self._parameters)
        return load

    def _empty(self) -> Load:
        return Load(defaultdict(lambda: defaultdict(lambda: np.zeros(self._workers))))

    def _draw(self, load: Load, part: PlanLayer, drawn: Drawn) -> None:
        sample = load.units["sample"]
        sample["hop"] += 1
        sample["number"] += drawn.sources.sum(1)
        sample["draw"] += drawn.lists.sum(0) if part.asks else drawn.edges
        if part.placed.key.state == HOME and part.top and self._counts.uneven:
            self._even(load, drawn)
        if part.asks:
            asked, edges = others(drawn.destinations), others(drawn.lists)
            self._ids(load, asked * self._id, rows=asked)
            self._ids(load, (asked * 4 + edges * (self._id + self._values.listed)).T, edges=edges.T)

    def _even(self, load: Load, drawn: Drawn) -> None:
        """Seeds leave homes that are too full: every worker tells how many of their neighbours each one lacks."""
        seeds = self._counts.uneven / self._workers
        load.units["sample"]["even"] += self._counts.uneven
        load.units["sample"]["draw"] += drawn.edges * self._counts.uneven / max(1.0, self._counts.coverage.seeds)
        numbers = np.full((self._workers, self._workers), seeds * self._workers * 8.0)
        self._move(load, Move("sample", others(numbers)))

    def _ask(self, load: Load, part: PlanLayer, drawn: Drawn, moves: Moves) -> None:
        """Who needs what of whom: ids, in one exchange."""
        values, sample = self._values, load.units["sample"]
        if isinstance(moves.edges, np.ndarray):
            sample["cut"] += drawn.edges
        sample["cover"] += self._by_worker(moves.solved)
        by_id = values.places or part.placed.above == REQUEST
        sent = moves.edges * (self._id + values.pushed) + moves.pairs * (4 + self._id * by_id) + moves.asked * self._id
        sent = sent + moves.copied_edges * (4 + values.column) + moves.copied_rows * self._id + moves.columns * 4
        rows, edges = moves.asked + moves.pairs + moves.copied_rows, moves.edges + moves.copied_edges
        self._ids(load, *(self._matrix(figures) for figures in (sent, rows, edges)))

    def _cross(self, load: Load, part: PlanLayer, moves: Moves) -> None:
        """Rows and sums in the layer, forward and backward."""
        messages = self._messages.get((part.layer, part.placement, part.placed.above == REQUEST)) or []
        load.units["compute"]["cross"] += bool(messages)
        for message in messages:
            if "all" in message.bytes:
                self._sum(load, "exchange", message.bytes["all"] * float(self._counts.held.sum()))
                continue
            wanted = {kind: self._matrix(getattr(moves, kind)) for kind in message.bytes}
            none = self._matrix(0.0)
            came = sum((wanted[kind] * each * self._half for kind, each in message.bytes.items()), none)
            rows = sum((wanted[kind] for kind in ("pulled", "own") if kind in wanted), none)
            load.units["compute"]["join"] += rows.sum(0) + rows.sum(1)  # partial rows are part of a pushed edge's cost
            self._move(load, Move("exchange", came if message.back else came.T))

    def _compute(self, load: Load, part: PlanLayer, drawn: Drawn, moves: Moves) -> None:
        away, copied = self._matrix(moves.edges), self._matrix(moves.copied_edges)
        load.edges = drawn.edges - away.sum(1) + away.sum(0) + copied.sum(0)
        load.destinations, load.slices = drawn.destinations.sum(1), moves.slices
        load.pushes, load.by_request = isinstance(moves.edges, np.ndarray), part.placed.above == REQUEST
        load.pulled = self._by_worker(moves.pulled)
        load.sources = self._held(part.layer, moves) + self._by_worker(moves.sources)

    def _held(self, layer: int, moves: Moves) -> np.ndarray:
        """Rows that a layer takes where their owners hold them; of slices, those of all owners."""
        held = self._counts.held_below(layer) * moves.held
        return held if moves.slices == 1 else np.full(self._workers, held.sum())

    def _fetch(self, load: Load, part: PlanLayer, drawn: Drawn, moves: Moves) -> None:
        fetch = load.units["fetch"]
        if moves.slices < 1:
            load.inputs = self._held(0, moves) * moves.slices
            fetch["gather"] += load.inputs * self._row
            return
        load.ahead = not part.placed.kind.splits
        fetch["fetch"] += part.placed.kind.fetches  # owners' own rows need not be looked for
        wanted = self._matrix(moves.inputs) + self._counts.held * moves.held
        far = np.where(self._near, 0.0, wanted)
        load.inputs = wanted.sum(1) + drawn.cached[:, 0]
        fetch["gather"] += load.inputs * self._row
        if far.any():
            fetch["ask"] += far.sum(0) + far.sum(1)
            self._move(load, Move("fetch", far * self._id))
            self._move(load, Move("fetch", far.T * self._row * self._half))

    def _ids(
        self, load: Load, sent: np.ndarray, rows: np.ndarray | None = None, edges: np.ndarray | None = None
    ) -> None:
        for kind, matrix in (("ask", rows), ("edge", edges)):
            if matrix is not None:
                load.units["sample"][kind] += matrix.sum(0) + matrix.sum(1)
        self._move(load, Move("sample", sent))

    def _sum(self, load: Load, stage: str, size: float) -> None:
        """So many bytes, added up over all workers: small ones go to all, of larger ones each worker adds up a part."""
        sent = others(np.full((self._workers, self._workers), size))
        whole = sent_whole(size, self._workers)
        for _ in range(1 if whole else 2):
            self._move(load, Move(stage, sent if whole else sent / self._workers))

    def _move(self, load: Load, move: Move) -> None:
        load.moves.append(move)
        load.units[move.stage]["tell" if move.stage == "sample" else "message"] += 1
        load.units[move.stage]["carry"] += move.sent.sum(0) + move.sent.sum(1)

    def _matrix(self, figures: np.ndarray | float) -> np.ndarray:
        """Of each worker, by each other one; none, where it is 0."""
        return figures if isinstance(figures, np.ndarray) else np.full((self._workers, self._workers), figures)

    def _by_worker(self, figures: np.ndarray | float) -> np.ndarray:
        return figures.sum(1) if isinstance(figures, np.ndarray) else np.full(self._workers, figures)
