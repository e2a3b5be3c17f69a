"""What a worker of a dry run reads, and what its caches would hold: those rows that it reads most."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.exchange import Owners
from weft.features import LEAST, ByDegree, dealt_among, edges_from, hottest_of_each, left_out
from weft.graph import HeteroFeatures
from weft.planner.counts import STATES
from weft.sampling import Block


@dataclass(frozen=True)
class Members:
    """Workers that cooperate on a batch: who answers for which vertices, and who they are among all workers."""

    owners: Owners  # of all vertices, by member
    stored: Owners  # likewise, by the worker that stores them
    ranks: Sequence[int]  # of the members
    own: int  # the member that counts
    host: Sequence[int]  # the workers of its host, whose rows it reads itself
    divide: bool = False  # are inputs of other hosts looked at, of which a host's workers each fetch some?
    on_device: bool = False  # are caches there?
    rows: HeteroFeatures | None = None  # of several widths, where vertices have types

    def narrower(self, there: np.ndarray) -> np.ndarray | float:
        """By how many whole rows some (a mask) are narrower than the widest type's, by who stores them; 0: none are."""
        if self.rows is None:
            return 0.0
        vertices = np.flatnonzero(there)
        missing = 1 - self.rows.widths / max(1, self.rows.shape[1])  # of each type
        return np.bincount(self.stored.member_of(vertices), missing[self.rows.types[vertices]], self.stored.size)

    def stores(self, there: np.ndarray) -> np.ndarray:
        """How many of some vertices (a mask) each worker stores, [workers]."""
        return np.diff(np.searchsorted(np.flatnonzero(there), self.stored.bounds)).astype(float)

    def left_out(self, at_owners: bool) -> frozenset[int]:
        """The workers whose rows its cache leaves out; a team that answers for all vertices is enough by itself."""
        whole = self.on_device and len(self.ranks) < self.stored.size
        near = frozenset(range(self.stored.size) if whole else self.host)
        return left_out(near, self.owners, self.own, self.on_device, at_owners)


class _Reads(NamedTuple):
    """How often edges reached vertices as inputs, in batches."""

    vertices: np.ndarray  # that any of these batches reads, rising,
    times: np.ndarray  # and how often all of them do;
    of_each: list[tuple[np.ndarray, np.ndarray]]  # of each batch: places among them, and how often it alone does


class InputReads:
    """The inputs of one worker, batch by batch, for rows held in every way; and how many edges reach them.

    On a device those edges count that a worker computes. Where edges go to the owners of their sources, these are drawn by
    others too, who tell the owners (`edges_by_owner`, `edges_of_own`). That a cover leaves some to others is not seen.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        # By state: of each batch, its sources.
        self.drawn: dict[str, list[tuple[np.ndarray, Block]]] = defaultdict(list)
        self.answered: list[np.ndarray] = []  # of each batch: inputs that this worker answers for, sorted;
        self._edges: dict[str, list[np.ndarray]] = defaultdict(list)  # and how many edges of each its team has drawn
        self._reads: dict[tuple[str, bool, bool], _Reads] = {}
        # By state: of each batch, what the host's other workers read, with how many edges.
        self._mates: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)

    def edges_by_owner(self) -> list[list[np.ndarray]]:
        """Of the last batch's inputs, by state: which are others', by who answers for them; and of how many edges."""
        found: list[list[np.ndarray]] = []
        own, members = self._members.own, range(self._members.owners.size)
        for state in STATES:
            vertices, block = self.drawn[state][-1]
            grouped, edges = self._members.owners.group(vertices), edges_from(block) - 1
            parts = [grouped.of(member) for member in members]
            self._edges[state].append(np.zeros(len(self.answered[-1])))
            self._add_edges(state, vertices[parts[own]], edges[parts[own]])
            parts[own] = parts[own][:0]
            found += [[vertices[part] for part in parts], [edges[part] for part in parts]]
        return found

    def edges_of_own(self, told: Sequence[np.ndarray]) -> None:
        """What others found of this worker's vertices, as `edges_by_owner` lists it."""
        for state, vertices, edges in zip(STATES, told[::2], told[1::2], strict=True):
            self._add_edges(state, vertices, edges)

    def _add_edges(self, state: str, vertices: np.ndarray, edges: np.ndarray) -> None:
        own = self.answered[-1]
        self._edges[state][-1] += np.bincount(np.searchsorted(own, vertices), edges, len(own))

    def reads_for_host(self) -> list[list[np.ndarray]]:
        """The last batch's inputs, by state, and how many edges each has: for each other worker of the host."""
        found, rank = [], self._members.ranks[self._members.own]
        for state in STATES:
            vertices, block = self.drawn[state][-1]
            for array in (vertices, edges_from(block)):
                found.append([array if mate != rank else array[:0] for mate in self._members.host])
        return found

    def reads_of_mates(self, told: Sequence[np.ndarray]) -> None:
        """The same of the other workers of the host."""
        for state, vertices, edges in zip(STATES, told[::2], told[1::2], strict=True):
            self._mates[state].append((vertices, edges))

    def reads(self, state: str, at_owners: bool = False, of_host: bool = False) -> _Reads:
        """How often edges reached vertices as inputs, in all batches.

        `at_owners`: as a device counts them. `of_host`: by all its workers.
        """
        key = state, at_owners and self._members.on_device, of_host
        if key not in self._reads:
            vertices = self._members.owners.vertices
            batches = [self._batch(*key, number) for number in range(len(self.drawn[state]))]
            any_of = each_once([one for arrays in batches for one, _ in arrays], vertices)
            place = np.empty(vertices, dtype=any_of.dtype)
            place[any_of] = np.arange(len(any_of))
            times, of_each = np.zeros(len(any_of), dtype=np.float32), []
            for (drawn, edges), *others in batches:
                own = np.zeros_like(times)
                own[place[drawn]] = edges
                for more, edges in others:
                    at = place[more]
                    if of_host:
                        np.add.at(own, at, edges.astype(own.dtype))  # of one type: much faster
                    else:  # of two lists, edges drawn here and those drawn by others, each of which counts as read
                        own[at] = 2 + edges
                found = np.flatnonzero(own)
                of_each.append((found.astype(any_of.dtype), own[found]))
                times += own
            self._reads[key] = _Reads(any_of, times, of_each)
        return self._reads[key]

    def hottest(
        self, number: int, state: str, at_owners: bool, rooms: Mapping[float, int], unread: ByDegree, by: str
    ) -> Iterator[tuple[float, np.ndarray]]:
        """A mask of rows that each cache holds for a batch: those of most out-edges, or read most by the other batches."""
        without = self._members.left_out(at_owners)
        read, times = self._by_others(number, state, at_owners, False, by)
        others = unread.of_others(read, without)
        read, worth = read[others], unread.worth(times, read)[others]
        for cache, room in rooms.items():
            yield cache, unread.hottest(read, worth, without, room)

    def parts_of_host(
        self, number: int, state: str, rooms: Mapping[float, int], unread: ByDegree, by: str
    ) -> Iterator[tuple[float, list[np.ndarray]]]:
        """The rows that each device of the host holds of each cache for a batch: by the reads of all of them."""
        stored, mates = self._members.stored, self._members.stored.among(self._members.host)
        read, times = self._by_others(number, state, False, True, by)
        worth = unread.worth(np.zeros(1), slice(None))
        worth[read] += times
        worth += LEAST
        kept = hottest_of_each(worth, stored, frozenset(), [mates.size * room for room in rooms.values()])
        for (cache, room), of_cache in zip(rooms.items(), kept, strict=True):
            yield cache, dealt_among(of_cache, worth, mates, room)

    def _by_others(
        self, number: int, state: str, at_owners: bool, of_host: bool, by: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows that all other batches read, if there are others, and how often; none where that does not count."""
        if by == "degree":
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        vertices, times, of_each = self.reads(state, at_owners, of_host)
        if len(of_each) > 1:
            places, own = of_each[number]
            times = times.copy()
            times[places] -= own
        there = times > 0
        return vertices[there], times[there]

    def _batch(self, state: str, at_owners: bool, of_host: bool, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """What a batch's inputs are, and how often edges reach each: drawn by this worker; then as owner, or by its host."""
        vertices, block = self.drawn[state][number]
        found = [(vertices, edges_from(block))]
        if at_owners:
            found.append((self.answered[number], self._edges[state][number]))
        if of_host:
            found.append(self._mates[state][number])
        return found


def each_once(sets: Sequence[np.ndarray], vertices: int) -> np.ndarray:
    """What is in any of some sets of vertices, rising."""
    there = np.zeros(vertices, dtype=bool)
    for ids in sets:
        there[ids] = True
    return np.flatnonzero(there).astype(sets[0].dtype)
