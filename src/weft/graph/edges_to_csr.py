"""Edges in any order to neighbour lists by destination, in bounded memory.

Edges are read twice: once to count, once to place. Where the lists do not fit the memory given, they are made a range of
destinations at a time, and the edges are read again for each range; the result is the same whatever the memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.graph.csr import id_type, running_sum, vertex_ranges
from weft.graph.progress import ProgressCallback
from weft.graph.storage import DirectoryWriter

_LOOPS = {"keep": 0, "remove": 1, "add": 2}


@dataclass(frozen=True)
class EdgeOptions:
    """What happens to edges on their way into a graph."""

    undirected: bool = False  # every edge both ways, each pair once (implies drop_duplicates)
    self_loops: str = "keep"  # keep, remove, or add where missing
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        if self.self_loops not in _LOOPS:
            raise ConfigError(f"self_loops = {self.self_loops!r} is not possible: choose one of {', '.join(_LOOPS)}")

    @property
    def unique(self) -> bool:
        """Is each edge kept once?"""
        return self.drop_duplicates or self.undirected

    @property
    def cleans(self) -> bool:
        """Must lists be gone through once they are made?"""
        return self.unique or self.self_loops != "keep"


@dataclass(frozen=True)
class EdgeChunk:
    """Some edges, in the order of the input."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None
    type: np.ndarray | None = None


EdgeReader = Callable[[], Iterator[EdgeChunk]]  # reads all edges, from the beginning, each time it is called


@dataclass
class _Lists:
    """The lists of a range of destinations."""

    lengths: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None
    type: np.ndarray | None


@dataclass(frozen=True)
class _Counted:
    """The result of reading the edges once."""

    degrees: np.ndarray  # [vertices] int64: edges that each destination gets, before cleaning
    edges: int  # in the input
    weighted: bool
    typed: bool


def csr_in_memory(
    edges: EdgeReader, vertices: int, options: EdgeOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """indptr, indices, weights and types, all at once."""
    counted = _count(edges, vertices, options)
    lists = _make(edges, 0, counted.degrees, vertices, options)
    return running_sum(lists.lengths), lists.indices, lists.weight, lists.type


def write_csr(
    edges: EdgeReader,
    vertices: int,
    options: EdgeOptions,
    directory: DirectoryWriter,
    memory: int,
    progress: ProgressCallback | None = None,
    expected: int = 0,
) -> None:
    """Write indptr, indices, edge_weight and edge_type into a graph directory, using about `memory` bytes.

    `expected`: how many edges there are, if known; for progress only.
    """
    counted = _count(edges, vertices, options, progress, expected)
    ranges = _ranges(counted, options, memory)
    lengths = np.empty(vertices, dtype=np.int64)
    indices = directory.array("indices", id_type(vertices))
    weight = directory.array("edge_weight", np.float32) if counted.weighted else None
    type_ = directory.array("edge_type", np.int32) if counted.typed else None
    for number, (first, end) in enumerate(ranges):
        report = None if progress is None else _onward(progress, number * counted.edges, len(ranges) * counted.edges)
        lists = _make(edges, first, counted.degrees[first:end], vertices, options, report)
        lengths[first:end] = lists.lengths
        for writer, values in ((indices, lists.indices), (weight, lists.weight), (type_, lists.type)):
            if writer is not None and values is not None:
                writer.append(values)
        del lists, values  # before the next range's are made
    directory.add("indptr", running_sum(lengths))


def _onward(progress: ProgressCallback, before: int, total: int) -> Callable[[int], None]:
    """Reports edges that are placed, after those of earlier ranges."""
    return lambda placed: progress("placing edges", before + placed, total)


def _count(
    edges: EdgeReader, vertices: int, options: EdgeOptions, progress: ProgressCallback | None = None, expected: int = 0
) -> _Counted:
    """How many edges each destination gets; ids and weights are checked here."""
    if vertices < 1:
        raise InputError("the graph is empty: it needs at least one vertex")
    counts = np.zeros(vertices, dtype=np.int64)
    seen, weighted, typed = 0, False, False
    for chunk in edges():
        bad = _kernels.count_edges(*_ids(chunk), counts, options.undirected)
        if bad >= 0:
            raise InputError(
                f"edge {seen + bad} goes from {chunk.src[bad]} to {chunk.dst[bad]}, but vertex ids are 0 to {vertices - 1}: "
                f"correct the edge, or give the right number of vertices"
            )
        _check_values(chunk, seen)
        weighted, typed = weighted or chunk.weight is not None, typed or chunk.type is not None
        seen += len(chunk.src)
        if progress:
            progress("counting edges", seen, expected)
    return _Counted(counts, seen, weighted, typed)


def _check_values(chunk: EdgeChunk, seen: int) -> None:
    for name, values in (("weight", chunk.weight), ("type", chunk.type)):
        if values is not None and len(values) != len(chunk.src):
            raise InputError(f"edge {name}s: {len(values)} values for {len(chunk.src)} edges; give one for each")
    if chunk.weight is not None and not np.isfinite(chunk.weight).all():
        at = int(np.flatnonzero(~np.isfinite(chunk.weight))[0])
        raise InputError(f"the weight of edge {seen + at} is {chunk.weight[at]}: weights must be finite numbers")


def _ids(chunk: EdgeChunk) -> tuple[np.ndarray, np.ndarray]:
    if len(chunk.src) != len(chunk.dst):
        raise InputError(f"{len(chunk.src)} sources but {len(chunk.dst)} destinations: edges need both")
    for ids in (chunk.src, chunk.dst):
        if ids.dtype.kind not in "iu":
            raise InputError(f"vertex ids are of type {ids.dtype}: they must be integers (or import them as names)")
    narrow = all(ids.dtype in (np.int8, np.int16, np.int32, np.uint8, np.uint16) for ids in (chunk.src, chunk.dst))
    dtype = np.int32 if narrow else np.int64
    return np.ascontiguousarray(chunk.src, dtype=dtype), np.ascontiguousarray(chunk.dst, dtype=dtype)


def _ranges(counted: _Counted, options: EdgeOptions, memory: int) -> list[tuple[int, int]]:
    """Ranges of destinations whose lists fit half of what degrees and lengths leave; edges are read in the rest."""
    vertices = len(counted.degrees)
    bytes_an_edge = np.dtype(id_type(vertices)).itemsize + 4 * counted.weighted + 4 * counted.typed
    if options.self_loops == "add":  # all other lists are cleaned where they are
        bytes_an_edge *= 2
    room = max(memory - 40 * vertices, memory // 8) // 2
    return list(vertex_ranges(running_sum(counted.degrees + 1), room // bytes_an_edge))


def _make(
    edges: EdgeReader,
    first: int,
    counts: np.ndarray,
    vertices: int,
    options: EdgeOptions,
    report: Callable[[int], None] | None = None,
) -> _Lists:
    """The lists of the destinations from `first` on, in input order, cleaned as the options say."""
    offsets = running_sum(counts)
    place, total, seen = offsets[:-1].copy(), int(offsets[-1]), 0
    indices: np.ndarray = np.empty(total, dtype=id_type(vertices))
    weight = type_ = None
    for chunk in edges():
        src, dst = _ids(chunk)
        given_weight = None if chunk.weight is None else np.ascontiguousarray(chunk.weight, dtype=np.float32)
        given_type = None if chunk.type is None else np.ascontiguousarray(chunk.type, dtype=np.int32)
        if given_weight is not None and weight is None:
            weight = np.empty(total, dtype=np.float32)
        if given_type is not None and type_ is None:
            type_ = np.empty(total, dtype=np.int32)
        _kernels.place_edges(
            src, dst, first, place, indices, given_weight, weight, given_type, type_, options.undirected
        )
        seen += len(src)
        if report:
            report(seen)
    return _clean(_Lists(offsets, indices, weight, type_), first, options)


def _clean(lists: _Lists, first: int, options: EdgeOptions) -> _Lists:
    """Drop repeated edges and self-loops, or add them; `lists.lengths` holds offsets on the way in.

    Lists that only get shorter are cleaned where they are.
    """
    rows = len(lists.lengths) - 1
    if not options.cleans:
        return _Lists(np.diff(lists.lengths), lists.indices, lists.weight, lists.type)
    lengths = np.empty(rows, dtype=np.int64)
    indices, weight, type_ = lists.indices, lists.weight, lists.type
    if options.self_loops == "add":
        room = len(indices) + rows
        indices = np.empty(room, dtype=indices.dtype)
        weight, type_ = (None if a is None else np.empty(room, dtype=a.dtype) for a in (weight, type_))
    loops = _LOOPS[options.self_loops]
    inputs = (lists.lengths, lists.indices, lists.weight, lists.type, first, options.unique, loops)
    total = _kernels.clean_lists(*inputs, lengths, indices, weight, type_)
    return _Lists(
        lengths, indices[:total], None if weight is None else weight[:total], None if type_ is None else type_[:total]
    )
