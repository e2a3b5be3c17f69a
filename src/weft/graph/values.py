"""Users' arrays as a graph, and its directory, stores them; what can't be stored without a change is refused."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from weft.errors import InputError
from weft.graph.directory import TYPES
from weft.graph.hetero_features import HeteroFeatures

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_MOST_CLASSES = 1 << 24  # beyond it, a number is no class but a mistake that would allocate all memory
_MOST_TYPES = 1 << 20
_EXACT, _EXACT_AS_DOUBLE = 1 << 24, 1 << 53  # up to here float32, and float64, have all whole numbers
_ELSEWHERE = "go to an objective of one's own, and not into the graph (docs/extending.md)"


def clean_labels(labels: np.ndarray | None, class_names: tuple[str, ...] | None) -> tuple[np.ndarray | None, int]:
    """Labels in their stored type, and the number of classes."""
    if labels is None:
        return None, 0
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or 0 in labels.shape[1:] or labels.dtype.kind not in "biuf":
        raise InputError(
            f"labels have shape {labels.shape} and type {labels.dtype}: they need a number a vertex, or a column a class"
        )
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise InputError(
                "labels with several columns must be 0 or 1 in each (one column a class, all known): numbers to be "
                f"predicted as they are, and labels that are unknown in part, {_ELSEWHERE}"
            )
        return labels.astype(np.uint8), labels.shape[1]
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
        if (labels != np.rint(labels)).any() or np.isinf(labels).any():
            raise InputError(
                "labels must be whole numbers (classes from 0 on), with -1 or NaN where unknown: numbers to be predicted as "
                f"they are {_ELSEWHERE}"
            )
    lowest, highest = (int(labels.min()), int(labels.max())) if labels.size else (0, -1)
    if lowest < -1:
        raise InputError(f"label {lowest} is negative: classes are counted from 0, and -1 means unknown")
    most = len(class_names) if class_names else _MOST_CLASSES
    if highest >= most:
        raise InputError(f"label {highest} is none of {most:,} classes: they are counted from 0")
    return labels.astype(np.int32), max(highest + 1, len(class_names or ()))


def check_weights(weights: np.ndarray, first: int) -> None:
    """Refuse weights that are no numbers of float32; `first`: the first one's edge."""
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(weights.astype(np.float32, copy=False))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"the weight of edge {first + at} is {weights[at]}: weights must be finite numbers, none beyond float32"
        )


def clean_split(split: np.ndarray | None) -> np.ndarray | None:
    """A split in its stored type."""
    if split is None or not np.size(split):
        return None if split is None else np.asarray(split, dtype=np.uint8)
    split = whole_numbers("split", np.asarray(split))
    wrong = split[(split < 0) | (split > 3)]
    if len(wrong):
        raise InputError(f"split holds {wrong[0]}: use 0 train, 1 validation, 2 test, 3 unused")
    return split.astype(np.uint8)


def clean_types(types: np.ndarray | None) -> np.ndarray | None:
    """Types of vertices in their stored type."""
    if types is None or types.dtype == np.uint8:
        return types
    types = checked_types("vertex", types)
    return types.astype(np.uint8 if not types.size or types.max() < 256 else np.int32)


def checked_types(what: str, types: np.ndarray, names: tuple[str, ...] | None = None) -> np.ndarray:
    """Types of edges or vertices: whole numbers from 0 on, within their number where they have names."""
    types = whole_numbers(f"{what} types", types)
    if types.size:
        low, high = int(types.min()), int(types.max())
        if low < 0 or high >= (_MOST_TYPES if names is None else len(names)):
            among = f"counted from 0, to {_MOST_TYPES - 1:,} at most" if names is None else f"0 to {len(names) - 1}"
            raise InputError(f"{what} types run from {low} to {high}: they are {among}")
    return types


def whole_numbers(what: str, values: np.ndarray) -> np.ndarray:
    """Numbers that are whole, one each, as integers."""
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(f"{what} have shape {values.shape} and type {values.dtype}: they need one whole number each")
    if values.dtype.kind != "f":
        return values
    if not np.isfinite(values).all() or (values != np.rint(values)).any() or np.abs(values).max(initial=0) >= 2**53:
        raise InputError(f"{what} are not all whole numbers: correct them")
    return values.astype(np.int64)


def as_floats(features: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Features as they are stored (None: float32, unless they are float16)."""
    check_features("features hold", features)
    if dtype is None:
        dtype = np.float16 if features.dtype == np.float16 else np.float32
    return features.astype(dtype, copy=False)


def check_features(who_hold: str, features: np.ndarray) -> None:
    """Refuse whole numbers that float32 has not, for each may be another vertex's."""
    if features.dtype.kind in "iu" and features.dtype.itemsize > 2 and features.size:
        furthest = max(int(features.max()), int(features.min()), key=abs)
        lost = abs(furthest) > _EXACT and (features.astype(np.float32) != features).any()  # compared in float64
        if lost or abs(furthest) > _EXACT_AS_DOUBLE:
            raise InputError(
                f"{who_hold} whole numbers up to {furthest}, of which float32 rounds those beyond {_EXACT:,}: give "
                f"numbers of vertices as two columns, id // 4096 and id % 4096 (docs/models.md), and amounts as floats"
            )


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
