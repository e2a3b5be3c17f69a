"""Whether the quotes of a text are closed: one that is not takes all lines up to the next for a value, in silence."""

from typing import Any

import numpy as np

_QUOTE = ord('"')


class QuotedText:
    """A text that is read from beginning to end, and what its quotes say meanwhile, as Arrow has them.

    A quote opens where a value begins, and elsewhere outside is a character like others; inside, two are one of the value,
    and another one closes. A value may have several lines; but what closes such a one is followed by the value's end,
    unless it was to open the next.
    """

    def __init__(self, stream: Any, delimiter: str) -> None:
        """`stream`: Arrow's."""
        self._stream, self._held = stream, b""
        self._ends = np.zeros(256, dtype=np.bool_)  # of bytes: do they end a value?
        self._ends[list(f"{delimiter}\r\n".encode())] = True
        self._last = ord("\n")  # the byte before those that are to come
        self._lines = 0  # that have ended
        self._opened = 0  # the line of the quote that is open; 0: none is
        self._several = False  # have lines ended since?
        self._wrong = 0

    def pass_by(self, count: int) -> None:
        """Leave out so many bytes at the beginning, in which quotes mean nothing."""
        self._lines += _line_ends(self._stream.read(count))

    def read(self, count: int) -> bool:
        """Go on by so many bytes; False at the end."""
        data: bytes = self._stream.read(count)
        text = self._held + data
        if not self._lines:
            text = text.removeprefix(b"\xef\xbb\xbf")  # which Arrow passes by
        known = text.rstrip(b'"') if data else text + b"\n"  # a quote's meaning is known with what comes after it
        self._held = text[len(known) :]
        if known:
            self._look(known)
        return bool(data)

    def unclosed(self) -> int:
        """Of a text that was read: the line of a quote that is not closed, from 1 on; 0 if all are."""
        return self._wrong or self._opened

    def _look(self, text: bytes) -> None:
        """Go on by some bytes, the last of which is no quote."""
        if b'"' in text:
            self._look_at_quotes(text, np.frombuffer(text, np.uint8))
        elif self._opened and not self._several:
            self._several = _line_ends(text) > 0
        self._last = text[-1]
        self._lines += _line_ends(text)

    def _look_at_quotes(self, text: bytes, codes: np.ndarray) -> None:
        begins, ends = _odd_runs(codes)
        if not len(begins):
            self._several = self._several or (self._opened > 0 and _line_ends(text) > 0)
            return
        before = codes[begins - 1]
        if begins[0] == 0:
            before[0] = self._last
        opening = self._ends[before]
        inside = _inside(opening, self._opened > 0)
        doubtful = np.flatnonzero(inside & ~self._ends[codes[ends]])  # each closes what the one before it has opened
        if len(doubtful) and not self._wrong:
            self._wrong = self._first_wrong(text, codes, begins, doubtful)
        if opening[-1] and not inside[-1]:
            at = int(begins[-1])
            self._opened = self._lines + _line_ends(text[:at]) + 1
            self._several = _line_ends(text[at:]) > 0
        else:
            self._opened, self._several = 0, False

    def _first_wrong(self, text: bytes, codes: np.ndarray, begins: np.ndarray, doubtful: np.ndarray) -> int:
        """The line of the first of the doubtful values that has several lines, or 0."""
        line_ends = np.flatnonzero((codes == ord("\n")) | (codes == ord("\r")))
        opened = np.where(doubtful > 0, begins[doubtful - 1], 0)
        several = np.searchsorted(line_ends, opened) < np.searchsorted(line_ends, begins[doubtful])
        several[0] |= doubtful[0] == 0 and self._several
        if not several.any():
            return 0
        first = int(np.argmax(several))
        if doubtful[first] == 0:
            return self._opened
        return self._lines + _line_ends(text[: opened[first]]) + 1


def _odd_runs(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where quotes that are an odd number side by side begin and end. Even ones change nothing: outside they are an empty
    value, or characters; inside, characters of the value."""
    quotes = np.flatnonzero(codes == _QUOTE)
    first = np.flatnonzero(np.diff(quotes, prepend=-2) > 1)
    lengths = np.diff(first, append=len(quotes))
    begins = quotes[first]
    odd = lengths % 2 == 1
    return begins[odd], (begins + lengths)[odd]


def _inside(opening: np.ndarray, opened: bool) -> np.ndarray:
    """Does each of these come within quotes? `opening`: which, if not, open some; all close. `opened`: is the first?"""
    count = opened + np.cumsum(opening)
    known = np.maximum.accumulate(np.where(opening, 0, count))  # after one that opens none, none is open
    before, known = np.r_[int(opened), count[:-1]], np.r_[0, known[:-1]]
    return np.asarray((before - known) % 2 == 1)


def _line_ends(text: bytes) -> int:
    """How many lines end in a text; of one that has none but CR, these."""
    return text.count(b"\n") or text.count(b"\r")
