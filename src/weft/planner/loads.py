"""What a plan makes workers do in a mean batch: units of work by stage, rows by layer, and bytes from worker to worker.

First what is known of a model's layers (`model_cost.py` finds it): what they cost, and what they exchange.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from torch import nn

from weft.exchange import sent_whole
from weft.graph import Graph
from weft.nn import drops_edges, takes_types
from weft.placements import OWNER, REQUEST, Held, Moves, Placement
from weft.plan import Plan
from weft.planner.counts import HOME, SPREAD, CountedBatch, Drawn, Key, PlacedHop
from weft.planner.task import Options

_PLACE = 4.0  # bytes of a place in a cache


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
    meanwhile: float = 0.0  # of an edge here where some are pushed: computed while partial rows travel, forward
    meanwhile_back: float = 0.0  # and backward
    more: float = 0.0  # besides `fixed`, where edges are pushed
    alone: float = 1.0  # of rows' and edges' time: what more threads than one do not spare; all, unless it was timed


@dataclass(frozen=True)
class ModelCost:
    """Processor time of a model's step on one worker, in pieces of work."""

    layers: list[LayerCost]
    between: float  # a row between two layers: activations, dropout, normalisation
    step: float  # each batch: what is left of a step where there are no rows; the optimiser
    pace: float  # processor seconds of a piece of work, at the same time
    parameters: int  # bytes
    widths: list[int]  # of the rows that go into each layer, and of those that come out of the last
    device_pace: float | None = None  # seconds of a piece on the device that rows were timed on; None: on processors
    inputs: float = 0.0  # a row before the first layer, where a model does something with it
    frozen: int = 0  # bytes of parameters, of those above, that are not trained

    @property
    def gradients(self) -> int:
        """Bytes of them, which are summed."""
        return self.parameters - self.frozen

    @property
    def learning(self) -> float:
        """Bytes of parameters in training: values, gradients, two moments, and two more in the midst of a step."""
        return self.parameters + 5.0 * self.gradients


@dataclass(frozen=True)
class Message:
    """One exchange of a layer: bytes a row of each kind, coming to the worker that wants them or (gradients) going back."""

    # By kind: others' rows, destinations' own, partial ones, those by column; summed ones (all).
    bytes: dict[str, float]
    back: bool = False


LayerMessages = dict[tuple[int, str, bool], list[Message] | None]  # by layer, placement, and: by request?
Units = dict[str, dict[str, np.ndarray]]  # of work of each worker, by stage and kind


class Move(NamedTuple):
    """One exchange: bytes from each worker to each other."""

    stage: str
    sent: np.ndarray  # [from, to]


@dataclass
class Load:
    """What workers do, by stage; figures of a mean batch, [workers]."""

    units: Units
    moves: list[Move] = field(default_factory=list)
    layer: int | None = None  # whose convolution it is of, 0 nearest the inputs; None: of what is left of a step
    sources: np.ndarray | float = 0.0  # of the convolution: rows in, as many as the worker holds,
    pulled: np.ndarray | float = 0.0  # rows of others besides, which come as their holders mapped them,
    destinations: np.ndarray | float = 0.0  # rows out,
    edges: np.ndarray | float = 0.0  # and edges
    pushes: bool = False  # are some computed for others?
    by_request: bool = False  # are destinations where they were asked for?
    slices: np.ndarray | float = 1.0  # the share of a row's columns that it works on
    inputs: np.ndarray | float = 0.0  # rows fetched,
    met: np.ndarray | float = 0.0  # of them those that devices' caches have,
    lent: np.ndarray | float = 0.0  # and of these such as other devices of the host have, [worker, other]
    ahead: bool = False  # are inputs merged by the threads that prepare batches?
    cost: LayerCost | None = None  # of the convolution, where it is not computed as layers of batches are
    meanwhile: np.ndarray | float = 0.0  # edges that are computed while exchanges go on, forward
    meanwhile_back: np.ndarray | float = 0.0  # and backward,
    overlaps: float = 1.0  # of so much of these
    share: float = 1.0  # what a batch has of it, where it is of several batches together
    stays: bool = False  # are its lists, and inputs, where it is computed since the start of the run?

    @classmethod
    def of(cls, workers: int, layer: int | None = None) -> Self:
        """Nothing yet."""
        units: Units = defaultdict(partial(defaultdict, partial(np.zeros, workers)))
        return cls(units, layer=layer)

    def move(self, stage: str, sent: np.ndarray) -> None:
        """An exchange: bytes from each worker (rows) to each other."""
        self.moves.append(Move(stage, sent))
        self.units[stage]["tell" if stage == "sample" else "message"] += 1
        self.units[stage]["carry"] += sent.sum(0) + sent.sum(1)

    def tell(self, sent: np.ndarray, **kinds: np.ndarray) -> None:
        """An exchange of lists while batches are drawn; `kinds`: what of each kind goes from worker to worker."""
        for kind, matrix in kinds.items():
            self.units["sample"][kind] += matrix.sum(0) + matrix.sum(1)
        self.move("sample", sent)

    def sum(self, stage: str, sizes: np.ndarray, team: np.ndarray) -> None:
        """Bytes of each worker, added up over its team: small ones go to all, of larger ones each worker adds up a part.

        `team`: who are in one, [worker, other].
        """
        sent, members = others(sizes[:, None] * team), team.sum(1, keepdims=True)
        whole = sent_whole(float(sizes.max()), int(members.max()))
        for _ in range(1 if whole else 2):
            self.move(stage, sent if whole else sent / members)

    def leave_out(self, stages: Collection[str]) -> None:
        """What is done in some stages is done once, at the start of a run."""
        for stage in stages:
            self.units[stage].clear()
        self.moves = [move for move in self.moves if move.stage not in stages]
        self.stays = "sample" in stages
        if "fetch" in stages:
            self.ahead, self.inputs, self.met = False, 0.0, 0.0
            self.units["compute"].pop("arrive", None)
        if "compute" in stages:
            self.sources, self.edges = self.destinations, 0.0 * self.destinations
            self.meanwhile = self.meanwhile_back = 0.0


@dataclass(frozen=True)
class PlanLayer:
    """A layer of a plan, and all that its load hangs on."""

    placed: PlacedHop
    asks: bool = False  # are lists asked of their owners?
    top: bool = False  # is it the last layer?

    @classmethod
    def of(cls, layer: int, kind: Placement, above: Held, below: Held, top: bool, options: Options) -> Self:
        """A layer between rows that are held so; `options`: fields of the plan, or those that are not the usual ones."""
        spread = options.get("seeds", Plan.seeds) == "spread"
        owned = above == OWNER or (top and not spread and OWNER in kind.leaves)  # both, at home
        state, cache = (
            OWNER if owned else SPREAD if spread else HOME,
            0.0 if layer else options.get("cache", Plan.cache),
        )
        asks = options.get("topology") == "partitioned" and above == REQUEST
        at_owners = bool(cache) and kind.splits
        of_host = bool(cache) and options.get("cache_per") == "host"
        return cls(PlacedHop(Key(layer, state, cache, at_owners, of_host), kind, above, below), asks, top)

    def load(self, counted: "Counted") -> Load:
        """What a layer makes workers do, and fetching its inputs, if it is the first."""
        return counted.layer(self)


@dataclass(frozen=True)
class SlicedPart:
    """What every worker computes on its slice of the columns of all rows: a layer, or the whole of a decoupled model."""

    layer: int
    cost: LayerCost
    messages: tuple[float, ...]  # of every exchange, forward and backward: bytes a row, to each other worker
    edge_bytes: float = 0.0  # bytes an edge that are summed over the workers
    by_rounds: bool = False  # is it gone through in rounds, so that some rows travel while others are summed?
    overlaps: float = 1.0  # the share of its exchanges that may go on meanwhile

    def in_rounds(self, count: int, overlap: bool, late: float) -> "SlicedPart":
        """The same as it is run, by plans of so many rounds; `late`: the share of rows that the first one does not need.

        All results but the last round's are on their way while others are summed; rows for a later round likewise.
        """
        if not self.by_rounds:
            return self
        half, share = self.cost.edge / 2 * overlap, (late + 1 - 1 / count) / 2
        cost = replace(self.cost, meanwhile=half, meanwhile_back=half)
        messages = tuple(each / count for each in self.messages for _ in range(count))
        return replace(self, cost=cost, messages=messages, overlaps=share)

    def load(self, counted: "Counted") -> Load:
        """The same for all workers."""
        return counted.sliced(self)


@dataclass(frozen=True)
class RestOfStep:
    """What every batch takes besides its layers: gradients that are summed; on the full graph, what the loss exchanges."""

    def load(self, counted: "Counted") -> Load:
        """The same for all plans."""
        return counted.step()


PlanPart = PlanLayer | SlicedPart | RestOfStep


@dataclass(frozen=True)
class EdgeValues:
    """Bytes that go with an edge besides its source: its place, what it weighs, of which relation it is."""

    pushed: int = 0
    column: int = 0
    listed: int = 0  # in lists that owners were asked for
    places: bool = False  # do pushed edges take their places along?

    @classmethod
    def of(cls, graph: Graph, model: nn.Module) -> Self:
        """On a graph, for a model, which may ask for types, and for places."""
        types, places = takes_types(model), drops_edges(model)
        weights, typed = (4 * (values is not None) for values in (graph.edge_weight, graph.edge_type))
        asked, values = typed * types, weights + typed + 4 * graph.num_edge_features
        return cls(weights + 2 * asked + 4 * places, weights + asked, values + 8 * bool(values), places)


@dataclass(frozen=True)
class Setting:
    """What loads hang on besides counts."""

    messages: LayerMessages
    hosts: Sequence[int]  # of each worker
    row: float  # bytes of a stored row
    id_bytes: float
    gradients: float  # bytes of all of the model's
    out: float = 0.0  # and of a row that it gives
    values: EdgeValues = EdgeValues()
    once: Collection[str] = ()  # stages that a run goes through once, at its start,
    once_of_inputs: Collection[str] = ()  # and those of layers that merge what stays:
    of_inputs: int = 0  # so many nearest the inputs
    parts: int = 1  # of a step's batch: gradients are summed once for all of them
    halved: bool = True  # are stored rows of float32, which half precision on the wire makes smaller?

    def sent_row(self, half: bool) -> float:
        """Bytes of a stored row on its way; `half`: those of float32 travel in half precision."""
        return self.row * (0.5 if half and self.halved else 1.0)


class Counted:
    """A batch that was counted: the load of each part of a plan in it."""

    def __init__(self, batch: CountedBatch, setting: Setting, half: bool = False, group: str = "all") -> None:
        """`half`: rows of float32 travel in half precision. `group`: who are a team."""
        self._batch, self._setting, self._half, self._workers = batch, setting, 0.5 if half else 1.0, len(setting.hosts)
        self._sent_row = setting.sent_row(half)
        self._near = np.equal.outer(np.array(setting.hosts), np.array(setting.hosts))
        self._team = {"all": np.ones_like(self._near), "host": self._near}[group]  # of each worker

    def step(self) -> Load:
        """The load of what every batch takes besides its layers."""
        load, size = Load.of(self._workers), self._setting.gradients
        load.share = 1 / self._setting.parts
        if self._workers == 1:  # nobody has gradients to add
            return load
        load.units["sync"]["sum"] += size
        load.sum("sync", np.full(self._workers, size), np.ones_like(self._team))
        if self._setting.once:  # of the full graph, whose plans hold rows alike
            self._exchange_for_loss(load, OWNER)
        return load

    def layer(self, part: PlanLayer) -> Load:
        """The load of a layer that is placed."""
        placed = part.placed
        first, load = placed.key.layer == 0, Load.of(self._workers, placed.key.layer)
        drawn, moves = self._batch.drawn[placed.key], self._batch.moves[placed]
        self._draw(load, part, drawn)
        if placed.kind.splits or placed.below == OWNER:
            self._ask(load, placed, drawn, moves)
            self._cross(load, placed, moves)
        self._compute(load, placed, drawn, moves)
        if first:
            self._fetch(load, placed, drawn, moves)
        stays = placed.key.layer < self._setting.of_inputs
        load.leave_out(self._setting.once_of_inputs if stays else self._setting.once)
        if part.top and not self._setting.once:
            self._exchange_for_loss(load, placed.key.state)
        return load

    def sliced(self, part: SlicedPart) -> Load:
        """The load of what is computed on slices, of all rows."""
        workers, own = self._workers, self._batch.held.sum(1)
        load, edges = Load.of(workers, part.layer), float(self._batch.drawn[Key(0, OWNER)].lists.sum())
        sent = [own * each * self._half for each in part.messages]
        if part.edge_bytes:
            sent += [np.full(workers, edges * part.edge_bytes / workers)] * 2
        for each in sent:
            load.move("exchange", others(np.repeat(each[:, None], workers, 1)))
        load.stays = True
        load.sources, load.destinations, load.edges = own, np.full(workers, own.sum()), np.full(workers, edges)
        load.cost, load.meanwhile, load.meanwhile_back, load.overlaps = part.cost, load.edges, load.edges, part.overlaps
        return load

    def _exchange_for_loss(self, load: Load, state: str) -> None:
        """Rows that the loss needs of other workers come there, and their gradients go back."""
        wanted = self._batch.needed.get(state)
        if wanted is not None:
            load.tell(wanted * self._setting.id_bytes, ask=wanted)
            load.units["compute"]["cross"] += 1
            load.units["compute"]["join"] += 2 * (wanted.sum(0) + wanted.sum(1))
            for rows in (wanted.T, wanted):
                load.move("exchange", rows * self._setting.out * self._half)

    def _draw(self, load: Load, part: PlanLayer, drawn: Drawn) -> None:
        sample, id_bytes = load.units["sample"], self._setting.id_bytes
        sample["hop"] += 1
        sample["number"] += drawn.sources.sum(1)
        sample["draw"] += drawn.lists.sum(0) if part.asks else drawn.lists.sum(1)
        uneven = float(self._batch.uneven.max())
        if part.placed.key.state == HOME and part.top and uneven:  # seeds leave homes that are too full:
            sample["even"] += uneven  # every worker tells how many neighbours its own ones draw, and whose these are
            edges = drawn.lists.sum(1) * uneven / max(1.0, self._batch.seeds)
            sample["draw"] += edges
            told = 4 * uneven / self._workers + 2 * edges
            load.tell(others(np.repeat(told[:, None], self._workers, 1)))
        if part.asks:
            asked, edges = others(drawn.destinations), others(drawn.lists)
            load.tell(asked * id_bytes, ask=asked)
            load.tell((asked * 4 + edges * (id_bytes + self._setting.values.listed)).T, edge=edges.T)

    def _ask(self, load: Load, placed: PlacedHop, drawn: Drawn, moves: Moves) -> None:
        """Who needs what of whom: ids, in one exchange."""
        values, id_bytes, sample = self._setting.values, self._setting.id_bytes, load.units["sample"]
        if isinstance(moves.edges, np.ndarray):
            sample["cut"] += drawn.lists.sum(1)
        sample["cover"] += self._by_worker(moves.solved)
        by_id = values.places or placed.above == REQUEST
        sent = moves.edges * (id_bytes + values.pushed) + moves.pairs * (4 + id_bytes * by_id) + moves.asked * id_bytes
        sent = sent + moves.copied_edges * (4 + values.column) + moves.copied_rows * id_bytes + moves.columns * 4
        rows, edges = moves.asked + moves.pairs + moves.copied_rows, moves.edges + moves.copied_edges
        load.tell(self._matrix(sent), ask=self._matrix(rows), edge=self._matrix(edges))

    def _cross(self, load: Load, placed: PlacedHop, moves: Moves) -> None:
        """Rows and sums in the layer, forward and backward."""
        case = placed.key.layer, placed.kind.name, placed.above == REQUEST
        messages = self._setting.messages.get(case) or []
        load.units["compute"]["cross"] += bool(messages)
        for message in messages:
            if "all" in message.bytes:
                load.sum("exchange", message.bytes["all"] * (self._team @ self._batch.held.sum(1)), self._team)
                continue
            wanted = {kind: self._matrix(getattr(moves, kind)) for kind in message.bytes}
            none = self._matrix(0.0)
            came = sum((wanted[kind] * each * self._half for kind, each in message.bytes.items()), none)
            rows = sum((wanted[kind] for kind in ("pulled", "own") if kind in wanted), none)
            load.units["compute"]["join"] += rows.sum(0) + rows.sum(1)  # partial rows are part of a pushed edge's cost
            load.move("exchange", came if message.back else came.T)

    def _compute(self, load: Load, placed: PlacedHop, drawn: Drawn, moves: Moves) -> None:
        away, copied = self._matrix(moves.edges), self._matrix(moves.copied_edges)
        own = drawn.lists.sum(1) - away.sum(1)
        load.edges = own + away.sum(0) + copied.sum(0)
        load.destinations, load.slices = drawn.destinations.sum(1), self._by_worker(moves.slices)
        load.pushes, load.by_request = isinstance(moves.edges, np.ndarray), placed.above == REQUEST
        load.pulled = self._by_worker(moves.pulled)
        if load.pushes:  # gradients of rows that were pulled go back with those of partial rows, once all are there
            load.meanwhile, load.meanwhile_back = own, 0.0 if isinstance(moves.pulled, np.ndarray) else own
        load.sources = self._held(placed.key.layer, moves) + self._by_worker(moves.sources)

    def _held(self, layer: int, moves: Moves) -> np.ndarray:
        """Rows that a layer takes where their owners hold them; of slices, those of all owners in the team."""
        held = self._batch.held_below(layer) * moves.held
        return self._team @ held if isinstance(moves.slices, np.ndarray) else held

    def _fetch(self, load: Load, placed: PlacedHop, drawn: Drawn, moves: Moves) -> None:
        fetch, row = load.units["fetch"], self._setting.row
        if isinstance(moves.slices, np.ndarray):
            load.inputs = self._held(0, moves) * load.slices
            fetch["gather"] += load.inputs * row
            return
        load.ahead = not placed.kind.splits
        fetch["fetch"] += placed.kind.fetches  # owners' own rows need not be looked for
        wanted = self._matrix(moves.inputs) + self._batch.held * moves.held
        load.inputs, load.met = wanted.sum(1) + drawn.cached[:, 0], drawn.met[:, 0]
        fetch["gather"] += (load.inputs - load.met) * row
        if drawn.lent.any():
            self._lend(load, drawn.lent)
        came = moves.fetched if isinstance(moves.fetched, np.ndarray) else np.where(self._near, 0.0, wanted)
        handed, far = np.where(self._near, came, 0.0), np.where(self._near, 0.0, came)
        fetch["ask"] += came.sum(0) + came.sum(1)
        fetch["gather"] += (came.sum(0) + came.sum(1)) * row  # picked by its holder, and put in its place
        if handed.any():  # each row comes once to a host, whose workers hand it on
            load.move("fetch", handed * self._setting.id_bytes)
            load.move("fetch", handed.T * self._sent_row)
        if far.any():
            load.move("fetch", far * self._setting.id_bytes)
            rows = (far - moves.narrower) * self._sent_row
            load.move("fetch", rows.T)
            load.units["compute"]["arrive"] += rows.sum(1)

    def _lend(self, load: Load, lent: np.ndarray) -> None:
        """Rows go from device to device, as they are stored, once it was told which places in caches they have."""
        load.lent = lent
        load.units["fetch"]["ask"] += lent.sum(0) + lent.sum(1)
        load.move("fetch", lent * _PLACE)
        load.move("exchange", lent.T * self._setting.row)

    def _matrix(self, figures: np.ndarray | float) -> np.ndarray:
        """Of each worker, by each other one; none, where it is 0."""
        return figures if isinstance(figures, np.ndarray) else np.full((self._workers, self._workers), figures)

    def _by_worker(self, figures: np.ndarray | float) -> np.ndarray:
        return figures.sum(1) if isinstance(figures, np.ndarray) else np.full(self._workers, figures)


def others(matrix: np.ndarray) -> np.ndarray:
    """What goes to others: without the diagonal."""
    return matrix * (1 - np.eye(len(matrix)))
