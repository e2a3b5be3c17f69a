"""One worker's part of a dry run: batches traversed from the seeds to the inputs in every way that plans hold rows."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.exchange import Owners
from weft.features import by_reads, edges_from, hottest
from weft.placements import OWNER, Position, View
from weft.planner.counts import HOME, SPREAD, STATES, CountedBatch, Drawn, Key, ways
from weft.sampling import Block, Sampler, balance_seeds, count_misses, dealt, of_full_homes, seed_limits

_EPOCH = 0


@dataclass(frozen=True)
class Members:
    """Workers that cooperate on a batch: who answers for which vertices, and who they are among all workers."""

    owners: Owners  # of all vertices, by member
    stored: Owners  # likewise, by the worker that stores them
    ranks: Sequence[int]  # of the members
    near: frozenset[int]  # workers whose rows a member reads itself


class Traversal:
    """What one worker draws and wants, hop by hop, with rows held by request (in two ways) and by owner at once.

    After each hop owners are told which of their vertices others reached; that is all that traversals exchange.
    """

    def __init__(
        self,
        sampler: Sampler,
        members: Members,
        member: int,
        costs: list[tuple[float, float]],
        slack: float,
        vertices: int,
    ) -> None:
        self._sampler, self._members, self._member = sampler, members, member
        self._costs, self._slack, self._vertices = costs, slack, vertices
        self._inputs: dict[str, list[tuple[np.ndarray, Block]]] = defaultdict(list)  # of layer 1: its sources
        self.batches: list[CountedBatch] = []
        self.reached = 0.0  # of the last batch: inputs that are this worker's

    def begin(self, seeds: np.ndarray, batch: int) -> None:
        """Take the seeds that the team got of a batch."""
        self._number, self._hop = batch, 0
        self.batches.append(CountedBatch(np.zeros(0), np.zeros(1), np.zeros(1)))
        homes = self._members.owners.member_of(seeds)
        self._wanted = {
            SPREAD: seeds[dealt(len(seeds), self._members.owners.shares) == self._member],
            HOME: seeds[self._evened(seeds, homes) == self._member],
            OWNER: seeds[homes == self._member],
        }

    def draw(self) -> list[np.ndarray]:
        """A hop in every way: vertices of others that were reached from this worker's own, by who answers for them."""
        layer = len(self._sampler.fanouts) - 1 - self._hop
        for state in STATES:
            vertices, block = self._drawn(self._wanted[state], self._hop)
            if layer == 0:
                self._inputs[state].append((vertices, block))
            self.count(self.batches[-1], Key(layer, state), vertices, block, seeds=self._hop == 0)
            self._wanted[state] = vertices
        self._hop += 1
        reached = self._wanted[OWNER]
        grouped = self._members.owners.group(reached)
        parts = [reached[grouped.of(member)] for member in range(self._members.owners.size)]
        self._wanted[OWNER], parts[self._member] = parts[self._member], parts[self._member][:0]
        return parts

    def arrive(self, reached: Sequence[np.ndarray]) -> None:
        """Vertices of this worker that others reached in the last hop."""
        self._wanted[OWNER] = np.unique(np.concatenate([self._wanted[OWNER], *reached]))
        if self._hop == len(self._sampler.fanouts):
            self.reached = float(len(self._wanted[OWNER]))
            self.batches[-1].held = np.array(self._members.stored.group(self._wanted[OWNER]).counts, dtype=float)

    def cache(self, room: int, out_degrees: np.ndarray, by: str) -> None:
        """Count layer 1 again with so many rows cached: those of most out-edges, or read most by the other batches."""
        for state, batches in self._inputs.items():
            reads = [self._reads(vertices, block) for vertices, block in batches]
            for number, (vertices, block) in enumerate(batches):
                others = [read for n, read in enumerate(reads) if n != number or len(reads) == 1]
                worth = out_degrees if by == "degree" else by_reads(sum(others[1:], others[0]), out_degrees)
                kept = hottest(worth, self._members.stored, self._members.near, room)
                cached = np.zeros(self._vertices, dtype=bool)
                cached[kept] = True
                batch = self.batches[number]
                self.count(batch, Key(0, state, True), vertices, block, cached[vertices], seeds=len(self._costs) == 1)
                batch.cache_rows = np.maximum(batch.cache_rows, len(kept))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches."""
        batches = [self._reads(vertices, block) for vertices, block in self._inputs[state]]
        return sum(batches[1:], batches[0])

    def _drawn(self, wanted: np.ndarray, hop: int) -> tuple[np.ndarray, Block]:
        return self._sampler.hop(np.ascontiguousarray(wanted), hop, _EPOCH, self._number)

    def _evened(self, seeds: np.ndarray, homes: np.ndarray) -> np.ndarray:
        size = self._members.owners.size
        most = seed_limits(len(seeds), self._members.owners.shares, self._slack)
        known = of_full_homes(homes, most)
        if not len(known):
            return homes
        self.batches[-1].uneven += len(known)
        vertices, block = self._drawn(seeds[known], 0)
        return balance_seeds(homes, known, count_misses(block, self._members.owners.member_of(vertices), size), most)

    def _reads(self, vertices: np.ndarray, block: Block) -> np.ndarray:
        """How many edges reach each vertex."""
        reads = np.zeros(self._vertices, dtype=np.float32)
        reads[vertices] = edges_from(block)
        return reads

    def count(
        self,
        batch: CountedBatch,
        key: Key,
        vertices: np.ndarray,
        block: Block,
        cached: np.ndarray | None = None,
        seeds: bool = False,
    ) -> None:
        """Add a hop of this worker to its batch; sources that are cached count as its own. `seeds`: is it that of seeds?"""
        owners = self._members.owners
        holder = owners.member_of(vertices)
        if cached is None:
            cached = np.zeros(len(vertices), dtype=bool)
        holder[cached] = self._member
        ranks, costs = np.array(self._members.ranks), self._costs[key.layer]
        view = View(vertices, block, holder, cached, costs, self._member, ranks, self._members.stored)
        destinations, kept = view.destinations(), np.array([float(np.count_nonzero(cached))])
        batch.drawn[key] = Drawn(destinations, view.sources(), view.lists(), kept)
        for placed in ways(key, seeds):
            position = Position(key.layer, placed.above, placed.below)
            batch.moves[placed] = placed.kind.count(view, position)
