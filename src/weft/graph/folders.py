"""What can be imported besides tables: a folder of .npy files, a built-in data set, a PyG file, an OGB data set."""

from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np

from weft.errors import ConfigError, InputError, StorageError, reason_of
from weft.graph.edges_to_csr import EdgeChunk, EdgeReader
from weft.graph.feature_tables import EdgeFeatures, FeatureTable, edge_features_in_memory
from weft.graph.pyg import source_from_pyg_file
from weft.graph.source import Source, check_left_out, edges_in_memory, features_in_memory, numbered
from weft.graph.storage import load_npy, named_errors

BUILT_IN = Path(__file__).parent / "data"
_OF_OTHERS = (".npy", ".json", ".jsonl", ".xz", ".zip", ".h5", ".hdf5", ".xlsx", ".graphml", ".feather", ".orc")
_OF_VERTICES = ("feat", "feat_bits", "label", "split")
_OF_EDGES = ("edge_weight", "edge_type")
_NEEDS = {  # of each array: kinds of numbers, how many dimensions, and that in words
    "edge_index": ("iu", (2,), "two rows of integers, sources and destinations"),
    "feat": ("fiub", (2,), "a row of numbers a vertex"),
    "feat_bits": ("u", (2,), "a row of bytes a vertex"),
    "n_features": ("iu", (0,), "the number of features"),
    "label": ("fiub", (1, 2), "a number a vertex, or a column a class"),
    "split": ("fiu", (1,), "a number a vertex"),
    "edge_weight": ("fiub", (1,), "a number an edge"),
    "edge_type": ("fiu", (1,), "a number an edge"),
    "edge_attr": ("fiub", (2,), "a row of numbers an edge"),
}
_OGB = {"edge_index", "num_nodes", "node_feat", "edge_feat"}
_CHUNK = 1 << 22  # edges read at a time
_Table = TypeVar("_Table", bound=FeatureTable)


def built_in_names() -> list[str]:
    """The names of the data sets that come with Weft."""
    return sorted(folder.name for folder in BUILT_IN.iterdir() if folder.is_dir())


def find_source(source: str, root: Path, leave_out: Collection[str] = ()) -> Source:
    """A source by what the user called it: a folder, a PyG file, a built-in name, or ogb:NAME.

    `leave_out`: arrays of it that are not to be imported; others that Weft does not use are refused.
    """
    path = Path(source)
    if source.startswith("ogb:"):
        found = _from_ogb(source.removeprefix("ogb:"), root, leave_out)
    elif path.is_dir():
        found = from_folder(path, leave_out)
    elif path.is_file() and path.suffix == ".npz":
        raise InputError(
            f"{path} is an archive: unpack it (`unzip {path} -d FOLDER`), and import the folder of its arrays"
        )
    elif path.is_file() and path.suffix in _OF_OTHERS:
        raise InputError(
            f"{path}: {path.suffix} is not read by itself: write a table of edges (.parquet, .csv), a folder with "
            f"edge_index.npy, or a PyG Data by torch.save (docs/file-formats.md)"
        )
    elif path.is_file():
        found = source_from_pyg_file(path, leave_out)
    elif source in built_in_names():
        found = from_folder(BUILT_IN / source, leave_out)
    else:
        raise StorageError(
            f"there is nothing at {source}, nor a built-in data set of that name ({', '.join(built_in_names())}): "
            f"check the path"
        )
    found.left_out = tuple(leave_out)
    return found


def from_folder(folder: Path, leave_out: Collection[str] = ()) -> Source:
    """A folder of .npy files: edge_index, and what there is of feat (or feat_bits with n_features), label, split.

    Of edges edge_type, edge_weight and edge_attr, their features, which may be left out.
    """
    edge_file = folder / "edge_index.npy"
    if not edge_file.exists():
        if any(folder.glob("*.parquet")):
            raise InputError(
                f"{folder} is a folder of Parquet files: import it with --on ray, or write one file of them"
            )
        raise InputError(
            f"{folder} has no edge_index.npy: see docs/file-formats.md for what can be imported from a folder"
        )
    edge_index = _load(folder, "edge_index")
    there = {file.stem for file in folder.glob("*.npy")}
    by_vertex, by_edge = (
        {name: _load(folder, name) for name in names if name in there}
        for names in (_OF_VERTICES, (*_OF_EDGES, *({"edge_attr"} - {*leave_out})))
    )
    used = {"edge_index", *by_vertex, *by_edge}
    if "feat" in used:
        used.discard("feat_bits")
    elif "feat_bits" in used:
        used.add("n_features")
    check_left_out(str(folder), sorted(there - used), leave_out)
    if len({len(array) for array in by_vertex.values()}) > 1:
        sizes = ", ".join(f"{name}.npy {len(array)}" for name, array in by_vertex.items())
        raise InputError(
            f"the arrays of {folder} differ in their number of vertices ({sizes}): give each one row a vertex"
        )
    for name, array in by_edge.items():
        if len(array) != edge_index.shape[1]:
            raise InputError(
                f"{folder / name}.npy has {len(array)} values for {edge_index.shape[1]} edges: give one for each"
            )
    vertices = len(next(iter(by_vertex.values()))) if by_vertex else _highest(edge_index) + 1
    attributes = by_edge.get("edge_attr")
    of_edges = None if attributes is None or not attributes.shape[1] else _dense_rows(EdgeFeatures, attributes)
    return Source(
        vertices,
        numbered(_edges(edge_index, by_edge), of_edges),
        _features(folder, by_vertex),
        by_vertex.get("label"),
        by_vertex.get("split"),
        class_names=_lines(folder / "classes.txt"),
        num_edges=edge_index.shape[1],
        edge_type_names=_lines(folder / "relations.txt") if "edge_type" in by_edge else None,
        edge_features=of_edges,
    )


def _load(folder: Path, name: str) -> np.ndarray:
    file = folder / f"{name}.npy"
    array, (kinds, dimensions, words) = load_npy(file), _NEEDS[name]
    if array.ndim not in dimensions or array.dtype.kind not in kinds or (name == "edge_index" and len(array) != 2):
        raise InputError(f"{file} has shape {array.shape} and type {array.dtype}: it needs {words}")
    return array


def _lines(file: Path) -> tuple[str, ...] | None:
    """The names in a file, one a line; None without a file."""
    if not file.exists():
        return None
    with named_errors(file, "reading"):
        try:
            return tuple(file.read_text(encoding="utf-8-sig").rstrip("\n").splitlines())
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in UTF-8 ({error.reason}): save it again as that") from None


def _highest(edge_index: np.ndarray) -> int:
    pieces = (_read(edge_index, first, _CHUNK).max() for first in range(0, edge_index.size, _CHUNK))
    return max(map(int, pieces), default=-1)


def _edges(edge_index: np.ndarray, by_edge: dict[str, np.ndarray]) -> EdgeReader:
    count = edge_index.shape[1]

    def read() -> Iterator[EdgeChunk]:
        for first in range(0, count, _CHUNK):
            some = min(_CHUNK, count - first)
            src, dst = (_read(edge_index, row * count + first, some) for row in (0, 1))
            weight, kind = (_read(by_edge[name], first, some) if name in by_edge else None for name in _OF_EDGES)
            yield EdgeChunk(src, dst, weight, kind)

    return read


def _read(array: np.ndarray, first: int, count: int) -> np.ndarray:
    """Elements of an array, in C order, by a plain read: pages of a memory map would count as this process's memory."""
    if not isinstance(array, np.memmap) or not array.flags.c_contiguous:
        return np.asarray(array.flat[first : first + count])  # of one that is stored by column, no more than these
    file = str(array.filename)
    with named_errors(Path(file), "reading"):
        return np.fromfile(
            file, array.dtype, min(count, array.size - first), offset=array.offset + first * array.itemsize
        )


def _features(folder: Path, by_vertex: dict[str, np.ndarray]) -> tuple[FeatureTable, ...]:
    if "feat" in by_vertex:
        return (_dense_rows(FeatureTable, by_vertex["feat"]),)
    return (_bit_rows(folder, by_vertex["feat_bits"]),) if "feat_bits" in by_vertex else ()


def _dense_rows(kind: type[_Table], features: np.ndarray) -> _Table:
    count, width = features.shape
    return kind.in_pieces(count, width, lambda at, some: _read(features, at * width, some * width).reshape(some, width))


def _bit_rows(folder: Path, bits: np.ndarray) -> FeatureTable:
    width = int(_load(folder, "n_features"))
    if width < 1 or bits.dtype != np.uint8 or bits.shape[1] != -(-width // 8):
        raise InputError(
            f"{folder / 'feat_bits.npy'} does not hold rows of {width} bits: pack them with numpy.packbits(axis=1)"
        )
    return FeatureTable.in_pieces(
        len(bits), width, lambda first, some: np.unpackbits(bits[first : first + some], axis=1, count=width)
    )


def _from_ogb(name: str, root: Path, leave_out: Collection[str]) -> Source:
    """An OGB node-property data set, through the `ogb` package."""
    if not name.startswith("ogbn-"):
        remedy = "correct it"
        if name.startswith("ogbl-"):
            remedy = (
                f"torch.save PyG's PygLinkPropPredDataset({name!r})[0], import that, and learn its links by --task link"
            )
        raise InputError(
            f"ogb:{name} is no set of labelled vertices, whose names begin with ogbn- (ogb:ogbn-arxiv): {remedy}"
        )
    if find_spec("ogb") is None:
        raise ConfigError(f"importing {name} needs the package ogb: pip install 'weft-gnn[ogb]'")
    try:
        data = import_module("ogb.nodeproppred").NodePropPredDataset(name, root=str(root))
        graph, labels = data[0]
    except EOFError:
        raise InputError(
            f"OGB asks before it downloads {name}, and nobody answers: import it once at a terminal"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # of a package that downloads, and reads what it has processed by torch.load
        if "Invalid dataset name" in str(error):
            raise InputError(f"OGB has no set {name}: correct the name") from None
        raise InputError(
            f"OGB could not give {name} ({reason_of(error)}): remove `processed` in its folder below {root}, which some "
            f"versions of PyTorch do not let OGB read again; or load it with PyG, torch.save its Data, and import that"
        ) from None
    if "edge_index" not in graph:
        raise InputError(
            f"{name} has several types of vertices: load it with PyG's OGB_MAG, torch.save its HeteroData, and import that"
        )
    used = _OGB - ({"edge_feat"} & {*leave_out})
    unused = [key for key, value in graph.items() if value is not None and key not in used]
    check_left_out(name, unused, leave_out)
    split = np.full(int(graph["num_nodes"]), 3, dtype=np.uint8)
    for value, part in enumerate(("train", "valid", "test")):
        split[data.get_idx_split()[part]] = value
    of_edges = edge_features_in_memory(None if "edge_feat" in leave_out else graph.get("edge_feat"))
    edges, features = (
        numbered(edges_in_memory(graph["edge_index"]), of_edges),
        features_in_memory(graph.get("node_feat")),
    )
    count = graph["edge_index"].shape[1]
    return Source(len(split), edges, features, labels, split, num_edges=count, edge_features=of_edges)
