"""What a graph is known by, however its vertices are numbered: what was kept of a run goes on with the same graph only.

Sums over the vertices, each hashed with its original id, are the same for a graph and for its allocations. Labels, splits
and types of vertices count whole. Of many edges or large features, those of some vertices do, evenly spaced by original id:
a run that starts needs not read all of them.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from weft.graph.checks import is_file_of
from weft.graph.csr import vertex_ranges
from weft.graph.hetero_features import arrays_of
from weft.keys import mix64, mix64_array

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_MASK = (1 << 64) - 1
_AT_ONCE = 1 << 18  # edges, or numbers of rows
_EDGES, _BYTES = 1 << 22, 64 << 20  # up to which edges, and features, count whole
_SAMPLE = 4096  # vertices whose edges, or features, count beyond
_FIRST = 4  # parts of an identity as Weft 0.1.0 wrote it: sizes, and a sum of degrees and labels


def identity_of(graph: "Graph") -> str:
    """Sizes, and sums of degrees and labels; of all that vertices have; of their edges; and of their features."""
    sizes = f"{graph.num_vertices}-{graph.num_edges}-{graph.num_features}"
    sums = _degrees_and_labels(graph), _vertices(graph), (_edges(graph) + _edge_features(graph)) & _MASK
    return "-".join([sizes, *(f"{total:016x}" for total in sums), _features(graph)])


def is_same(said: str, here: str) -> bool:
    """Do two identities tell of one graph? The first may be of Weft 0.1.0, and features only count that both know alike."""
    if len(said.split("-")) == _FIRST:
        return said == here.rsplit("-", 3)[0]
    (rest, _, features), (rest_here, _, features_here) = said.rpartition("-"), here.rpartition("-")
    kind, kind_here = features.partition(":")[0], features_here.partition(":")[0]
    return rest == rest_here and (features == features_here or kind != kind_here)


def _degrees_and_labels(graph: "Graph") -> int:
    total = 0
    for first, end in _ranges(graph.num_vertices, _width(graph.labels)):
        values = np.diff(graph.indptr[first : end + 1])
        if graph.labels is not None:
            labels = np.asarray(graph.labels[first:end], dtype=np.int64)
            values = values + 1000 * labels.reshape(end - first, -1).sum(1)
        total += int((mix64_array(0, _ids(graph, first, end)) * values.view(np.uint64)).sum())
    return total & _MASK


def _width(labels: np.ndarray | None) -> int:
    return 1 if labels is None or labels.ndim == 1 else labels.shape[1]


def _vertices(graph: "Graph") -> int:
    total = 0
    arrays = (graph.labels, graph.split, graph.vertex_type)
    for first, end in _ranges(graph.num_vertices, _width(graph.labels)):
        total += _sum(_ids(graph, first, end), [None if array is None else array[first:end] for array in arrays])
    return total & _MASK


def _edges(graph: "Graph") -> int:
    """Of each list in its order, for neighbours are drawn by their places in it."""
    total = 0
    for ids, edges, within in _edges_that_count(graph, _step(graph.num_vertices, graph.num_edges <= _EDGES)):
        sources = graph.indices[edges] if graph.original_ids is None else graph.original_ids[graph.indices[edges]]
        values = [None if array is None else array[edges] for array in (graph.edge_weight, graph.edge_type)]
        total += _sum(ids, [within, sources, *values])
    return total & _MASK


def _edge_features(graph: "Graph") -> int:
    """Of each list in its order; 0 where edges have none."""
    features, total = graph.edge_features, 0
    if features is None:
        return 0
    rows = max(1, _AT_ONCE // features.shape[1])
    for ids, edges, within in _edges_that_count(graph, _step(graph.num_vertices, features.nbytes <= _BYTES)):
        for first in range(0, len(ids), rows):
            some = slice(first, first + rows)
            total += _sum(ids[some], [within[some], features[edges[some]]])
    return total & _MASK


def _edges_that_count(graph: "Graph", step: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Into one in `step` vertices: the original ids of these, which edges they are, and their places in the lists."""
    for first, end in vertex_ranges(graph.indptr, _AT_ONCE, _AT_ONCE):
        ids = _ids(graph, first, end)
        begins, ends = graph.indptr[first:end], graph.indptr[first + 1 : end + 1]
        chosen = np.flatnonzero(ids % step == 0)
        lengths = np.minimum(ends - begins, _EDGES)[chosen]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        yield np.repeat(ids[chosen], lengths), np.repeat(begins[chosen], lengths) + within, within


def _features(graph: "Graph") -> str:
    """The sum of the rows; or, where hosts have only some of them, what the manifest says of each table."""
    if graph.features is None:
        return "none"
    remote = graph.remote
    if (
        remote
        and remote.in_shards
        and all(is_file_of(table, remote.path) for table in arrays_of(graph.features).values())
    ):
        return remote.sums
    total, step = 0, _step(graph.num_vertices, graph.features.nbytes <= _BYTES)
    for first, end in _ranges(graph.num_vertices, graph.num_features if step == 1 else 1):
        ids = _ids(graph, first, end)
        chosen = np.flatnonzero(ids % step == 0)
        total += _sum(ids[chosen], [np.asarray(graph.features[first + chosen])])
    return f"rows:{total & _MASK:016x}"


def _ids(graph: "Graph", first: int, end: int) -> np.ndarray:
    return np.arange(first, end) if graph.original_ids is None else np.asarray(graph.original_ids[first:end])


def _step(vertices: int, whole: bool) -> int:
    return 1 if whole else vertices // _SAMPLE + 1


def _ranges(count: int, width: int) -> Iterator[tuple[int, int]]:
    rows = max(1, _AT_ONCE // max(1, width))
    return ((first, min(first + rows, count)) for first in range(0, count, rows))


def _sum(ids: np.ndarray, columns: list[np.ndarray | None]) -> int:
    """The sum, over rows, of a hash of the row's id and of all that its columns hold."""
    folded = np.zeros(len(ids), dtype=np.uint64)
    for number, column in enumerate(columns):
        if column is not None:
            bits = _bits(column.reshape(len(ids), math.prod(column.shape[1:])))
            folded += bits @ (mix64_array(number, np.arange(1, 1 + bits.shape[1])) | np.uint64(1))
            folded += np.uint64(mix64(number))  # a column of zeros is not none
    return int(mix64(folded ^ mix64_array(0, ids)).sum())


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers as unsigned ones of 64 bits: integers by their value, others by their bits."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64).view(np.uint64)
    return values.view(f"u{values.itemsize}").astype(np.uint64)
