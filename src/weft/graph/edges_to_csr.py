"""Edges in any order to neighbour lists by destination, in bounded memory.

Edges are read twice: once to count, once to place. Where the lists do not fit the memory given, they are made a range of
destinations at a time, and the edges are read again for each range; the result is the same whatever the memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.graph.csr import id_type, running_sum, vertex_ranges
from weft.graph.directory import DirectoryWriter
from weft.graph.feature_tables import EdgeFeatures
from weft.graph.values import check_weights, checked_types
from weft.memory import available_memory

_BYTES_A_VERTEX = 24  # while lists are made: degrees, offsets, lengths
_COPYING = "copying features of edges"
_LOOPS = {"keep": 0, "remove": 1, "add": 2}


@dataclass(frozen=True)
class EdgeOptions:
    """What happens to edges on their way into a graph."""

    undirected: bool = False  # every edge both ways, each pair once (implies drop_duplicates)
    self_loops: str = "keep"  # keep, remove, or add where missing; not to edges that have types
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        if self.self_loops not in _LOOPS:
            raise ConfigError(f"self_loops = {self.self_loops!r} is not possible: choose one of {', '.join(_LOOPS)}")

    @property
    def unique(self) -> bool:
        """Is each edge kept once?"""
        return self.drop_duplicates or self.undirected

    def check_for_types(self) -> None:
        """Refuse what edges can't be given that have types."""
        if self.self_loops == "add":
            raise InputError(
                "edges have types, and the loops of self_loops = 'add' would be of the first one: add them as a relation of "
                "their own (`weft import --self-relation`)"
            )

    def check_for_features(self) -> None:
        """Refuse what edges can't be given that have features."""
        if self.self_loops == "add":
            raise InputError(
                "edges have features, and the loops of self_loops = 'add' would have none: add the loops to the edges, with "
                "features of theirs, or leave the features of edges out"
            )


@dataclass(frozen=True)
class EdgeChunk:
    """Some edges, in the order of the input."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None
    type: np.ndarray | None = None
    number: np.ndarray | None = None  # int32: which row of the features of edges is each one's


ProgressCallback = Callable[[str, int, int], None]  # stage, done, total (0: not known yet)
EdgeReader = Callable[[], Iterator[EdgeChunk]]  # reads all edges, from the beginning, each time it is called


CsrColumns = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]  # lengths, sources, weights, types
WeightOf = Callable[[EdgeChunk], np.ndarray | None]


def csr_in_memory(
    edges: EdgeReader, vertices: int, options: EdgeOptions, features: EdgeFeatures | None = None
) -> tuple[CsrColumns, np.ndarray | None]:
    """indptr, indices, weights and types, all at once; and features of edges, if there are any."""
    maker = _ListsMaker(edges, vertices, options, features=features)
    lengths, indices, weight, kind = maker.make(0, vertices)
    return (running_sum(lengths), indices, weight, kind), maker.features(0, vertices) if features else None


def write_csr(
    edges: EdgeReader,
    vertices: int,
    options: EdgeOptions,
    directory: DirectoryWriter,
    memory: int,
    progress: ProgressCallback | None = None,
    expected: int = 0,
    features: EdgeFeatures | None = None,
) -> None:
    """Write indptr, indices, edge_weight, edge_type and edge_features into a graph directory, using about `memory` bytes.

    `expected`: how many edges there are, if known; for progress only. `features`: what the edges' numbers are rows of.
    """
    maker = _ListsMaker(edges, vertices, options, progress, expected, features=features)
    ranges = maker.ranges(memory)
    lengths = np.empty(vertices, dtype=np.int64)
    indices = directory.array("indices", id_type(vertices))
    weight = directory.array("edge_weight", np.float32) if maker.weighted else None
    type_ = directory.array("edge_type", np.int32) if maker.typed else None
    rows = directory.array("edge_features", np.float32, (features.width,)) if features else None
    for number, (first, end) in enumerate(ranges):
        report = progress and partial(_report, progress, number * maker.edges, len(ranges) * maker.edges)
        lengths[first:end], *arrays = maker.make(first, end, report)
        for writer, values in zip((indices, weight, type_), arrays, strict=True):
            if writer is not None and values is not None:
                writer.append(values)
        del arrays, values  # before the next range's are made
        if rows is not None and features:
            done, total = number * features.count, len(ranges) * features.count
            rows.append(
                maker.features(first, end, progress and partial(_report, progress, done, total, stage=_COPYING))
            )
    directory.add(indptr=running_sum(lengths))


def lists_of(
    edges: EdgeReader, vertices: int, span: tuple[int, int], options: EdgeOptions, memory: int
) -> Iterator[CsrColumns]:
    """The lists of some destinations, in pieces that take about `memory` bytes to make; the edges' ends are vertices."""
    maker = _ListsMaker(edges, vertices, options, span=span)
    for first, end in maker.ranges(memory):
        yield maker.make(first, end)


def _report(progress: ProgressCallback, before: int, total: int, placed: int, stage: str = "placing edges") -> None:
    progress(stage, before + placed, total)


class _ListsMaker:
    """Reads the edges: once to count and to check them, and again for each range of destinations whose lists are made."""

    def __init__(
        self,
        reader: EdgeReader,
        vertices: int,
        options: EdgeOptions,
        progress: ProgressCallback | None = None,
        expected: int = 0,
        span: tuple[int, int] | None = None,
        features: EdgeFeatures | None = None,
    ) -> None:
        """`span`: the destinations whose lists are made, where that are not all; edges were checked then."""
        if features:
            options.check_for_features()
        if vertices < 1:
            raise InputError("the graph is empty: it needs at least one vertex")
        self._vertices, (self._first, end) = vertices, span or (0, vertices)
        if _BYTES_A_VERTEX * (end - self._first) > available_memory():
            raise InputError(
                f"{vertices:,} vertices need more memory than there is: if ids are not positions but names, say --ids names"
            )
        self._reader, self._options, self._features = reader, options, features
        self._degrees = np.zeros(end - self._first, dtype=np.int64)  # edges that each destination gets, before cleaning
        self.edges, self.weighted, self.typed = 0, False, False  # in the input
        for chunk in reader():
            self._count(chunk)
            if progress:
                progress("counting edges", self.edges, expected)

    def _count(self, chunk: EdgeChunk) -> None:
        if len(self._degrees) < self._vertices:
            for ends in (chunk.dst, chunk.src) if self._options.undirected else (chunk.dst,):
                here = ends[(ends >= self._first) & (ends < self._first + len(self._degrees))]
                self._degrees += np.bincount(here - self._first, minlength=len(self._degrees))
        elif (bad := _kernels.count_edges(*ids_of(chunk), self._degrees, self._options.undirected)) >= 0:
            raise InputError(
                f"edge {self.edges + bad} goes from {chunk.src[bad]} to {chunk.dst[bad]}, but vertex ids are "
                f"0 to {len(self._degrees) - 1}: correct the edge, or give the right number of vertices"
            )
        check_values_of(chunk, self.edges)
        if chunk.type is not None:
            self._options.check_for_types()
        self.weighted, self.typed = self.weighted or chunk.weight is not None, self.typed or chunk.type is not None
        self.edges += len(chunk.src)

    def ranges(self, memory: int) -> list[tuple[int, int]]:
        """Ranges of destinations whose lists fit half of what degrees and lengths leave; edges are read in the rest."""
        vertices = len(self._degrees)
        bytes_an_edge = np.dtype(id_type(self._vertices)).itemsize + 4 * self.weighted + 4 * self.typed
        if self._options.self_loops == "add":  # all other lists are cleaned where they are
            bytes_an_edge *= 2
        if self._features:  # and numbers, their order, and lists to find them
            bytes_an_edge += 16 + 4 * self._features.width
        room = max(memory - 40 * vertices, memory // 8) // 2
        ranges = vertex_ranges(running_sum(self._degrees + 1), room // bytes_an_edge)
        return [(self._first + first, self._first + end) for first, end in ranges]

    def make(self, first: int, end: int, report: Callable[[int], None] | None = None) -> CsrColumns:
        """The lists of some destinations, in input order, cleaned as the options say."""
        return self._made(first, end, self.weighted, lambda chunk: chunk.weight, report)

    def features(self, first: int, end: int, report: Callable[[int], None] | None = None) -> np.ndarray:
        """The features of the edges of the same lists."""
        bits = self._made(first, end, True, _number_as_weight)[2]  # weights change no list, and are moved as they are
        assert bits is not None and self._features
        return self._features.taken(bits.view(np.int32), report)

    def _made(
        self, first: int, end: int, weighted: bool, weight_of: WeightOf, report: Callable[[int], None] | None = None
    ) -> CsrColumns:
        offsets = running_sum(self._degrees[first - self._first : end - self._first])
        place, seen = offsets[:-1].copy(), 0
        indices, weight, type_ = arrays = self._arrays(int(offsets[-1]), weighted)
        for chunk in self._reader():
            src, dst = ids_of(chunk)
            value = weight_of(chunk)
            given_weight = None if value is None else np.ascontiguousarray(value, dtype=np.float32)
            given_type = None if chunk.type is None else np.ascontiguousarray(chunk.type, dtype=np.int32)
            both_ways = self._options.undirected
            _kernels.place_edges(src, dst, first, place, indices, given_weight, weight, given_type, type_, both_ways)
            seen += len(src)
            if report:
                report(seen)
        if not np.array_equal(place, offsets[1:]):
            raise InputError("the edges were others when they were read again: import them once nothing writes them")
        if not self._options.unique and self._options.self_loops == "keep":
            return np.diff(offsets), *arrays
        lengths = np.empty(end - first, dtype=np.int64)
        clean = self._arrays(len(indices) + end - first, weighted) if self._options.self_loops == "add" else arrays
        loops = _LOOPS[self._options.self_loops]
        total = _kernels.clean_lists(offsets, *arrays, first, self._options.unique, loops, lengths, *clean)
        indices, weight, type_ = clean
        return (
            lengths,
            indices[:total],
            None if weight is None else weight[:total],
            None if type_ is None else type_[:total],
        )

    def _arrays(self, room: int, weighted: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Sources, weights and types of so many edges."""
        return (
            np.empty(room, dtype=id_type(self._vertices)),
            np.empty(room, dtype=np.float32) if weighted else None,
            np.empty(room, dtype=np.int32) if self.typed else None,
        )


def _number_as_weight(chunk: EdgeChunk) -> np.ndarray:
    """The bits of edges' numbers, which travel where weights do."""
    assert chunk.number is not None
    return np.ascontiguousarray(chunk.number, dtype=np.int32).view(np.float32)


def check_values_of(chunk: EdgeChunk, first: int) -> None:
    """Refuse weights and types that are not one for each edge, or can't be; `first`: the first one's edge."""
    for name, values in (("weight", chunk.weight), ("type", chunk.type)):
        if values is None:
            continue
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise InputError(f"edge {name}s have shape {values.shape} and type {values.dtype}: give each edge a number")
        if len(values) != len(chunk.src):
            raise InputError(f"edge {name}s: {len(values)} values for {len(chunk.src)} edges; give one for each")
    if chunk.type is not None:
        checked_types("edge", chunk.type)
    if chunk.weight is not None:
        check_weights(chunk.weight, first)


def ids_of(chunk: EdgeChunk) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations as kernels take them."""
    if len(chunk.src) != len(chunk.dst):
        raise InputError(f"{len(chunk.src)} sources but {len(chunk.dst)} destinations: edges need both")
    for ids in (chunk.src, chunk.dst):
        if len(ids) and ids.dtype.kind not in "iu":  # of none, NumPy and PyTorch make floats
            raise InputError(f"vertex ids are of type {ids.dtype}: they must be integers (or import them as names)")
    narrow = all(ids.dtype in (np.int8, np.int16, np.int32, np.uint8, np.uint16) for ids in (chunk.src, chunk.dst))
    dtype = np.int32 if narrow else np.int64
    return np.ascontiguousarray(chunk.src, dtype=dtype), np.ascontiguousarray(chunk.dst, dtype=dtype)
