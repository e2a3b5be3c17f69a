"""What is wanted of which tables, checked, and cut into pieces that a process can hold: the job as its tasks read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from weft.errors import ConfigError, InputError
from weft.graph.column_names import (
    NAMES_ARE_COUNTED,
    TableColumns,
    check_wanted,
    edge_columns,
    one_column,
    vertex_columns,
)
from weft.graph.columns import are_words, is_string
from weft.graph.csr import range_bounds
from weft.graph.edges_to_csr import EdgeOptions
from weft.graph.shards.pieces import ParquetTable, Piece
from weft.graph.shards.work import Work

_LEAST_MEMORY = 64 << 20
_MOST_ROWS = 1 << 20  # in a piece, so that there is one for everybody
_LEAST_ROWS = 1 << 10
_MOST_TASKS = 32  # of a stage, where memory does not ask for more
_A_TASK = 1 << 24  # bytes that are worth one


@dataclass(frozen=True)
class ShardRequest:
    """The graph that is wanted: what `weft import` is told, how many owners there are, and what a task may hold."""

    edges: str  # paths, or addresses that fsspec knows
    nodes: str | None = None
    columns: TableColumns = TableColumns()
    ids: str | None = None
    vertices: int | None = None
    options: EdgeOptions = EdgeOptions()
    feature_dtype: str = "float32"
    parts: int | None = None  # None: as `weft import` alone writes it
    owner: str | None = None  # the column that names owners; None: ranges of ids
    memory: int = 1 << 30  # of a process, in bytes


@dataclass(frozen=True, kw_only=True)
class Job(ShardRequest):
    """The same as tasks read it, with the names that columns have there: all that they need to know from the beginning."""

    edge_pieces: tuple[Piece, ...]
    node_pieces: tuple[Piece, ...]
    src: str  # columns
    dst: str
    weight: str | None
    type: str | None
    id: str
    features: tuple[str, ...]
    labels: tuple[str, ...]
    split: str | None
    textual: bool  # are ids strings?
    label_words: bool  # are labels names of classes?
    buckets: int

    @property
    def groups(self) -> int:
        """Into how many groups a piece of vertices is sorted: one an owner, or all together."""
        return (self.parts or 1) if self.owner else 1

    @staticmethod
    @lru_cache(maxsize=2)
    def of(work: Work) -> "Job":
        """The job of a folder."""
        kept = work.load("job")
        lists = {name: tuple(kept[name]) for name in ("features", "labels")}
        lists |= {name: _pieces(kept[name]) for name in ("edge_pieces", "node_pieces")}
        told = {"columns": TableColumns(**kept["columns"]), "options": EdgeOptions(**kept["options"])}
        return Job(**kept | lists | told)


@dataclass(frozen=True)
class Layout:
    """How vertices are numbered, and which pieces of the vertex table go where."""

    vertices: int
    by_name: bool  # do edges name vertices otherwise than by their numbers?
    keeps_names: bool
    classes: tuple[str, ...] | None  # the words that labels are
    runs: tuple[tuple[int, ...], ...]  # of each piece of vertices: the first number of its rows, by owner
    bounds: tuple[int, ...] | None  # of the owners
    ranges: int  # of destinations, whose lists a task makes

    @staticmethod
    @lru_cache(maxsize=2)
    def of(work: Work) -> "Layout":
        """The layout of a job, once its ids were looked at."""
        kept = work.load("layout")
        lists = {name: None if kept[name] is None else tuple(kept[name]) for name in ("classes", "bounds")}
        return Layout(**kept | lists | {"runs": tuple(map(tuple, kept["runs"]))})

    @property
    def spans(self) -> np.ndarray:
        """Where each of these ranges begins and the last one ends."""
        return range_bounds(self.vertices, self.ranges)


def _pieces(kept: Sequence[dict[str, Any]]) -> tuple[Piece, ...]:
    return tuple(Piece(**one | {"groups": tuple(one["groups"])}) for one in kept)


def described(request: ShardRequest) -> tuple[Job, list[Any], tuple[str, ...]]:
    """The job, what each of its tables is known by (None: nothing), and the columns that it does not use."""
    _check(request)
    edges, named = ParquetTable(request.edges), request.columns
    nodes = None if request.nodes is None else ParquetTable(request.nodes)
    ends, weight, kind = edge_columns(named, edges.schema.names, edges.url)
    id_, features, labels, split = vertex_columns(named, nodes.schema.names, nodes.url) if nodes else ("", [], [], None)
    textual = _textual(edges, ends, nodes, id_, request.ids)
    if request.vertices is not None and (textual or request.ids == "names"):
        raise ConfigError(NAMES_ARE_COUNTED)
    owner = one_column(request.owner, nodes.schema.names, nodes.url) if nodes and request.owner else None
    of_nodes = [name for name in (id_, *features, *labels, split, owner) if name]
    job = Job(
        **vars(request) | {"owner": owner},
        edge_pieces=tuple(edges.pieces(_rows(request, edges, ends))),
        node_pieces=tuple(nodes.pieces(_rows(request, nodes, of_nodes))) if nodes else (),
        src=ends[0],
        dst=ends[1],
        weight=weight,
        type=kind,
        id=id_,
        features=tuple(features),
        labels=tuple(labels),
        split=split,
        textual=textual,
        label_words=nodes is not None and len(labels) == 1 and are_words(_type(nodes, labels[0])),
        buckets=_buckets(request, nodes or edges, [id_] if id_ else ends),
    )
    left_out = [*_others(edges, [*ends, weight, kind]), *(_others(nodes, of_nodes) if nodes else ())]
    return job, [edges.identity(), nodes.identity() if nodes else []], tuple(left_out)


def tasks_for(size: float, memory: int) -> int:
    """How many tasks share so many bytes: each holds a quarter of its memory, or less, so that all have some."""
    return max(int(4 * size / memory) + 1, min(_MOST_TASKS, int(size / _A_TASK) + 1))


def _check(request: ShardRequest) -> None:
    named = request.columns
    if request.memory < _LEAST_MEMORY:
        raise ConfigError(f"{request.memory} bytes are too few for a process: give at least {_LEAST_MEMORY >> 20}MiB")
    check_wanted(request.nodes, named, request.ids, request.vertices, request.owner)
    if request.vertices is not None and request.vertices < 1:
        raise ConfigError(f"{request.vertices} vertices are not possible: give at least 1")
    if named.label and not named.split:
        raise InputError("there are labels but no split: name its column with --split-column")
    if named.edge_features:
        raise ConfigError(
            "features of edges do not come into graphs that are made in shards: import the table on one machine (without "
            "--on ray), or drop --edge-features"
        )
    if named.type:
        request.options.check_for_types()
    if request.parts is not None and request.parts < 1:
        raise ConfigError(f"{request.parts} parts are not possible: give at least 1")
    if request.owner and request.parts is None:
        raise ConfigError(f"how many owners does the column {request.owner} name? Give --parts")


def _rows(request: ShardRequest, table: ParquetTable, columns: Sequence[str]) -> int:
    """How many rows of a table a task can read whole: as Arrow has them, as ids in tables, and sorted."""
    a_row = 200 + 3 * table.bytes_a_row(columns)
    return max(_LEAST_ROWS, min(_MOST_ROWS, int(request.memory / 4 / a_row)))


def _buckets(request: ShardRequest, table: ParquetTable, columns: Sequence[str]) -> int:
    """Among how many tables names are divided: each has a name, where it is, and its slots in the table."""
    names = table.rows * len(columns)
    return tasks_for(names * (100 + 2 * table.bytes_a_row(columns) / len(columns)), request.memory)


def _textual(edges: ParquetTable, ends: Sequence[str], nodes: ParquetTable | None, id_: str, names: str | None) -> bool:
    """Are ids strings? All columns of them must be alike."""
    columns = [(edges, name) for name in ends] + ([(nodes, id_)] if nodes else [])
    kinds = {f"{table.url}: column {name}": _type(table, name) for table, name in columns if table}
    textual = is_string(_type(edges, ends[0]))
    for where, kind in kinds.items():
        if not (is_string(kind) or pa.types.is_integer(kind)):
            raise InputError(f"{where} holds {kind}, but vertex ids are integers or strings")
        if is_string(kind) != textual:
            others = "strings" if textual else "integers"
            raise InputError(f"{where} holds {kind}, but other ids are {others}: use one of both")
    if textual and not id_ and names == "positions":
        raise InputError(f"{edges.url}: column {ends[0]} holds strings, which are no positions; drop --ids positions")
    return textual


def _type(table: ParquetTable, name: str) -> pa.DataType:
    kind = table.schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _others(table: ParquetTable, used: Sequence[str | None]) -> list[str]:
    return [f"{table.url.rstrip('/').rpartition('/')[2]}: {name}" for name in table.schema.names if name not in used]
