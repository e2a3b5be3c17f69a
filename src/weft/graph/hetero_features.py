"""Features of vertices of several types: a table a type, each as wide as that type's rows are."""

from collections.abc import Iterable, Sequence

import numpy as np

from weft.errors import InputError
from weft.graph.csr import running_sum
from weft.threads import cached_property


class HeteroFeatures:
    """Rows of all vertices, read as one array whose narrower rows are padded with zeros; nothing of that is stored."""

    def __init__(self, types: np.ndarray, tables: tuple[np.ndarray, ...]) -> None:
        """The type of each vertex, and by type the rows of its vertices, in their order; of one dtype, widths may be 0."""
        if not tables or len({table.dtype for table in tables}) > 1:
            raise InputError("features of several types of vertices need a table for each, all of one number type")
        counts = np.bincount(types, minlength=len(tables))
        if len(counts) > len(tables):
            raise InputError(
                f"a vertex has type {len(counts) - 1}, but there are features for types 0 to {len(tables) - 1}"
            )
        for kind, (table, count) in enumerate(zip(tables, counts, strict=True)):
            if len(table) != count:
                raise InputError(
                    f"features of vertex type {kind} have {len(table)} rows for {count} vertices: give one for each"
                )
        whole = [table if table.flags.c_contiguous else np.ascontiguousarray(table) for table in tables]
        self.types, self.tables = types, tuple(whole)
        self.widths = np.array([table.shape[1] for table in tables], dtype=np.int64)  # of each type
        self.shape = (len(types), int(self.widths.max()))  # vertices, and the width of the widest type
        self.dtype: np.dtype = tables[0].dtype
        self.itemsize = self.dtype.itemsize
        self.nbytes = sum(table.nbytes for table in tables)

    @cached_property
    def places(self) -> np.ndarray:
        """The row of each vertex in its type's table, [vertices] int64."""
        found = np.empty(len(self.types), dtype=np.int64)
        for kind, table in enumerate(self.tables):
            found[self.types == kind] = np.arange(len(table))
        return found

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        ids = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        out = np.zeros((len(ids), self.shape[1]), dtype=self.dtype)
        for at, table, places in self.by_type(ids):
            out[at, : table.shape[1]] = table[places]
        return out

    def by_type(self, ids: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Vertices in groups of one type: where they are among `ids`, the type's table, and their rows in it."""
        kinds, found = self.types[ids], []
        for kind, table in enumerate(self.tables):
            at = np.flatnonzero(kinds == kind)
            if len(at) and table.shape[1]:
                found.append((at, table, self.places[ids[at]]))
        return found

    def values(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of some vertices' rows, one row after another, each as wide as it is."""
        starts = self._starts(ids)
        out = np.empty(starts[-1], dtype=self.dtype)
        for at, table, places in self.by_type(ids):
            out[starts[at][:, None] + np.arange(table.shape[1])] = table[places]
        return out

    def rows_of(self, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Padded rows of some vertices from what `values` gave for them."""
        starts = self._starts(ids)
        out = np.zeros((len(ids), self.shape[1]), dtype=self.dtype)
        for at, table, _ in self.by_type(ids):
            width = table.shape[1]
            out[at, :width] = values[starts[at][:, None] + np.arange(width)]
        return out

    def lengths(self, ids: np.ndarray, counts: Sequence[int]) -> list[int]:
        """How many numbers the rows of the first counts[0] vertices have, of the next counts[1], ..."""
        return np.diff(self._starts(ids)[running_sum(counts)]).tolist()

    def _starts(self, ids: np.ndarray) -> np.ndarray:
        """Where each row's numbers begin, and the last one's end."""
        return running_sum(self.widths[self.types[ids]])


Features = np.ndarray | HeteroFeatures


def feature_table_names(types: int) -> list[str]:
    """What the tables of so many types are called in a graph directory."""
    return [f"features_{kind}" for kind in range(types)]


def shard_rows(bounds: np.ndarray | None, tables: Iterable[str], types: np.ndarray | None) -> dict[str, np.ndarray]:
    """The rows at which owners' shards begin in tables of features; `types`: of vertices, where tables are of types."""
    if bounds is None:
        return {}
    if types is None:
        return dict.fromkeys(tables, bounds)
    kinds = {name: int(name.removeprefix("features_")) for name in tables}
    return {name: running_sum(types == kind)[bounds] for name, kind in kinds.items()}


def features_of(arrays: dict[str, np.ndarray]) -> Features | None:
    """The features among the arrays of a graph directory: one table, or one a type."""
    tables = [arrays[name] for name in feature_table_names(len(arrays)) if name in arrays]
    return HeteroFeatures(arrays["vertex_type"], tuple(tables)) if tables else arrays.get("features")


def arrays_of(features: Features | None) -> dict[str, np.ndarray]:
    """The features as arrays of a graph directory."""
    if features is None:
        return {}
    if isinstance(features, np.ndarray):
        return {"features": features}
    return dict(zip(feature_table_names(len(features.tables)), features.tables, strict=True))
