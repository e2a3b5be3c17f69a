"""What crosses in a layer, as runs on a few rows show it."""

import pytest
from torch_geometric.nn.models import GAT, GraphSAGE

from weft.graph import communities
from weft.nn import convolutions
from weft.placements import REQUEST, all_placements
from weft.planner.loads import Message
from weft.planner.messages import messages_of_layers

WIDTH, WORKERS = 12, 3


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(
        tmp_path_factory.mktemp("graph") / "g", vertices=400, edges=2000, width=WIDTH, classes=3, block=50
    )


def test_what_is_found(graph):
    found = messages_of_layers(graph, convolutions(GraphSAGE(WIDTH, 8, 2, 3), WIDTH), all_placements(), WORKERS)
    assert found[0, "local", True] == found[0, "pull", False] == []  # inputs are fetched, before the layer
    assert found[1, "pull", False] == [Message({"pulled": 12.0}), Message({"pulled": 12.0}, back=True)]
    assert found[0, "push", False] == [Message({"pairs": 48.0})]  # sums of raw inputs, which are narrower


def test_what_can_not_be_placed_is_said(graph):
    found = convolutions(GAT(WIDTH, 8, 2, 3, aggr="max"), WIDTH)
    assert messages_of_layers(graph, found, all_placements(), WORKERS)[1, "push", False] is None


def test_what_no_plan_has_is_not_looked_for(graph):
    """Rows that a placement leaves where they are wanted are never with their owners, and the other way round."""
    kinds = all_placements()
    found = messages_of_layers(graph, convolutions(GraphSAGE(WIDTH, 8, 3, 3), WIDTH), kinds, WORKERS)
    asked = {(kind.name, held == REQUEST) for kind in kinds for held in kind.leaves}
    firsts = {kind.name for kind in kinds if kind.only_first}
    assert {case[1:] for case in found if not case[0]} == asked
    assert {case[1:] for case in found if case[0] == 2} == {case for case in asked if case[0] not in firsts}
