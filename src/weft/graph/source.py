"""A graph outside a graph directory: edges that can be read again and again, and per-vertex arrays or streams of rows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from weft.errors import InputError
from weft.graph.edges_to_csr import EdgeChunk, EdgeReader, check_values_of, ids_of
from weft.graph.feature_tables import EdgeFeatures, FeatureTable
from weft.graph.values import checked_types

_CHUNK = 1 << 22  # edges made at a time


@dataclass
class Source:
    """A graph that can be imported."""

    num_vertices: int
    edges: EdgeReader
    features: tuple[FeatureTable, ...] = ()  # one for all vertices, or one for each type of them
    labels: np.ndarray | None = None
    split: np.ndarray | None = None
    names: pa.Array | None = None  # integers or strings
    class_names: tuple[str, ...] | None = None
    num_edges: int = 0  # as they are in the input; 0: not known yet
    vertex_type: np.ndarray | None = None  # [vertices], where there are several types
    vertex_type_names: tuple[str, ...] | None = None
    edge_type_names: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()  # what there is and is not imported
    edge_features: EdgeFeatures | None = None  # of edges that are `numbered`


def edges_in_memory(
    edge_index: np.ndarray, weight: np.ndarray | None = None, kind: np.ndarray | None = None
) -> EdgeReader:
    """The edges of [2, edges] (sources, destinations)."""
    chunk = EdgeChunk(edge_index[0], edge_index[1], weight, kind)
    return lambda: iter([chunk])


def numbered(edges: EdgeReader, features: EdgeFeatures | None) -> EdgeReader:
    """The edges, each with the number of its row of features; as they are where there are none."""
    if features is None:
        return edges

    def read() -> Iterator[EdgeChunk]:
        seen = 0
        for chunk in edges():
            first, seen = seen, seen + len(chunk.src)
            if seen <= features.count:  # else they are refused below
                yield replace(chunk, number=np.arange(first, seen, dtype=np.int32))
        if seen != features.count:
            raise InputError(
                f"features of edges have {features.count} rows for {seen} edges: give one for each, in order"
            )

    return read


def features_by_type(features: np.ndarray | None, types: np.ndarray | None) -> tuple[FeatureTable, ...]:
    """The table of all vertices; where they are of several types, those of each."""
    if features is None or types is None or features.ndim != 2:
        return features_in_memory(features)
    types = checked_types("vertex", np.asarray(types))
    if len(types) != len(features):
        raise InputError(f"there are {len(types)} vertex types for {len(features)} rows of features: give one for each")
    return features_in_memory(*(features[types == kind] for kind in range(int(types.max(initial=0)) + 1)))


def features_in_memory(*tables: np.ndarray | None) -> tuple[FeatureTable, ...]:
    """Tables of features; None is left out."""
    for table in tables:
        if table is not None and (table.ndim != 2 or table.dtype.kind not in "fiub"):
            raise InputError(
                f"features have shape {table.shape} and type {table.dtype}: they need a row of numbers a vertex"
            )
    return tuple(FeatureTable(len(t), int(t.shape[1]), partial(iter, [t])) for t in tables if t is not None)


def labels_of_one_type(
    labels: np.ndarray | None, split: np.ndarray | None, first: int, count: int, vertices: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels and split of all vertices from those of one type, `count` from `first` on: unknown and unused elsewhere."""
    there, spread, spread_split = slice(first, first + count), None, None
    if labels is not None:
        spread = np.full((vertices, *labels.shape[1:]), 0 if labels.ndim == 2 else -1, dtype=labels.dtype)
        spread[there] = labels
    if split is not None:
        if len(split) != count:
            raise InputError(
                f"split has {len(split)} rows for {count} vertices of its type: give one for each, in order"
            )
        spread_split = np.full(vertices, 3, dtype=np.uint8)
        spread_split[there] = split
    return spread, spread_split


def check_left_out(where: str, unused: Iterable[str], leave_out: Collection[str], why: Mapping[str, str] = {}) -> None:
    """Nothing is dropped in silence: refuse what is not used and not left out, and names to leave out that are not there.

    `why` some of them would not be used.
    """
    unused = list(dict.fromkeys(unused))
    if dropped := [name for name in unused if name not in leave_out]:
        reasons = "".join(f" ({why[name]})" for name in dropped if name in why)
        raise InputError(
            f"{where} has {', '.join(dropped)}, which Weft does not use{reasons}: leave it out by name "
            f"(weft.Graph.from_pyg(data, leave_out={tuple(dropped)!r}), or --leave-out {','.join(dropped)})"
        )
    for name in leave_out:
        if name not in unused:
            raise InputError(f"{where} has no {name!r} that Weft does not use: do not leave it out")


def with_reverses(source: Source) -> Source:
    """Each edge both ways, reverses as relations of their own, numbered after those that are there."""
    names = _relation_names(source)

    def edges() -> Iterator[EdgeChunk]:
        for chunk in source.edges():
            types = _types(chunk, names)
            yield EdgeChunk(chunk.src, chunk.dst, chunk.weight, types, chunk.number)
            yield EdgeChunk(chunk.dst, chunk.src, chunk.weight, types + np.int32(len(names)), chunk.number)

    both = (*names, *(f"rev_{name}" for name in names))
    return replace(source, edges=edges, num_edges=2 * source.num_edges, edge_type_names=both)


def with_self_relation(source: Source, own_loops: bool = True) -> Source:
    """Adds a self-loop of weight 1 to each vertex, as a relation of its own. `own_loops`: do the source's own stay?"""
    if source.edge_features:
        raise InputError(
            "edges have features, and the loops of --self-relation would have none: add the loops to the edges, with a type "
            "and features of theirs, or leave the features of edges out"
        )
    names = _relation_names(source)

    def edges() -> Iterator[EdgeChunk]:
        weighted = False
        for chunk in source.edges() if own_loops else _without_loops(source):
            weighted = weighted or chunk.weight is not None
            yield EdgeChunk(chunk.src, chunk.dst, chunk.weight, _types(chunk, names))
        for first in range(0, source.num_vertices, _CHUNK):
            ids = np.arange(first, min(first + _CHUNK, source.num_vertices))
            weight = np.ones(len(ids), dtype=np.float32) if weighted else None
            yield EdgeChunk(ids, ids, weight, np.full(len(ids), len(names), dtype=np.int32))

    count = source.num_edges + source.num_vertices if source.num_edges and own_loops else 0
    return replace(source, edges=edges, num_edges=count, edge_type_names=(*names, "self"))


def _without_loops(source: Source) -> Iterator[EdgeChunk]:
    """The edges but those from a vertex to itself, checked before; what is no vertex stays, for it is refused below."""
    seen = 0
    for chunk in source.edges():
        src, dst = ids_of(chunk)
        check_values_of(chunk, seen)
        kept = (src != dst) | (src < 0) | (src >= source.num_vertices)
        weight, kind = (None if of_each is None else of_each[kept] for of_each in (chunk.weight, chunk.type))
        yield EdgeChunk(src[kept], dst[kept], weight, kind)
        seen += len(src)


def _types(chunk: EdgeChunk, names: tuple[str, ...]) -> np.ndarray:
    if chunk.type is None:
        return np.zeros(len(chunk.src), dtype=np.int32)
    return checked_types("edge", chunk.type, names).astype(np.int32)


def _relation_names(source: Source) -> tuple[str, ...]:
    """The names of relations; numbers where there are none, for which all edges are read."""
    if source.edge_type_names:
        return source.edge_type_names
    types = (checked_types("edge", chunk.type) for chunk in source.edges() if chunk.type is not None)
    highest = (int(some.max(initial=0)) for some in types)
    return tuple(map(str, range(max(highest, default=0) + 1)))
