"""What crosses in a layer: the same whether a worker finds all of it, or several share the work."""

import numpy as np
import pytest
from torch_geometric.nn.models import GAT, GraphSAGE

from weft.exchange import Communicator
from weft.graph import communities
from weft.nn import walk
from weft.planner.messages import Message, messages_of_layers

WIDTH, WORKERS = 12, 3


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(
        tmp_path_factory.mktemp("graph") / "g", vertices=400, edges=2000, width=WIDTH, classes=3, block=50
    )


class Pretended(Communicator):
    """A communicator to workers that are not there: what these would say is given, what this one says is kept."""

    def __init__(self, rank, others):
        super().__init__(rank, WORKERS)
        self.said, self._others = None, others

    def arrays_to_all(self, own, stage):
        self.said = own[0]
        return [(np.concatenate([own[0][:0], *self._others]), [])]


@pytest.mark.parametrize("make", [GraphSAGE, GAT])
def test_workers_share_it(make, graph):
    found = walk(make(WIDTH, 8, 2, 3), WIDTH)
    alone = messages_of_layers(graph, found, WORKERS)
    said = []
    for rank in range(WORKERS):
        comm = Pretended(rank, [])
        messages_of_layers(graph, found, WORKERS, comm)
        said.append(comm.said)
    for rank in range(WORKERS):
        others = said[:rank] + said[rank + 1 :]
        assert messages_of_layers(graph, found, WORKERS, Pretended(rank, others)) == alone
    assert len(alone) == 18 and all(said[rank].size for rank in range(WORKERS))


def test_what_is_found(graph):
    found = messages_of_layers(graph, walk(GraphSAGE(WIDTH, 8, 2, 3), WIDTH), WORKERS)
    assert found[0, "local", True] == found[0, "pull", False] == []  # inputs are fetched, before the layer
    assert found[1, "pull", False] == [Message({"pulled": 12.0}), Message({"pulled": 12.0}, back=True)]
    assert found[0, "push", False] == [Message({"pairs": 48.0})]  # sums of raw inputs, which are narrower


def test_what_can_not_be_placed_is_said(graph):
    found = walk(GAT(WIDTH, 8, 2, 3, aggr="max"), WIDTH)
    assert messages_of_layers(graph, found, WORKERS)[1, "push", False] is None
