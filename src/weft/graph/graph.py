"""Graph: in-neighbour lists with features, labels and splits, opened in no time from a directory of memory-mapped arrays."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from weft.errors import GraphFormatError, InputError
from weft.graph import storage
from weft.graph.edges_to_csr import EdgeOptions, ProgressCallback, csr_in_memory
from weft.graph.hetero_features import Features, HeteroFeatures, arrays_of, features_of
from weft.graph.importance import Importance
from weft.graph.pyg import source_from_pyg
from weft.graph.source import Source, edges_in_memory, features_in_memory
from weft.graph.vertex_names import arrays_of_names, names_from_arrays
from weft.keys import mix64_array
from weft.threads import cached_property

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from weft.graph.self_loops import SelfLoops

SPLITS = {"train": 0, "validation": 1, "test": 2, "unused": 3}
_CHUNK = 1 << 22
_OPTIONAL = ("edge_weight", "edge_type", "vertex_type", "labels", "split", "original_ids", "bounds", "shares")


@dataclass(frozen=True)
class Graph:
    """A graph as training reads it. Arrays are read-only memory maps where they come from a directory."""

    indptr: np.ndarray  # [vertices + 1] int64: where each vertex's in-neighbours begin
    indices: np.ndarray  # [edges] int32 (int64 beyond 2^31 vertices): sources of the in-edges
    edge_weight: np.ndarray | None = None  # [edges] float32
    edge_type: np.ndarray | None = None  # [edges] uint8 or int32
    features: Features | None = None  # [vertices, width] float32 or float16; or tables of several types of vertices
    labels: np.ndarray | None = None  # [vertices] int32, -1: unknown; or [vertices, classes] uint8: several a vertex
    split: np.ndarray | None = None  # [vertices] uint8: 0 train, 1 validation, 2 test, 3 unused
    original_ids: np.ndarray | None = None  # [vertices] int64: at import, keys of all randomness; None: as they are
    bounds: np.ndarray | None = None  # [owners + 1] int64: p holds vertices bounds[p] to bounds[p + 1]; None: one owner
    shares: np.ndarray | None = None  # [owners] float64: what each is to do of the whole; None: all the same
    vertex_type: np.ndarray | None = None  # [vertices] uint8 (int32 for more than 256 types); None: all are alike
    vertex_type_names: tuple[str, ...] | None = None
    edge_type_names: tuple[str, ...] | None = None
    names: pa.Array | None = None  # what the user's tables call the vertices, by original id
    num_classes: int = 0
    class_names: tuple[str, ...] | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        _check_shapes(self)

    @property
    def num_vertices(self) -> int:
        """How many vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """How many directed edges."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """How many features a vertex has."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def feature_widths(self) -> tuple[int, ...]:
        """How many features the vertices of each type have: one number where they are of one table."""
        return (
            tuple(self.features.widths.tolist()) if isinstance(self.features, HeteroFeatures) else (self.num_features,)
        )

    @property
    def num_owners(self) -> int:
        """Among how many owners the vertices are allocated (`weft partition`)."""
        return 1 if self.bounds is None else len(self.bounds) - 1

    @property
    def num_edge_types(self) -> int:
        """How many types of edges (1 where edges have none)."""
        if self.edge_type_names is not None:
            return len(self.edge_type_names)
        return 1 if self.edge_type is None or not len(self.edge_type) else int(self.edge_type.max()) + 1

    @property
    def multi_label(self) -> bool:
        """May a vertex have several labels at once?"""
        return self.labels is not None and self.labels.ndim == 2

    @cached_property
    def self_loops(self) -> "SelfLoops":
        """Degrees and self-loops of all vertices, for convolutions that normalise."""
        from weft.graph.self_loops import SelfLoops  # needs PyTorch, which reading a graph does not

        return SelfLoops(self.indptr, self.indices, self.edge_weight)

    @cached_property
    def importance(self) -> Importance:
        """The importance of each vertex as a source, for layer-wise sampling."""
        return Importance(self.indptr, self.indices)

    def seeds(self, split: str) -> np.ndarray:
        """The labelled vertices of a split (train, validation, test), in the order of their original ids."""
        if self.labels is None or self.split is None:
            what = "labels" if self.labels is None else "split"
            raise InputError(
                f"this graph has no {what}, so there is nothing to train on: import it with a --{what} column"
            )
        chosen = np.flatnonzero(self.split == SPLITS[split])
        if not self.multi_label:
            chosen = chosen[self.labels[chosen] >= 0]
        if self.original_ids is not None:
            chosen = chosen[np.argsort(self.original_ids[chosen], kind="stable")]
        return chosen

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a graph directory: a manifest is read and files are mapped, whatever their size."""
        path = Path(path)
        manifest = storage.read_manifest(path)
        try:
            arrays = {name: storage.map_array(path, name, entry) for name, entry in manifest["arrays"].items()}
            return cls(
                arrays["indptr"],
                arrays["indices"],
                features=features_of(arrays),
                names=names_from_arrays(arrays),
                num_classes=manifest["num_classes"],
                path=path,
                class_names=_tuple(manifest.get("class_names")),
                vertex_type_names=_tuple(manifest.get("vertex_type_names")),
                edge_type_names=_tuple(manifest.get("edge_type_names")),
                **{name: arrays[name] for name in _OPTIONAL if name in arrays},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise GraphFormatError(
                f"{path / storage.MANIFEST} is damaged ({error!r}): import the graph again"
            ) from None

    @cached_property
    def identity(self) -> str:
        """What stays the same when a graph is partitioned: sizes, and degrees and labels by original id."""
        ids = np.arange(self.num_vertices) if self.original_ids is None else np.asarray(self.original_ids)
        values = np.diff(self.indptr)
        if self.labels is not None:
            values = values + 1000 * np.asarray(self.labels, dtype=np.int64).reshape(self.num_vertices, -1).sum(1)
        total = int((mix64_array(0, ids) * values.view(np.uint64)).sum())
        return f"{self.num_vertices}-{self.num_edges}-{self.num_features}-{total:016x}"

    def verify(self, progress: ProgressCallback | None = None) -> None:
        """Read everything: checksums, ids in range, lists in order, finite features, labels and splits in their range."""
        if self.path is not None:
            entries = storage.read_manifest(self.path)["arrays"]
            for done, (name, entry) in enumerate(entries.items()):
                storage.check_array(self.path, name, entry)
                if progress:
                    progress("checksums", done + 1, len(entries))
        check_values(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the graph as a directory, all or nothing."""
        with storage.DirectoryWriter(Path(path), overwrite=overwrite) as directory:
            directory.add(**{name: getattr(self, name) for name in ("indptr", "indices", *_OPTIONAL)})
            directory.add(**arrays_of(self.features), **arrays_of_names(self.names))
            directory.facts = self.facts

    @property
    def facts(self) -> storage.Facts:
        """What a manifest holds besides arrays."""
        return storage.Facts(self.num_classes, self.class_names, self.vertex_type_names, self.edge_type_names)

    @classmethod
    def from_arrays(
        cls,
        edge_index: np.ndarray,
        *,
        num_vertices: int | None = None,
        features: Features | None = None,
        labels: np.ndarray | None = None,
        split: np.ndarray | None = None,
        edge_weight: np.ndarray | None = None,
        edge_type: np.ndarray | None = None,
        vertex_type: np.ndarray | None = None,
        class_names: tuple[str, ...] | None = None,
        vertex_type_names: tuple[str, ...] | None = None,
        edge_type_names: tuple[str, ...] | None = None,
        undirected: bool = False,
        self_loops: str = "keep",
        drop_duplicates: bool = False,
    ) -> Self:
        """A graph in memory from [2, edges] (sources, destinations) and arrays; the last three as in EdgeOptions."""
        edge_index = np.asarray(edge_index)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index has shape {edge_index.shape}: it needs two rows, sources and destinations")
        sizes = [len(a) for a in (features, labels, split) if a is not None]
        highest = int(edge_index.max()) + 1 if edge_index.size else 0
        vertices = num_vertices if num_vertices is not None else sizes[0] if sizes else highest
        if isinstance(features, HeteroFeatures):
            vertex_type = features.types if vertex_type is None else vertex_type
            tables = features_in_memory(*features.tables)
        else:
            tables = features_in_memory(None if features is None else np.asarray(features))
        source = Source(
            vertices,
            edges_in_memory(edge_index, edge_weight, edge_type),
            tables,
            labels,
            split,
            class_names=class_names,
            vertex_type=vertex_type,
            vertex_type_names=vertex_type_names,
            edge_type_names=edge_type_names,
        )
        return cls._in_memory(source, EdgeOptions(undirected, self_loops, drop_duplicates))

    @classmethod
    def from_pyg(
        cls,
        data: "Data | HeteroData",
        *,
        leave_out: Collection[str] = (),
        undirected: bool = False,
        self_loops: str = "keep",
        drop_duplicates: bool = False,
    ) -> Self:
        """A graph in memory from a PyG `Data` or `HeteroData`, with x, y, masks, weights and types where it has them.

        Other arrays are refused, unless they are named in `leave_out`.
        """
        options = EdgeOptions(undirected, self_loops, drop_duplicates)
        return cls._in_memory(source_from_pyg(data, leave_out), options)

    @classmethod
    def _in_memory(cls, source: Source, options: EdgeOptions) -> Self:
        """A graph of a source whose features come whole."""
        tables = tuple(next(table.rows()) for table in source.features)
        features: Features | None = _floats(tables[0]) if tables else None
        if tables and source.vertex_type is not None:
            features = HeteroFeatures(source.vertex_type, tables)
        labels, num_classes = clean_labels(source.labels, source.class_names)
        graph = cls(
            *csr_in_memory(source.edges, source.num_vertices, options),
            features,
            labels,
            None if source.split is None else np.asarray(source.split, dtype=np.uint8),
            vertex_type=clean_types(source.vertex_type),
            num_classes=num_classes,
            class_names=source.class_names,
            vertex_type_names=source.vertex_type_names,
            edge_type_names=source.edge_type_names,
        )
        check_values(graph)
        return graph


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def clean_types(types: np.ndarray | None) -> np.ndarray | None:
    """Types of vertices in their stored type."""
    if types is None or types.dtype == np.uint8:
        return types
    if types.size and types.min() < 0:
        raise InputError(f"vertex type {types.min()} is negative: types are counted from 0")
    return types.astype(np.uint8 if not types.size or types.max() < 256 else np.int32)


def _floats(features: np.ndarray) -> np.ndarray:
    return features if features.dtype in (np.float16, np.float32) else features.astype(np.float32)


def clean_labels(labels: np.ndarray | None, class_names: tuple[str, ...] | None) -> tuple[np.ndarray | None, int]:
    """Labels in their stored type, and the number of classes."""
    if labels is None:
        return None, 0
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise InputError("labels with several columns must be 0 or 1 in each: one column a class")
        return labels.astype(np.uint8), labels.shape[1]
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
        if (labels != np.rint(labels)).any():
            raise InputError("labels must be whole numbers (classes from 0 on), with -1 or NaN where unknown")
    highest = int(labels.max()) + 1 if labels.size else 0
    return labels.astype(np.int32), max(highest, len(class_names or ()))


def _check_shapes(graph: Graph) -> None:
    """What must hold for a graph to be opened; cheap whatever its size."""
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
    for name in ("features", "labels", "split", "original_ids", "vertex_type"):
        array = getattr(graph, name)
        if array is not None and len(array) != vertices:
            raise InputError(f"{name} has {len(array)} rows for {vertices} vertices: give one for each, in order")
    bounds = graph.bounds
    if bounds is not None and (bounds[0] != 0 or bounds[-1] != vertices or (np.diff(bounds) < 0).any()):
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


def check_values(graph: Graph) -> None:
    """All values within their bounds; reads everything once, a piece at a time."""
    if (np.diff(graph.indptr) < 0).any():
        raise GraphFormatError(f"list {int(np.argmax(np.diff(graph.indptr) < 0))} ends before it begins: import again")
    for first in range(0, graph.num_edges, _CHUNK):
        piece = graph.indices[first : first + _CHUNK]
        if piece.min() < 0 or piece.max() >= graph.num_vertices:
            at = int(np.argmax((piece < 0) | (piece >= graph.num_vertices)))
            raise InputError(
                f"edge {first + at} comes from vertex {piece[at]}, but ids are 0 to {graph.num_vertices - 1}"
            )
        if graph.edge_weight is not None and not np.isfinite(graph.edge_weight[first : first + _CHUNK]).all():
            raise InputError(
                f"an edge weight between edges {first} and {first + len(piece)} is NaN or infinite: replace it"
            )
    _check_types(graph)
    if graph.features is not None:
        rows = max(1, _CHUNK // max(1, graph.num_features))
        for first in range(0, graph.num_vertices, rows):
            check_finite(graph.features[first : first + rows], first)
    if graph.labels is not None:
        low, high = int(graph.labels.min()), int(graph.labels.max())
        if low < -1 or (not graph.multi_label and high >= graph.num_classes):
            raise InputError(
                f"labels run from {low} to {high}: classes are 0 to {graph.num_classes - 1}, -1 is unknown"
            )
    if graph.split is not None and graph.split.max() > 3:
        raise InputError(f"split holds {graph.split.max()}: use 0 train, 1 validation, 2 test, 3 unused")


def _check_types(graph: Graph) -> None:
    """Types within their number, where they have names."""
    for what, types, names in (
        ("edge", graph.edge_type, graph.edge_type_names),
        ("vertex", graph.vertex_type, graph.vertex_type_names),
    ):
        if types is not None and len(types):
            low, high = int(types.min()), int(types.max())
            if low < 0 or (names is not None and high >= len(names)):
                among = "counted from 0" if names is None else f"0 to {len(names) - 1}"
                raise InputError(f"{what} types run from {low} to {high}: they are {among}")


def check_finite(rows: np.ndarray, first: int) -> None:
    """Refuse NaN and infinity, naming the vertex and the column."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"feature {column} of vertex {first + row} is {rows[row, column]}: replace NaN and infinite values, then import"
        )
