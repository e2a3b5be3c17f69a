"""Cooperative sampling: seeds and a plan to each worker's program, hop by hop from the seeds to the inputs.

At each hop the wanted vertices' neighbours are drawn where the plan computes them. What is then needed of others is asked
for in one exchange of ids, and the routes of the rows fall out of the trip. All workers go through the same hops.
"""

import numpy as np
import torch

from weft.exchange import Communicator, Owners
from weft.graph import running_sum
from weft.keys import Stream
from weft.placements.hops import OWNER, REQUEST, DrawnLists, Hop, Position, ranges, sent_with_edges
from weft.placements.layer import Layer
from weft.placements.placement import placement_named
from weft.placements.program import Program
from weft.placements.team import Team
from weft.plan import Plan
from weft.sampling import (
    Block,
    SeedBalance,
    Topology,
    balance_seeds,
    count_misses,
    dealt,
    keys_of,
    make_sampler,
    of_full_homes,
    seed_limits,
)


class Cooperation:
    """Makes programs for one plan. One batch at a time; every member of the comm's group takes part in each."""

    def __init__(
        self,
        graph: Topology,
        plan: Plan,
        fanouts: list[int],
        owners: Owners,
        comm: Communicator,
        *,
        sampler: str = "neighbor",
        seed: int = 0,
        replace: bool = False,
        weighted: bool = False,
        costs: list[tuple[float, float]] | None = None,
        width: int | None = None,
        compute: Communicator | None = None,
        places: bool = True,
        types: bool = False,
    ) -> None:
        """`comm`: by which batches are prepared; `compute`: by which they are run. See `Team` for what layers need."""
        assert len(fanouts) == len(plan.layers)
        self.plan, self.placements = plan, [placement_named(name) for name in plan.layers]
        depths = range(len(plan.layers))
        self._positions = [Position(at, plan.held(at + 1), plan.held(at)) for at in depths]  # of each layer
        self.team = Team(
            graph,
            owners,
            comm,
            compute or comm,
            costs or [(1.0, 1.0)] * len(fanouts),
            width or 0,
            places,
            sent_with_edges(graph, types),
        )
        span = tuple(owners.bounds[comm.rank : comm.rank + 2].tolist()) if plan.topology == "partitioned" else None
        self._sampler = make_sampler(sampler, graph, fanouts, replace=replace, weighted=weighted, seed=seed, span=span)
        self._weighted = weighted
        self._id = graph.indices.dtype
        self.evenness = SeedBalance()

    def homes(self, seeds: np.ndarray) -> np.ndarray:
        """The owner of each seed."""
        return self.team.owners.member_of(seeds.astype(self._id))

    def share(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> np.ndarray:
        """This worker's seeds of those that its group got."""
        return seeds[self.workers(seeds, epoch, batch, stream) == self.team.comm.rank]

    def workers(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> np.ndarray:
        """The worker of each seed that the group got."""
        if self.plan.seeds == "spread":
            return dealt(len(seeds), self.team.owners.shares)
        shares = homes = self.homes(seeds)
        if self.placements[-1].leaves == {REQUEST}:  # whoever holds a seed asks for what it needs
            most = seed_limits(len(seeds), self.team.owners.shares, self.plan.slack)
            known = of_full_homes(homes, most)
            if len(known):
                misses = self._misses(seeds[known], homes[known], (epoch, batch, stream))
                shares = balance_seeds(homes, known, misses, most)
            if stream == Stream.SAMPLE:
                self.evenness.count(homes, shares, self.team.owners.shares)
        return shares

    def _misses(self, seeds: np.ndarray, homes: np.ndarray, when: tuple[int, int, Stream]) -> np.ndarray:
        """How many of the neighbours that seeds draw each worker lacks: counted at the seeds' homes, sent to all."""
        comm, own = self.team.comm, np.flatnonzero(homes == self.team.comm.rank)
        vertices, block = self._sampler.hop(np.ascontiguousarray(seeds[own], dtype=self._id), 0, *when)
        lacked = count_misses(block, self.team.owners.member_of(vertices), comm.size)
        ((theirs, counts),) = comm.arrays_to_all([lacked.ravel()], "sample")
        numbers_of = np.split(theirs, np.cumsum(counts)[:-1])
        found = np.empty((len(seeds), comm.size), dtype=np.int64)
        for worker, numbers in enumerate(numbers_of):
            found[homes == worker] = lacked if worker == comm.rank else numbers.reshape(-1, comm.size)
        return found

    def program(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> Program:
        """This worker's program for a batch, of whose seeds it holds these."""
        wanted = np.ascontiguousarray(seeds, dtype=self._id)
        layers: list[Layer] = []
        held = [wanted]
        for index in reversed(range(len(self.placements))):
            layer, wanted, hop = self.layer(wanted, index, (epoch, batch, stream))
            layers.insert(0, layer)
            held.insert(0, wanted)
        team = self.team
        return Program(
            layers,
            [torch.from_numpy(vertices) for vertices in held],
            [keys_of(team.graph, vertices) for vertices in held],
            team.graph,
            self._weighted,
            team.compute,
            here=not self.placements[0].fetches and team.owners.size == len(team.owners.bounds) - 1,
            reached=torch.from_numpy(hop.vertices),
            drawn=hop.block,
        )

    def layer(
        self, wanted: np.ndarray, index: int, when: tuple[int, int, Stream] = (0, 0, Stream.SAMPLE)
    ) -> tuple[Layer, np.ndarray, Hop]:
        """One layer (0: nearest the inputs) for the vertices wanted of it here; whose rows that needs; what was drawn."""
        position = self._positions[index]
        number = len(self.placements) - 1 - index
        hop = self._draw(wanted, position, number, when)
        layer, needed = self.placements[index].build(hop, position, self.team)
        of_drawn = self._sampler.source_weights(number, hop.vertices)
        if of_drawn is not None:  # it depends on sources alone, so whoever has an edge can tell what it counts for
            layer.weigh(hop.block, of_drawn, lambda ids: self._sampler.source_weights(number, ids.numpy()))
        return layer, needed, hop

    def alike(self, one: int, other: int) -> bool:
        """Are two layers of the same vertices placed in the same way, so far as all workers know?"""
        placement, costs = self.placements[one], self.team.costs
        return placement is self.placements[other] and (not placement.by_cost or costs[one] == costs[other])

    def _draw(self, wanted: np.ndarray, position: Position, number: int, when: tuple[int, int, Stream]) -> Hop:
        """The wanted vertices' neighbours: drawn here, or by their owners where only those have the lists."""
        if self.plan.topology == "replicated" or position.above == OWNER:
            return Hop(wanted, *self._sampler.hop(wanted, number, *when))
        return self._ask_for_lists(wanted, number, when)

    def _ask_for_lists(self, wanted: np.ndarray, number: int, when: tuple[int, int, Stream]) -> Hop:
        """Neighbours drawn by the owners of the lists, put together in the order of the wanted vertices."""
        team, comm, stage = self.team, self.team.comm, "sample"
        grouped = team.owners.group(wanted)
        own = grouped.of(comm.rank)
        remote, counts = grouped.without(comm.rank)
        requests, request_counts = team.ask(wanted[remote], counts)
        drawn, slots = team.number(wanted[own], requests)
        vertices, block = self._sampler.hop(drawn, number, *when)
        lists = DrawnLists(block, vertices, team.graph)
        mine, theirs = lists.of(slots[0]), lists.of(slots[1])
        many = np.diff(running_sum(theirs.lengths)[running_sum(request_counts)]).tolist()
        replies = [(theirs.lengths, request_counts), *((column, many) for column in theirs.columns)]
        lengths, *parts = (array for array, _ in comm.arrays(replies, stage))
        all_lengths = np.empty(len(wanted), dtype=np.int64)
        all_lengths[own], all_lengths[remote] = mine.lengths, lengths
        indptr = running_sum(all_lengths)
        columns = []
        for here, there in zip(mine.columns, parts, strict=True):
            column = np.empty(indptr[-1], dtype=here.dtype)
            column[ranges(indptr[own], mine.lengths)] = here
            column[ranges(indptr[remote], lengths)] = there
            columns.append(column)
        sources, slots_of = team.number(wanted, columns[0])
        ids = torch.from_numpy(columns[1]) if len(columns) > 1 else None
        out = Block(torch.from_numpy(indptr), torch.from_numpy(slots_of[1]), len(sources), ids)
        for name, column in zip(lists.names, columns[2:], strict=True):
            out.values[name] = torch.from_numpy(column)
        return Hop(wanted, sources, out)
