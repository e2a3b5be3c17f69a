"""How many ranges fit a budget of memory under tp."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn
from torch_geometric.nn import GCNConv, GraphConv, LGConv, SGConv

from weft.errors import ConfigError
from weft.graph import Graph, SelfLoops
from weft.nn import build, bytes_an_edge, convolutions, needs, pairs_of
from weft.nn.costs import Needs
from weft.quantities import size_of

BOUNDS = (0, 1000, 2500, 4000)
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
ONE_WORKER = """
import json, sys
import numpy as np
from budget import Peak
from weft.graph import Graph
from weft.nn import bytes_an_edge, convolutions, needs, pairs_of
from weft.plan import Settings
from weft.training import Trainer, make_model

rng = np.random.default_rng(0)


def trained(model, vertices, edges):
    typed = {"edge_type": rng.integers(0, 8, edges)} if model in ("rgcn", "rgat") else {}
    x = rng.standard_normal((vertices, 64)).astype(np.float32)
    labels, split = rng.integers(0, 8, vertices), np.zeros(vertices, dtype=np.int8)
    ends = rng.integers(0, vertices, (2, edges))
    graph = Graph.from_arrays(ends, num_vertices=vertices, features=x, labels=labels, split=split, **typed)
    settings = Settings.of(full_graph=True, plan="tp", threads=1, model=model, hidden=64, layers=2, memory="8GB")
    made = make_model(settings, graph)
    with Peak() as peak:
        trainer = Trainer(graph, made, settings)
        trainer.prepare()
        for epoch in range(2):
            trainer.train_epoch(epoch)
    trainer.close()
    layers, bounds = convolutions(made, 64), (0, vertices)
    found = needs(layers, edges, bounds, 4, bytes_an_edge(layers, graph, 4), pairs_of(layers, graph, bounds))
    return peak.bytes, sum(vars(found).values())


trained(sys.argv[1], 100, 1000)  # what is there whatever the graph
print(json.dumps(trained(sys.argv[1], 20_000, 400_000)))
"""


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


def test_layers_over_types_hold_rows_of_pairs():
    """Of a relation and a vertex that has edges of it; whoever owns the vertices, and the more of both ends."""
    edges, types = np.array([[0, 0, 0, 1, 3], [1, 2, 2, 2, 2]]), np.array([0, 0, 1, 1, 1])
    graph = Graph.from_arrays(edges, num_vertices=4, edge_type=types)
    rgcn, gcn = (
        convolutions(build(name, 16, 24, 5, 2, **more), 16) for name, more in (("rgcn", {"relations": 2}), ("gcn", {}))
    )
    assert pairs_of(rgcn, graph, (0, 2, 4)) == (3, 4)  # (0, 0), (0, 1), (1, 1) and (3, 1) as sources; 3 as destinations
    assert pairs_of(gcn, graph, (0, 2, 4)) == (0, 0)
    counted, before = (needs(rgcn, 100_000, BOUNDS, 4, pairs=pairs) for pairs in ((1000, 2000), (0, 0)))
    assert counted.rows - before.rows == 4 * 1000 * (16 + 24 + 2 * 24)  # rows in stay; two of the widest pass by
    assert counted.slices - before.slices == 4 * 2000 * 2 * 8  # of 24 columns, on three workers


def test_of_very_many_possible_pairs_all_edges_count():
    graph = Graph.from_arrays(np.array([[0, 1, 1], [1, 2, 3]]), num_vertices=4, edge_type=np.array([0, 0, 1 << 19]))
    layers = convolutions(build("rgat", 16, 24, 5, 2, relations=2), 16)
    assert pairs_of(layers, graph, (0, 4)) == (3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gat", "gcn", "film", "rgcn", "rgat"])
def test_peak_is_within_what_is_counted(model):
    """And that is not far more: about two thirds of it are used."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n{ONE_WORKER}", model]
    peak, counted = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    assert counted / 2 <= peak <= counted


def test_too_little_memory_is_told_with_numbers():
    message = (
        r"memory = 976.6 KiB is too little for a worker under tp: it needs lists \S+ MiB.*, edges \S+ MiB.*; set memory"
    )
    with pytest.raises(ConfigError, match=message):
        of("gat").within(1e6)


@pytest.mark.parametrize("edges", [0, 7, 10_000, 1_000_000])
def test_the_memory_that_is_named_is_enough(edges):
    """To the byte, where it is small."""
    found = Needs(300, 200, 100, edges)
    with pytest.raises(ConfigError, match=r"set memory = '\d+K?B' or more") as told:
        found.within(599)
    named = size_of(re.search(r"set memory = '(\w+)'", str(told.value))[1])
    assert named == 600 + -(-edges // 4096)
    assert found.within(named) <= 4096
