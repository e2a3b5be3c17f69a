"""Exact inference over the whole graph, one convolution at a time, in bounded memory."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from weft.devices import device_of_model
from weft.errors import AllRowsError, ConfigError
from weft.exchange import Communicator, Owners
from weft.features import gather
from weft.graph import Features, Graph, vertex_ranges
from weft.nn import (
    Decoupled,
    DecoupledModel,
    Layerwise,
    Pending,
    Steps,
    check_can_run,
    check_rows,
    encoder_of,
    in_mode,
    walk,
)
from weft.placements import Cooperation
from weft.plan import Settings, tp_decoupled
from weft.quantities import size_of
from weft.scratch import scratch_array
from weft.threads import usual_threads
from weft.training.fetching import graph_here
from weft.training.models import dtype_for, of_other_type, unused_by

ROWS = 1 << 16  # vertices whose row-wise parts are computed at a time
_EDGES = 1 << 20  # edges that a convolution goes over at a time
_TYPES = (torch.float32, torch.float64)  # in which it is computed, as training has them


@dataclass
class Inference:
    """What exact inference gives for every vertex: in memory, or mapped from temporary files that go with the arrays.

    Row i is of vertex i as the graph numbers it, which partitioning does anew: `graph.renumbered(ids)` are the rows of
    vertices that had these ids at import. Vertices of several types stand type by type there.
    """

    outputs: np.ndarray  # [vertices, classes]: the model's result
    embeddings: np.ndarray  # [vertices, width]: the rows that entered the last convolution, or its last hop


def infer(
    model: nn.Module,
    graph: Graph | Data | HeteroData | str | Path,
    *,
    dtype: torch.dtype | str | None = None,
    threads: int = 1,
    memory: float | str = 4 << 30,
    scratch: Path | str | None = None,
) -> Inference:
    """Run the model in eval mode on all vertices with all neighbours, of a graph, a graph directory or PyG's data.

    `dtype`: of the arithmetic, float32 or float64; None: the model's. `threads`: 0 is one for each core that it may use.
    Rows of all vertices are kept in memory up to `memory` (bytes, or text such as "2GB"), beyond that in temporary files
    under `scratch`; but of a model that mixes rows all are computed at once in memory, which is told where they are many.
    Of a link predictor it is the encoder that runs.
    """
    model = encoder_of(model)
    check_can_run(model)
    if isinstance(dtype, str):
        dtype = dtype_for(Settings.of(dtype=dtype))
    limit = size_of(memory) if isinstance(memory, str) else memory
    if limit is None or not limit >= 0:
        raise ConfigError(f"memory = {memory!r} is no size: give bytes, or text such as 2GB or 512MiB")
    scratch = None if scratch is None else Path(scratch)
    if scratch is not None and not scratch.is_dir():
        raise ConfigError(f"scratch = {scratch} is no folder: make it, or name another")
    if not isinstance(threads, int) or threads < 0:
        raise ConfigError(f"threads = {threads!r} is no number of threads: give one, or 0 for one for each core")
    graph = graph_here(graph)
    graph.features_to_train_on()  # of which there must be some
    for text in unused_by(model, graph):
        warnings.warn(text, stacklevel=2)
    return inferred(model, graph, dtype, threads or usual_threads(), limit, scratch)


def inferred(
    model: nn.Module,
    graph: Graph,
    dtype: torch.dtype | None = None,
    threads: int = 1,
    limit: float = 4 << 30,
    scratch: Path | None = None,
) -> Inference:
    """The same, of a graph that is open; `limit`: bytes of memory for rows of all vertices."""
    features = graph.features_to_train_on()
    dtype = _computed_in(model, dtype)
    with in_mode(model, False), Steps(model).undone():
        walk(model.model if isinstance(model, Decoupled) else model, graph.num_features)  # which it must take
        if isinstance(model, Decoupled):
            with torch.no_grad():
                return _infer_decoupled(model, graph, features, dtype)
        layers, count = Layerwise(model, graph, features, dtype, threads), graph.num_vertices
        given, pieces = partial(given_rows, features, dtype=dtype, threads=threads), _Pieces.of(graph)
        try:
            if len(pieces.of_edges) > 1:
                check_rows(model, graph.num_features)
            with torch.no_grad():
                return _infer_layerwise(layers, pieces, given, threads, _Store(count, limit, scratch))
        except AllRowsError as error:
            reason = error.reason
        warnings.warn(f"all {count:,} vertices are computed at once, in memory, as in PyG, for {reason}", stacklevel=2)
        with torch.no_grad():
            return _infer_layerwise(layers, _Pieces.whole(count), given, threads, _Store(count, limit, scratch))


def _computed_in(model: nn.Module, dtype: torch.dtype | None) -> torch.dtype:
    """The type of the arithmetic: that of all parameters, which is to be what was asked for."""
    found = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    if found not in (None, *_TYPES):
        raise of_other_type(found, "inference computes in float32 or float64", "call model.float()")
    other = next((p.dtype for p in model.parameters() if p.is_floating_point() and p.dtype != found), None)
    if other is not None:
        raise of_other_type(other, f"would be computed in {found}, as the first ones", f"call model.to({found})")
    if dtype not in (None, *_TYPES):
        raise ConfigError(
            f"dtype is {dtype}, and inference computes in float32 or float64: give one of these, or drop it"
        )
    if found is not None and dtype not in (None, found):
        raise ConfigError(
            f"dtype is {dtype}, but the model has parameters of {found}: call model.to({dtype}), or drop it"
        )
    return found or dtype or torch.float32


def pieces_of(graph: Graph) -> list[tuple[int, int]]:
    """Vertices whose edges are gone over at a time: not too many, and nor are the edges."""
    return list(vertex_ranges(graph.indptr, _EDGES, ROWS))


class _Pieces(NamedTuple):
    """What is computed at a time."""

    of_rows: list[slice]  # vertices whose row-wise parts are
    of_edges: list[tuple[int, int]]  # and whose edges are gone over

    @classmethod
    def of(cls, graph: Graph) -> "_Pieces":
        """In bounded memory."""
        count = graph.num_vertices
        return cls([slice(first, min(first + ROWS, count)) for first in range(0, count, ROWS)], pieces_of(graph))

    @classmethod
    def whole(cls, count: int) -> "_Pieces":
        """All at once."""
        return cls([slice(0, count)], [(0, count)])


def _infer_decoupled(model: Decoupled, graph: Graph, features: Features, dtype: torch.dtype) -> Inference:
    """All vertices at once; `entering` gets the rows that enter the mixing."""
    owners, plan = Owners(np.array([0, graph.num_vertices])), tp_decoupled(model.depth)
    program = Cooperation(graph, plan, [-1] * model.depth, owners, Communicator()).whole_graph()
    entered: list[Tensor] = []
    device = device_of_model(model)
    x = gather(features, program.vertices[0]).to(device, dtype)
    outputs = DecoupledModel(model, entering=entered.append)(x, program.to(device))
    return Inference(outputs.cpu().numpy(), entered[0].cpu().numpy())


def given_rows(features: Features, ids: Tensor, dtype: torch.dtype, threads: int) -> Tensor:
    """The features of vertices, as a model is given them."""
    return gather(features, ids, threads=threads).to(dtype)


def _infer_layerwise(
    layers: Layerwise, pieces: _Pieces, given: Callable[[Tensor], Tensor], threads: int, store: "_Store"
) -> Inference:
    """All convolutions, and what comes after the last one."""
    computed: list[np.ndarray] = []  # the convolutions' results so far
    entered: np.ndarray | None = np.empty(0)  # the rows before the last one; None: the features
    pending = list[Pending]()  # the one that is due, if any

    def inputs() -> Iterator[Tensor]:
        for some in pieces.of_rows:
            reached = layers.up_to_next(some, computed)
            if isinstance(reached, Pending):
                pending[:], reached = [reached], reached.inputs
            yield reached

    def takes_features(some: slice) -> bool:
        pending[:] = [one for one in [layers.up_to_next(some, ())] if isinstance(one, Pending)]
        return bool(pending) and layers.takes_features(pending[0], some)

    if all(map(takes_features, pieces.of_rows)):
        entered = None
        computed.append(store.filled(layers.convolved(pending[0], some, given) for some in pieces.of_edges))
    while True:
        pending.clear()
        rows = store.filled(inputs())
        if not pending:
            if entered is None:
                entered = store.filled(given(torch.arange(some.start, some.stop)) for some in pieces.of_rows)
            return Inference(rows, entered)
        entered, there = rows[:, : pending[0].columns], partial(gather, rows, threads=threads)
        computed.append(store.filled(layers.convolved(pending[0], some, there) for some in pieces.of_edges))


def _as_array(rows: Tensor) -> np.ndarray:
    """Rows as numpy has them, which knows no bfloat16."""
    return (rows.float() if rows.dtype == torch.bfloat16 else rows).cpu().numpy()


class _Store:
    """Arrays of a row a vertex: in memory while they fit, in temporary files beyond that."""

    def __init__(self, rows: int, memory: float, scratch: Path | None) -> None:
        self._rows, self._left, self._scratch = rows, memory, scratch

    def filled(self, parts: Iterator[Tensor]) -> np.ndarray:
        """An array of all vertices' rows, which come some at a time."""
        like = _as_array(next(parts))
        out, first = self._new((self._rows, *like.shape[1:]), like.dtype), 0
        for part in chain([like], map(_as_array, parts)):
            out[first : first + len(part)] = part
            first += len(part)
        return out

    def _new(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = int(np.prod(shape)) * dtype.itemsize
        if size > self._left:
            return scratch_array(shape, dtype, self._scratch)
        self._left -= size
        made = np.empty(shape, dtype=dtype)
        weakref.finalize(made, self._let_go, size).atexit = False
        return made

    def _let_go(self, size: int) -> None:
        self._left += size
