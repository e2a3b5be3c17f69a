"""What a plan makes workers do in a mean batch: units of work by stage, rows by layer, and bytes from worker to worker."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from weft.exchange import sent_whole
from weft.graph import Graph
from weft.placements import EXACT_UP_TO
from weft.plan import Plan
from weft.planner.counts import HOME, OWNER, SPREAD, Cell, Counts, Key
from weft.planner.crossings import Message
from weft.planner.layers import LayerCost

# Kinds of work besides the model's layers, and what a unit of each is; the probe finds the seconds that it takes.
KINDS = {
    "hop": "seconds a layer whose neighbours are drawn",
    "draw": "seconds an edge drawn",
    "number": "seconds a vertex among the sources of a layer",
    "cut": "seconds an edge that may be computed at its source's owner",
    "cover": "seconds an edge between owners, where it is found what to pull and what to push exactly",
    "even": "seconds a seed whose home is too full",
    "edge": "seconds an edge whose ends are sent or come",
    "ask": "seconds a row asked of another worker, or by one",
    "message": "seconds an exchange",
    "tell": "seconds an exchange of lists, while batches are drawn",
    "fetch": "seconds a batch's rows are fetched in, whatever they are",
    "gather": "seconds a byte of rows gathered",
    "disk": "seconds a byte of rows that are not in memory",
    "carry": "seconds a byte that is sent or comes",
    "cross": "seconds a layer whose rows or sums cross between workers, whatever they are",
    "join": "seconds a row that layers send, or get and put in place",
    "sum": "seconds a byte of gradients",
    "step": "seconds in training of a second that the model takes by itself, whatever its rows",
    "layers": "seconds in training of a second that its layers take by themselves for rows and edges",
    "pace": "seconds of a small fixed piece of work, by which these times are told from others and other machines'",
    "busy": "the share of processors' time that workers make use of, where they wait for each other again and again",
    "overlap": "how well processors, links, training and preparing run side by side: the exponent of a norm",
}


@dataclass(frozen=True)
class Move:
    """One exchange: bytes from each worker to each other."""

    stage: str
    sent: np.ndarray  # [from, to]


@dataclass(frozen=True)
class Piece:
    """A layer of a plan, and all that its load hangs on."""

    cell: Key  # which of the dry run's cells: layer, how destinations are held, and are inputs cached?
    placement: str
    by_request: bool  # are destinations' rows held where they were asked for?
    below: bool  # are the rows below held by their owners?
    asks: bool  # are lists asked of their owners?
    top: bool  # is it the last layer?
    overlaps: bool = False  # does what it sends go on while it computes?

    @property
    def layer(self) -> int:
        """Which layer it is, 0 nearest the inputs."""
        return self.cell[0]


def pieces(plan: Plan) -> Iterator[Piece]:
    """The layers of a plan, from the seeds to the inputs."""
    state = SPREAD if plan.seeds == "spread" else HOME if plan.layers[-1] == "local" else OWNER
    for layer in reversed(range(len(plan.layers))):
        by_request = plan.held(layer + 1) == "request"
        below = layer > 0 and plan.held(layer) == "owner"
        asks = plan.topology == "partitioned" and by_request
        top = layer + 1 == len(plan.layers)
        yield Piece((layer, state, layer == 0 and plan.cache > 0), plan.layers[layer], by_request, below, asks, top)
        state = OWNER if below else state


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
    cost: LayerCost | None = None  # of the convolution, where it is not computed as layers of batches are
    overlaps: float = 0.0  # the share of what its rows out and edges take, in which its exchanges go on
    ahead: bool = False  # are inputs merged by the threads that prepare batches?


Crossings = dict[
    tuple[int, str, bool], list[Message] | None
]  # by layer, placement, and are destinations held by request?


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

    crossings: Crossings
    hosts: Sequence[int]  # of each worker
    row: float  # bytes of a stored row
    id_bytes: float
    parameters: float  # bytes of the model
    values: EdgeValues = EdgeValues()


class Loads:
    """The load of each piece of a plan, as one dry run counted it."""

    def __init__(self, counts: Counts, setting: Setting, half: bool = False) -> None:
        """`half`: rows of float32 travel in half precision."""
        self._half = 0.5 if half else 1.0
        self._counts, self._crossings, self._workers = counts, setting.crossings, len(setting.hosts)
        self._row, self._id, self._parameters = setting.row, setting.id_bytes, setting.parameters
        self._values = setting.values
        self._near = np.equal.outer(np.array(setting.hosts), np.array(setting.hosts))

    def of(self, piece: Piece) -> Load:
        """What a layer makes workers do, and fetching its inputs, if it is the first."""
        load, cell = self._empty(), self._counts.cells[piece.cell]
        self._draw(load, piece, cell)
        wants = self._wants(piece, cell)
        self._tell(load, piece, cell, wants)
        self._cross(load, piece, wants)
        self._compute(load, piece, cell, wants)
        if piece.layer == 0:
            self._fetch(load, piece, cell)
        return load

    def step(self) -> Load:
        """What every batch takes besides its layers: gradients that are summed."""
        load = self._empty()
        load.units["sync"]["sum"] += self._parameters
        self._sum(load, "sync", self._parameters)
        return load

    def _empty(self) -> Load:
        return Load(defaultdict(lambda: defaultdict(lambda: np.zeros(self._workers))))

    def _draw(self, load: Load, piece: Piece, cell: Cell) -> None:
        sample = load.units["sample"]
        sample["hop"] += 1
        sample["number"] += cell.sources.sum(1)
        sample["draw"] += cell.lists.sum(0) if piece.asks else cell.edges
        if piece.cell[1] == HOME and piece.top and self._counts.uneven:
            self._even(load, cell)
        if piece.asks:
            asked, edges = others(cell.destinations), others(cell.lists)
            self._ids(load, asked * self._id, rows=asked)
            self._ids(load, (asked * 4 + edges * (self._id + self._values.listed)).T, edges=edges.T)

    def _even(self, load: Load, cell: Cell) -> None:
        """Seeds leave homes that are too full: every worker is told how many of their neighbours each one lacks."""
        seeds = self._counts.uneven / self._workers
        load.units["sample"]["even"] += self._counts.uneven
        load.units["sample"]["draw"] += cell.edges * self._counts.uneven / max(1.0, self._counts.seeds)
        told = np.full((self._workers, self._workers), seeds * self._workers * 8.0)
        self._move(load, Move("sample", others(told)))

    def _wants(self, piece: Piece, cell: Cell) -> dict[str, np.ndarray]:
        """Rows that each worker wants of each other in the layer, by kind; and its edges that others compute."""
        wants = {kind: np.zeros_like(cell.sources) for kind in ("pulled", "own", "pairs", "columns", "edges")}
        if piece.placement == "push":
            wants |= {"pairs": others(cell.pairs), "edges": others(cell.pushed)}
        elif piece.placement == "cover":
            wants |= {"pairs": others(cell.cover_pairs), "edges": others(cell.cover_pushed)}
            wants["pulled"] += others(cell.cover_sources) * (piece.layer > 0)
        elif piece.placement == "columns":
            wants["columns"] += self._from_all(cell.destinations.sum(1))
        elif piece.below:
            wants["pulled"] += others(cell.sources)
        if piece.by_request and (piece.placement == "push" or (piece.placement == "local" and piece.below)):
            wants["own"] += others(cell.destinations)
        return wants

    def _tell(self, load: Load, piece: Piece, cell: Cell, wants: dict[str, np.ndarray]) -> None:
        """Who needs what of whom: ids, in one exchange."""
        if piece.placement in ("push", "cover"):
            load.units["sample"]["cut"] += cell.edges
            if piece.placement == "cover":
                remote = others(cell.pushed).sum(1)
                load.units["sample"]["cover"] += np.where(remote <= EXACT_UP_TO, remote, 0.0)
            an_edge = self._id + self._values.pushed
            a_pair = 4 + self._id * (self._values.places or piece.by_request)
            rows = wants["pulled"] + wants["own"]
            sent = wants["edges"] * an_edge + wants["pairs"] * a_pair + rows * self._id
            self._ids(load, sent, rows=rows + wants["pairs"], edges=wants["edges"])
        elif piece.placement == "columns":
            edges, vertices = self._from_all(cell.edges), self._from_all(cell.sources.sum(1))
            sent = edges * (4 + self._values.column) + vertices * self._id + wants["columns"] * 4
            self._ids(load, sent, rows=vertices, edges=edges)
        elif piece.below:
            self._ids(load, wants["pulled"] * self._id, rows=wants["pulled"])

    def _cross(self, load: Load, piece: Piece, wants: dict[str, np.ndarray]) -> None:
        """Rows and sums in the layer, forward and backward."""
        if piece.placement == "local" and not piece.below:
            return
        messages = self._crossings[piece.layer, piece.placement, piece.by_request] or []
        load.units["compute"]["cross"] += bool(messages)
        for message in messages:
            if "all" in message.bytes:
                self._sum(load, "exchange", message.bytes["all"] * float(self._counts.held.sum()))
                continue
            came = sum((wants[kind] * each * self._half for kind, each in message.bytes.items()), 0 * wants["own"])
            rows = sum((wants[kind] for kind in ("pulled", "own") if kind in message.bytes), 0 * came)
            load.units["compute"]["join"] += rows.sum(0) + rows.sum(1)  # partial rows are part of a pushed edge's cost
            self._move(load, Move("exchange", came if message.back else came.T))

    def _compute(self, load: Load, piece: Piece, cell: Cell, wants: dict[str, np.ndarray]) -> None:
        load.destinations = cell.destinations.sum(1)
        if piece.placement == "columns":
            load.slices = 1 / self._workers
            load.sources = np.full(self._workers, self._counts.held.sum())
            load.edges = np.full(self._workers, cell.edges.sum())
            return
        load.pushes, load.by_request = piece.placement in ("push", "cover"), piece.by_request
        load.edges = cell.edges - wants["edges"].sum(1) + wants["edges"].sum(0)
        if piece.layer > 0 and (piece.placement != "local" or piece.below):
            load.sources, load.pulled = self._held(piece.layer).sum(1), wants["pulled"].sum(1)
        elif piece.placement in ("push", "cover"):
            fetched = others(cell.cover_sources).sum(1) if piece.placement == "cover" else 0.0
            load.sources = self._held(piece.layer).sum(1) + fetched
        else:
            load.sources = cell.sources.sum(1)

    def _held(self, layer: int) -> np.ndarray:
        """Rows below a layer, where their owners hold them."""
        return self._counts.cells[layer - 1, OWNER, False].destinations if layer else self._counts.held

    def _fetch(self, load: Load, piece: Piece, cell: Cell) -> None:
        fetch, first = load.units["fetch"], piece.placement
        if first == "columns":
            load.inputs = np.full(self._workers, self._counts.held.sum() / self._workers)
            fetch["gather"] += load.inputs * self._row
            return
        load.ahead = first in ("local", "pull")
        fetch["fetch"] += first != "push"  # owners' own rows need not be looked for
        wanted = cell.inputs if load.ahead else self._counts.held
        if first == "cover":
            wanted = wanted + cell.cover_inputs
        far = np.where(self._near, 0.0, wanted)
        load.inputs = wanted.sum(1) + cell.cached[:, 0]
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

    def _from_all(self, rows: np.ndarray) -> np.ndarray:
        """The same rows, wanted of every other worker."""
        return others(np.repeat(rows[:, None], self._workers, 1))


def others(matrix: np.ndarray) -> np.ndarray:
    """What goes to others: without the diagonal."""
    return matrix * (1 - np.eye(len(matrix)))
