"""Pairs of vertices to be scored, and the way of their rows to the worker that scores them.

A batch's rows are where its plan leaves them: at whoever the seeds were dealt to, or at their owners. A pair is scored where
its head's row is; the rows of tails that others hold come over a route, each once to a worker, and their gradients go back.

    before   worker 0: a b       pairs (a, c) (a, d) (b, a)   at worker 0: heads a and b are there
             worker 1: c d       pairs (c, a)                 at worker 1
    after    worker 0: a b | c d     worker 1: c d | a
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Communicator, Grouped, Route


@dataclass(frozen=True)
class Pairs:
    """Links as heads and tails: the first tail of each is the link's own, the others are negatives."""

    heads: np.ndarray  # [links] vertex ids
    tails: np.ndarray  # [links, 1 + negatives] vertex ids

    def __len__(self) -> int:
        return len(self.heads)

    def part(self, chosen: np.ndarray) -> "Pairs":
        """Some of them: by place, or by a mask."""
        return Pairs(self.heads[chosen], self.tails[chosen])

    def ends(self) -> np.ndarray:
        """Every vertex that is in a pair, once, rising."""
        return np.unique(np.concatenate([self.heads, self.tails.ravel()]))


@dataclass(frozen=True)
class Ends:
    """Where the rows of this worker's pairs are: among its own, with those of others behind them."""

    heads: Tensor  # [links] int64
    tails: Tensor  # [links, 1 + negatives] int64
    route: Route | None  # None: all rows are this worker's own

    def __len__(self) -> int:
        return len(self.heads)

    def pull(self, own: Tensor, comm: Communicator) -> Tensor:
        """This worker's rows, and behind them those of others that its pairs need; all workers call this together."""
        return own if self.route is None else self.route.pull(own, comm)

    def of(self, rows: Tensor, first: int, end: int) -> tuple[Tensor, Tensor]:
        """The rows of some of the links, [n, width] and [n, 1 + negatives, width], out of what was pulled."""
        heads, tails = self.heads[first:end].to(rows.device), self.tails[first:end].to(rows.device)
        return rows.index_select(0, heads), rows.index_select(0, tails.ravel()).view(*tails.shape, rows.shape[1])


def meet(pairs: Pairs, held: np.ndarray, holder: Callable[[np.ndarray], np.ndarray], comm: Communicator) -> Ends:
    """The way of the rows that this worker's pairs lack; all workers of the comm call this together.

    `held`: the vertices whose rows are here, in their order; the pairs' heads are among them. `holder`: who else holds
    the rows of some vertices.
    """
    wanted, at = np.unique(pairs.tails, return_inverse=True)
    grouped = Grouped.by(holder(wanted), comm.size)
    own = grouped.of(comm.rank)
    remote, counts = grouped.without(comm.rank)
    ((asked, asked_counts),) = comm.arrays([(wanted[remote], counts)], "sample")
    order = np.argsort(held, kind="stable")
    rising = held[order]

    def row(vertices: np.ndarray) -> np.ndarray:
        return order[np.searchsorted(rising, vertices)]

    place = np.empty(len(wanted), dtype=np.int64)
    place[own] = row(wanted[own])
    place[remote] = len(held) + np.arange(len(remote))
    route = Route(len(held), len(held) + len(remote), torch.from_numpy(row(asked)), asked_counts, counts, None, None)
    tails = place[at.reshape(pairs.tails.shape)]
    return Ends(torch.from_numpy(row(pairs.heads)), torch.from_numpy(tails), None if comm.size == 1 else route)
