"""Tables of several types of vertices and several relations, named in a TOML file; each is read as tables.py reads one."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import InputError
from weft.graph.addresses import is_address
from weft.graph.column_names import EdgeColumns, TableColumns, edge_columns
from weft.graph.csr import running_sum
from weft.graph.edges_to_csr import EdgeChunk
from weft.graph.source import Source, labels_of_one_type
from weft.graph.storage import named_errors
from weft.graph.table_file import Table
from weft.graph.tables import VertexTable, edge_chunks
from weft.graph.values import clean_types
from weft.graph.vertex_names import joined_names

Given = dict[str, object]  # the keys of a table of the file
_OF_VERTICES = {"table", "id", "features", "label", "split"}
_OF_EDGES = {"table", "from", "to", "src", "dst", "weight"}


@dataclass(frozen=True)
class _Relation:
    name: str
    table: Table
    ends: tuple[int, int]  # the types that its edges come from and go to
    wanted: EdgeColumns


def source_from_toml(file: Path) -> Source:
    """The graph that a TOML file describes: `[vertices.TYPE]` and `[edges.RELATION]`, each with its table and columns."""
    described = _read(file)
    kinds = {name: _vertices(file, name, given) for name, given in described["vertices"].items()}
    names = list(kinds)
    counts = [len(table.names) for table in kinds.values()]
    starts = running_sum(counts)
    relations = [_relation(file, name, given, names) for name, given in described["edges"].items()]
    weighted = any(relation.wanted.weight for relation in relations)

    def edges() -> Iterator[EdgeChunk]:
        for number, relation in enumerate(relations):
            src, dst = (starts[end] for end in relation.ends)
            of_ends = [kinds[names[end]].names for end in relation.ends]
            for chunk in edge_chunks(relation.table, relation.wanted, of_ends):
                count, weight = len(chunk.src), chunk.weight
                if weighted and weight is None:
                    weight = np.ones(count, dtype=np.float32)
                yield EdgeChunk(chunk.src + src, chunk.dst + dst, weight, np.full(count, number, dtype=np.int32))

    labels, split, classes = _labels(file, kinds, starts)
    several = len(names) > 1
    tables = tuple(table.features for table in kinds.values())
    unused = [table.left_out for table in kinds.values()]
    unused += [relation.table.others([*relation.wanted.ends, relation.wanted.weight]) for relation in relations]
    return Source(
        sum(counts),
        edges,
        tables if any(table.width for table in tables) else (),
        labels,
        split,
        joined_names([table.names.export() for table in kinds.values()]),
        classes,
        vertex_type=clean_types(np.repeat(np.arange(len(names)), counts)) if several else None,
        vertex_type_names=tuple(names) if several else None,
        edge_type_names=tuple(relation.name for relation in relations),
        left_out=tuple(column for columns in unused for column in columns),
    )


def _read(file: Path) -> dict[str, dict[str, Given]]:
    with named_errors(file, "reading"):
        try:
            described = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is not valid TOML: {error}") from None
        except RecursionError:
            raise InputError(
                f"{file}: tables within tables within tables; give each kind one [vertices.NAME]"
            ) from None
    for part in ("vertices", "edges"):
        tables = described.get(part)
        if not isinstance(tables, dict) or not tables or not all(isinstance(t, dict) for t in tables.values()):
            raise InputError(f"{file} names no {part}: give each kind a table [{part}.NAME] (docs/file-formats.md)")
    if unknown := set(described) - {"vertices", "edges"}:
        raise InputError(f"{file}: {unknown.pop()!r} is not known; tables are [vertices.NAME] and [edges.NAME]")
    return described


def _checked(
    file: Path, where: str, given: Given, known: set[str], needed: tuple[str, ...]
) -> tuple[Table, dict[str, str]]:
    """The table that a part of the file names, and all its keys, checked."""
    words = {}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{file}, [{where}]: there is no key {name!r}; known ones are {', '.join(sorted(known))}")
        if not isinstance(value, str):
            raise InputError(f"{file}, [{where}]: {name} must be text")
        words[name] = value
    for name in needed:
        if name not in words:
            raise InputError(f"{file}, [{where}]: {name} is missing")
    place = words["table"]
    return Table(place if is_address(place) else file.parent / place), words


def _vertices(file: Path, name: str, given: Given) -> VertexTable:
    table, words = _checked(file, f"vertices.{name}", given, _OF_VERTICES, ("table",))
    return VertexTable(table, TableColumns(**{key: value for key, value in words.items() if key != "table"}))


def _relation(file: Path, name: str, given: Given, kinds: list[str]) -> _Relation:
    where = f"edges.{name}"
    table, words = _checked(file, where, given, _OF_EDGES, ("table", "from", "to"))
    for end in ("from", "to"):
        if words[end] not in kinds:
            raise InputError(f"{file}, [{where}]: {end} = {words[end]!r} is none of the vertices ({', '.join(kinds)})")
    named = TableColumns(**{key: words[key] for key in ("src", "dst", "weight") if key in words})
    wanted = edge_columns(named, table.columns, str(table.path))
    return _Relation(name, table, (kinds.index(words["from"]), kinds.index(words["to"])), wanted)


def _labels(
    file: Path, kinds: dict[str, VertexTable], starts: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None, tuple[str, ...] | None]:
    """Labels, split and classes of the one type that has labels, or a split; unknown and unused elsewhere."""
    learned = [name for name, table in kinds.items() if table.labels is not None or table.split is not None]
    if len(learned) > 1:
        raise InputError(
            f"{file}: {' and '.join(learned)} have labels or a split: name them for the one type to be learned"
        )
    for table, first in zip(kinds.values(), starts.tolist(), strict=False):
        if table.labels is not None or table.split is not None:
            where = first, len(table.names), int(starts[-1])
            return *labels_of_one_type(table.labels, table.split, *where), table.class_names
    return None, None, None
