"""What is wanted of which tables, checked, and cut into pieces that a process can hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weft.errors import ConfigError, InputError
from weft.graph.column_names import TableColumns, edge_columns, vertex_columns
from weft.graph.columns import are_words, is_string
from weft.graph.edges_to_csr import EdgeOptions
from weft.graph.shards.job import Job
from weft.graph.shards.pieces import ParquetTable

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


def described(request: ShardRequest) -> tuple[Job, list[Any], tuple[str, ...]]:
    """The job, what its tables are known by, and the columns that it does not use."""
    _check(request)
    edges, named = ParquetTable(request.edges), request.columns
    nodes = None if request.nodes is None else ParquetTable(request.nodes)
    ends, weight, kind = edge_columns(named, edges.schema.names, edges.url)
    id_, features, labels, split = vertex_columns(named, nodes.schema.names, nodes.url) if nodes else ("", [], [], None)
    owner = nodes.one(request.owner) if nodes and request.owner else None
    of_nodes = [name for name in (id_, *features, *labels, split, owner) if name]
    job = Job(
        edges=request.edges,
        nodes=request.nodes,
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
        owner=owner,
        textual=_textual(edges, ends, nodes, id_, request.ids),
        label_words=nodes is not None and len(labels) == 1 and are_words(_type(nodes, labels[0])),
        names=request.ids,
        vertices=request.vertices,
        parts=request.parts,
        undirected=request.options.undirected,
        self_loops=request.options.self_loops,
        drop_duplicates=request.options.drop_duplicates,
        feature_dtype=request.feature_dtype,
        memory=request.memory,
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
    if request.ids not in (None, "positions", "names"):
        raise ConfigError(f"ids = {request.ids!r} is not possible: choose positions or names")
    if request.nodes is None and (named.features or named.label or named.split or request.owner):
        raise ConfigError("features, labels, split and owners are columns of the vertex table: name it with --nodes")
    if request.nodes is not None and request.vertices is not None:
        raise ConfigError("the vertex table says how many vertices there are: drop --vertices")
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
