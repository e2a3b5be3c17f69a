"""What workers that cooperate keep once the program of the whole graph is made."""

import numpy as np
from test_tensor import BOUNDS, made, on_workers

from weft.exchange import Owners
from weft.placements import Cooperation
from weft.plan import halo


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
