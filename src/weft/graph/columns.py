"""Columns of tables as ids, numbers, labels and splits; what can't be meant is refused, naming where it is."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from weft.errors import InputError, reason_of
from weft.graph.values import check_features

_SPELLED_OTHERWISE = "^[+-]?0[0-9xX]|^-0$"  # than a number's own text: of these, several are one number
_SPLIT_WORDS = {"train": 0, "validation": 1, "valid": 1, "val": 1, "test": 2, "unused": 3, "none": 3, "": 3}


def id_column(column: pa.Array, where: str, row: int) -> pa.Array:
    """Ids as int64 or large_string, of which none is missing."""
    column = decoded(column)
    missing = column.is_null()
    if is_string(column.type):
        column = cast(column, pa.large_string(), where)
        missing = pc.or_(missing, pc.equal(column, "").fill_null(True))
    elif pa.types.is_integer(column.type):
        column = cast(column, pa.int64(), where)
    elif pa.types.is_binary(column.type):
        raise InputError(
            f"{where} holds bytes that are no text: save the table as UTF-8, with ids as integers or strings"
        )
    elif not pa.types.is_null(column.type):
        raise InputError(
            f"{where} holds {column.type}, but vertex ids are integers or strings (of a CSV, --ids names reads all)"
        )
    if pc.any(missing).as_py():
        at = row + missing.to_pylist().index(True)
        raise InputError(f"{where}: a vertex id is missing (row {at}): give each one")
    return column


class OtherSpellingError(Exception):
    """A text among integers that its number would not give back, as 007."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(row, text)
        self.row, self.text = row, text


def integers_of(texts: pa.Array, row: int) -> pa.Array:
    """Texts, from some row on, as the integers that they spell; null where a CSV says that there is none."""
    numbers = _respelled(texts)
    return _integers_one_by_one(texts, row) if numbers is None else numbers


def _respelled(texts: pa.Array) -> pa.Array | None:
    """Texts as integers, if these are spelled alike."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowException:
        return None
    return numbers if numbers.cast(texts.type).equals(texts) else None


def _integers_one_by_one(texts: pa.Array, row: int) -> pa.Array:
    """Whatever spaces are around."""
    trimmed, missing = _trimmed(texts)
    numbers = _respelled(pc.if_else(missing, None, trimmed))
    if numbers is not None:
        return numbers
    for at, text in enumerate(trimmed.to_pylist()):
        if not (missing[at].as_py() or (re.fullmatch("0|-?[1-9][0-9]*", text) and -(2**63) <= int(text) < 2**63)):
            raise OtherSpellingError(row + at, texts[at].as_py())
    raise AssertionError("texts that are integers are spelled like them")


def typed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as the integers or numbers that they all spell, null where a CSV says that there is none; else as they are."""
    trimmed, missing = _trimmed(texts)
    for kind in (pa.int64(), pa.float64()):
        try:
            return pc.if_else(missing, None, trimmed).cast(kind)
        except pa.ArrowException:
            continue
    return texts


def typed_labels(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Labels of a CSV as the numbers that they all spell; as words, if some are spelled otherwise, such as 007 or x7."""
    trimmed, missing = _trimmed(texts)
    said = trimmed.filter(pc.invert(missing))
    if not len(said) or pc.any(pc.match_substring_regex(said, _SPELLED_OTHERWISE)).as_py():
        return texts
    return typed(texts)


def without_missing(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a CSV, null where it says that there is none, in texts as in numbers."""
    return pc.if_else(_trimmed(column)[1], None, column) if is_string(column.type) else column


def _trimmed(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, pa.Array | pa.ChunkedArray]:
    """Texts without spaces around, and whether they are what in a CSV says that there is none."""
    trimmed = pc.ascii_trim_whitespace(texts)
    return trimmed, pc.is_in(trimmed, pa.array(pa.csv.ConvertOptions().null_values, texts.type))


def is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def cast(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.Array | pa.ChunkedArray:
    """A column as another type; numbers are rounded to floats, and nothing else is lost."""
    try:
        made = decoded(column).cast(kind, safe=not pa.types.is_floating(kind))
        made.validate(full=True)  # of strings: are they UTF-8?
    except pa.ArrowException as error:
        raise InputError(f"{where} can't be read as {kind} ({reason_of(error)}): correct it") from None
    return made


def numbers_of(column: pa.Array, where: str) -> np.ndarray:
    """A column of numbers as float32; NaN where there is none."""
    kind = decoded(column).type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        raise InputError(f"{where} holds {kind}; it must hold numbers")
    with np.errstate(over="ignore"):
        return cast(column, pa.float32(), where).to_numpy(zero_copy_only=False)


def owners_of(column: pa.Array, where: str, parts: int) -> np.ndarray:
    """A column of owners, as int32; there must be one for each vertex, from 0 to below their number."""
    column = decoded(column)
    if column.null_count or not pa.types.is_integer(column.type):
        missing = "lacks some" if column.null_count else f"holds {column.type}"
        raise InputError(f"{where} {missing}: it must name each vertex's owner, from 0 to {parts - 1}")
    owners = cast(column, pa.int64(), where).to_numpy(zero_copy_only=False)
    if len(owners) and (owners.min() < 0 or owners.max() >= parts):
        raise InputError(f"{where} runs from {owners.min()} to {owners.max()}: {parts} owners are 0 to {parts - 1}")
    return owners.astype(np.int32)


def feature_column(column: pa.Array, name: str, path: Path | str, row: int) -> np.ndarray:
    """One column of numbers, or a column of lists of equal length, as rows."""
    where = f"{path}: feature column {name}"
    if _has_lists(column):
        lengths = pc.list_value_length(column)
        low, high = pc.min(lengths).as_py(), pc.max(lengths).as_py()
        if column.null_count:
            raise InputError(f"{path}: column {name} lacks some of its lists near row {row}: give every row one")
        if low != high:
            raise InputError(
                f"{path}: the lists of column {name} near row {row} have {low} to {high} values; all must be as long"
            )
        return numbers_of(column.flatten(), where).reshape(len(column), -1)
    return numbers_of(column, where)[:, None]


def vertex_feature_column(column: pa.Array, name: str, path: Path | str, row: int) -> np.ndarray:
    """`feature_column` of vertices, whose whole numbers may be looked up: none is rounded."""
    numbers = decoded(column.flatten() if _has_lists(column) else column)
    if pa.types.is_integer(numbers.type):
        check_features(f"{path}: feature column {name} holds", numbers.drop_null().to_numpy())
    return feature_column(column, name, path, row)


def _has_lists(column: pa.Array) -> bool:
    kind = column.type
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def labels_of(
    table: pa.Table | None, names: Sequence[str], path: Path | str, classes: Sequence[str] | None = None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels, and the classes' names if they have any; `classes`: those of words, if this is a piece of a table."""
    if table is None or not names:
        return None, None
    if len(names) > 1:
        columns = [cast(table.column(name), pa.float64(), f"{path}: column {name}").to_numpy() for name in names]
        return np.stack(columns, axis=1), tuple(names)
    where, column = f"{path}: column {names[0]}", decoded(table.column(names[0]))
    if pa.types.is_integer(column.type):
        return cast(column, pa.int64(), where).fill_null(-1).to_numpy(), None
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return cast(column, pa.float64(), where).to_numpy(), None
    if pa.types.is_nested(column.type):
        raise InputError(
            f"{where} holds {column.type}: a label is a number or a word; for several, name a column a class"
        )
    words = cast(column, pa.string(), where)
    classes = words_of(words) if classes is None else classes
    index = pc.index_in(words, pa.array(classes, pa.string())).fill_null(-1).to_numpy()
    return index.astype(np.int32), tuple(classes)


def are_words(kind: pa.DataType) -> bool:
    """Are labels of this type names of classes?"""
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def words_of(words: pa.Array | pa.ChunkedArray) -> list[str]:
    """The classes that words name, in order."""
    return sorted(word for word in pc.unique(words).to_pylist() if word)


def splits_of(column: pa.ChunkedArray, path: Path | str) -> np.ndarray:
    where, column = f"{path}: the column of the split", decoded(column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return cast(column, pa.int64(), where).fill_null(3).to_numpy()
    words = cast(column, pa.string(), where).fill_null("")
    at = pc.index_in(pc.utf8_lower(words), pa.array(list(_SPLIT_WORDS)))
    if at.null_count:
        unknown = words.filter(at.is_null())[0].as_py()
        raise InputError(f"{path}: split {unknown!r} is not known; use train, validation, test or unused")
    return np.array(list(_SPLIT_WORDS.values()), dtype=np.uint8)[at.to_numpy()]
