"""What a worker of a dry run reads, and what its caches would hold: those rows that it reads most."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.exchange import Owners
from weft.features import LEAST, by_reads, dealt_among, edges_from, hottest_of_each, left_out
from weft.planner.counts import STATES
from weft.planner.task import Workers
from weft.sampling import Block


@dataclass(frozen=True)
class Members:
    """Workers that cooperate on a batch: who answers for which vertices, and who they are among all workers."""

    owners: Owners  # of all vertices, by member
    stored: Owners  # likewise, by the worker that stores them
    ranks: Sequence[int]  # of the members
    own: int  # the member that counts
    near: frozenset[int]  # workers whose rows it reads itself
    divide: bool = False  # do hosts have several workers, which divide what they fetch of other hosts?
    on_device: bool = False  # are caches there?

    @classmethod
    def of(cls, workers: Workers, team: Sequence[int], worker: int, on_device: bool = False) -> "Members":
        """A worker's team."""
        divide, near = 1 < len(set(workers.hosts)) < len(workers.hosts), workers.near(worker)
        return cls(workers.owners.among(team), workers.owners, team, team.index(worker), near, divide, on_device)

    @property
    def rank(self) -> int:
        """The worker that counts, among all."""
        return self.ranks[self.own]

    @property
    def host(self) -> list[int]:
        """The workers of its host."""
        return sorted(self.near)

    def left_out(self, at_owners: bool) -> frozenset[int]:
        """The workers whose rows its cache leaves out; a team that answers for all vertices is enough by itself."""
        whole = self.on_device and len(self.ranks) < self.stored.size
        near = frozenset(range(self.stored.size)) if whole else self.near
        return left_out(near, self.owners.parts_of(self.own), self.on_device, at_owners)


class InputReads:
    """The inputs of one worker, batch by batch, for rows held in every way; and how many edges reach them.

    On a device those edges count that a worker computes. Where edges go to the owners of their sources, these are drawn by
    others too, who tell the owners (`edges_by_owner`, `edges_of_own`). That a cover leaves some to others is not seen.
    """

    def __init__(self, members: Members, vertices: int) -> None:
        self._members, self._vertices = members, vertices
        # By state: of each batch, its sources.
        self.drawn: dict[str, list[tuple[np.ndarray, Block]]] = defaultdict(list)
        self.answered: list[np.ndarray] = []  # of each batch: inputs that this worker answers for, sorted;
        self._edges: dict[str, list[np.ndarray]] = defaultdict(list)  # and how many edges of each its team has drawn
        self._reads: dict[tuple[str, bool], np.ndarray] = {}  # of all batches together
        # By state: of each batch, what each other worker of the host reads, with how many edges.
        self._mates: dict[str, list[list[tuple[np.ndarray, np.ndarray]]]] = defaultdict(list)
        self._host_reads: dict[str, np.ndarray] = {}  # of all batches and the host's workers

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
        np.add.at(self._edges[state][-1], np.searchsorted(self.answered[-1], vertices), edges)

    def reads_of_own(self) -> list[np.ndarray]:
        """The last batch's inputs, by state, and how many edges each has."""
        found: list[np.ndarray] = []
        for state in STATES:
            vertices, block = self.drawn[state][-1]
            found += [vertices, edges_from(block)]
        return found

    def reads_of_mates(self, told: Sequence[Sequence[np.ndarray]]) -> None:
        """The same of each other worker of the host."""
        for at, state in enumerate(STATES):
            self._mates[state].append([(one[2 * at], one[2 * at + 1]) for one in told])

    def parts_of_host(
        self, number: int, state: str, rooms: Mapping[float, int], degrees: np.ndarray, by: str
    ) -> Iterator[tuple[float, list[np.ndarray]]]:
        """The rows that each device of the host holds of each cache for a batch: by the reads of all of them."""
        worth, members = degrees, self._members
        if by != "degree":
            worth = by_reads(self._others_of_host(number, state), degrees)
        worth, mates = worth + LEAST, members.stored.among(members.host)
        kept = hottest_of_each(worth, members.stored, frozenset(), [mates.size * room for room in rooms.values()])
        for (cache, room), of_cache in zip(rooms.items(), kept, strict=True):
            yield cache, dealt_among(of_cache, worth, mates, room)

    def _others_of_host(self, number: int, state: str) -> np.ndarray:
        """The host's reads of all batches but one, if there are others."""
        if state not in self._host_reads:
            self._host_reads[state] = np.zeros(self._vertices, dtype=np.float32)
            for each in range(len(self.drawn[state])):
                self._add_host(self._host_reads[state], state, each)
        reads = self._host_reads[state]
        if len(self.drawn[state]) == 1:
            return reads
        itself = np.zeros_like(reads)
        self._add_host(itself, state, number)
        return reads - itself

    def _add_host(self, reads: np.ndarray, state: str, number: int) -> None:
        self._add(reads, state, False, number)
        for vertices, edges in self._mates[state][number]:
            reads[vertices] += edges

    def reads(self, state: str, at_owners: bool = False) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches; `at_owners`: as a device counts them."""
        key = state, at_owners and self._members.on_device
        if key not in self._reads:
            self._reads[key] = np.zeros(self._vertices, dtype=np.float32)
            for number in range(len(self.drawn[state])):
                self._add(self._reads[key], *key, number)
        return self._reads[key]

    def hottest(
        self, number: int, state: str, at_owners: bool, rooms: Mapping[float, int], degrees: np.ndarray, by: str
    ) -> list[tuple[float, np.ndarray]]:
        """The rows that each cache holds for a batch: those of most out-edges, or read most by the other batches."""
        worth, members = degrees, self._members
        if by != "degree":
            reads = self.reads(state, at_owners)
            if len(self.drawn[state]) > 1:
                itself = np.zeros_like(reads)
                self._add(itself, state, at_owners and members.on_device, number)
                reads = reads - itself
            worth = by_reads(reads, degrees)
        worth = worth + LEAST * members.on_device
        kept = hottest_of_each(worth, members.stored, members.left_out(at_owners), rooms.values())
        return [*zip(rooms, kept, strict=True)]

    def _add(self, reads: np.ndarray, state: str, at_owners: bool, number: int) -> None:
        (vertices, block), own = self.drawn[state][number], self.answered[number]
        before = reads[own]
        reads[vertices] += edges_from(block)
        if at_owners:  # of two lists, edges drawn here and those drawn by others, each of which counts as read
            reads[own] = before + 2 + self._edges[state][number]
