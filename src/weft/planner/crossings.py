"""What crosses between workers in a layer: found by running its convolution on a layer of a few rows, on a communicator that
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
from weft.exchange import Communicator, Route
from weft.graph import Graph
from weft.nn.binding import Handle
from weft.nn.block_model import make_call
from weft.nn.convolve import convolve
from weft.nn.rows import Pass
from weft.parallel import PLACEMENTS
from weft.parallel.program import Columns, Layer, Program, Pushed
from weft.sampling import Block

# Rows of each kind in a rehearsed layer: any sum of them tells which they were.
_PULLED, _OWN, _PAIRS, _DESTINATIONS, _HERE = 1, 16, 256, 20, 300
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
    """A communicator of two workers, one of whom is not there: what is sent is written down, what comes is zero."""

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
        return [kind for kind, each in (("pulled", _PULLED), ("own", _OWN), ("pairs", _PAIRS)) if rows & each]


def crossing(
    graph: Graph, conv: MessagePassing, width: int, depth: int, placement: str, by_request: bool, workers: int
) -> list[Message] | None:
    """The exchanges of a layer, forward and backward; None where the convolution can't be placed so.

    `by_request`: its destinations' rows are where they were asked for, not at their owners. `workers`: how many share the
    columns of a layer by column.
    """
    comm = Recorder(placement == "columns")
    layer = _layer(placement, by_request, Columns(0, workers, width), first=depth == 0)
    wide = width if layer.columns is None else layer.columns.width
    dtype = next((p.dtype for p in conv.parameters()), torch.float32)
    x = torch.randn(_HERE, wide, dtype=dtype).requires_grad_(depth > 0)
    try:
        run_layer(graph, conv, layer, x, depth, comm)
    except ModelError:
        return None
    return comm.messages


def all_crossings(
    graph: Graph,
    convolutions: Mapping[int, tuple[MessagePassing, int, int]],
    workers: int,
    comm: Communicator | None = None,
) -> dict[tuple[int, str, bool], list[Message] | None]:
    """The exchanges of every layer (0 nearest the inputs) under every placement, by request or not.

    `convolutions`: by depth from 1 on, with the widths of their rows. With a communicator, its workers all call this, each
    finding a part.
    """
    comm = comm or Communicator()
    cases = [
        (depth - 1, placement, by_request)
        for depth, placement, by_request in product(convolutions, PLACEMENTS, (True, False))
        if placement != "columns" or depth == 1
    ]
    mine = []
    for number in range(comm.rank, len(cases), comm.size):
        layer, placement, by_request = cases[number]
        conv, width, _ = convolutions[layer + 1]
        found = crossing(graph, conv, width, layer, placement, by_request, workers)
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


def run_layer(
    graph: Graph, conv: MessagePassing, layer: Layer, x: Tensor, depth: int, comm: Communicator | None = None
) -> None:
    """A convolution forward and backward on some layer and rows."""
    vertices = [torch.arange(count) % graph.num_vertices for count in (len(x), layer.num_dst)]
    held = [vertices[0]] * (depth + 1) + [vertices[1]]
    program = Program([layer] * (depth + 1), held, held, graph, comm=comm or Communicator())
    run = Pass(program.sizes, program.keys, 0, program.descend)
    out: Any = convolve(make_call(conv, x, depth, program, run, _edge_types(conv, layer)))
    if out.requires_grad:
        out.backward(torch.ones_like(out))


def _edge_types(conv: Any, layer: Layer) -> dict[str, Any]:
    """What a convolution that asks for edge types is given: edges of all its relations in turn."""
    if not hasattr(conv, "num_relations") or "edge_type" not in inspect.signature(type(conv).forward).parameters:
        return {}
    for block in (layer.block, *([layer.pushed.block] if layer.pushed else [])):
        block.values["edge_type"] = torch.arange(block.num_edges) % conv.num_relations
    return {"edge_type": Handle.of("edge_type")}


def _layer(placement: str, by_request: bool, columns: Columns, first: bool) -> Layer:
    """One worker's layer of which another has a part: rows come from it, none go there. Inputs are fetched before."""
    none = torch.empty(0, dtype=torch.int64)
    loops, here = torch.arange(_DESTINATIONS), torch.arange(_HERE)
    pulls = not first and placement not in ("push", "columns")
    total = _HERE + int(pulls) * _PULLED
    block = Block(torch.arange(_DESTINATIONS + 1), loops.int(), total)
    layer = Layer(block, torch.ones(_DESTINATIONS, dtype=torch.int64), src_vertices=torch.arange(total))
    layer.dst_vertices = loops
    if pulls:
        layer.sources = Route(_HERE, total, none, [0, 0], [0, _PULLED], None, None)
    if by_request and placement != "columns" and not (first and placement == "local"):
        come, stay = torch.arange(_OWN), torch.arange(_OWN, _DESTINATIONS)
        layer.own = Route(_HERE, _DESTINATIONS, none, [0, 0], [0, _OWN], come, stay, stay)
    if placement in ("push", "cover"):
        layer.pushed = _pushed(torch.arange(_PAIRS) % _DESTINATIONS, [0, _PAIRS], _HERE, none)
    if placement == "columns":
        at = loops.repeat(columns.size - 1)
        layer.pushed = _pushed(at, [0, len(at)], _HERE, none)
        layer.pushed.dst_at, layer.dst_at = none, loops
        layer.columns, layer.src_vertices = columns, here
    return layer


def _pushed(at: Tensor, sent: list[int], rows: int, none: Tensor) -> Pushed:
    """No edges of the other's here; its partial rows come for these destinations."""
    block = Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), rows)
    return pushed_layer(block, _DESTINATIONS, at, sent, none)


def pushed_layer(block: Block, destinations: int, at: Tensor, sent: list[int], keys: Tensor) -> Pushed:
    """Edges of the other worker's that are computed here, and the ways of partial rows between the two."""
    none, there = torch.empty(0, dtype=torch.int64), [0, block.num_dst]
    home = Route(destinations, block.num_dst, at, sent, there, None, none, none)
    carry = Route(len(at), block.num_dst, torch.arange(len(at)), sent, there, None, none, none)
    return Pushed(block, home, carry, at, keys, keys)
