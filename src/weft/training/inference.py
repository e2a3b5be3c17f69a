"""Exact inference over the whole graph, one convolution at a time, in bounded memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from weft.exchange import Communicator, Owners
from weft.features import gather
from weft.graph import Graph, vertex_ranges
from weft.nn import Decoupled, DecoupledModel, LayerwiseRunner, Pending
from weft.placements import Cooperation
from weft.plan import tp_decoupled
from weft.sampling import NeighborSampler
from weft.scratch import scratch_array

_ROWS = 1 << 16  # vertices whose row-wise parts are computed at a time
_EDGES = 1 << 20  # edges that a convolution goes over at a time


@dataclass
class Inference:
    """What exact inference gives for every vertex."""

    outputs: np.ndarray  # [vertices, classes]: the model's result
    embeddings: np.ndarray  # [vertices, width]: the rows that entered the last convolution


def infer(
    model: nn.Module,
    graph: Graph,
    *,
    dtype: torch.dtype = torch.float32,
    threads: int = 1,
    memory: int = 4 << 30,
    scratch: Path | None = None,
) -> Inference:
    """Run the model in eval mode on all vertices with all neighbours.

    Rows of all vertices are kept in memory up to `memory` bytes, beyond that in temporary files under `scratch`.
    """
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, Decoupled):
            with torch.no_grad():
                return _infer_decoupled(model, graph, dtype)
        with torch.inference_mode():
            return _infer(model, graph, dtype, threads, _Store(graph.num_vertices, memory, scratch))
    finally:
        model.train(was_training)


def _infer_decoupled(model: Decoupled, graph: Graph, dtype: torch.dtype) -> Inference:
    """All vertices at once; `entering` gets the rows that enter the mixing."""
    assert graph.features is not None
    owners, plan = Owners(np.array([0, graph.num_vertices])), tp_decoupled(model.depth)
    program = Cooperation(graph, plan, [-1] * model.depth, owners, Communicator()).whole_graph()
    entered: list[Tensor] = []
    x = gather(graph.features, program.vertices[0]).to(dtype)
    outputs = DecoupledModel(model, entering=entered.append)(x, program)
    return Inference(outputs.numpy(), entered[0].numpy())


def _infer(model: nn.Module, graph: Graph, dtype: torch.dtype, threads: int, store: "_Store") -> Inference:
    runner = LayerwiseRunner(model)
    sampler = NeighborSampler(graph, [-1], threads=threads)
    computed: list[np.ndarray] = []
    entered: np.ndarray | None = None
    edge_data = {"edge_weight": graph.edge_weight is not None, "edge_type": graph.edge_type is not None}
    while True:
        pending, rows = _row_wise(runner, graph, dtype, computed, edge_data, store)
        if pending is None:
            assert entered is not None, "a model without a convolution was refused before"
            return Inference(np.array(rows), np.array(entered))
        entered = rows
        out: np.ndarray | None = None
        for first, end in vertex_ranges(graph.indptr, _EDGES, _ROWS):
            sample = sampler.sample(np.arange(first, end), 0, 0)
            result = runner.convolve(pending, gather(rows, sample.vertices, threads=threads), sample)
            out = store.new(result) if out is None else out
            out[first:end] = result.numpy()
        assert out is not None
        computed.append(out)


def _row_wise(
    runner: LayerwiseRunner,
    graph: Graph,
    dtype: torch.dtype,
    computed: list[np.ndarray],
    edge_data: dict[str, bool],
    store: "_Store",
) -> tuple[Pending | None, np.ndarray]:
    """The inputs of the next convolution for all vertices; without a next one, the model's results."""
    assert graph.features is not None
    gathered: np.ndarray | None = None
    pending: Pending | None = None
    for first in range(0, graph.num_vertices, _ROWS):
        x = torch.from_numpy(np.array(graph.features[first : first + _ROWS])).to(dtype)
        earlier = [torch.from_numpy(np.array(rows[first : first + _ROWS])) for rows in computed]
        types = None if graph.vertex_type is None else torch.from_numpy(graph.vertex_type[first : first + _ROWS].copy())
        reached = runner.advance(x, earlier, edge_data, types)
        if isinstance(reached, Pending):
            pending, result = reached, reached.inputs
        else:
            result = reached
        gathered = store.new(result) if gathered is None else gathered
        gathered[first : first + len(result)] = result.numpy()
    assert gathered is not None
    return pending, gathered


class _Store:
    """Arrays of a row a vertex: in memory while they fit, in temporary files beyond that."""

    def __init__(self, rows: int, memory: int, scratch: Path | None) -> None:
        self._rows = rows
        self._left = memory
        self._scratch = scratch

    def new(self, like: Tensor) -> np.ndarray:
        """An array for all vertices of rows such as these."""
        shape = (self._rows, *like.shape[1:])
        dtype = like.numpy().dtype
        size = int(np.prod(shape)) * dtype.itemsize
        if size <= self._left:
            self._left -= size
            return np.empty(shape, dtype=dtype)
        return scratch_array(shape, dtype, self._scratch)
