"""How many ranges fit a budget of memory under tp."""

import numpy as np
import pytest
from torch import nn
from torch_geometric.nn import GCNConv, GraphConv, LGConv, SGConv

from weft.errors import ConfigError
from weft.graph import Graph, SelfLoops
from weft.nn import build, bytes_an_edge, convolutions, needs

BOUNDS = (0, 1000, 2500, 4000)


class Layer(nn.Module):
    """One convolution."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def of(name, **options):
    return needs(convolutions(build(name, 16, 24, 5, 2, **options), 16), 100_000, BOUNDS, 4)


def test_ranges_divide_what_there_is_an_edge_of():
    found = of("gat")
    fixed = found.lists + found.slices + found.rows
    assert found.edges == 4 * 4 * 3 * 100_000  # numbers of four bytes; a slice has parts of three of four heads
    assert found.within(fixed + found.edges) == 1
    assert found.within(fixed + found.edges - 1) == 2
    assert found.within(fixed + found.edges / 10) == 10


def test_dropout_is_drawn_for_all_heads():
    assert of("gat", dropout=0.5).edges - of("gat").edges == 4 * 1 * 100_000


def test_sums_keep_nothing_an_edge():
    found = of("sage")
    assert found.edges == 0
    assert found.slices == 4 * 4000 * 2 * 8  # of 24 columns, on three workers
    assert found.within(found.lists + found.slices + found.rows) == 1


@pytest.mark.parametrize(
    ("name", "loops", "weights", "wanted"),
    [("gcn", 0, 0, 4), ("gcn", 1, 0, 12), ("gcn", 0, 1, 20), ("sage", 1, 0, 0), ("sage", 0, 1, 8)],
)
def test_lists_keep_numbers_and_weights_of_edges(name, loops, weights, wanted):
    """And whose edge each is, where GCN looks for self-loops."""
    edges = np.array([[0, 1, 2], [1, 2, 2 if loops else 3]])
    graph = Graph.from_arrays(edges, num_vertices=4, edge_weight=np.ones(3) if weights else None)
    layers = convolutions(build(name, 16, 24, 5, 2), 16)
    assert bytes_an_edge(layers, graph, 4) == wanted
    counted, before = (needs(layers, 100_000, BOUNDS, 4, of_edge) for of_edge in (wanted, 0))
    assert counted.lists - before.lists == 100_000 * wanted


@pytest.mark.parametrize(
    ("conv", "wanted"),
    [
        (GraphConv(16, 5), 0),
        (GCNConv(16, 5, normalize=False), 0),
        (GCNConv(16, 5, add_self_loops=False), 0),
        (LGConv(), 0),
        (SGConv(16, 5, K=2), 12),
    ],
)
def test_only_sums_that_drop_self_loops_look_for_them(conv, wanted, monkeypatch):
    monkeypatch.setattr(SelfLoops, "_count", None)  # what it makes stays: three doubles a vertex
    graph = Graph.from_arrays(np.array([[0, 1, 2], [1, 2, 2]]), num_vertices=4)
    assert bytes_an_edge(convolutions(Layer(conv), 16), graph, 4) == wanted
    assert ("there_are" in vars(graph.self_loops)) == bool(wanted)


def test_too_little_memory_is_told_with_numbers():
    with pytest.raises(ConfigError, match=r"memory = 1 MB is too little for a worker under tp: it needs lists \d+ MB"):
        of("gat").within(1e6)
