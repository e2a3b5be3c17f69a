"""Negatives: for each link, vertices that its head is not linked with, in place of its tail; every draw by key.

A draw is a pure function of (seed, epoch, link, number), or for negatives out of the batch also of what that holds, and all
ids are original ones: the same for any number of workers, any partition and any pieces of a batch. What turns out to be the
head itself or linked with it is drawn again, up to a number of tries: only heads that are linked with most of what is drawn
from keep one of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from weft.graph import Links, running_sum
from weft.keys import Stream, hashes

_TRIES = 16

# (number of the try, links) -> candidates; links are given by their places among the draws.
_Candidates = Callable[[int, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class VerticesByType:
    """The vertices of each type, by original ids: a negative is of the type of the tail that it stands in for."""

    types: np.ndarray  # [vertices]
    vertices: np.ndarray  # [vertices] by type
    starts: np.ndarray  # [types + 1] int64

    @classmethod
    def of(cls, types: np.ndarray) -> Self:
        """Of the types of all vertices, in the order of their original ids."""
        return cls(types, np.argsort(types, kind="stable"), running_sum(np.bincount(types)))

    def drawn(self, random: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """A vertex of each tail's type."""
        kind = self.types[tails].astype(np.int64)  # of small types, kind + 1 is one of them, too
        return self.vertices[self.starts[kind] + _below(random, self.starts[kind + 1] - self.starts[kind])]


def uniform_negatives(
    links: Links,
    at: np.ndarray,
    each: int,
    when: tuple[int, ...],
    known: Links,
    stream: Stream = Stream.NEGATIVE,
    alike: VerticesByType | None = None,
) -> np.ndarray:
    """Vertices drawn from all (alike the tails), [links at these places, each]; `when`: the key, besides the link."""
    heads, tails = links.ends(at)
    tails = np.repeat(tails, each)
    draws = (at[:, None] * each + np.arange(each)).ravel()

    def candidates(attempt: int, where: np.ndarray) -> np.ndarray:
        random = hashes(draws[where], stream, *when, attempt)
        return _below(random, links.vertices) if alike is None else alike.drawn(random, tails[where])

    return _drawn(candidates, np.repeat(heads, each), known, tails).reshape(len(at), each)


def batch_negatives(
    links: Links,
    batch: np.ndarray,
    chosen: np.ndarray,
    each: int,
    when: tuple[int, ...],
    known: Links,
    alike: VerticesByType | None = None,
) -> np.ndarray:
    """Tails of other links of the batch, for the links at some places in it, [chosen, each]; none of a batch of one link.

    What is not of its tail's type is drawn again like what is linked.
    """
    heads, tails = links.ends(batch[chosen])
    others = len(batch) - 1
    each = each if others else 0
    places = np.repeat(chosen, each)
    draws = (batch[chosen][:, None] * each + np.arange(each)).ravel()

    def candidates(attempt: int, where: np.ndarray) -> np.ndarray:
        step = 1 + _below(hashes(draws[where], Stream.NEGATIVE, *when, attempt), others)
        return links.ends(batch[(places[where] + step) % len(batch)])[1]

    return _drawn(candidates, np.repeat(heads, each), known, np.repeat(tails, each), alike).reshape(len(chosen), each)


def _drawn(
    candidates: _Candidates, heads: np.ndarray, known: Links, tails: np.ndarray, alike: VerticesByType | None = None
) -> np.ndarray:
    """A vertex for each head, drawn again where it is the head or linked with it, or not `alike` the tail."""
    where = np.arange(len(heads))
    out = candidates(0, where) if len(heads) else heads
    for attempt in range(1, _TRIES):
        again = (out[where] == heads[where]) | known.join(heads[where], out[where])
        if alike is not None:
            again |= alike.types[out[where]] != alike.types[tails[where]]
        where = where[again]
        if not len(where):
            break
        out[where] = candidates(attempt, where)
    return out


def _below(random: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Whole numbers below a count (of up to 32 bits), or each below its own, each as likely, of 64 random bits."""
    return (((random >> np.uint64(32)) * np.asarray(count, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)
