"""A graph of arrays in memory as a directory has it: each of a type that is stored, and no value changed by that."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import InputError
from weft.graph.directory import TYPES
from weft.graph.hetero_features import HeteroFeatures
from weft.graph.values import check_features

if TYPE_CHECKING:
    from weft.graph.graph import Graph


def as_stored(graph: "Graph") -> "Graph":
    """The graph with all arrays of types that its directory may have; refused where their values would become others."""
    made: dict[str, Any] = {}
    for name, (dtypes, _) in TYPES.items():
        given = getattr(graph, name, None)
        if isinstance(given, HeteroFeatures):
            tables = tuple(_as_stored(name, table, dtypes) for table in given.tables)
            same = all(new is old for new, old in zip(tables, given.tables, strict=True))
            made[name] = given if same else HeteroFeatures(given.types, tables)
        elif isinstance(given, np.ndarray):
            made[name] = _as_stored(name, given, dtypes)
    changed = {name: array for name, array in made.items() if array is not getattr(graph, name)}
    return replace(graph, **changed) if changed else graph


def _as_stored(name: str, values: np.ndarray, dtypes: tuple[str, ...]) -> np.ndarray:
    """An array of a type that is stored: the same one, if it is of such."""
    if values.dtype.str in dtypes:
        return values
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name} is of {values.dtype}, which no graph's directory has: give numbers")
    if name == "features":
        check_features("features hold", values)
    usual = np.dtype(dtypes[0])
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(usual)
    changed = made != values if usual.kind in "iu" else ~np.isfinite(made)
    if changed.any():
        raise InputError(
            f"{name} holds {values[changed][0]}, and is stored as {usual}: give numbers that this has, too"
        )
    return made
