"""A layer by column: every worker gets every worker's edges, and holds a slice of all the rows that these need."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from weft.exchange import Communicator
from weft.graph import running_sum
from weft.parallel.hops import RELATION_COUNT, Hop, relabelled, ways_home
from weft.parallel.program import Columns, Layer, Pushed
from weft.sampling import Block, Topology, edge_values, keys_of

Number = Callable[..., tuple[np.ndarray, list[np.ndarray]]]  # arrays of ids to the distinct ones, and places among them


def by_column(
    hop: Hop, comm: Communicator, graph: Topology, width: int, told: Sequence[str], number: Number
) -> tuple[Layer, np.ndarray]:
    """The layer of a hop, and the vertices whose slices it needs; `told`: what edges have that goes with them."""
    block, told = hop.block, [name for name in told if name != RELATION_COUNT]  # lists are whole, wherever they are
    mine = [block.indptr.diff().int().numpy(), hop.vertices, block.src.numpy()]
    mine += [edge_values(graph, name, block).numpy() for name in told]
    arrived = comm.arrays_to_all(mine, "sample")
    counts = arrived[0][1]
    lengths, vertices, sources, *values = (np.split(array, np.cumsum(c)[:-1]) for array, c in arrived)
    vertices[comm.rank] = hop.vertices
    here, slots = number(*vertices)
    peers = [worker for worker in range(comm.size) if worker != comm.rank]
    own = slots[comm.rank]
    joined = [
        np.concatenate(parts) if parts else np.empty(0, own.dtype)
        for parts in (
            [lengths[p] for p in peers],
            [slots[p][sources[p]] for p in peers],
            [slots[p][: counts[p]] for p in peers],
        )
    ]
    destinations = len(hop.destinations)
    at = torch.arange(destinations).repeat(comm.size - 1)
    there = Block(torch.from_numpy(running_sum(joined[0])), torch.from_numpy(joined[1]), len(here))
    for name, parts in zip(told, values, strict=True):
        there.values[name] = torch.from_numpy(np.concatenate([parts[p] for p in peers]))
    their_ids = here[joined[2]]
    pushed = Pushed(
        there,
        *ways_home(destinations, at, [destinations * other for other in comm.others], counts),
        at,
        torch.from_numpy(their_ids),
        keys_of(graph, their_ids),
        torch.from_numpy(joined[2].astype(np.int64)),
    )
    layer = Layer(relabelled(block, own, len(here)), block.indptr.diff(), pushed=pushed)
    layer.columns = Columns(comm.rank, comm.size, width)
    layer.dst_at, layer.src_vertices = torch.from_numpy(own[:destinations].astype(np.int64)), torch.from_numpy(here)
    return layer, here
