"""Rows that other workers own: asked of their owners, once a host where several of its workers need the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from weft import _kernels
from weft.exchange import Communicator, Owners
from weft.graph import Features, HeteroFeatures


@dataclass(frozen=True)
class Sharing:
    """How rows are spread over workers: who owns them, the ways there, and whose rows this worker can read itself."""

    owners: Owners
    near: frozenset[int]  # this worker, and those of the same host
    comms: Sequence[Communicator]  # to all workers; one for each thread that fetches
    mates: Sequence[Communicator]  # to those of this host, likewise

    def fetch(self, table: Features, ids: np.ndarray, lane: int) -> np.ndarray:
        """The rows of ids that workers of other hosts own; what these ask is served meanwhile."""
        mates = self.mates[lane]
        if len(self.near) == self.owners.size:  # there are no other hosts
            return _empty(table, len(ids))
        if mates.size == 1:
            return self._from_owners(table, ids, lane)
        fetcher = ids % mates.size  # each vertex has one of the host's workers to fetch it
        order = np.argsort(fetcher, kind="stable")
        counts = np.bincount(fetcher, minlength=mates.size)
        mine = np.flatnonzero(fetcher == mates.rank)
        others = order[fetcher[order] != mates.rank]
        counts[mates.rank] = 0
        ((asked, ask_counts),) = mates.arrays([(ids[others], counts.tolist())], "fetch")
        unique, slots = np.unique(np.concatenate([ids[mine], asked]), return_inverse=True)
        rows = self._from_owners(table, unique, lane)
        out = _empty(table, len(ids))
        out[mine] = rows[slots[: len(mine)]]
        out[others] = _sent(mates, rows[slots[len(mine) :]], ask_counts, counts.tolist())
        return out

    def _from_owners(self, table: Features, ids: np.ndarray, lane: int) -> np.ndarray:
        comm, grouped = self.comms[lane], self.owners.group(ids)
        ((requests, asked),) = comm.arrays([(ids[grouped.order], grouped.counts)], "fetch")
        if isinstance(table, HeteroFeatures):  # rows travel as wide as they are
            wanted = ids[grouped.order]
            widths = table.lengths(requests, asked), table.lengths(wanted, grouped.counts)
            padded = _empty(table, len(ids))
            padded[grouped.order] = table.rows_of(wanted, _sent(comm, table.values(requests), *widths))
            return padded
        rows = _empty(table, len(requests))
        gather_as_stored(table, requests, rows)
        out = _empty(table, len(ids))
        out[grouped.order] = _sent(comm, rows, asked, grouped.counts)
        return out


def gather_as_stored(table: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None:
    """Rows of a table, half precision too."""
    if table.dtype == np.float16:
        np.take(table, ids, axis=0, out=out)
    else:
        _kernels.gather_rows(table, ids, out, None, 1)


def _sent(comm: Communicator, rows: np.ndarray, send: list[int], receive: list[int]) -> np.ndarray:
    return comm.rows(torch.from_numpy(rows), send, receive, "fetch").numpy()


def _empty(table: Features, rows: int) -> np.ndarray:
    return np.empty((rows, table.shape[1]), dtype=table.dtype)
