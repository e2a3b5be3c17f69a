"""What placements build layers with: hops, who owns which vertices, the way to the others, and how ids become places."""

from dataclasses import dataclass, field

import numpy as np
import torch

from weft.exchange import Background, Communicator, Grouped, Owners, Route
from weft.graph import ranges
from weft.sampling import Block, Numbering, Topology
from weft.threads import cached_property

RELATION_COUNT = "relation_count"  # of an edge: how many edges of its type its destination has drawn


# How rows are held between two layers: by their owners, each once; or where they were asked for. Inputs are fetched.
Held = str  # one of these:
OWNER: Held = "owner"
REQUEST: Held = "request"
INPUT: Held = "input"


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    index: int  # 0: nearest the inputs
    above: Held  # how the rows that it makes are held: OWNER or REQUEST
    below: Held  # how the rows that it takes are
    once: bool = False  # built before the first epoch, for all of them: the full graph


@dataclass
class Hop:
    """Destinations with their drawn neighbours, before it is settled who computes what."""

    destinations: np.ndarray
    vertices: np.ndarray  # the sources, destinations first
    block: Block


@dataclass
class Team:
    """Workers that cooperate on batches, as one of them sees them. All call the same methods in the same order."""

    graph: Topology
    owners: Owners
    comm: Communicator  # by which batches are prepared
    compute: Communicator  # and by which they are run
    costs: list[tuple[float, float]]  # by layer: what a row that is pulled, and a partial row that is pushed, cost
    width: int = 0  # columns of the inputs
    places: bool = True  # do edges that are computed elsewhere need their places in their lists, for dropout?
    sent_with_edges: list[str] = field(default_factory=list)  # what edges that go to others take with them, by name
    besides: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # by depth, [vertices] bool: rows here besides own ones
    ranges: int = 1  # that slices go through all destinations in, one at a time
    background: Background | None = None  # does what slices can do meanwhile; None: nothing is done so

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(len(self.graph.indptr) - 1, self.graph.indices.dtype)

    def number(self, *parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The distinct ids of all parts, in order of appearance; and each part's places among them."""
        return self._numbering.number(*parts)

    def rest(self) -> None:
        """Give back the table that `number` keeps: it is as large as the largest call took."""
        self.__dict__.pop("_numbering", None)

    def member(self, vertices: np.ndarray, index: int) -> np.ndarray:
        """Who has each vertex's row before a layer: its owner, or this worker."""
        member = self.owners.member_of(vertices)
        if index in self.besides:
            member[self.besides[index][vertices]] = self.comm.rank
        return member

    def grouped(self, vertices: np.ndarray, index: int) -> Grouped:
        """Vertices by who has their rows before a layer."""
        if index in self.besides:
            return Grouped.by(self.member(vertices, index), self.comm.size)
        return self.owners.group(vertices)

    def ask(self, ids: np.ndarray, counts: list[int]) -> tuple[np.ndarray, list[int]]:
        """Ids go to their owners, in this order; what others ask of this worker comes back, by asker."""
        return self.comm.arrays([(ids, counts)], "sample")[0]

    def routes_from_owners(self, ids: np.ndarray, first: int) -> tuple[Route, Route, np.ndarray]:
        """Rows of distinct ids from their owners, in this order; of the first ones only; and whose rows that needs here."""
        rank, size = self.comm.rank, self.comm.size
        grouped = self.owners.group(ids)
        own = grouped.of(rank)
        remote, counts = grouped.without(rank)
        groups = np.repeat(np.arange(size), counts)
        firsts = np.bincount(groups[remote < first], minlength=size)
        (requests, request_counts), (theirs, _) = self.comm.arrays(
            [(ids[remote], counts), (firsts[np.arange(size) != rank], self.comm.others)], "sample"
        )
        request_firsts = [*theirs[:rank].tolist(), 0, *theirs[rank:].tolist()]
        here, (own_slots, slots) = self.number(ids[own], requests)
        starts = np.cumsum([0, *request_counts[:-1]])
        firsts_of = ranges(starts, np.array(request_firsts))
        at, own_at = torch.from_numpy(slots).long(), torch.from_numpy(own_slots).long()
        to, own_to, early = torch.from_numpy(remote), torch.from_numpy(own), torch.from_numpy(own < first)
        whole = Route(len(here), len(ids), at, request_counts, counts, to, own_at, own_to)
        some_to, some = to[to < first], (own_at[early], own_to[early])
        firsts_at = at[torch.from_numpy(firsts_of)]
        return whole, Route(len(here), first, firsts_at, request_firsts, firsts.tolist(), some_to, *some), here
