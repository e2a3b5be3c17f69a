"""columns: every worker computes every worker's edges, on its slice of the columns of all rows that these need.

    rows by column: worker p holds columns p of all      ---->  merged slices, or sums of products, where requested

Slices of merged rows are put together where they were requested. Where slices are first multiplied with their part of a
matrix, the products are shares that add up over the workers. Over the whole graph rows are held by their owners between
layers, and slices of them are made and given back within each (slices.py).
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from weft.exchange import ColumnSpan, Route
from weft.graph import running_sum
from weft.placements.layer import ColumnLayer, Layer
from weft.placements.merge import ColumnEdges
from weft.placements.placement import INPUT, OWNER, RELATION_COUNT, REQUEST, Hop, Moves, Placement, Position, Team, View
from weft.placements.slices import build_slices
from weft.sampling import Block, edge_values, keys_of


class Columns(Placement):
    """All edges everywhere, each worker on a slice of the columns of the inputs."""

    name: ClassVar[str] = "columns"
    help: ClassVar[str] = "everywhere, each worker on a slice of the features' columns"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER, REQUEST})
    splits: ClassVar[bool] = True
    by_columns: ClassVar[bool] = True

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[ColumnLayer, np.ndarray]:
        """Every worker gets every worker's edges, and needs the slices of all their sources."""
        comm, block = team.comm, hop.block
        names = [name for name in team.sent_with_edges if name != RELATION_COUNT]  # lists are whole everywhere
        mine = [block.indptr.diff().int().numpy(), hop.vertices, block.src.numpy()]
        mine += [edge_values(team.graph, name, block).numpy() for name in names]
        lengths, vertices, sources, *values = comm.gather_arrays(mine, "sample")
        for parts in (lengths, sources, *values):  # of edges, only the others'
            parts[comm.rank] = parts[comm.rank][:0]
        needed, slots = team.number(*vertices)
        own, destinations, counts = slots[comm.rank], len(hop.destinations), [len(of_one) for of_one in lengths]
        their_at = np.concatenate([at[:count] for at, count in zip(slots, counts, strict=True)])
        theirs = Block(
            torch.from_numpy(running_sum(np.concatenate(lengths))),
            torch.from_numpy(np.concatenate([at[some] for at, some in zip(slots, sources, strict=True)])),
            len(needed),
        )
        for name, parts in zip(names, values, strict=True):
            theirs.values[name] = torch.from_numpy(np.concatenate(parts))
        their_ids, src_ids = needed[their_at], torch.from_numpy(needed)
        there = ColumnEdges(
            theirs,
            keys=keys_of(team.graph, their_ids),
            src_ids=src_ids,
            dst_ids=torch.from_numpy(their_ids),
            own_at=torch.from_numpy(their_at.astype(np.int64)),
        )
        here = ColumnEdges(
            block.relabelled(own, len(needed)),
            src_ids=src_ids,
            dst_ids=torch.from_numpy(hop.destinations),
            own_at=torch.from_numpy(own[:destinations].astype(np.int64)),
        )
        at = torch.arange(destinations).repeat(comm.size - 1)
        sent = [destinations * other for other in comm.others]
        home = Route(destinations, theirs.num_dst, at, sent, counts, None, at[:0], at[:0])
        return ColumnLayer(here, there, home, ColumnSpan(comm.rank, comm.size, team.width), team.compute), needed

    def of_whole_graph(self, build: Callable[[], tuple[Layer, np.ndarray]], team: Team) -> tuple[Layer, np.ndarray]:
        """Every worker has all edges anyway: none travel, and no inputs but its own are needed."""
        return build_slices(team)

    def count(self, view: View, position: Position) -> Moves:
        """Everyone computes all edges, on slices; slices of destinations' rows come from everyone."""
        edges, rows, own = (view.everyone(n) for n in (view.block.num_edges, len(view.vertices), view.block.num_dst))
        share = np.array([1 / len(view.members)])
        return Moves(columns=own, copied_edges=edges, copied_rows=rows, held=True, slices=share)
