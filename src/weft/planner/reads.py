"""What a worker of a dry run reads, and what its caches would hold: those rows that it reads most."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.exchange import Owners
from weft.features import LEAST, dealt_among, edges_from, hottest_of_each, left_out
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

    def narrower(self, vertices: np.ndarray) -> np.ndarray | float:
        """By how many whole rows they are narrower than the widest type's, by who stores them; 0: all are of one width."""
        if self.rows is None:
            return 0.0
        missing = 1 - self.rows.widths / max(1, self.rows.shape[1])  # of each type
        return np.bincount(self.stored.member_of(vertices), missing[self.rows.types[vertices]], self.stored.size)

    def left_out(self, at_owners: bool) -> frozenset[int]:
        """The workers whose rows its cache leaves out; a team that answers for all vertices is enough by itself."""
        whole = self.on_device and len(self.ranks) < self.stored.size
        near = frozenset(range(self.stored.size) if whole else self.host)
        return left_out(near, self.owners, self.own, self.on_device, at_owners)


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
        self._reads: dict[tuple[str, bool, bool], np.ndarray] = {}  # of all batches together
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

    def reads(self, state: str, at_owners: bool = False, of_host: bool = False) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches.

        `at_owners`: as a device counts them. `of_host`: by all its workers.
        """
        key = state, at_owners and self._members.on_device, of_host
        if key not in self._reads:
            self._reads[key] = np.zeros(self._members.owners.vertices, dtype=np.float32)
            for number in range(len(self.drawn[state])):
                self._add(self._reads[key], *key, number)
        return self._reads[key]

    def hottest(
        self, number: int, state: str, at_owners: bool, rooms: Mapping[float, int], by_edges: np.ndarray, by: str
    ) -> list[tuple[float, np.ndarray]]:
        """The rows that each cache holds for a batch: those of most out-edges, or read most by the other batches."""
        members = self._members
        worth = self._worth(number, (state, at_owners and members.on_device, False), by_edges, by)
        worth = worth + LEAST * members.on_device
        kept = hottest_of_each(worth, members.stored, members.left_out(at_owners), rooms.values())
        return [*zip(rooms, kept, strict=True)]

    def parts_of_host(
        self, number: int, state: str, rooms: Mapping[float, int], by_edges: np.ndarray, by: str
    ) -> Iterator[tuple[float, list[np.ndarray]]]:
        """The rows that each device of the host holds of each cache for a batch: by the reads of all of them."""
        stored, mates = self._members.stored, self._members.stored.among(self._members.host)
        worth = self._worth(number, (state, False, True), by_edges, by) + LEAST
        kept = hottest_of_each(worth, stored, frozenset(), [mates.size * room for room in rooms.values()])
        for (cache, room), of_cache in zip(rooms.items(), kept, strict=True):
            yield cache, dealt_among(of_cache, worth, mates, room)

    def _worth(self, number: int, key: tuple[str, bool, bool], by_edges: np.ndarray, by: str) -> np.ndarray:
        """What rows are worth to a batch: by the reads of all other batches, if there are others.

        `by_edges`: by their out-edges, as `by_reads` adds it.
        """
        if by == "degree":
            return by_edges
        reads = self.reads(*key)
        if len(self.drawn[key[0]]) > 1:
            itself = np.zeros_like(reads)
            self._add(itself, *key, number)
            reads = np.subtract(reads, itself, out=itself)
        return reads + by_edges

    def _add(self, reads: np.ndarray, state: str, at_owners: bool, of_host: bool, number: int) -> None:
        (vertices, block), own = self.drawn[state][number], self.answered[number]
        before = reads[own]
        reads[vertices] += edges_from(block)
        if at_owners:  # of two lists, edges drawn here and those drawn by others, each of which counts as read
            reads[own] = before + 2 + self._edges[state][number]
        if of_host:
            vertices, edges = self._mates[state][number]
            np.add.at(reads, vertices, edges.astype(reads.dtype))  # of one type: much faster
