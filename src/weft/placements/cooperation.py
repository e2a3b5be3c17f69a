"""Cooperative sampling: seeds and a plan to each worker's program, hop by hop from the seeds to the inputs.

At each hop the wanted vertices' neighbours are drawn where the plan computes them. What is then needed of others is asked
for in one exchange of ids, and the routes of the rows fall out of the trip. All workers go through the same hops.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Owners
from weft.graph import edge_arrays, ranges, running_sum
from weft.keys import Stream
from weft.placements.columns import whole_block
from weft.placements.layer import Layer, Program
from weft.placements.placement import OWNER, RELATION_COUNT, REQUEST, Hop, Position, Team, placement_named
from weft.plan import Plan
from weft.sampling import (
    Block,
    Sampler,
    SeedBalance,
    Topology,
    balance_seeds,
    dealt,
    keys_of,
    make_sampler,
    of_full_homes,
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
        make: Callable[..., Sampler] = make_sampler,
    ) -> None:
        """`comm`: by which batches are prepared; `compute`: by which they are run. See `Team` for what layers need.

        `make`: makes the sampler of this name and options, as `make_sampler` does.
        """
        assert len(fanouts) == len(plan.layers)
        self.plan, self.placements = plan, [placement_named(name) for name in plan.layers]
        depths = range(len(plan.layers))
        once = plan.scope == "graph"
        self._positions = [Position(at, plan.held(at + 1), plan.held(at), once) for at in depths]  # of each layer
        edge_weights = ["edge_weight"] if graph.edge_weight is not None else []
        self.team = Team(
            graph,
            owners,
            comm,
            compute or comm,
            costs or [(1.0, 1.0)] * len(fanouts),
            width or 0,
            places,
            [*edge_weights, *(["edge_type", RELATION_COUNT] if types else [])],
        )
        span = tuple(owners.bounds[comm.rank : comm.rank + 2].tolist()) if plan.topology == "partitioned" else None
        self._sampler = make(sampler, graph, fanouts, replace=replace, weighted=weighted, seed=seed, span=span)
        self._sampler.by_several, self._weighted = True, self._sampler.weighted
        self._id = graph.indices.dtype
        self._dealt = np.empty(0, dtype=np.int64)  # workers of spread seeds, alike in every batch
        self.evenness = SeedBalance()

    def share(
        self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE
    ) -> tuple[Program, np.ndarray]:
        """This worker's program for its part of the seeds that the group got, and the worker of each of them."""
        workers = self._workers(seeds, epoch, batch, stream)
        return self.program(seeds[workers == self.team.comm.rank], epoch, batch, stream), workers

    def _workers(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream) -> np.ndarray:
        if self.plan.seeds == "spread":
            workers = self._dealt
            if len(workers) < len(seeds):  # of several threads that prepare batches, each goes on by what it found
                workers = self._dealt = dealt(len(seeds), self.team.owners.shares)
            return workers[: len(seeds)]
        shares = homes = self.team.owners.member_of(seeds.astype(self._id))
        if self.placements[-1].leaves == {REQUEST}:  # whoever holds a seed asks for what it needs
            known, most = of_full_homes(homes, self.team.owners.shares, self.plan.slack)
            if len(known):
                drawn = self._holders(seeds[known], homes[known], (epoch, batch, stream))
                shares = balance_seeds(homes, known, *drawn, most)
            if stream == Stream.SAMPLE:
                self.evenness.count(homes, shares, self.team.owners.shares)
        return shares

    def _holders(
        self, seeds: np.ndarray, homes: np.ndarray, when: tuple[int, int, Stream]
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many neighbours each seed draws, and whose these are: drawn at home, all are told."""
        comm, own = self.team.comm, np.flatnonzero(homes == self.team.comm.rank)
        vertices, block = self._sampler.hop(np.ascontiguousarray(seeds[own], dtype=self._id), 0, *when)
        mine = [block.indptr.diff().int().numpy(), self.team.owners.member_of(vertices)[block.src.numpy()]]
        lengths, holders = map(np.concatenate, comm.gather_arrays(mine, "sample"))
        order = np.argsort(homes, kind="stable")  # of the seeds, as they came
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = running_sum(lengths)[:-1]
        of_seed = np.empty_like(lengths)
        of_seed[order] = lengths
        return of_seed, holders[ranges(starts, of_seed)]

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
            *_tensors(team.graph, held),
            team.graph,
            self._weighted,
            team.compute,
            here=not self.placements[0].fetches and team.owners.size == len(team.owners.bounds) - 1,
            reached=torch.from_numpy(hop.vertices),
            drawn=hop.block,
        )

    def whole_graph(self, ranges: int = 1, background: Background | None = None) -> Program:
        """This worker's program for all vertices that it owns, with all their neighbours: the whole graph is one hop.

        What layers have in common (lists, routes) is made once and shared by them. `ranges`: that slices go through, where
        the plan leaves it open; `background`: does what they can do meanwhile.
        """
        team, graph, first = self.team, self.team.graph, self.placements[0]
        team.ranges, team.background = self.plan.chunks or ranges, background
        layers: list[Layer] = []
        held = [np.arange(*team.owners.bounds[team.comm.rank : team.comm.rank + 2], dtype=self._id)]
        for index in reversed(range(len(self.placements))):
            layer = self._as_above(index, layers)
            if layer is None:
                layer, needed = self.placements[index].of_whole_graph(partial(self._of_all, held[0], index), team)
            else:
                needed = held[0] if index else layer.src_ids.numpy().astype(self._id, copy=False)
            layers.insert(0, layer)
            held.insert(0, needed)
        self._sampler.rest()  # all lists are drawn
        team.rest()
        layers[0].inputs.kept = {}
        vertices, keys = _tensors(graph, held)
        here = not first.fetches or self.plan.tensor_parallel
        return Program(layers, vertices, keys, graph, comm=team.compute, here=here)

    def layer(
        self, wanted: np.ndarray, index: int, when: tuple[int, int, Stream] = (0, 0, Stream.SAMPLE)
    ) -> tuple[Layer, np.ndarray, Hop]:
        """One layer (0: nearest the inputs) for the vertices wanted of it here; whose rows that needs; what was drawn."""
        hop = self._draw(wanted, index, when)
        return *self._placed(hop, index), hop

    def _of_all(self, wanted: np.ndarray, index: int) -> tuple[Layer, np.ndarray]:
        if self.team.comm.size == 1:  # all lists are here as they are to be
            return self._placed(Hop(wanted, wanted, whole_block(self.team.graph)), index)
        return self.layer(wanted, index)[:2]

    def _as_above(self, index: int, layers: list[Layer]) -> Layer | None:
        """The layer, if it is that above it once more: the same vertices, placed alike. All workers agree on that."""
        if not layers or self.plan.replicate:
            return None
        placement, costs = self.placements[index], self.team.costs
        if placement is not self.placements[index + 1] or (placement.by_cost and costs[index] != costs[index + 1]):
            return None
        return layers[0] if index else layers[0].for_inputs()

    def _placed(self, hop: Hop, index: int) -> tuple[Layer, np.ndarray]:
        built = self.placements[index].build(hop, self._positions[index], self.team)
        layer, needed = _checked(built, self.plan.layers[index], self._id, self.team.comm.size)
        number = len(self.placements) - 1 - index
        of_drawn = None if self._sampler.equal_edges else self._sampler.counted_for(number, hop.vertices)
        if of_drawn is not None:  # it depends on sources alone, so whoever has an edge can tell what it counts for
            layer.weigh(hop.block, of_drawn, lambda ids: cast(Tensor, self._sampler.counted_for(number, ids.numpy())))
        return layer, needed

    def _draw(self, wanted: np.ndarray, index: int, when: tuple[int, int, Stream]) -> Hop:
        """The wanted vertices' neighbours: drawn here, or by their owners where only those have the lists."""
        number = len(self.placements) - 1 - index
        if self.plan.topology == "replicated" or self._positions[index].above == OWNER:
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
        lists = _DrawnLists(block, vertices, team.graph)
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
            out.values[name] = torch.from_numpy(_apart(column))
        return Hop(wanted, sources, out)


class _DrawnLists:
    """Drawn lists that several ask for."""

    def __init__(self, block: Block, vertices: np.ndarray, graph: Topology) -> None:
        self._indptr = block.indptr.numpy()
        self.columns, self.names = [vertices[block.src.numpy()]], []
        if block.edge_ids is not None:
            ids = block.edge_ids.numpy()
            of_edges = edge_arrays(graph)
            self.names = [*of_edges]
            self.columns += [ids, *(_in_one(of_all[ids]) for of_all in of_edges.values())]
        self.lengths = np.diff(self._indptr).astype(np.int32)

    def of(self, rows: np.ndarray) -> "_DrawnLists":
        """The lists of some rows, one after another."""
        out = object.__new__(_DrawnLists)
        out.lengths = self.lengths[rows]
        at = ranges(self._indptr[rows], out.lengths)
        out.columns, out.names = [np.ascontiguousarray(column[at]) for column in self.columns], self.names
        return out


def _in_one(values: np.ndarray) -> np.ndarray:
    """Values of edges, of which rows travel as one thing each."""
    if values.ndim == 1:
        return values
    return np.ascontiguousarray(values).view(np.dtype((np.void, values.shape[1] * values.itemsize)))[:, 0]


def _apart(values: np.ndarray) -> np.ndarray:
    """The same, as rows of float32 again."""
    return values.view(np.float32).reshape(len(values), values.itemsize // 4) if values.dtype.kind == "V" else values


def _tensors(graph: Topology, held: list[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
    """The vertices of each depth and their keys; depths that hold the same vertices share them."""
    vertices, keys = [torch.from_numpy(held[0])], [keys_of(graph, held[0])]
    for above, ids in pairwise(held):
        same = np.array_equal(above, ids)
        vertices.append(vertices[-1] if same else torch.from_numpy(ids))
        keys.append(keys[-1] if same else keys_of(graph, ids))
    return vertices, keys


def _checked(built: object, name: str, id_type: np.dtype, workers: int) -> tuple[Layer, np.ndarray]:
    """What a placement built; refused where it is not what it must be."""
    if isinstance(built, tuple) and len(built) == 2:
        layer, needed = built
        if isinstance(layer, Layer) and layer.crosses and layer.comm.size != workers:
            raise ConfigError(
                f"the placement {name!r} built a layer in which rows travel among {layer.comm.size} workers, not {workers}: "
                f"make it with comm=team.compute"
            )
        if isinstance(layer, Layer) and isinstance(needed, np.ndarray) and needed.ndim == 1 and needed.dtype == id_type:
            return layer, needed
    raise ConfigError(
        f"the placement {name!r} built a {type(built).__name__}: let build() give a layer and the vertices whose rows it "
        f"needs, an array of {id_type}"
    )
