"""Allocations of vertices to parts: random, METIS, KaMinPar. Each gives the part of every vertex."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.graph.graph import SPLITS
from weft.graph.lists import EdgeChunk, Options, lists_in_memory
from weft.graph.pieces import vertex_ranges
from weft.keys import Stream, mix64_array
from weft.keys import key as make_key

_CHUNK = 1 << 22
_UNITS = 1000  # of weight that a vertex has on average: partitioners want whole numbers


@dataclass(frozen=True)
class Weighing:
    """What parts must have equally much of, and by how much the largest may exceed the mean.

    A vertex weighs the sum of its shares: one of all vertices, one of all training vertices if it is one, its in-edges of
    all edges, each times its number here.
    """

    vertices: float = 1.0
    training: float = 1.0
    edges: float = 0.0
    imbalance: float = 0.03

    def __post_init__(self) -> None:
        if min(self.vertices, self.training, self.edges) < 0 or self.vertices + self.training + self.edges == 0:
            raise ConfigError("parts must be balanced by something: give vertices, training or edges a positive weight")
        if not 0 < self.imbalance < 10:
            raise ConfigError(f"imbalance = {self.imbalance} is out of range: 0.03 lets a part be 3% above the mean")

    def of(self, graph: Graph) -> np.ndarray:
        """Each vertex's weight, a whole number of at least 1."""
        shares = np.full(graph.num_vertices, float(self.vertices))
        if self.training and graph.split is not None:
            training = graph.split == SPLITS["train"]
            shares += self.training * training / max(float(training.mean()), 1e-12)
        if self.edges and graph.num_edges:
            shares += self.edges * np.diff(graph.indptr) * (graph.num_vertices / graph.num_edges)
        return np.maximum(1, np.rint(shares * (_UNITS / shares.mean()))).astype(np.int64)


def allocate(
    graph: Graph, parts: int, method: str, *, weighing: Weighing | None = None, seed: int = 0, threads: int = 1
) -> np.ndarray:
    """The part of each vertex, [vertices] int32."""
    if method not in METHODS:
        raise ConfigError(f"method {method!r} is not known: choose one of {', '.join(METHODS)}")
    if not 1 <= parts <= graph.num_vertices:
        raise ConfigError(f"{parts} parts are not possible with {graph.num_vertices} vertices: give 1 to that many")
    if parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    return METHODS[method](graph, parts, weighing or Weighing(), seed, threads)


def _random(graph: Graph, parts: int, weighing: Weighing, seed: int, threads: int) -> np.ndarray:
    """Equal numbers of training vertices, then of the others, by a hash of the original id."""
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else np.asarray(graph.original_ids)
    rank = mix64_array(make_key(Stream.PARTITION, seed), ids)
    group = np.zeros(len(ids), dtype=bool) if graph.split is None else graph.split != SPLITS["train"]
    owners = np.empty(len(ids), dtype=np.int32)
    owners[np.lexsort((ids, rank, group))] = np.arange(len(ids)) % parts
    return owners


def _metis(graph: Graph, parts: int, weighing: Weighing, seed: int, threads: int) -> np.ndarray:
    pymetis = _library("pymetis", "METIS")
    offsets, neighbours = both_ways(graph)
    options = pymetis.Options(seed=seed & 0x7FFFFFFF, ufactor=max(1, round(weighing.imbalance * 1000)))
    kind = pymetis.zero_copy_dtype() if hasattr(pymetis, "zero_copy_dtype") else np.dtype(np.int32)
    adjacency = pymetis.CSRAdjacency(offsets.astype(kind), neighbours.astype(kind))
    weights = weighing.of(graph).astype(kind)
    _, owners = pymetis.part_graph(parts, adjacency, vweights=weights, recursive=False, options=options)
    return np.asarray(owners, dtype=np.int32)


def _kaminpar(graph: Graph, parts: int, weighing: Weighing, seed: int, threads: int) -> np.ndarray:
    kaminpar = _library("kaminpar", "KaMinPar")
    offsets, neighbours = both_ways(graph)
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        file = Path(folder) / "graph.parhip"
        write_parhip(file, offsets, neighbours, weighing.of(graph))
        del offsets, neighbours
        kaminpar.reseed(seed & 0x7FFFFFFF)
        instance = kaminpar.KaMinPar(threads, kaminpar.default_context())
        loaded = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP)
        return np.asarray(instance.compute_partition(loaded, parts, weighing.imbalance), dtype=np.int32)


def both_ways(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The graph as partitioners see it: every edge both ways, once, without self-loops."""
    options = Options(undirected=True, self_loops="remove")
    offsets, neighbours, _, _ = lists_in_memory(lambda: edges_of(graph), graph.num_vertices, options)
    return offsets, neighbours


def edges_of(graph: Graph) -> Iterator[EdgeChunk]:
    """All edges of a graph, a piece at a time."""
    for first, end in vertex_ranges(graph.indptr, _CHUNK):
        dst = np.repeat(np.arange(first, end, dtype=graph.indices.dtype), np.diff(graph.indptr[first : end + 1]))
        yield EdgeChunk(graph.indices[graph.indptr[first] : graph.indptr[end]], dst)


def write_parhip(file: Path, offsets: np.ndarray, neighbours: np.ndarray, weights: np.ndarray) -> None:
    """The ParHiP binary format: a header, offsets in bytes, neighbours, vertex weights; 64-bit offsets and weights."""
    narrow = neighbours.dtype == np.int32
    no_edge_weights, narrow_ids = 1, 8 if narrow else 0
    id_type = np.dtype(np.uint32 if narrow else np.uint64)
    vertices = len(offsets) - 1
    base = 8 * 3 + 8 * (vertices + 1)
    with open(file, "wb") as out:
        np.array([no_edge_weights | narrow_ids, vertices, len(neighbours)], dtype=np.uint64).tofile(out)
        (base + offsets.astype(np.uint64) * np.uint64(id_type.itemsize)).tofile(out)
        neighbours.astype(id_type, copy=False).tofile(out)
        weights.astype(np.int64).tofile(out)


def _library(name: str, title: str) -> ModuleType:
    if find_spec(name) is None:
        raise ConfigError(f"{title} is not installed: pip install 'weft-gnn[partition]', or choose --method random")
    return import_module(name)


METHODS: dict[str, Callable[[Graph, int, Weighing, int, int], np.ndarray]] = {
    "random": _random,
    "metis": _metis,
    "kaminpar": _kaminpar,
}
