"""Which columns of a table hold what: by name, or by pattern where there may be several."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from weft.config import nearest
from weft.errors import ConfigError, InputError

_TEXT = {".csv", ".tsv", ".txt"}  # whose columns may have no names

NAMES_ARE_COUNTED = "--vertices is for ids that are positions, and these are names: give --nodes, or drop it"


@dataclass(frozen=True)
class TableColumns:
    """Which columns hold what. Features and labels may be several, by comma and pattern: 'f*,age'."""

    src: str = "src"
    dst: str = "dst"
    weight: str | None = None
    type: str | None = None
    id: str = "id"
    features: str | None = None
    label: str | None = None
    split: str | None = None
    edge_features: str | None = None

    @property
    def of_vertices(self) -> bool:
        """Are columns of a vertex table named?"""
        return bool(self.features or self.label or self.split or self.id != TableColumns.id)


class EdgeColumns(NamedTuple):
    """The columns of an edge table: of sources and destinations, of weights and of types."""

    ends: list[str]
    weight: str | None
    type: str | None


def check_wanted(nodes: object, named: TableColumns, ids: str | None, vertices: int | None, owner: object) -> None:
    """Refuse what does not go together of tables of edges and, if there is one, of vertices (`nodes`)."""
    if ids not in (None, "positions", "names"):
        raise ConfigError(f"ids = {ids!r} is not possible: choose positions or names")
    if nodes is None and (named.of_vertices or owner):
        raise ConfigError(
            "ids, features, labels, split and owners are columns of the vertex table: name it with --nodes"
        )
    if nodes is not None and vertices is not None:
        raise ConfigError("the vertex table says how many vertices there are: drop --vertices")


def matching(wanted: str, there: Sequence[str], where: str) -> list[str]:
    """The columns among those that are there that a comma-separated list of names and patterns means."""
    found: list[str] = []
    for part in [wanted] if wanted in there else wanted.split(","):
        names = _named(part, there)
        if not names:
            near = nearest(part.strip(), there)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(there[:20])}"
            text = _TEXT.intersection(Path(where.lower()).suffixes)
            if not near and text and all(name.isdecimal() for name in there[:2]):
                hint += "; if that is its first row, add a line of names before it, or call a list of edges .txt"
            raise InputError(f"{where} has no column {part.strip()!r}: {hint}")
        if twice := [name for name in names if list(there).count(name) > 1]:
            raise InputError(f"{where} has several columns {twice[0]!r}: rename all but one")
        found += [name for name in names if name not in found]
    return found


def _named(part: str, there: Sequence[str]) -> list[str]:
    """The columns of a name, whatever its signs, or else of a pattern."""
    exact = next((name for name in (part, part.strip()) if name in there), None)
    if exact is not None:
        return [name for name in there if name == exact]
    return [name for name in there if fnmatch.fnmatchcase(name, part.strip())]


def one_column(wanted: str, there: Sequence[str], where: str) -> str:
    """The one column that a name or pattern means."""
    found = matching(wanted, there, where)
    if len(found) > 1:
        raise InputError(f"{where}: {wanted!r} means {len(found)} columns ({', '.join(found[:5])}): name one")
    return found[0]


def edge_columns(named: TableColumns, there: Sequence[str], where: str) -> EdgeColumns:
    """The columns of an edge table, no two of which are one."""
    ends = [one_column(name, there, where) for name in (named.src, named.dst)]
    if ends[0] == ends[1]:
        raise InputError(f"{where}: column {ends[0]!r} is named for sources and destinations: each needs its own")
    weight, kind = (one_column(name, there, where) if name else None for name in (named.weight, named.type))
    roles = [("source", ends[0]), ("destination", ends[1]), ("weight", weight), ("type", kind)]
    _check_roles([(role, column) for role, column in roles if column], where)
    return EdgeColumns(ends, weight, kind)


def edge_feature_columns(wanted: str | None, columns: EdgeColumns, there: Sequence[str], where: str) -> list[str]:
    """The columns of an edge table's features; patterns pass by its other columns."""
    others = [name for name in (*columns.ends, columns.weight, columns.type) if name]
    return _features(wanted, others, there, where, "source, destination, weight or type")


def _features(wanted: str | None, others: Sequence[str], there: Sequence[str], where: str, roles: str) -> list[str]:
    """The columns of features, which are none of `others`; these have `roles`."""
    found = matching(wanted, there, where) if wanted else []
    both = [name for name in others if name in found]
    by_name = [part.strip() for part in [wanted, *wanted.split(",")]] if wanted else []
    if wrong := [name for name in both if name in by_name] or (both if both == found else []):
        raise InputError(
            f"{where}: column {wrong[0]!r} is named as a feature, and as {roles} too: it can be one of them"
        )
    return [name for name in found if name not in both]


def _check_roles(roles: Sequence[tuple[str, str]], where: str) -> None:
    """No column is named for two things."""
    known: dict[str, str] = {}
    for role, column in roles:
        if column in known:
            raise InputError(
                f"{where}: column {column!r} is named as {known[column]}, and as {role} too: it can be one of them"
            )
        known[column] = role


def vertex_columns(
    named: TableColumns, there: Sequence[str], where: str
) -> tuple[str, list[str], list[str], str | None]:
    """The columns of a vertex table's ids, features, labels and split; patterns of features pass by the others."""
    ids, split = one_column(named.id, there, where), one_column(named.split, there, where) if named.split else None
    labels = matching(named.label, there, where) if named.label else []
    roles = [("id", ids), *(("label", label) for label in labels), *([("split", split)] if split else [])]
    _check_roles(roles, where)
    others = [name for name in (ids, *labels, split) if name]
    return ids, _features(named.features, others, there, where, "id, label or split"), labels, split
