"""Graph: in-neighbour lists with features, labels and splits, opened in no time from a directory of memory-mapped arrays."""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
import pyarrow as pa

from weft.config import path_here
from weft.errors import ConfigError, GraphFormatError, InputError
from weft.graph.addresses import is_address
from weft.graph.checks import check_files, check_shapes, check_values
from weft.graph.csr import sums_by_source
from weft.graph.directory import DirectoryWriter, Facts, Manifest, map_array, read_manifest
from weft.graph.edges_to_csr import EdgeOptions, ProgressCallback, csr_in_memory
from weft.graph.feature_tables import edge_features_in_memory
from weft.graph.hetero_features import Features, HeteroFeatures, arrays_of, features_of, shard_rows
from weft.graph.identity import identity_of, is_same
from weft.graph.importance import Importance
from weft.graph.pyg import source_from_pyg
from weft.graph.remote import RemoteGraph
from weft.graph.source import Source, edges_in_memory, features_by_type, features_in_memory, numbered
from weft.graph.values import as_floats, as_stored, clean_labels, clean_split, clean_types, whole_numbers
from weft.graph.vertex_names import arrays_of_names, names_from_arrays
from weft.threads import cached_property

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from weft.graph.self_loops import SelfLoops

OF_EDGES = ("edge_weight", "edge_type", "edge_features")  # what a graph may hold of each edge, in the order of indices
SPLITS = {"train": 0, "validation": 1, "test": 2, "unused": 3}
_CHUNK = 1 << 22
_OPTIONAL = (*OF_EDGES, "vertex_type", "labels", "split", "original_ids", "bounds", "shares")


@dataclass(frozen=True, repr=False)
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
    edge_features: np.ndarray | None = None  # [edges, width] float32: PyG's edge_attr
    names: pa.Array | None = None  # what the user's tables call the vertices, by original id
    num_classes: int = 0
    class_names: tuple[str, ...] | None = None
    path: Path | None = None
    remote: RemoteGraph | None = None  # where the rest of its features comes from; None: all are here
    _mapped: str | None = field(default=None, init=False, compare=False)  # the sum of the folder that it is as a whole

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # a transposed table, or some of its columns, becomes one of its own
            if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
                object.__setattr__(self, name, np.ascontiguousarray(value))
        check_shapes(self)

    def __repr__(self) -> str:
        parts = f"{self.num_vertices:,} vertices, {self.num_edges:,} edges, {self.num_features} features"
        where = "" if self.place is None else f", at {self.path}"
        return f"Graph({parts}, {self.num_classes} classes{where})"

    @property
    def num_vertices(self) -> int:
        """How many vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """How many directed edges."""
        return len(self.indices)

    def features_to_train_on(self) -> Features:
        """The features, all of them here; refused where there are none."""
        features = self.features_by_owner()
        self.whole()
        return features

    def whole(self) -> Self:
        """The same graph, all of it here now."""
        if self.remote is not None:
            self.remote.fetch_rows()
        return self

    def features_by_owner(self) -> Features:
        """The features, of which those are here that were fetched; refused where there are none."""
        if self.features is None or not self.num_features:
            raise InputError(
                "this graph has no features to train on: import it with features (--features or feat.npy); where rows are "
                "to be learned, a vertex's number is its feature, data.x = torch.arange(n)[:, None], for a model that "
                "begins with an nn.Embedding (docs/models.md)"
            )
        return self.features

    @property
    def num_features(self) -> int:
        """How many features a vertex has."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def num_edge_features(self) -> int:
        """How many features an edge has."""
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

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

    def seeds(self, split: str, labelled: bool = True) -> np.ndarray:
        """The (labelled) vertices of a split (train, validation, test), in the order of their original ids."""
        if split not in SPLITS:
            raise ConfigError(f"there is no split {split!r}: choose one of {', '.join(SPLITS)}")
        without = labelled and self.labels is None
        if without or self.split is None:
            what = "labels" if without else "split"
            give = "--label COLUMN" if without else "--split 60/20/20 or --split-column COLUMN"
            others = " (an objective with labelled = False, or a Loader's seeds=, needs none)" if without else ""
            raise InputError(
                f"this graph has no {what}, so there is nothing to train on: import it with {give}, or give PyG's "
                f"Data a {'y' if without else 'train_mask'}{others}"
            )
        chosen = np.flatnonzero(self.split == SPLITS[split])
        if labelled and self.labels is not None and not self.multi_label:
            chosen = chosen[self.labels[chosen] >= 0]
        if self.original_ids is not None:
            chosen = chosen[np.argsort(self.original_ids[chosen], kind="stable")]
        return chosen

    @property
    def training(self) -> np.ndarray:
        """Is each vertex trained on, [vertices] bool: of the training split those with a label, if any there has one."""
        if self.split is None:
            return np.zeros(self.num_vertices, dtype=bool)
        chosen = self.split == SPLITS["train"]
        if self.labels is None or self.multi_label:
            return chosen
        labelled = chosen & (self.labels >= 0)
        return labelled if labelled.any() else chosen

    def renumbered(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """What vertices are numbered here that had these ids at import: partitioning numbers them anew."""
        ids = whole_numbers("ids", np.asarray(ids))
        known = np.arange(self.num_vertices) if self.original_ids is None else self.original_ids
        order = np.argsort(known, kind="stable")
        at = np.searchsorted(known, ids, sorter=order)
        found = order[np.minimum(at, len(order) - 1)] if len(order) else at
        missing = ids[known[found] != ids] if len(order) else ids
        if len(missing):
            raise InputError(f"no vertex had the id {missing[0]} at import (and {len(missing) - 1} more)")
        return found

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a graph directory: its files are mapped, whatever their size, and what they hold is checked.

        Features of more than 256 MiB are not read for that; `verify` reads all. What an address names (`s3://...`) is
        fetched whole into the user's cache, unless it is there.
        """
        if not isinstance(path, str | Path):
            raise InputError(
                f"Graph.open reads a graph's directory, and was given a {type(path).__name__}: of a PyG Data "
                f"weft.Graph.from_pyg(data) makes a graph"
            )
        if is_address(path):
            remote = RemoteGraph(path)
            remote.fetch_lists()
            remote.fetch_rows()
            return cls._opened(remote.path, remote)
        return cls._opened(Path(path))

    @classmethod
    def open_lists(cls, path: str | Path) -> Self:
        """As `open`, but of what an address names, features come when they are needed (`whole`, `features_to_train_on`)."""
        if not is_address(path):
            return cls.open(path)
        remote = RemoteGraph(path)
        remote.fetch_lists()
        return cls.of_remote(remote)

    @classmethod
    def of_remote(cls, remote: RemoteGraph) -> Self:
        """A graph at an address, whose lists are here and checked; its features are what was fetched of them."""
        return cls._opened(remote.path, remote, features=not remote.in_shards)

    @classmethod
    def _opened(cls, path: Path, remote: RemoteGraph | None = None, features: bool = True) -> Self:
        graph = cls.mapped(path, remote)
        for _name, _bytes, wrong in check_files(path, graph, large=False, features=features):
            if wrong:
                raise wrong
        return graph

    @classmethod
    def mapped(cls, path: str | Path, remote: RemoteGraph | None = None) -> Self:
        """A graph directory whose manifest and headers are sound, whatever its arrays hold; `remote`: whose copy it is."""
        path = Path(path)
        manifest = read_manifest(path)
        arrays = {name: map_array(path, name, entry) for name, entry in manifest.arrays.items()}
        try:
            graph = cls(
                arrays["indptr"],
                arrays["indices"],
                features=features_of(arrays),
                names=names_from_arrays(arrays),
                num_classes=manifest.facts.num_classes,
                class_names=_tuple(manifest.facts.class_names),
                vertex_type_names=_tuple(manifest.facts.vertex_type_names),
                edge_type_names=_tuple(manifest.facts.edge_type_names),
                path=path,
                remote=remote,
                **{name: arrays[name] for name in _OPTIONAL if name in arrays},
            )
        except InputError as error:
            raise GraphFormatError(f"the arrays of {path} do not fit together: {error}") from error
        object.__setattr__(graph, "_mapped", _sum_of(manifest))
        return graph

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickled, the graph of a folder is the folder's path, which is to be there where it is read: rows stay in files."""
        if not isinstance(self.place, Path):
            return super().__reduce_ex__(protocol)
        return _mapped_again, (type(self), self.place.absolute(), self._mapped)

    @property
    def place(self) -> Path | str | None:
        """The folder, or the address, that it is read from and is as a whole; None: it is in memory, or was changed."""
        if self._mapped is None:
            return None
        return self.path if self.remote is None else self.remote.url

    @cached_property
    def out_degrees(self) -> np.ndarray:
        """How often each vertex is a source; reads the edges once."""
        kind = np.int32 if self.num_edges < 1 << 31 else np.int64
        return sums_by_source(self.indptr, self.indices).astype(kind)

    @cached_property
    def identity(self) -> str:
        """What stays the same when a graph is partitioned, and differs where another one would be trained on."""
        return identity_of(self)

    def is_known_as(self, identity: object) -> bool:
        """Is this the graph that an identity was taken of, perhaps by Weft 0.1.0?"""
        return is_same(str(identity), self.identity)

    @property
    def checksum(self) -> str:
        """What differs where anything of two graph directories does; of a graph in memory, or changed, its identity."""
        return self._mapped or self.identity

    def checked(self) -> Self:
        """The same graph, all values within their bounds: looked at once; files of its folder were when it was opened."""
        _ = self._sound
        return self

    @cached_property
    def _sound(self) -> bool:
        check_values(self)
        return True

    def verify(self, progress: ProgressCallback | None = None) -> None:
        """Read everything: checksums, ids in range, lists in order, finite features, labels and splits in their range."""
        self.whole()
        if self._mapped is None:
            check_values(replace(self, path=None))  # all of them: files of its folder were looked at as part of another
        if self.path is None:
            return
        total = len(read_manifest(self.path).arrays)
        known = None if self._mapped is None else self
        for done, (_name, _bytes, wrong) in enumerate(check_files(self.path, known, large=True)):
            if wrong:
                raise wrong
            if progress:
                progress("checksums", done + 1, total)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the graph as a directory, all or nothing."""
        if not isinstance(path, str | Path):
            raise InputError(f"a graph is saved in a folder, and path is a {type(path).__name__}: name one")
        graph = as_stored(self.whole()).checked()
        with DirectoryWriter(path_here(path), overwrite=overwrite) as directory:
            types = graph.features.types if isinstance(graph.features, HeteroFeatures) else None
            directory.cuts = shard_rows(graph.bounds, arrays_of(graph.features), types)
            directory.add(**{name: getattr(graph, name) for name in ("indptr", "indices", *_OPTIONAL)})
            directory.add(**arrays_of(graph.features), **arrays_of_names(graph.names))
            directory.facts = graph.facts

    @property
    def facts(self) -> Facts:
        """What a manifest holds besides arrays."""
        return Facts(int(self.num_classes), self.class_names, self.vertex_type_names, self.edge_type_names)

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
        edge_features: np.ndarray | None = None,
        vertex_type: np.ndarray | None = None,
        class_names: tuple[str, ...] | None = None,
        vertex_type_names: tuple[str, ...] | None = None,
        edge_type_names: tuple[str, ...] | None = None,
        undirected: bool = False,
        self_loops: str = "keep",
        drop_duplicates: bool = False,
    ) -> Self:
        """A graph in memory from [2, edges] (sources, destinations) and arrays; the last three as in EdgeOptions.

        Features of vertices of several types (`vertex_type`) are one array, or `HeteroFeatures` of several widths;
        `edge_features` are [edges, width].
        """
        edge_index = np.asarray(edge_index)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index has shape {edge_index.shape}: it needs two rows, sources and destinations")
        edge_weight, edge_type, vertex_type = (
            None if given is None else np.asarray(given) for given in (edge_weight, edge_type, vertex_type)
        )
        sizes = [len(a) for a in (features, labels, split) if a is not None]
        highest = int(edge_index.max()) + 1 if edge_index.size else 0
        vertices = num_vertices if num_vertices is not None else sizes[0] if sizes else highest
        if isinstance(features, HeteroFeatures):
            vertex_type = features.types if vertex_type is None else vertex_type
            tables = features_in_memory(*features.tables)
        else:
            tables = features_by_type(None if features is None else np.asarray(features), vertex_type)
        of_edges = None if edge_features is None else edge_features_in_memory(np.asarray(edge_features))
        source = Source(
            vertices,
            numbered(edges_in_memory(edge_index, edge_weight, edge_type), of_edges),
            tables,
            labels,
            split,
            class_names=class_names,
            vertex_type=vertex_type,
            vertex_type_names=vertex_type_names,
            edge_type_names=edge_type_names,
            edge_features=of_edges,
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
        """A graph in memory from a PyG `Data` or `HeteroData`, with x, y, masks, and edges' weights, types and features.

        Edges have features where edge_attr has several columns, or stands beside edge_weight. Other arrays are refused,
        unless they are named in `leave_out`.
        """
        options = EdgeOptions(undirected, self_loops, drop_duplicates)
        return cls._in_memory(source_from_pyg(data, leave_out), options)

    @classmethod
    def _in_memory(cls, source: Source, options: EdgeOptions) -> Self:
        """A graph of a source whose features come whole."""
        tables = tuple(as_floats(next(table.rows())) for table in source.features)
        kinds = clean_types(source.vertex_type)
        features: Features | None = tables[0] if tables else None
        if tables and kinds is not None:
            features = HeteroFeatures(kinds, tables)
        labels, num_classes = clean_labels(source.labels, source.class_names)
        lists, edge_features = csr_in_memory(source.edges, source.num_vertices, options, source.edge_features)
        return cls(
            *lists,
            features,
            labels,
            clean_split(source.split),
            vertex_type=kinds,
            names=source.names,
            num_classes=num_classes,
            class_names=source.class_names,
            vertex_type_names=source.vertex_type_names,
            edge_type_names=source.edge_type_names,
            edge_features=edge_features,
        ).checked()


def edge_arrays(graph: object) -> dict[str, np.ndarray]:
    """What a graph, or what stands in for one, holds of each edge, by name."""
    return {name: array for name in OF_EDGES if (array := getattr(graph, name, None)) is not None}


def _mapped_again(kind: type[Graph], path: Path, mapped: str) -> Graph:
    graph = kind.mapped(path)
    if graph._mapped != mapped:
        raise GraphFormatError(f"{path} holds another graph than the one that was pickled: open it by its path")
    return graph


def _sum_of(manifest: Manifest) -> str:
    return f"{zlib.crc32(repr(manifest).encode()):08x}"


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
