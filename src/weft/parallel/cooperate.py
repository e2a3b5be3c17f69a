"""Cooperative sampling: seeds and a plan to each worker's program, hop by hop from the seeds to the inputs.

At each hop the wanted vertices' neighbours are drawn where the plan computes them. What is then needed of others is asked
for in one exchange of ids, and the routes of the rows fall out of the trip. All workers go through the same hops.
"""

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.exchange import Communicator, Route
from weft.graph import running_sum
from weft.keys import Stream
from weft.parallel.by_column import by_column
from weft.parallel.cover import cover
from weft.parallel.hops import (
    RELATION_COUNT,
    Edges,
    Hop,
    Lists,
    Message,
    cut,
    mark_relations,
    ranges,
    relabelled,
    told_with_edges,
    ways_home,
)
from weft.parallel.owners import Grouped, Owners
from weft.parallel.plan import Plan
from weft.parallel.program import Layer, Program, Pushed
from weft.sampling import (
    Block,
    SeedBalance,
    Topology,
    balance_seeds,
    count_misses,
    dealt,
    edge_values,
    keys_of,
    make_sampler,
    of_full_homes,
    seed_limits,
)
from weft.sampling.numbering import ARRAY_UP_TO


class Cooperation:
    """Makes programs for one plan. One batch at a time; every member of the wire's group takes part in each."""

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
        assert len(fanouts) == len(plan.layers)
        self.plan, self._graph, self._owners = plan, graph, owners
        self._comm, self._compute = comm, compute or comm  # to prepare batches by, and to run them by
        span = tuple(owners.bounds[comm.rank : comm.rank + 2].tolist()) if plan.topology == "partitioned" else None
        self._sampler = make_sampler(sampler, graph, fanouts, replace=replace, weighted=weighted, seed=seed, span=span)
        self._weighted = weighted
        self._places = places  # do pushed edges need to know their places, for dropout of edges?
        self._told = told_with_edges(graph, types)
        self._graph_width = width  # of the features, for layers by column
        self._costs = costs or [(1.0, 1.0)] * len(fanouts)
        self._id = graph.indices.dtype
        self._numbering = _numbering(graph)
        self.besides: dict[int, np.ndarray] = {}  # by depth, [vertices] bool: rows that this worker has besides its own
        self.evenness = SeedBalance()

    def homes(self, seeds: np.ndarray) -> np.ndarray:
        """The owner of each seed."""
        return self._owners.member_of(seeds.astype(self._id))

    def share(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> np.ndarray:
        """This worker's seeds of those that its group got."""
        return seeds[self.workers(seeds, epoch, batch, stream) == self._comm.rank]

    def workers(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> np.ndarray:
        """The worker of each seed that the group got."""
        if self.plan.seeds == "spread":
            return dealt(len(seeds), self._owners.shares)
        shares = homes = self.homes(seeds)
        if self.plan.layers[-1] == "local":  # whoever holds a seed asks for what it needs
            most = seed_limits(len(seeds), self._owners.shares, self.plan.slack)
            known = of_full_homes(homes, most)
            if len(known):
                shares = balance_seeds(
                    homes, known, self._misses(seeds[known], homes[known], (epoch, batch, stream)), most
                )
            if stream == Stream.SAMPLE:
                self.evenness.count(homes, shares, self._owners.shares)
        return shares

    def _misses(self, seeds: np.ndarray, homes: np.ndarray, when: tuple[int, int, Stream]) -> np.ndarray:
        """How many of the neighbours that seeds draw each worker lacks: counted at the seeds' homes, told to all."""
        comm, own = self._comm, np.flatnonzero(homes == self._comm.rank)
        vertices, block = self._sampler.hop(np.ascontiguousarray(seeds[own], dtype=self._id), 0, *when)
        lacked = count_misses(block, self._owners.member_of(vertices), comm.size)
        ((theirs, counts),) = comm.arrays_to_all([lacked.ravel()], "sample")
        told = np.split(theirs, np.cumsum(counts)[:-1])
        found = np.empty((len(seeds), comm.size), dtype=np.int64)
        for worker, numbers in enumerate(told):
            found[homes == worker] = lacked if worker == comm.rank else numbers.reshape(-1, comm.size)
        return found

    def program(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> Program:
        """This worker's program for a batch, of whose seeds it holds these."""
        depth = len(self.plan.layers)
        wanted = np.ascontiguousarray(seeds, dtype=self._id)
        layers: list[Layer] = []
        held = [wanted]
        for index in reversed(range(depth)):
            layer, wanted, hop = self.layer(wanted, index, (epoch, batch, stream))
            layers.insert(0, layer)
            held.insert(0, wanted)
        return Program(
            layers,
            [torch.from_numpy(vertices) for vertices in held],
            [keys_of(self._graph, vertices) for vertices in held],
            self._graph,
            self._weighted,
            self._compute,
            here=self.plan.layers[0] == "push" and self._owners.size == len(self._owners.bounds) - 1,
            reached=torch.from_numpy(hop.vertices),
            drawn=hop.block,
        )

    def layer(
        self, wanted: np.ndarray, index: int, when: tuple[int, int, Stream] = (0, 0, Stream.SAMPLE)
    ) -> tuple[Layer, np.ndarray, Hop]:
        """One layer (0: nearest the inputs) for the vertices wanted of it here; whose rows that needs; what was drawn."""
        hop = self._draw(wanted, index, when)
        layer, needed = self._settle(hop, index)
        layer.dst_vertices = torch.from_numpy(hop.destinations)
        self._weigh(layer, hop, len(self.plan.layers) - 1 - index)
        return layer, needed, hop

    def alike(self, one: int, other: int) -> bool:
        """Are two layers of the same vertices placed in the same way, so far as all workers know?"""
        same = self.plan.layers[one] == self.plan.layers[other]
        return same and (self.plan.layers[one] != "cover" or self._costs[one] == self._costs[other])

    def _member(self, vertices: np.ndarray, index: int) -> np.ndarray:
        """Who has each vertex's row before a layer: its owner, or this worker."""
        member = self._owners.member_of(vertices)
        if index in self.besides:
            member[self.besides[index][vertices]] = self._comm.rank
        return member

    def _draw(self, wanted: np.ndarray, index: int, when: tuple[int, int, Stream]) -> Hop:
        """The wanted vertices' neighbours: drawn here, or by their owners where only those have the lists."""
        number = len(self.plan.layers) - 1 - index
        if self.plan.topology == "replicated" or self.plan.held(index + 1) == "owner":
            return Hop(wanted, *self._sampler.hop(wanted, number, *when))
        return self._ask_for_lists(wanted, number, when)

    def _weigh(self, layer: Layer, hop: Hop, number: int) -> None:
        """Edges count for what the sampler says: it hangs on their sources alone, so whoever has an edge can tell."""
        of_drawn = self._sampler.source_weights(number, hop.vertices)
        if of_drawn is not None:
            assert layer.src_vertices is not None
            of_sources = self._sampler.source_weights(number, layer.src_vertices.numpy())
            assert of_sources is not None
            layer.weigh(hop.block, of_drawn, of_sources)

    def _settle(self, hop: Hop, index: int) -> tuple[Layer, np.ndarray]:
        """The layer as the plan places it, and the vertices whose rows it needs here."""
        placement = self.plan.layers[index]
        if placement in ("push", "cover"):
            return self._split(hop, index)
        if placement == "columns":
            assert self._graph_width is not None
            return by_column(hop, self._comm, self._graph, self._graph_width, self._told, self._number)
        if index and placement == "pull":
            return self._pull(hop, index)
        if index and self.plan.held(index) == "owner":
            return self._pull_to_request(hop)
        layer = Layer.whole(hop.block)
        layer.src_vertices = torch.from_numpy(hop.vertices)
        return layer, hop.vertices

    def _pull_to_request(self, hop: Hop) -> tuple[Layer, np.ndarray]:
        """Owners hold the rows; they come to where they were asked for, in the asker's order."""
        route, own, here = self._routes_from_owners(hop.vertices, len(hop.destinations))
        layer = Layer.whole(hop.block)
        layer.sources, layer.own, layer.src_vertices = route, own, torch.from_numpy(hop.vertices)
        return layer, here

    def _pull(self, hop: Hop, index: int) -> tuple[Layer, np.ndarray]:
        """Edges at the destination's owner; the sources that others own come behind the rows that are here."""
        destinations = len(hop.destinations)
        if index in self.besides:
            grouped = Grouped.by(self._member(hop.vertices, index), self._comm.size)
        else:
            grouped = self._owners.group(hop.vertices)
        own = grouped.of(self._comm.rank)
        remote, ask_counts = grouped.without(self._comm.rank)
        requests, request_counts = self._ask(hop.vertices[remote], ask_counts)
        own_sources = own[own >= destinations]
        here, slots = self._number(hop.destinations, hop.vertices[own_sources], requests)
        place = np.empty(len(hop.vertices), dtype=np.int32)
        place[:destinations] = np.arange(destinations)
        place[own_sources] = slots[1]
        place[remote] = len(here) + np.arange(len(remote))
        total = len(here) + len(remote)
        route = Route(len(here), total, _long(slots[2]), request_counts, ask_counts, None, None)
        block = relabelled(hop.block, place, total)
        sources = np.concatenate([here, hop.vertices[remote]])
        return Layer(block, block.indptr.diff(), route, src_vertices=torch.from_numpy(sources)), here

    def _split(self, hop: Hop, index: int) -> tuple[Layer, np.ndarray]:
        """Edges at the owner of the source (push), or at either end (cover): own edges here, others' at their owners."""
        rank, at_owner = self._comm.rank, self.plan.held(index + 1) == "owner"
        member = self._member(hop.vertices, index)
        pulled = np.zeros(len(hop.vertices), dtype=np.uint8)
        if self.plan.layers[index] == "cover":
            pulled = cover(hop.block, member, rank, self._comm.size, *self._costs[index])
        if RELATION_COUNT in self._told:
            mark_relations(hop.block, edge_values(self._graph, "edge_type", hop.block))
        marked = self._places or hop.block.edge_ids is not None
        kept, edges = cut(hop.block, member, pulled, rank, self._comm.size, marked)
        own = np.flatnonzero(member == rank)
        fetched = np.flatnonzero(pulled)
        fetched = fetched[np.argsort(member[fetched], kind="stable")]
        fetch_counts = np.bincount(member[fetched], minlength=self._comm.size).tolist()
        asks = bool(index) and self.plan.layers[index] == "cover"  # inputs are fetched by the feature store
        ask_counts = fetch_counts if asks else [0] * self._comm.size
        own_order = None if at_owner else Grouped.by(member[: len(hop.destinations)], self._comm.size)
        others, other_counts = own_order.without(rank) if own_order else (own[:0], [0] * self._comm.size)
        (requests, request_counts), (own_ids, own_counts), *sent = self._comm.arrays(
            [
                (hop.vertices[fetched if asks else fetched[:0]], ask_counts),
                (hop.destinations[others], other_counts),
                *self._edge_arrays(hop, edges, at_owner),
            ],
            "sample",
        )
        message = Message.of(sent, self._places, self._places or not at_owner, self._told)
        first = hop.destinations if at_owner else hop.destinations[own_order.of(rank)]  # type: ignore[union-attr]
        here, slots = self._number(first, hop.vertices[own], message.src, requests, own_ids)
        total = len(here) + len(fetched)
        place = np.full(len(hop.vertices), -1, dtype=np.int32)
        place[own] = slots[1]
        place[fetched] = len(here) + np.arange(len(fetched))
        block = relabelled(kept, place, total)
        pushed = self._pushed(hop, edges, message, slots[2], total if not index else len(here))
        sources = None
        if asks:
            sources = Route(len(here), total, _long(slots[3]), request_counts, ask_counts, None, None)
        own_route = None
        if own_order is not None:
            own_route = Route(
                len(here),
                len(hop.destinations),
                _long(slots[4]),
                own_counts,
                other_counts,
                _long(others),
                _long(slots[0]),
                _long(own_order.of(rank)),
            )
        vertices = np.concatenate([here, hop.vertices[fetched]])
        layer = Layer(
            block, hop.block.indptr.diff(), sources, own_route, pushed, src_vertices=torch.from_numpy(vertices)
        )
        return layer, here if index else vertices

    def _pushed(self, hop: Hop, edges: Edges, message: Message, slots: np.ndarray, rows: int) -> Pushed:
        """The edges that others sent here, as a block; and the way of its partial sums home."""
        indptr = running_sum(message.lengths)
        block = Block(torch.from_numpy(indptr), torch.from_numpy(slots), rows)
        if message.positions is not None:
            block.positions = torch.from_numpy(message.positions.astype(np.int64))
        block.values |= {name: torch.from_numpy(values) for name, values in message.values.items()}
        at = _long(edges.pair_dst)
        ways = ways_home(len(hop.destinations), at, edges.pair_counts, message.pair_counts)
        if message.dst is None:
            return Pushed(block, *ways, at, None, None)
        return Pushed(block, *ways, at, torch.from_numpy(message.dst), keys_of(self._graph, message.dst))

    def _edge_arrays(self, hop: Hop, edges: Edges, at_owner: bool) -> list[tuple[np.ndarray, list[int]]]:
        """What goes to the owners of pushed edges' sources: lengths of lists, sources, and what else is needed there."""
        at = edges.at
        parts = [(edges.lengths, edges.pair_counts), (hop.vertices[edges.src], edges.edge_counts)]
        if self._places or not at_owner:  # keys of dropout, and self-loops, hang on who the destination is
            parts.append((hop.destinations[edges.pair_dst], edges.pair_counts))
        if self._places:
            assert at is not None
            dst = hop.block.dst().numpy()[at]
            parts.append(((at - hop.block.indptr.numpy()[dst]).astype(np.int32), edges.edge_counts))
        for name in self._told:
            assert at is not None
            parts.append((edge_values(self._graph, name, hop.block).numpy()[at], edges.edge_counts))
        return parts

    def _routes_from_owners(self, ids: np.ndarray, first: int) -> tuple[Route, Route, np.ndarray]:
        """Rows of distinct ids from their owners, in this order; of the first ones only; and whose rows that needs here."""
        grouped = self._owners.group(ids)
        own = grouped.of(self._comm.rank)
        remote, counts = grouped.without(self._comm.rank)
        groups = np.repeat(np.arange(self._comm.size), counts)
        firsts = np.bincount(groups[remote < first], minlength=self._comm.size).tolist()
        (requests, request_counts), (told, _) = self._comm.arrays(
            [(ids[remote], counts), (np.delete(firsts, self._comm.rank), self._comm.others)], "sample"
        )
        request_firsts = np.insert(told, self._comm.rank, 0).tolist()
        here, (own_slots, slots) = self._number(ids[own], requests)
        starts = np.cumsum([0, *request_counts[:-1]])
        send_first = slots[ranges(starts, np.array(request_firsts))]
        whole = Route(
            len(here), len(ids), _long(slots), request_counts, counts, _long(remote), _long(own_slots), _long(own)
        )
        early = own < first
        some = Route(
            len(here),
            first,
            _long(send_first),
            request_firsts,
            firsts,
            _long(remote[remote < first]),
            _long(own_slots[early]),
            _long(own[early]),
        )
        return whole, some, here

    def _ask(self, ids: np.ndarray, counts: list[int]) -> tuple[np.ndarray, list[int]]:
        """Ids go to their owners; what others ask of this worker comes back, by asker."""
        return self._comm.arrays([(ids, counts)], "sample")[0]

    def _ask_for_lists(self, wanted: np.ndarray, number: int, when: tuple[int, int, Stream]) -> Hop:
        """Neighbours drawn by the owners of the lists, put together in the order of the wanted vertices."""
        comm, stage = self._comm, "sample"
        grouped = self._owners.group(wanted)
        own = grouped.of(comm.rank)
        remote, counts = grouped.without(comm.rank)
        requests, request_counts = self._ask(wanted[remote], counts)
        drawn, slots = self._number(wanted[own], requests)
        vertices, block = self._sampler.hop(drawn, number, *when)
        lists = Lists(block, vertices, self._graph)
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
        sources, slots_of = self._number(wanted, columns[0])
        ids = torch.from_numpy(columns[1]) if len(columns) > 1 else None
        out = Block(torch.from_numpy(indptr), torch.from_numpy(slots_of[1]), len(sources), ids)
        for name, column in zip(lists.names, columns[2:], strict=True):
            out.values[name] = torch.from_numpy(column)
        return Hop(wanted, sources, out)

    def _number(self, *parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The distinct ids of all parts, in order of appearance; and each part's places among them."""
        ids = np.concatenate(parts)
        unique, slots = np.empty_like(ids), np.empty(len(ids), dtype=np.int32)
        count = self._numbering.number(ids, unique, slots)
        return unique[:count].copy(), np.split(slots, np.cumsum([len(part) for part in parts])[:-1])


def _long(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.int64, copy=False))


def _numbering(graph: Topology) -> "_kernels.ArrayNumbering32":
    vertices = len(graph.indptr) - 1
    if graph.indices.dtype == np.int64:
        return _kernels.HashNumbering64()
    return _kernels.ArrayNumbering32(vertices) if vertices <= ARRAY_UP_TO else _kernels.HashNumbering32()
