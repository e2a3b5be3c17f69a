"""What crosses between workers in a layer: found by running its convolution on a layer of a few rows, on a comm that
writes down what it is asked to send. So a convolution of any kind tells for itself."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.nn import Handle, Pass, convolve, make_call
from weft.placements import HERE, OWN, PAIRS, PULLED, ColumnSpan, Layer, Program, Rehearsal, placement_named
from weft.plugins import PLACEMENTS

KINDS = ("pulled", "own", "pairs", "columns", "all")
_IMPOSSIBLE = -1.0  # in place of a message's way


@dataclass(frozen=True)
class Message:
    """One exchange of a layer: bytes a row of each kind, coming to the worker that wants them or (gradients) going back."""

    bytes: dict[
        str, float
    ]  # pulled rows, destinations' own rows, partial rows, partial rows by column; rows summed (all)
    back: bool = False


class Recorder(Communicator):
    """A comm of two workers, one of whom is not there: what is sent is written down, what comes is zero."""

    def __init__(self, columns: bool = False) -> None:
        super().__init__(0, 2)
        self.messages: list[Message] = []
        self._columns = columns

    def begin(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str, exact: bool = False
    ) -> Callable[[], Tensor]:
        rows, back = max((sum(receive), False), (sum(send), True))
        width = float(x[:1].numel() * x.element_size()) if len(x) else float(x.new_zeros(1, *x.shape[1:]).nbytes)
        self.messages.append(Message(dict.fromkeys(self._kinds(rows), width), back))
        out = x.new_zeros(sum(receive), *x.shape[1:])
        return lambda: out

    def sum(self, x: Tensor, stage: str = "exchange") -> Tensor:
        self.messages.append(Message({"all": x[:1].numel() * x.element_size()}))
        return x

    def _kinds(self, rows: int) -> list[str]:
        if self._columns:
            return ["columns"] if rows else []
        return [kind for kind, each in (("pulled", PULLED), ("own", OWN), ("pairs", PAIRS)) if rows & each]


def messages_of(
    graph: Graph, conv: MessagePassing, width: int, depth: int, placement: str, by_request: bool, workers: int
) -> list[Message] | None:
    """The exchanges of a layer, forward and backward; None where the convolution can't be placed so.

    `by_request`: its destinations' rows are where they were asked for, not at their owners. `workers`: how many share the
    columns of a layer by column.
    """
    placed, columns = placement_named(placement), ColumnSpan(0, workers, width)
    comm = Recorder(placed.only_first)
    layer = Rehearsal(comm, columns, depth == 0, by_request).layer(placed)
    wide = width if layer.whole_rows else columns.width
    dtype = next((p.dtype for p in conv.parameters()), torch.float32)
    x = torch.randn(HERE, wide, dtype=dtype).requires_grad_(depth > 0)
    try:
        run_layer(graph, conv, layer, x, depth)
    except ModelError:
        return None
    return comm.messages


def messages_of_layers(
    graph: Graph,
    convolutions: Mapping[int, tuple[MessagePassing, int, int]],
    workers: int,
    comm: Communicator | None = None,
) -> dict[tuple[int, str, bool], list[Message] | None]:
    """The exchanges of every layer (0 nearest the inputs) under every placement, by request or not.

    `convolutions`: by depth from 1 on, with the widths of their rows. With a comm, all its workers call this, and each
    finds a part.
    """
    comm = comm or Communicator()
    cases = [
        (depth - 1, placement, by_request)
        for depth, placement, by_request in product(convolutions, PLACEMENTS.names(), (True, False))
        if depth == 1 or not placement_named(placement).only_first
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


def run_layer(graph: Graph, conv: MessagePassing, layer: Layer, x: Tensor, depth: int) -> None:
    """A convolution forward and backward on some layer and rows."""
    vertices = [torch.arange(count) % graph.num_vertices for count in (len(x), layer.num_dst)]
    held = [vertices[0]] * (depth + 1) + [vertices[1]]
    program = Program([layer] * (depth + 1), held, held, graph, comm=layer.comm)
    run = Pass([len(ids) for ids in held], held, 0, program.descend)
    out: Any = convolve(make_call(conv, x, depth, program, run, _edge_types(conv, layer)))
    if out.requires_grad:
        out.backward(torch.ones_like(out))


def _edge_types(conv: Any, layer: Layer) -> dict[str, Any]:
    """What a convolution that asks for edge types is given: edges of all its relations in turn."""
    if not hasattr(conv, "num_relations") or "edge_type" not in inspect.signature(type(conv).forward).parameters:
        return {}
    for edges in layer.parts:
        edges.block.values["edge_type"] = torch.arange(edges.block.num_edges) % conv.num_relations
    return {"edge_type": Handle.of("edge_type")}
