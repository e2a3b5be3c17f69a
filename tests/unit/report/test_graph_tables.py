"""What `weft info` shows of a graph whose types have gaps."""

import numpy as np

from weft.graph import Graph, graph_statistics
from weft.report import print_graph


def test_of_many_types_those_with_most_are_shown(capsys):
    types = np.array([0] * 5 + [70_000] * 3 + [9])
    edges = np.arange(18).reshape(2, 9) % 6
    print_graph("gaps", graph_statistics(Graph.from_arrays(edges, edge_type=types)))
    told = capsys.readouterr().out
    assert len(told.splitlines()) < 60
    assert "0: 5 edges" in told and "70000: 3 edges" in told and "9: 1 edges" in told
    assert "none" in told and "classes" not in told
    assert "and 69,981 more, 69,998 of all with none" in told


def test_classes_that_no_vertex_has_are_counted(capsys):
    edges, several = np.arange(18).reshape(2, 9) % 6, np.zeros((6, 4), dtype=np.uint8)
    several[:, 1] = 1
    for labels, told in (
        (np.array([0, 2, -1, 2, 0, 900]), "labels      901 classes, 898 of them without a vertex"),
        (np.arange(6), "labels      6 classes homophily"),
        (several, "labels      4 classes, 3 of them without a vertex, several a vertex"),
    ):
        print_graph("labels", graph_statistics(Graph.from_arrays(edges, labels=labels)))
        assert " ".join(told.split()) in " ".join(capsys.readouterr().out.replace("│", "").split())
