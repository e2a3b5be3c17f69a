"""What can be imported: a folder of .npy files, a built-in data set, a PyG Data, an OGB data set; tables are in tables.py.

Each becomes a Source: edges that can be read again and again, and per-vertex arrays or streams of rows.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from weft.errors import ConfigError, InputError, StorageError
from weft.graph import pyg
from weft.graph.edges_to_csr import EdgeChunk, EdgeReader
from weft.graph.hetero_features import Features, HeteroFeatures
from weft.graph.left_out import check_left_out
from weft.graph.storage import load_npy, named_errors
from weft.graph.vertex_names import VertexNames

BUILT_IN = Path(__file__).parent / "data"
_OGB = {"edge_index", "num_nodes", "node_feat"}
_CHUNK = 1 << 22  # edges, or values of features, read at a time


@dataclass(frozen=True)
class FeatureTable:
    """The features of one type of vertices, read anew by each call of `rows`."""

    vertices: int
    width: int
    rows: Callable[[], Iterator[np.ndarray]]


@dataclass
class Source:
    """A graph outside a graph directory, that can be imported."""

    num_vertices: int
    edges: EdgeReader
    feature_width: int = 0
    feature_rows: Callable[[], Iterator[np.ndarray]] | None = None
    labels: np.ndarray | None = None
    split: np.ndarray | None = None
    names: VertexNames | None = None
    class_names: tuple[str, ...] | None = None
    num_edges: int = 0  # as they are in the input; 0: not known yet
    vertex_type: np.ndarray | None = None  # [vertices], where there are several types, and
    tables: tuple[FeatureTable, ...] = ()  # the features of each, in place of those of all
    vertex_type_names: tuple[str, ...] | None = None
    edge_type_names: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()  # what there is and is not imported


def with_reverses(source: Source) -> Source:
    """Each edge both ways, reverses as relations of their own, numbered after those that are there."""
    names = _relation_names(source)

    def edges() -> Iterator[EdgeChunk]:
        for chunk in source.edges():
            types = _types(chunk)
            yield EdgeChunk(chunk.src, chunk.dst, chunk.weight, types)
            yield EdgeChunk(chunk.dst, chunk.src, chunk.weight, types + np.int32(len(names)))

    both = (*names, *(f"rev_{name}" for name in names))
    return replace(source, edges=edges, num_edges=2 * source.num_edges, edge_type_names=both)


def with_self_relation(source: Source) -> Source:
    """Adds a self-loop of weight 1 to each vertex, as a relation of its own."""
    names = _relation_names(source)

    def edges() -> Iterator[EdgeChunk]:
        weighted = False
        for chunk in source.edges():
            weighted = weighted or chunk.weight is not None
            yield EdgeChunk(chunk.src, chunk.dst, chunk.weight, _types(chunk))
        for first in range(0, source.num_vertices, _CHUNK):
            ids = np.arange(first, min(first + _CHUNK, source.num_vertices))
            weight = np.ones(len(ids), dtype=np.float32) if weighted else None
            yield EdgeChunk(ids, ids, weight, np.full(len(ids), len(names), dtype=np.int32))

    count = source.num_edges + source.num_vertices if source.num_edges else 0
    return replace(source, edges=edges, num_edges=count, edge_type_names=(*names, "self"))


def _types(chunk: EdgeChunk) -> np.ndarray:
    return np.zeros(len(chunk.src), dtype=np.int32) if chunk.type is None else chunk.type.astype(np.int32)


def _relation_names(source: Source) -> tuple[str, ...]:
    """The names of relations; numbers where there are none, for which all edges are read."""
    if source.edge_type_names:
        return source.edge_type_names
    highest = (0 if chunk.type is None or not len(chunk.type) else int(chunk.type.max()) for chunk in source.edges())
    return tuple(map(str, range(max(highest, default=0) + 1)))


def built_in_names() -> list[str]:
    """The names of the data sets that come with Weft."""
    return sorted(folder.name for folder in BUILT_IN.iterdir() if folder.is_dir())


def from_folder(folder: Path, leave_out: Collection[str] = ()) -> Source:
    """A folder of .npy files: edge_index, and feat (or feat_bits with n_features), label, split, edge_type, edge_weight."""
    edge_file = folder / "edge_index.npy"
    if not edge_file.exists():
        raise InputError(
            f"{folder} has no edge_index.npy: see docs/file-formats.md for what can be imported from a folder"
        )
    edge_index = load_npy(edge_file)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
        raise InputError(
            f"{edge_file} has shape {edge_index.shape} and type {edge_index.dtype}: it needs two rows of integers, sources "
            f"and destinations"
        )
    arrays = {
        name: _optional(folder, name) for name in ("feat", "feat_bits", "label", "split", "edge_type", "edge_weight")
    }
    used = {name for name, array in arrays.items() if array is not None} | {"edge_index"}
    used -= {"feat_bits"} if arrays["feat"] is not None else set()
    used |= {"n_features"} if "feat_bits" in used else set()
    check_left_out(str(folder), sorted(file.stem for file in folder.glob("*.npy") if file.stem not in used), leave_out)
    if arrays["feat"] is not None:
        width, rows = _dense_rows(folder / "feat.npy", arrays["feat"])
    elif arrays["feat_bits"] is not None:
        width, rows = _bit_rows(folder, arrays["feat_bits"])
    else:
        width, rows = 0, None
    per_vertex = {name: arrays[name] for name in ("feat", "feat_bits", "label", "split") if arrays[name] is not None}
    sizes = {name: len(array) for name, array in per_vertex.items() if array is not None}
    if len(set(sizes.values())) > 1:
        sizes_text = ", ".join(f"{name}.npy {size}" for name, size in sizes.items())
        raise InputError(
            f"the arrays of {folder} differ in their number of vertices ({sizes_text}): give each one row a vertex"
        )
    vertices = (
        next(iter(sizes.values())) if sizes else int(max((part.max() for part in _pieces(edge_index)), default=-1)) + 1
    )
    return Source(
        vertices,
        _npy_edges(folder, edge_index),
        width,
        rows,
        arrays["label"],
        arrays["split"],
        class_names=_lines(folder / "classes.txt"),
        num_edges=edge_index.shape[1],
        edge_type_names=_lines(folder / "relations.txt") if arrays["edge_type"] is not None else None,
        left_out=tuple(leave_out),
    )


def _lines(file: Path) -> tuple[str, ...] | None:
    """The names in a file, one a line; None without a file."""
    return tuple(file.read_text().split("\n")[:-1]) if file.exists() else None


def from_pyg_file(path: Path, leave_out: Collection[str] = ()) -> Source:
    """A PyG `Data` or `HeteroData` that torch.save wrote."""
    with named_errors(path, "reading"):
        data = pyg.load(path)
    return replace(from_arrays(**pyg.arrays_of(data, leave_out)), left_out=tuple(leave_out))


def from_arrays(
    edge_index: np.ndarray,
    num_vertices: int,
    features: Features | None = None,
    labels: np.ndarray | None = None,
    split: np.ndarray | None = None,
    edge_weight: np.ndarray | None = None,
    edge_type: np.ndarray | None = None,
    vertex_type: np.ndarray | None = None,
    vertex_type_names: tuple[str, ...] | None = None,
    edge_type_names: tuple[str, ...] | None = None,
) -> Source:
    """Arrays that are in memory already."""
    chunk = EdgeChunk(edge_index[0], edge_index[1], edge_weight, edge_type)
    source = Source(num_vertices, lambda: iter([chunk]), labels=labels, split=split, num_edges=len(chunk.src))
    source.vertex_type, source.vertex_type_names = vertex_type, vertex_type_names
    source.edge_type_names = edge_type_names
    if isinstance(features, HeteroFeatures):
        source.tables = tuple(_in_memory(table) for table in features.tables)
    elif features is not None:
        table = _in_memory(features)
        source.feature_width, source.feature_rows = table.width, table.rows
    return source


def _in_memory(rows: np.ndarray) -> FeatureTable:
    return FeatureTable(len(rows), int(rows.shape[1]), lambda: iter([rows]))


def from_ogb(name: str, root: Path, leave_out: Collection[str] = ()) -> Source:
    """An OGB node-property data set, through the `ogb` package."""
    if find_spec("ogb") is None:
        raise ConfigError(f"importing {name} needs the package ogb: pip install 'weft-gnn[ogb]'")
    data = import_module("ogb.nodeproppred").NodePropPredDataset(name, root=str(root))
    graph, labels = data[0]
    if "edge_index" not in graph:
        raise InputError(
            f"{name} has several types of vertices: load it with PyG's OGB_MAG, torch.save its HeteroData, and import that"
        )
    unused = [key for key, value in graph.items() if value is not None and key not in _OGB]
    check_left_out(name, unused, leave_out)
    split = np.full(int(graph["num_nodes"]), 3, dtype=np.uint8)
    for value, part in enumerate(("train", "valid", "test")):
        split[data.get_idx_split()[part]] = value
    source = from_arrays(graph["edge_index"], int(graph["num_nodes"]), graph.get("node_feat"), labels, split)
    return replace(source, left_out=tuple(leave_out))


def _optional(folder: Path, name: str) -> np.ndarray | None:
    file = folder / f"{name}.npy"
    return load_npy(file) if file.exists() else None


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, array.size, _CHUNK):
        yield _read(array, first, min(_CHUNK, array.size - first))


def _npy_edges(folder: Path, edge_index: np.ndarray) -> EdgeReader:
    count = edge_index.shape[1]
    values: dict[str, np.ndarray] = {}
    for name in ("edge_weight", "edge_type"):
        array = _optional(folder, name)
        if array is not None:
            if len(array) != count:
                raise InputError(f"{folder / name}.npy has {len(array)} values for {count} edges: give one for each")
            values[name] = array

    def read() -> Iterator[EdgeChunk]:
        for first in range(0, count, _CHUNK):
            some = min(_CHUNK, count - first)
            src, dst = (_read(edge_index, row * count + first, some) for row in (0, 1))
            weight, kind = (
                _read(values[n], first, some) if n in values else None for n in ("edge_weight", "edge_type")
            )
            yield EdgeChunk(src, dst, weight, kind)

    return read


def _read(array: np.ndarray, first: int, count: int) -> np.ndarray:
    """Elements of an array, in C order, by a plain read: pages of a memory map would count as this process's memory."""
    if not isinstance(array, np.memmap) or not array.flags.c_contiguous:
        return np.ascontiguousarray(array.reshape(-1)[first : first + count])
    file = str(array.filename)
    with named_errors(Path(file), "reading"):
        return np.fromfile(file, array.dtype, count, offset=array.offset + first * array.itemsize)


def _dense_rows(file: Path, features: np.ndarray) -> tuple[int, Callable[[], Iterator[np.ndarray]]]:
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"{file} has shape {features.shape} and type {features.dtype}: it needs a row of numbers a vertex"
        )
    width = int(features.shape[1])
    rows = max(1, _CHUNK // max(1, width))

    def read() -> Iterator[np.ndarray]:
        for first in range(0, len(features), rows):
            some = min(rows, len(features) - first)
            yield _read(features, first * width, some * width).reshape(some, width)

    return width, read


def _bit_rows(folder: Path, bits: np.ndarray) -> tuple[int, Callable[[], Iterator[np.ndarray]]]:
    width = int(load_npy(folder / "n_features.npy"))
    if bits.ndim != 2 or bits.dtype != np.uint8 or bits.shape[1] != -(-width // 8):
        raise InputError(
            f"{folder / 'feat_bits.npy'} does not hold rows of {width} bits: pack them with numpy.packbits(axis=1)"
        )
    rows = max(1, _CHUNK // max(1, width))

    def read() -> Iterator[np.ndarray]:
        for first in range(0, len(bits), rows):
            yield np.unpackbits(bits[first : first + rows], axis=1, count=width)

    return width, read


def find_source(source: str, root: Path, leave_out: Collection[str] = ()) -> Source:
    """A source by what the user called it: a folder, a PyG file, a built-in name, or ogb:NAME.

    `leave_out`: arrays of it that are not to be imported; others that Weft does not use are refused.
    """
    path = Path(source)
    if source.startswith("ogb:"):
        return from_ogb(source.removeprefix("ogb:"), root, leave_out)
    if path.is_dir():
        return from_folder(path, leave_out)
    if path.is_file():
        return from_pyg_file(path, leave_out)
    if source in built_in_names():
        return from_folder(BUILT_IN / source, leave_out)
    raise StorageError(
        f"there is nothing at {source}, nor a built-in data set of that name ({', '.join(built_in_names())}): check the path"
    )
