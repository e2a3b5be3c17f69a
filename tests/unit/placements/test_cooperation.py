"""What workers that cooperate tell each other of seeds, and what they keep once the whole graph's program is made."""

import numpy as np
import pytest
import torch
from test_tensor import BOUNDS, VERTICES, made, on_workers

from weft.exchange import Owners
from weft.keys import Stream
from weft.placements import Cooperation
from weft.plan import halo, leap
from weft.sampling import NeighborSampler


def test_tables_of_draws_are_given_back():
    graph = made()

    def work(rank, comm, ahead):
        cooperation = Cooperation(graph, halo(2), [-1, -1], Owners(np.array(BOUNDS[3])), comm)
        held = []
        for _ in range(2):
            program = cooperation.whole_graph()
            held.append([ids.tolist() for ids in program.vertices])
            assert "_kernel" not in vars(cooperation._sampler) and "_numbering" not in vars(cooperation.team)
        cooperation.layer(np.arange(*BOUNDS[3][rank : rank + 2], dtype=graph.indices.dtype), 1)
        assert "_kernel" in vars(cooperation._sampler)
        return held

    for first, again in on_workers(work, BOUNDS[3]):
        assert first == again


@pytest.mark.parametrize("fanout", [1, 6])
def test_seeds_neighbours_are_told_by_whose_they_are(fanout):
    """Not by how many each worker lacks, of whom there may be many more than neighbours."""
    graph, bounds = made(), np.array(BOUNDS[4])
    seeds = np.random.default_rng(1).permutation(VERTICES)[:50].astype(graph.indices.dtype)
    homes = Owners(bounds).member_of(seeds)
    vertices, block = NeighborSampler(graph, [fanout]).hop(seeds, 0, 2, 3)
    want = block.indptr.diff().tolist(), Owners(bounds).member_of(vertices)[block.src.numpy()].tolist()

    def work(rank, comm, ahead):
        cooperation = Cooperation(graph, leap(1), [fanout], Owners(bounds), comm)
        found = cooperation._holders(seeds, homes, (2, 3, Stream.SAMPLE))
        return found, sum(comm.traffic.sent()["sample"])

    for rank, (found, sent) in enumerate(on_workers(work, BOUNDS[4])):
        drawn = int(block.indptr.diff()[torch.from_numpy(homes == rank)].sum())
        assert tuple(array.tolist() for array in found) == want
        assert sent == 3 * (16 + 4 * int((homes == rank).sum()) + 2 * drawn)
