"""What crosses between workers in a layer: found by running its convolution on a layer of a few rows, on a comm that
writes down what it is asked to send. So a convolution of any kind tells for itself."""

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.nn import Handle, Pass, convolve
from weft.placements import HERE, OWN, PAIRS, PULLED, ColumnSpan, Layer, Program, placement_named, rehearsed_layer
from weft.plugins import PLACEMENTS

KINDS = ("pulled", "own", "pairs", "columns", "all")
_IMPOSSIBLE = -1.0  # in place of a message's way


Convolutions = Mapping[int, tuple[MessagePassing, int, int]]  # by depth from 1 on, with widths in and out
LayerMessages = dict[tuple[int, str, bool], list["Message"] | None]  # by layer, placement, and: by request?


@dataclass(frozen=True)
class Message:
    """One exchange of a layer: bytes a row of each kind, coming to the worker that wants them or (gradients) going back."""

    bytes: dict[
        str, float
    ]  # by kind: others' rows, destinations' own, partial ones, those by column; summed ones (all)
    back: bool = False


class Recorded(NamedTuple):
    """What one worker was asked to exchange: rows of so many bytes."""

    sent: int
    came: int
    row: float
    summed: bool = False  # over the workers: none come


class Recorder(Communicator):
    """A comm of workers of whom only one is there: what is sent is written down, what comes is zero."""

    def __init__(self, rank: int = 0, size: int = 2) -> None:
        super().__init__(rank, size)
        self.exchanges: list[Recorded] = []
        self.meanwhile = 0.0  # processor seconds that went by between an exchange's begin and the wait for it

    def begin(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str, exact: bool = False
    ) -> Callable[[], Tensor]:
        self.exchanges.append(Recorded(sum(send), sum(receive), float(x.element_size() * math.prod(x.shape[1:]))))
        out, begun = x.new_zeros(sum(receive), *x.shape[1:]), time.thread_time()

        def wait() -> Tensor:
            self.meanwhile += time.thread_time() - begun
            return out

        return wait

    def sum(self, x: Tensor, stage: str = "exchange") -> Tensor:
        self.exchanges.append(Recorded(len(x), 0, float(x.element_size() * math.prod(x.shape[1:])), summed=True))
        return x


def messages_of(
    graph: Graph, conv: MessagePassing, width: int, depth: int, placement: str, by_request: bool, workers: int
) -> list[Message] | None:
    """The exchanges of a layer, forward and backward; None where the convolution can't be placed so.

    `by_request`: its destinations' rows are where they were asked for, not at their owners. `workers`: how many share the
    columns of a layer by column.
    """
    placed, columns, comm = placement_named(placement), ColumnSpan(0, workers, width), Recorder()
    layer = rehearsed_layer(placed, comm, columns, depth == 0, by_request)
    wide = width if layer.whole_rows else columns.width
    x = torch.randn(HERE, wide, dtype=dtype_of(conv)).requires_grad_(depth > 0)
    try:
        run_layer(graph, conv, layer, x, depth)
    except ModelError:
        return None
    bits = {"columns": -1} if placed.only_first else {"pulled": PULLED, "own": OWN, "pairs": PAIRS}  # of row counts
    return [_message(one, bits) for one in comm.exchanges]


def messages_of_layers(
    graph: Graph,
    convolutions: Convolutions,
    workers: int,
    comm: Communicator | None = None,
) -> LayerMessages:
    """The exchanges of every layer (0 nearest the inputs) under every placement, by request or not.

    `convolutions`: by depth from 1 on, with the widths of their rows. With a comm, all its workers call this, and each
    finds a part.
    """
    comm = comm or Communicator()
    cases = [
        (depth - 1, name, by_request)
        for depth, name, by_request in product(convolutions, PLACEMENTS.names(), (True, False))
        if depth == 1 or not placement_named(name).only_first
    ]
    mine = []
    for number in range(comm.rank, len(cases), comm.size):
        layer, placement, by_request = cases[number]
        conv, width, _ = convolutions[layer + 1]
        found = messages_of(graph, conv, width, layer, placement, by_request, workers)
        mine += [(number, *row) for row in _written(found)]
    written = np.array(mine, dtype=np.float64).reshape(-1, 2 + len(KINDS))
    ((theirs, _),) = comm.arrays_to_all([written.ravel()], "sync")
    rows = np.concatenate([written, theirs.reshape(-1, written.shape[1])])
    return {case: _read(rows[rows[:, 0] == number, 1:]) for number, case in enumerate(cases)}


def _message(one: Recorded, kinds: Mapping[str, int]) -> Message:
    """The message that was recorded; how many rows go or come tells of which kinds they are."""
    if one.summed:
        return Message({"all": one.row})
    rows, back = max((one.came, False), (one.sent, True))
    return Message({kind: one.row for kind, bits in kinds.items() if rows & bits}, back)


def _written(messages: list[Message] | None) -> list[tuple[float, ...]]:
    """A row of numbers for each message: its way and its bytes; a single one where there can be none."""
    if messages is None:
        return [(_IMPOSSIBLE, *[0.0] * len(KINDS))]
    return [(float(message.back), *(message.bytes.get(kind, 0.0) for kind in KINDS)) for message in messages]


def _read(rows: np.ndarray) -> list[Message] | None:
    if len(rows) and rows[0, 0] == _IMPOSSIBLE:
        return None
    return [
        Message({kind: each for kind, each in zip(KINDS, row[1:].tolist(), strict=True) if each}, bool(row[0]))
        for row in rows
    ]


def dtype_of(module: nn.Module) -> torch.dtype:
    """The type of a module's numbers."""
    return next((p.dtype for p in module.parameters()), torch.float32)


def run_layer(graph: Graph, conv: MessagePassing, layer: Layer, x: Tensor, depth: int) -> None:
    """A convolution forward and backward on some layer and rows."""
    go_back(run_forward(graph, conv, layer, x, depth))


def go_back(out: Tensor) -> None:
    """Backward from what came of a convolution."""
    if out.requires_grad:
        out.backward(torch.ones_like(out))


def run_forward(graph: Graph, conv: MessagePassing, layer: Layer, x: Tensor, depth: int) -> Tensor:
    """What comes of a convolution on some layer and rows."""
    vertices = [torch.arange(count) % graph.num_vertices for count in (len(x), layer.num_dst)]
    held = [vertices[0]] * (depth + 1) + [vertices[1]]
    program = Program([layer] * (depth + 1), held, held, graph, comm=layer.comm)
    run = Pass([len(ids) for ids in held], held, 0, program.descend)
    return convolve(conv, x, depth, program, run, _edge_types(conv, layer))


def _edge_types(conv: MessagePassing, layer: Layer) -> dict[str, object]:
    """What a convolution that asks for edge types is given: edges of all its relations in turn."""
    relations = getattr(conv, "num_relations", None)
    if relations is None or "edge_type" not in inspect.signature(type(conv).forward).parameters:
        return {}
    for edges in layer.parts:
        edges.block.values["edge_type"] = torch.arange(edges.block.num_edges) % relations
    return {"edge_type": Handle.of("edge_type")}
