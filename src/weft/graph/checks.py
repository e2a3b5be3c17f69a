"""What the arrays of a graph may hold: checked a piece at a time when a directory is opened or verified, and in memory."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import GraphFormatError, InputError, WeftError
from weft.graph.directory import check_array, map_array, read_manifest
from weft.graph.hetero_features import HeteroFeatures
from weft.graph.values import check_weights, checked_types, clean_split

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_CHUNK = 1 << 22  # values at a time
_FEATURES_AT_ONCE = 256 << 20  # bytes of features that are read when a graph is opened; more only by `weft verify`

_FEATURES = ("features", "edge_features")  # how the names of such arrays begin

Check = Callable[["Graph", np.ndarray, int], object]  # some rows of an array, and the place of the first of them


def check_shapes(graph: "Graph") -> None:
    """What must hold for a graph to be opened; cheap whatever its size."""
    _check_lists(graph.indptr, graph.indices)
    vertices, edges = graph.num_vertices, graph.num_edges
    if vertices < 1:
        raise InputError("the graph is empty: it needs at least one vertex")
    if graph.indptr[0] != 0 or graph.indptr[-1] != edges:
        raise GraphFormatError(
            "the neighbour lists do not fit together (indptr must run from 0 to the number of edges)"
        )
    for name, count in (("edge_weight", edges), ("edge_type", edges)):
        array = getattr(graph, name)
        if array is not None and len(array) != count:
            raise InputError(f"{name} has {len(array)} values for {count} edges: give one for each")
    _check_kinds(graph)
    for name in ("features", "labels", "split", "original_ids", "vertex_type", "names"):
        array = getattr(graph, name)
        if array is not None and len(array) != vertices:
            raise InputError(f"{name} has {len(array)} rows for {vertices} vertices: give one for each, in order")
    if graph.edge_features is not None:
        _check_shape_of_edge_features(graph.edge_features, edges)
    bounds = graph.bounds
    if bounds is not None and (
        not len(bounds) or bounds[0] != 0 or bounds[-1] != vertices or (bounds[1:] < bounds[:-1]).any()
    ):
        raise GraphFormatError(
            "the owners' bounds do not fit the vertices (they must rise from 0 to their number): partition the graph again"
        )
    shares = graph.shares
    if shares is not None and (
        shares.shape != (graph.num_owners,) or not (shares > 0).all() or not np.isfinite(shares).all()
    ):
        raise GraphFormatError(
            f"the owners' shares are not {graph.num_owners} positive numbers, one for each: partition the graph again"
        )


def _check_lists(indptr: np.ndarray, indices: np.ndarray) -> None:
    for name, array, kinds in (("indptr", indptr, ["int64"]), ("indices", indices, ["int32", "int64"])):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype not in kinds:
            got = f"of {array.dtype} and shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(
                f"{name} is {got}: give a row of {' or '.join(kinds)}, a numpy array; Graph.from_arrays makes it of edges"
            )


def _check_kinds(graph: "Graph") -> None:
    """What is given of vertices is of numpy, and shaped as its kind is."""
    for name, kinds, dims, shape in (
        ("features", "iuf", (2,), "a row of numbers a vertex, [vertices, width]"),
        ("labels", "iu", (1, 2), "a whole number a vertex, or a row of 0 and 1"),
        ("split", "iu", (1,), "0, 1, 2 or 3 a vertex: train, validation, test or unused"),
    ):
        array = getattr(graph, name)
        if array is None or isinstance(array, HeteroFeatures):
            continue
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name} is a {type(array).__name__}: give a numpy array, {shape}")
        if array.dtype.kind not in kinds or array.ndim not in dims:
            raise InputError(f"{name} is of {array.dtype} and shape {array.shape}: give {shape}")


def _check_shape_of_edge_features(features: np.ndarray, edges: int) -> None:
    if features.ndim != 2 or not features.shape[1]:
        raise InputError(f"edge_features has shape {features.shape}: it needs a row of numbers an edge, [edges, width]")
    if len(features) != edges:
        raise InputError(f"edge_features has {len(features)} rows for {edges} edges: give one for each")


def is_file_of(array: np.ndarray, folder: Path | None) -> bool:
    """Is it a file of a graph's folder? Those are looked at when the folder is opened."""
    if folder is None or not isinstance(array, np.memmap) or array.filename is None:
        return False
    return Path(array.filename).resolve().is_relative_to(folder.resolve())


def check_values(graph: "Graph") -> None:
    """All values of a graph within their bounds, but for files of its folder."""
    features = graph.features
    arrays = {name: getattr(graph, name) for name in _CHECKS if name != "features"}
    tables = features.tables if isinstance(features, HeteroFeatures) else (features,)
    for name, array in [*arrays.items(), *(("features", table) for table in tables)]:
        if array is not None and array.size and not is_file_of(array, graph.path):
            rows = max(1, _CHUNK * len(array) // array.size)
            for first in range(0, len(array), rows):
                _CHECKS[name](graph, array[first : first + rows], first)
    if graph.original_ids is not None and not is_file_of(graph.original_ids, graph.path):
        _check_distinct(graph.original_ids)


def check_files(
    path: Path, graph: "Graph | None", *, large: bool, features: bool = True
) -> Iterator[tuple[str, int, WeftError | None]]:
    """Of each array of a directory: its name, its bytes, and what is wrong with its header, its sum or what it holds.

    `large`: features are read however many there are; `features`: are those of vertices at all? What may be held is only
    known of a graph that can be opened.
    """
    arrays = read_manifest(path).arrays
    size = sum(entry.nbytes for name, entry in arrays.items() if name.startswith(_FEATURES))
    for name, entry in arrays.items():
        kind = "features" if name.startswith("features") else name
        check = partial(_CHECKS[kind], graph) if graph and kind in _CHECKS else None
        wrong: WeftError | None = None
        try:
            map_array(path, name, entry)
            few = size <= _FEATURES_AT_ONCE and (features or kind != "features")
            if large or few or not name.startswith(_FEATURES):
                check_array(path, name, entry, check)
            if large and graph and name == "original_ids" and graph.original_ids is not None:
                _check_distinct(graph.original_ids)
        except WeftError as error:
            wrong = error
        yield name, entry.nbytes, wrong


def check_finite(rows: np.ndarray, first: int, of: str = "vertex") -> None:
    """Refuse NaN and infinity, naming the vertex (or edge) and the column."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"feature {column} of {of} {first + row} is {rows[row, column]}: replace NaN and infinite values, then import"
        )


def _check_indptr(graph: "Graph", piece: np.ndarray, first: int) -> None:
    falls = piece[1:] < piece[:-1]
    if falls.any() or piece[0] < (graph.indptr[first - 1] if first else 0):
        raise GraphFormatError(f"list {first + int(np.argmax(falls))} ends before it begins: import again")


def _check_indices(graph: "Graph", piece: np.ndarray, first: int) -> None:
    if piece.min() < 0 or piece.max() >= graph.num_vertices:
        at = int(np.argmax((piece < 0) | (piece >= graph.num_vertices)))
        raise InputError(f"edge {first + at} comes from vertex {piece[at]}, but ids are 0 to {graph.num_vertices - 1}")


def _check_labels(graph: "Graph", piece: np.ndarray, _first: int) -> None:
    low, high = int(piece.min()), int(piece.max())
    if not graph.num_classes and high >= 0:
        raise InputError(
            f"labels run from {low} to {high}, and num_classes is 0: give num_classes = {high + 1} or more"
        )
    if low < -1 or high >= (2 if graph.multi_label else graph.num_classes):
        raise InputError(f"labels run from {low} to {high}: classes are 0 to {graph.num_classes - 1}, -1 is unknown")


def _check_ids(graph: "Graph", piece: np.ndarray, _first: int) -> None:
    if piece.min() < 0 or piece.max() >= graph.num_vertices:
        raise GraphFormatError(
            f"original ids run from {piece.min()} to {piece.max()}, of {graph.num_vertices} vertices: partition again"
        )


def _check_distinct(ids: np.ndarray) -> None:
    seen = np.zeros(len(ids), dtype=bool)
    seen[ids] = True
    if not seen.all():
        raise GraphFormatError("two vertices have the same original id: partition the graph again")


_CHECKS: dict[str, Check] = {
    "indptr": _check_indptr,
    "indices": _check_indices,
    "edge_weight": lambda _, piece, first: check_weights(piece, first),
    "edge_type": lambda graph, piece, _: checked_types("edge", piece, graph.edge_type_names),
    "edge_features": lambda _, piece, first: check_finite(piece, first, "edge"),
    "vertex_type": lambda graph, piece, _: checked_types("vertex", piece, graph.vertex_type_names),
    "features": lambda _, piece, first: check_finite(piece, first),
    "labels": _check_labels,
    "split": lambda _graph, piece, _first: clean_split(piece),
    "original_ids": _check_ids,
}
