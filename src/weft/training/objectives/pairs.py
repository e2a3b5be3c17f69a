"""Pairs of vertices to be scored, and the way of their rows to the worker that scores them.

A batch's rows are where its plan leaves them: at whoever the seeds were dealt to, or at their owners. A pair is scored where
its head's row is; the rows of tails that others hold come over a route, each once to a worker, and their gradients go back.

    before   worker 0: a b       pairs (a, c) (a, d) (b, a)   at worker 0: heads a and b are there
             worker 1: c d       pairs (c, a)                 at worker 1
    after    worker 0: a b | c d     worker 1: c d | a
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Communicator, Grouped, Owners, Route
from weft.threads import cached_property
from weft.training.objectives.objective import Examples, Targets


@dataclass(frozen=True)
class Pairs:
    """Links as heads and tails: the first tail of each is the link's own, the others are negatives."""

    heads: np.ndarray  # [links] vertex ids
    tails: np.ndarray  # [links, 1 + negatives] vertex ids
    keys: np.ndarray | None = None  # [links, 1 + negatives] int64, in training: of the randomness of each pair

    def __len__(self) -> int:
        return len(self.heads)

    def part(self, chosen: np.ndarray) -> "Pairs":
        """Some of them: by place, or by a mask."""
        return Pairs(self.heads[chosen], self.tails[chosen], None if self.keys is None else self.keys[chosen])

    def ends(self) -> np.ndarray:
        """Every vertex that is in a pair, once, rising."""
        return np.unique(np.concatenate([self.heads, self.tails.ravel()]))


@dataclass(frozen=True)
class PairTargets(Targets):
    """Where the rows of this worker's pairs are: among its own, with those of others behind them."""

    by_row: ClassVar[bool] = False
    ids: Tensor  # [links] int64: the vertices at their heads
    heads: Tensor  # [links] int64
    tails: Tensor  # [links, 1 + negatives] int64
    route: Route | None  # None: all rows are this worker's own
    keys: Tensor | None = None  # as the pairs have them

    def __len__(self) -> int:
        return len(self.heads)

    def rows(self, out: Tensor, comm: Communicator) -> Tensor:
        return out if self.route is None else self.route.pull(out, comm)

    def of(self, rows: Tensor, first: int, end: int) -> tuple[Tensor, Tensor]:
        """The rows of some of the links, [n, width] and [n, 1 + negatives, width], out of those that `rows` gave."""
        heads, tails = self.heads[first:end], self.tails[first:end]
        return rows.index_select(0, heads), rows.index_select(0, tails.ravel()).view(*tails.shape, rows.shape[1])


class PairExamples(Examples):
    """Links of a batch; their heads are looked up and their negatives drawn when they are needed."""

    def __init__(
        self,
        count: int,
        terms: float,
        heads: Callable[[np.ndarray], np.ndarray],
        draw: Callable[[np.ndarray], Pairs],
        chosen: np.ndarray | None = None,
    ) -> None:
        """`count`: of the whole batch. `heads`, `draw`: the heads, and the pairs, of links at some places in it.

        `chosen`: the places of these; None: all.
        """
        self._count, self.terms, self._heads, self._draw, self._chosen = count, terms, heads, draw, chosen
        self.size = count if chosen is None else len(chosen)

    @property
    def _places(self) -> np.ndarray:
        return np.arange(self._count) if self._chosen is None else self._chosen

    def take(self, chosen: np.ndarray) -> Self:
        return type(self)(self._count, self.terms, self._heads, self._draw, self._places[chosen])

    @cached_property
    def roots(self) -> np.ndarray:
        """The links' heads."""
        return self._heads(self._places)

    @cached_property
    def pairs(self) -> Pairs:
        """The links with their negatives."""
        return self._draw(self._places)

    @cached_property
    def vertices(self) -> np.ndarray:
        """Every vertex that is in a pair, rising."""
        return self.pairs.ends()

    @cached_property
    def needed(self) -> tuple[np.ndarray, np.ndarray]:
        """The heads, and each of their tails."""
        return self.pairs.heads.repeat(self.pairs.tails.shape[1]), self.pairs.tails.ravel()

    def dealt(self, workers: np.ndarray, comm: Communicator) -> PairTargets:
        """The pairs whose heads are computed here."""
        ends = self.vertices

        def worker_of(ids: np.ndarray) -> np.ndarray:
            return workers[np.searchsorted(ends, ids)]

        mine = self.pairs.part(worker_of(self.pairs.heads) == comm.rank)
        return pair_targets(
            mine, places_in(ends[workers == comm.rank]), int((workers == comm.rank).sum()), worker_of, comm
        )

    def owned(self, owners: Owners, comm: Communicator) -> PairTargets:
        first, end = owners.bounds[comm.rank : comm.rank + 2].tolist()
        pairs = self.take((self.roots >= first) & (self.roots < end)).pairs
        return pair_targets(pairs, lambda ids: ids.astype(np.int64) - first, end - first, owners.member_of, comm)


Places = Callable[[np.ndarray], np.ndarray]  # of vertices, among the rows of one worker


def places_in(held: np.ndarray) -> Places:
    """Where vertices are among some that are held, in any order."""
    order = np.argsort(held, kind="stable")
    rising = held[order]
    return lambda vertices: order[np.searchsorted(rising, vertices)]


def pair_targets(
    pairs: Pairs,
    place: Places,
    held: int,
    worker_of: Callable[[np.ndarray], np.ndarray],
    comm: Communicator,
    few: bool = False,
) -> PairTargets:
    """The way of the rows that this worker's pairs lack; all workers of the comm call this together.

    `place`: where this worker's vertices are among its `held` rows; the pairs' heads are among them. `worker_of`: who
    holds the row of each vertex. `few`: are but few of the held rows in these pairs, so that only these are copied?
    """
    ids, heads = torch.from_numpy(pairs.heads.astype(np.int64)), place(pairs.heads)
    keys = None if pairs.keys is None else torch.from_numpy(pairs.keys)
    if comm.size == 1:
        return PairTargets(ids, torch.from_numpy(heads), torch.from_numpy(place(pairs.tails)), None, keys)
    wanted, at = np.unique(pairs.tails, return_inverse=True)
    grouped = Grouped.by(worker_of(wanted), comm.size)
    own = grouped.of(comm.rank)
    remote, counts = grouped.without(comm.rank)
    ((requests, request_counts),) = comm.arrays([(wanted[remote], counts)], "sample")
    at_row = np.empty(len(wanted), dtype=np.int64)
    at_row[own] = place(wanted[own])
    kept = held
    own_from: Tensor | None = None
    own_at: Tensor | None = None
    if few:
        used, there = np.unique(np.concatenate([heads, at_row[own]]), return_inverse=True)
        heads, at_row[own] = np.split(there, [len(heads)])
        kept, own_from, own_at = len(used), torch.from_numpy(used), torch.arange(len(used))
    at_row[remote] = kept + np.arange(len(remote))
    total, send = kept + len(remote), torch.from_numpy(place(requests))
    route = Route(held, total, send, request_counts, counts, None, own_from, own_at)
    tails = torch.from_numpy(at_row[at.reshape(pairs.tails.shape)])
    return PairTargets(ids, torch.from_numpy(heads), tails, route, keys)
