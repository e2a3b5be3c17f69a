"""What the user's tables call the vertices, integers or strings: results go out under the names that came in."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class VertexNames:
    """One name a vertex, by original id: int64 numbers, or the bytes of strings and where each begins."""

    numbers: np.ndarray | None = None  # [vertices] int64
    text: np.ndarray | None = None  # [bytes] uint8
    offsets: np.ndarray | None = None  # [vertices + 1] int64

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else len(self._offsets) - 1

    @property
    def _offsets(self) -> np.ndarray:
        assert self.offsets is not None
        return self.offsets

    def column(self) -> pa.Array:
        """All names as an Arrow column."""
        if self.numbers is not None:
            return pa.array(self.numbers)
        assert self.text is not None
        offsets, text = (np.ascontiguousarray(a) for a in (self._offsets, self.text))
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(text))

    def arrays(self) -> dict[str, np.ndarray]:
        """As the arrays of a graph directory."""
        if self.numbers is not None:
            return {"names": self.numbers}
        assert self.text is not None
        return {"names_text": self.text, "names_offsets": self._offsets}

    @classmethod
    def joined(cls, parts: "list[VertexNames]") -> Self:
        """The names of several tables, one after another; as strings, unless all are numbers."""
        if all(part.numbers is not None for part in parts):
            return cls(numbers=np.concatenate([part.numbers for part in parts if part.numbers is not None]))
        column = pa.concat_arrays([part.column().cast(pa.large_string()) for part in parts])
        offsets, text = (np.frombuffer(column.buffers()[at], kind) for at, kind in ((1, np.int64), (2, np.uint8)))
        return cls(text=text[: offsets[len(column)]], offsets=offsets[: len(column) + 1])

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self | None:
        """From the arrays of a graph directory; None where it has none."""
        if "names" in arrays:
            return cls(numbers=arrays["names"])
        if "names_text" in arrays:
            return cls(text=arrays["names_text"], offsets=arrays["names_offsets"])
        return None
