"""One worker's part of a dry run: batches walked from the seeds to the inputs in every way that plans hold rows."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.exchange import Owners
from weft.features import by_reads, edges_from, hottest
from weft.placements import cheapest_cover, cut
from weft.planner.counts import HOME, OWNER, SPREAD, STATES, Cell, Key
from weft.sampling import Block, Sampler, balance_seeds, count_misses, dealt, of_full_homes, seed_limits

_EPOCH = 0


@dataclass(frozen=True)
class Team:
    """Workers that cooperate on a batch: who answers for which vertices, and who they are among all workers."""

    owners: Owners  # of all vertices, by member
    parts: Owners  # likewise, by the worker that stores them
    ranks: Sequence[int]  # of the members
    near: frozenset[int]  # workers whose rows a member reads itself


class Walk:
    """What one worker draws and wants, hop by hop, with rows held by request (in two ways) and by owner at once.

    After each hop owners are told which of their vertices others reached; that is all that walks exchange.
    """

    def __init__(
        self, sampler: Sampler, team: Team, member: int, costs: list[tuple[float, float]], slack: float, vertices: int
    ) -> None:
        self._sampler, self._team, self._member = sampler, team, member
        self._costs, self._slack, self._vertices = costs, slack, vertices
        self._inputs: dict[str, list[tuple[np.ndarray, Block]]] = defaultdict(list)  # of layer 1: its sources
        # Of each batch: this worker's rows of the cells; inputs held under owners, by who stores them; of those that are
        # this worker's, how many were reached; and seeds of homes that were too full, of all members.
        self.rows: dict[Key, list[Cell]] = defaultdict(list)
        self.held: list[np.ndarray] = []
        self.reached: list[float] = []
        self.uneven: list[int] = []
        self.cache_rows = 0

    def begin(self, seeds: np.ndarray, batch: int) -> None:
        """Take the seeds that the team got of a batch."""
        self._batch, self._hop = batch, 0
        self.uneven.append(0)
        homes = self._team.owners.member_of(seeds)
        self._wanted = {
            SPREAD: seeds[dealt(len(seeds), self._team.owners.shares) == self._member],
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
            self.rows[layer, state, False].append(self.count((layer, state, False), vertices, block))
            self._wanted[state] = vertices
        self._hop += 1
        reached = self._wanted[OWNER]
        grouped = self._team.owners.group(reached)
        parts = [reached[grouped.of(member)] for member in range(self._team.owners.size)]
        self._wanted[OWNER], parts[self._member] = parts[self._member], parts[self._member][:0]
        return parts

    def arrive(self, reached: Sequence[np.ndarray]) -> None:
        """Vertices of this worker that others reached in the last hop."""
        self._wanted[OWNER] = np.unique(np.concatenate([self._wanted[OWNER], *reached]))
        if self._hop == len(self._sampler.fanouts):
            self.reached.append(float(len(self._wanted[OWNER])))
            self.held.append(self._by(self._team.parts, self._wanted[OWNER]))

    def cache(self, room: int, out_degrees: np.ndarray, by: str) -> None:
        """Count layer 1 again with so many rows cached: those of most out-edges, or read most by the other batches."""
        for state, batches in self._inputs.items():
            reads = [self._reads(vertices, block) for vertices, block in batches]
            for number, (vertices, block) in enumerate(batches):
                others = [read for n, read in enumerate(reads) if n != number or len(reads) == 1]
                worth = out_degrees if by == "degree" else by_reads(sum(others[1:], others[0]), out_degrees)
                kept = hottest(worth, self._team.parts, self._team.near, room)
                cached = np.zeros(self._vertices, dtype=bool)
                cached[kept] = True
                self.rows[0, state, True].append(self.count((0, state, True), vertices, block, cached[vertices]))
                self.cache_rows = max(self.cache_rows, len(kept))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches."""
        batches = [self._reads(vertices, block) for vertices, block in self._inputs[state]]
        return sum(batches[1:], batches[0])

    def _drawn(self, wanted: np.ndarray, hop: int) -> tuple[np.ndarray, Block]:
        return self._sampler.hop(np.ascontiguousarray(wanted), hop, _EPOCH, self._batch)

    def _evened(self, seeds: np.ndarray, homes: np.ndarray) -> np.ndarray:
        size = self._team.owners.size
        most = seed_limits(len(seeds), self._team.owners.shares, self._slack)
        known = of_full_homes(homes, most)
        if not len(known):
            return homes
        self.uneven[-1] += len(known)
        vertices, block = self._drawn(seeds[known], 0)
        return balance_seeds(homes, known, count_misses(block, self._team.owners.member_of(vertices), size), most)

    def _reads(self, vertices: np.ndarray, block: Block) -> np.ndarray:
        """How many edges reach each vertex."""
        reads = np.zeros(self._vertices, dtype=np.float32)
        reads[vertices] = edges_from(block)
        return reads

    def count(self, key: Key, vertices: np.ndarray, block: Block, cached: np.ndarray | None = None) -> Cell:
        """A hop of this worker, whose sources that are cached count as its own."""
        owners, rank = self._team.owners, self._member
        member = owners.member_of(vertices)
        if cached is None:
            cached = np.zeros(len(vertices), dtype=bool)
        member[cached] = rank
        pulled = np.zeros(len(vertices), dtype=np.uint8)
        _, away = covered = cut(block, member, pulled, rank, owners.size, False)
        if key[1] == OWNER:  # only there can a layer be covered
            pulled = cheapest_cover(block, member, rank, owners.size, *self._costs[key[0]])
            covered = cut(block, member, pulled, rank, owners.size, False)
        to_dst = member[: block.num_dst]
        return Cell(
            self._spread(np.bincount(to_dst, minlength=owners.size)),
            self._spread(np.bincount(member, minlength=owners.size)),
            self._spread(np.bincount(to_dst, block.indptr.diff().numpy(), owners.size)),
            self._spread(away.pair_counts),
            self._spread(away.edge_counts),
            self._spread(np.bincount(member[pulled.astype(bool)], minlength=owners.size)),
            self._spread(covered[1].pair_counts),
            self._spread(covered[1].edge_counts),
            self._by(self._team.parts, vertices[~cached]),
            self._by(self._team.parts, vertices[pulled.astype(bool)]),
            np.array([float(np.count_nonzero(cached))]),
        )

    def _spread(self, by_member: Sequence[int] | np.ndarray) -> np.ndarray:
        """A figure for each member, at its place among all workers."""
        out = np.zeros(self._team.parts.size)
        out[list(self._team.ranks)] = by_member
        return out

    def _by(self, owners: Owners, vertices: np.ndarray) -> np.ndarray:
        return np.array(owners.group(vertices).counts, dtype=float)
