"""What the user's tables call the vertices, integers or strings: results go out under the names that came in."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


class VertexNames(ABC):
    """One name for each vertex, by original id."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self) -> pa.Array:
        """All names as an Arrow column."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """As the arrays of a graph directory."""

    @staticmethod
    def joined(parts: "Sequence[VertexNames]") -> "VertexNames":
        """The names of several tables, one after another; as strings, unless all are numbers."""
        numbers = [part.values for part in parts if isinstance(part, NumberNames)]
        if len(numbers) == len(parts):
            return NumberNames(np.concatenate(numbers))
        column = pa.concat_arrays([part.column().cast(pa.large_string()) for part in parts])
        offsets, text = (np.frombuffer(column.buffers()[at], kind) for at, kind in ((1, np.int64), (2, np.uint8)))
        return TextNames(text[: offsets[len(column)]], offsets[: len(column) + 1])

    @staticmethod
    def from_arrays(arrays: dict[str, np.ndarray]) -> "VertexNames | None":
        """From the arrays of a graph directory; None where it has none."""
        if "names" in arrays:
            return NumberNames(arrays["names"])
        return TextNames(arrays["names_text"], arrays["names_offsets"]) if "names_text" in arrays else None


@dataclass(frozen=True)
class NumberNames(VertexNames):
    """Names that are integers."""

    values: np.ndarray  # [vertices] int64

    def __len__(self) -> int:
        return len(self.values)

    def column(self) -> pa.Array:
        return pa.array(self.values)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"names": self.values}


@dataclass(frozen=True)
class TextNames(VertexNames):
    """Names that are strings: their bytes, and where each begins."""

    text: np.ndarray  # [bytes] uint8
    offsets: np.ndarray  # [vertices + 1] int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def column(self) -> pa.Array:
        offsets, text = (np.ascontiguousarray(a) for a in (self.offsets, self.text))
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(text))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"names_text": self.text, "names_offsets": self.offsets}
