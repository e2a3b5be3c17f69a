"""Tables of edges and vertices: CSV, TSV, edge lists (compressed too) and Parquet, streamed, with integer or string ids."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.graph.column_names import (
    NAMES_ARE_COUNTED,
    EdgeColumns,
    TableColumns,
    check_wanted,
    edge_columns,
    edge_feature_columns,
    vertex_columns,
)
from weft.graph.columns import (
    OtherSpellingError,
    cast,
    decoded,
    feature_column,
    id_column,
    is_string,
    labels_of,
    numbers_of,
    owners_of,
    splits_of,
    typed,
    typed_labels,
    vertex_feature_column,
    without_missing,
)
from weft.graph.edges_to_csr import EdgeChunk
from weft.graph.feature_tables import EdgeFeatures, FeatureTable
from weft.graph.source import Source, numbered
from weft.graph.table_file import OtherTypesError, Table
from weft.graph.vertex_names import bytes_of_ids, look_up, text_column

_Read = TypeVar("_Read")


def source_from_tables(
    edges: Path | str, nodes: Path | str | None, named: TableColumns, ids: str | None, vertices: int | None
) -> Source:
    """A graph of an edge table and, if there is one, a vertex table whose order is the order of the vertices."""
    table = Table(edges, (named.src, named.dst))
    wanted = edge_columns(named, table.columns, str(edges))
    check_wanted(nodes, named, ids, vertices, None)
    of_features = edge_feature_columns(named.edge_features, wanted, table.columns, str(edges))
    if nodes is None:
        source = _of_edges(table, wanted, ids, vertices)
    else:
        source = _with_nodes(table, wanted, Table(nodes), named, ids)
    features = _edge_features(table, of_features) if of_features else None
    left_out = (*table.others([*wanted.ends, wanted.weight, wanted.type, *of_features]), *source.left_out)
    return replace(source, edges=numbered(source.edges, features), edge_features=features, left_out=left_out)


def _of_edges(table: Table, wanted: EdgeColumns, ids: str | None, vertices: int | None) -> Source:
    """The graph whose vertices are what its edges name."""
    textual = _is_text(table, wanted.ends[0])
    if textual and table.unnamed:
        raise InputError(
            f"{table.path} begins with numbers, and some lines hold none: comments may come first, or add a header"
        )
    if textual and ids == "positions":
        raise InputError(
            f"{table.path}: column {wanted.ends[0]} holds strings, which are no positions; drop --ids positions"
        )
    if textual or ids == "names":
        if vertices is not None:
            raise ConfigError(NAMES_ARE_COUNTED)
        names = _spelled_alike(lambda textual: _names_of_edges(table, wanted.ends, textual), textual)
        return Source(len(names), lambda: edge_chunks(table, wanted, (names, names)), names=names.export())
    if vertices is None:
        vertices = highest_end(table.read(wanted.ends), wanted.ends, table.path) + 1
        check_edges(table.path, vertices)
    return Source(vertices, lambda: edge_chunks(table, wanted, None))


class _Ids:
    """Names of vertices to ids, by the table of kernels/graph.cpp."""

    def __init__(self) -> None:
        self._table = _kernels.NameTable()
        self.textual = True  # are they strings?

    def __len__(self) -> int:
        return len(self._table)

    def look_up(self, column: pa.Array, where: str, row: int, *, add: bool) -> np.ndarray:
        """The ids of a column of names, from some row on; -1 for unknown ones unless they are added."""
        column = id_column(column, where, row)
        textual = pa.types.is_large_string(column.type)
        if len(self) and textual != self.textual:
            kinds = ("integers", "strings")
            raise InputError(
                f"{where} holds {kinds[textual]}, but other ids are {kinds[self.textual]}: use one of both"
            )
        self.textual = textual
        return look_up(self._table, *bytes_of_ids(column), add=add)

    def export(self) -> pa.Array:
        """All names, by id."""
        text = np.frombuffer(self._table.text(), np.uint8)
        if not self.textual:
            return pa.array(text.view(np.int64))
        offsets = np.empty(len(self) + 1, dtype=np.int64)
        self._table.offsets(offsets)
        return text_column(text, offsets)


class VertexTable:
    """A table of vertices, read once for their ids, labels and split; features are streamed on demand."""

    def __init__(self, table: Table, named: TableColumns, textual: bool = False) -> None:
        """`textual`: are ids strings, whatever they look like?"""
        id_column, features, labels, split = vertex_columns(named, table.columns, str(table.path))
        self.left_out = table.others([id_column, *features, *labels, split])
        kept = [*labels, *([split] if split else [])]
        words = labels if len(labels) == 1 else []  # what may be some; several columns are numbers
        self.names, parts = _spelled_alike(lambda textual: _named_rows(table, id_column, kept, textual, words), textual)
        if not len(self.names):
            raise InputError(f"{table.path} has no rows: the graph needs at least one vertex")
        values = pa.Table.from_batches(parts) if parts and kept else None
        if values is not None and table.is_csv:
            for name in labels:
                column = typed_labels(values.column(name)) if name in words else values.column(name)
                values = values.set_column(kept.index(name), name, without_missing(column))
        self.labels, self.class_names = labels_of(values, labels, table.path)
        self.split = splits_of(values.column(split), table.path) if values is not None and split else None
        read = partial(_feature_rows, table, features, vertex_feature_column)
        width = next((rows.shape[1] for rows in read()), 0) if features else 0
        none = np.empty((len(self.names), 0), dtype=np.float32)
        self.features = FeatureTable(len(self.names), width, read if features else lambda: iter([none]))


def _spelled_alike(read: Callable[[bool], _Read], textual: bool) -> _Read:
    """What is read with ids as strings, if `textual` or if a CSV has some among integers, such as 007 or x7."""
    try:
        return read(textual)
    except OtherSpellingError:
        pass
    return read(True)


def _named_rows(
    table: Table, ids: str, kept: list[str], textual: bool, words: list[str]
) -> tuple[_Ids, list[pa.RecordBatch]]:
    """The ids of a table of vertices, and the columns that are kept of it; of what types, all of a text's rows say.
    `words`: those that are left as a text has them."""
    try:
        return _read_rows(table, ids, kept, textual, words)
    except OtherTypesError:
        names, parts = _read_rows(table, ids, kept, textual, kept)
    values = pa.Table.from_batches(parts)
    columns = {name: values.column(name) if name in words else typed(values.column(name)) for name in kept}
    return names, pa.table(columns).to_batches()


def _read_rows(
    table: Table, ids: str, kept: list[str], textual: bool, as_text: Sequence[str]
) -> tuple[_Ids, list[pa.RecordBatch]]:
    names, parts = _Ids(), []
    for before, batch in table.read_ids({ids: textual}, kept, as_text):
        found = names.look_up(batch.column(ids), f"{table.path}: column {ids}", before, add=True)
        if len(names) != before + len(found):
            row = before + int(np.argmax(found != np.arange(before, before + len(found))))
            raise InputError(f"{table.path}: the id in row {row} comes twice; ids of vertices must be unique")
        parts.append(batch.select(kept))
    return names, parts


def _with_nodes(edges: Table, wanted: EdgeColumns, nodes: Table, named: TableColumns, ids: str | None) -> Source:
    id_column = nodes.one(named.id)
    table = VertexTable(nodes, named, _is_text(edges, wanted.ends[0]) or _is_text(nodes, id_column))
    names, exported = table.names, table.names.export()
    positions = not names.textual and np.array_equal(exported, np.arange(len(names)))
    if ids == "positions" and not positions:
        raise InputError(
            f"{nodes.path}: column {id_column} is not 0, 1, 2, ..., so that its ids are names: drop --ids positions"
        )
    return Source(
        len(names),
        lambda: edge_chunks(edges, wanted, (names, names), positions),
        (table.features,) if named.features else (),
        table.labels,
        table.split,
        None if positions and ids != "names" else exported,
        table.class_names,
        left_out=table.left_out,
    )


def edge_chunks(
    table: Table, wanted: EdgeColumns, names: Sequence[_Ids] | None, positions: bool = False
) -> Iterator[EdgeChunk]:
    """The edges of a table; `names`: of sources and of destinations. `positions`: are names what they number?"""
    others, numbers = [name for name in wanted[1:] if name], [wanted.weight] if wanted.weight else []
    if names is None:
        batches = table.read([*wanted.ends, *others], numbers=numbers)
    else:
        textual = {name: ids.textual for name, ids in zip(wanted.ends, names, strict=True)}
        batches = _known_edges(table, textual, others, numbers)
    known = (None, None) if names is None or positions else names
    for row, batch in batches:
        src, dst = (
            edge_ends(batch.column(name), ids, table.path, row, name)
            for name, ids in zip(wanted.ends, known, strict=True)
        )
        weight = kind = None
        if wanted.weight:
            weight = numbers_of(batch.column(wanted.weight), f"{table.path}: column {wanted.weight}")
        if wanted.type:
            kind = edge_kinds(batch.column(wanted.type), f"{table.path}: column {wanted.type}")
        yield EdgeChunk(src, dst, weight, kind)


def _known_edges(
    table: Table, textual: Mapping[str, bool], others: Sequence[str], numbers: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of edges whose ends are ids that are known, strings or integers."""
    try:
        yield from table.read_ids(textual, others, numbers=numbers)
    except OtherSpellingError as error:
        raise InputError(
            f"{table.path}, row {error.row}: {error.text!r} is not in the vertex table, whose ids are integers: write "
            f"it as there, add it, or drop the edge"
        ) from None


def edge_kinds(column: pa.Array, where: str) -> np.ndarray:
    """A column of the types of edges."""
    kind = decoded(column).type
    in_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if is_string(kind):
        raise InputError(
            f"{where} holds words: number the types from 0 on, or describe the relations in a .toml file, which names them"
        )
    if column.null_count or in_bytes or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        raise InputError(f"{where} does not hold each edge's type: they are whole numbers from 0 on")
    return cast(column, pa.int64(), where).to_numpy(zero_copy_only=False)


def edge_ends(column: pa.Array, names: _Ids | None, path: Path | str, row: int, name: str) -> np.ndarray:
    """The vertices that a column of an edge table names, from some row on."""
    where = f"{path}: column {name}"
    if names is None:
        column = id_column(column, where, row)
        if not pa.types.is_integer(column.type):
            raise InputError(
                f"{where} holds {column.type}, but ids are integers: save them as integers, or, without a vertex table, "
                f"give one or --ids names"
            )
        return column.to_numpy(zero_copy_only=False)
    ids = names.look_up(column, where, row, add=False)
    if (ids < 0).any():
        at = int(np.argmax(ids < 0))
        raise InputError(
            f"{path}, row {row + at}: {name} {column[at].as_py()!r} is not in the vertex table: add it, or drop the edge"
        )
    return ids


def owner_column(path: Path, name: str, parts: int) -> np.ndarray:
    """The owner of each vertex, of a column of their table."""
    table, found = Table(path), [np.empty(0, dtype=np.int32)]
    column = table.one(name)
    for _, batch in table.read([column]):
        found.append(owners_of(batch.column(0), f"{path}: column {column}", parts))
    return np.concatenate(found)


def ends_in_order(src: pa.Array, dst: pa.Array) -> pa.Array:
    """The ends of edges, each source before its destination."""
    order = np.arange(2 * len(src)).reshape(2, -1).T.reshape(-1)
    return pa.concat_arrays([src, dst]).take(pa.array(order))


def _names_of_edges(table: Table, wanted: list[str], textual: bool) -> _Ids:
    """Names in the order in which the edges name them."""
    names = _Ids()
    for row, batch in table.read_ids(dict.fromkeys(wanted, textual)):
        src, dst = (id_column(batch.column(name), f"{table.path}: column {name}", row) for name in wanted)
        if src.type != dst.type:
            raise InputError(
                f"{table.path}: {wanted[0]} holds {src.type}, {wanted[1]} {dst.type}: both must name vertices alike"
            )
        names.look_up(ends_in_order(src, dst), str(table.path), row, add=True)
    check_edges(table.path, len(names))
    return names


def highest_end(batches: Iterable[tuple[int, pa.RecordBatch]], wanted: Sequence[str], path: Path | str) -> int:
    """The highest id of edges, which are positions; -1 where there are no edges."""
    found = -1
    for row, batch in batches:
        for name in wanted:
            found = max(found, int(edge_ends(batch.column(name), None, path, row, name).max(initial=-1)))
    return found


def check_edges(path: Path | str, vertices: int) -> None:
    """Refuse a table of edges that names no vertices."""
    if not vertices:
        raise InputError(f"{path} has no edges, so there are no vertices: the graph is empty")


def _is_text(table: Table, column: str) -> bool:
    return any(is_string(decoded(batch.column(0)).type) for _, batch in islice(table.read([column]), 1))


def _edge_features(table: Table, columns: list[str]) -> EdgeFeatures | None:
    """The features of the edges of a table, which are read once for their width; none where there are no edges."""
    shapes = [rows.shape for rows in _feature_rows(table, columns, feature_column)]
    count, width = sum(rows for rows, _ in shapes), shapes[0][1] if shapes else 0
    return EdgeFeatures(count, width, partial(_feature_rows, table, columns, feature_column)) if width else None


def _feature_rows(table: Table, features: list[str], column_of: Callable[..., np.ndarray]) -> Iterator[np.ndarray]:
    widths = dict[str, int]()
    for row, batch in table.read(features, numbers=features):
        yield feature_rows(batch, row, features, table.path, column_of, widths)


def feature_rows(
    batch: pa.RecordBatch,
    row: int,
    features: Sequence[str],
    path: Path | str,
    column_of: Callable[..., np.ndarray],
    widths: dict[str, int],
) -> np.ndarray:
    """The features of a batch, from some row on; `widths`: of the columns of batches before, to which it adds."""
    columns = [column_of(batch.column(name), name, path, row) for name in features]
    for name, column in zip(features, columns, strict=True):
        if column.shape[1] != widths.setdefault(name, column.shape[1]):
            raise InputError(
                f"{path}: the lists of column {name} from row {row} on have {column.shape[1]} values, those before "
                f"{widths[name]}; all must be as long"
            )
    rows = np.concatenate(columns, axis=1)
    if not np.isfinite(rows).all():
        strange = [~np.isfinite(column).all(axis=1) for column in columns]
        name, at = next((name, int(np.argmax(of))) for name, of in zip(features, strange, strict=True) if of.any())
        said = batch.column(name)[at].as_py()
        raise InputError(
            f"{path}: feature column {name} holds {'nothing' if said is None else said} in row {row + at}: features are "
            f"finite numbers, none of them missing or beyond float32"
        )
    return rows
