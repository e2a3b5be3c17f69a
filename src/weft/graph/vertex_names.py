"""What the user's tables call the vertices, by original id: an Arrow column of integers or strings.

Results go out under the names that came in.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from weft import _kernels
from weft.errors import GraphFormatError


def names_from_arrays(arrays: dict[str, np.ndarray]) -> pa.Array | None:
    """From the arrays of a graph directory; None where it has none."""
    if "names_text" in arrays:
        try:
            column = text_column(arrays["names_text"], arrays["names_offsets"])
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise GraphFormatError(f"the vertices' names are damaged ({error}): import the graph again") from None
        return column
    return pa.array(arrays["names"]) if "names" in arrays else None


def text_column(text: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """A column of strings of their bytes, and where each begins and the last one ends."""
    buffers = (pa.py_buffer(np.ascontiguousarray(part)) for part in (offsets, text))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)


def text_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a column of large strings (or bytes), and where each begins and the last one ends."""
    _, places, data = column.buffers()
    offsets = np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return text, offsets


def bytes_of_ids(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Ids as the bytes of names, with where each begins; integers are names of eight bytes."""
    if pa.types.is_large_string(column.type):
        return text_of(column)
    data = np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).view(np.uint8)
    return data, np.arange(0, len(data) + 1, 8, dtype=np.int64)


def look_up(table: _kernels.NameTable, data: np.ndarray, offsets: np.ndarray, *, add: bool) -> np.ndarray:
    """The numbers of names in a table; -1 for unknown ones unless they are added."""
    found = np.empty(len(offsets) - 1, dtype=np.int64)
    table.look_up(np.ascontiguousarray(offsets), data, add, found)
    return found


def arrays_of_names(names: pa.Array | None) -> dict[str, np.ndarray]:
    """As the arrays of a graph directory."""
    if names is None:
        return {}
    if pa.types.is_integer(names.type):
        return {"names": names.cast(pa.int64()).to_numpy()}
    text, offsets = text_of(names.cast(pa.large_string()))
    return {"names_text": text[: offsets[-1]], "names_offsets": offsets}


def joined_names(parts: Sequence[pa.Array]) -> pa.Array:
    """The names of several tables, one after another; as strings, unless all are numbers."""
    if any(not pa.types.is_integer(part.type) for part in parts):
        parts = [part.cast(pa.large_string()) for part in parts]
    return pa.concat_arrays(parts)
