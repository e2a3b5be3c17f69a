"""Convolutions that look at more than their own edges: as PyG makes them of the whole graph, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, MaxAggregation, MessagePassing, SAGEConv, Sequential
from torch_geometric.utils import degree, scatter, softmax

from weft.errors import ModelError
from weft.graph import Graph
from weft.keys import seeded
from weft.nn import BlockModel
from weft.sampling import NeighborSampler

VERTICES, WIDTH, OUT = 90, 5, 3


@pytest.fixture(scope="module")
def graph():
    """With loops, edges that are there twice, vertices without any, and one that has many."""
    random = np.random.default_rng(0)
    src, dst = random.integers(0, VERTICES - 6, (2, 320))
    src[:20] = dst[:20]
    src[20:40], dst[20:40] = src[40:60], dst[40:60]
    dst[60:100] = 7
    edges = np.stack([src, dst])
    return Graph.from_arrays(edges, num_vertices=VERTICES, edge_weight=random.random(320).astype(np.float32) + 0.1)


def in_degrees(x, edges):
    return degree(edges[1], len(x), x.dtype)


def from_source(function):
    """Messages by a number of their source."""
    return lambda x, edges, weight: function(x, edges, weight)[edges[0]]


def has_loop(x, edges, weight):
    has = torch.zeros_like(x[:, 0])
    has[edges[0][edges[0] == edges[1]]] = 1
    return has + 1


def of_unmasked(x, edges, weight):
    roots = in_degrees(x, edges).pow(-0.5)
    return (roots[edges[0]] * roots[edges[1]]).nan_to_num(0, 0)


EXACT = {
    "a source's degree": from_source(lambda x, edges, weight: 1 / (1 + in_degrees(x, edges))),
    "weighted": from_source(lambda x, edges, weight: scatter(weight, edges[1], 0, len(x)).sqrt()),
    "a source's largest weight": from_source(lambda x, edges, weight: scatter(weight, edges[1], 0, len(x), "max")),
    "its loops": from_source(has_loop),
    "more than four": from_source(lambda x, edges, weight: (in_degrees(x, edges) > 4) + 0.5),
    "neighbours' largest degree": lambda x, edges, weight: (
        1 / (1 + scatter(in_degrees(x, edges)[edges[0]], edges[1], 0, len(x), "max"))[edges[1]]
    ),
    "unmasked": of_unmasked,
    "their own weights": lambda x, edges, weight: weight,
}
REFUSED = {
    "the largest degree": from_source(lambda x, edges, weight: in_degrees(x, edges) / in_degrees(x, edges).max()),
    "the least": from_source(lambda x, edges, weight: in_degrees(x, edges) / in_degrees(x, edges).clamp(min=1).min()),
    "the mean": from_source(lambda x, edges, weight: in_degrees(x, edges) / in_degrees(x, edges).mean()),
    "the largest weight": lambda x, edges, weight: weight / weight.max(),
    "the least weight": lambda x, edges, weight: weight - weight.min(),
    "out-degrees": from_source(lambda x, edges, weight: 1 / (1 + degree(edges[0], len(x), x.dtype))),
    "shares of sources": lambda x, edges, weight: softmax(weight, edges[0], num_nodes=len(x)),
    "neighbours of neighbours": from_source(
        lambda x, edges, weight: scatter(in_degrees(x, edges)[edges[0]], edges[1], 0, len(x), "mean")
    ),
    "rows of neighbours": from_source(lambda x, edges, weight: scatter(x[edges[0], 0], edges[1], 0, len(x))),
    "how many there are": lambda x, edges, weight: torch.full_like(weight, 10 / len(x)),
}


class Weighs(MessagePassing):
    """Sums rows times what a function makes of rows, edges and weights."""

    def __init__(self, function):
        super().__init__(aggr="add")
        self.lin, self.function = nn.Linear(WIDTH, OUT), function

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.lin(x), by=self.function(x, edge_index, edge_weight).to(x.dtype))

    def message(self, x_j, by):
        return x_j * by[:, None]


class One(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv = Weighs(function)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight)


def edges_of(graph):
    """As PyG has them."""
    dst = np.repeat(np.arange(VERTICES), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices, dst]).astype(np.int64))


def both(graph, function, seeds):
    """A model, its rows by PyG and by Weft, and what computes their gradients."""
    with seeded(1):
        model, x = One(function).double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    expected = model(x, edges_of(graph), torch.from_numpy(graph.edge_weight).double())[seeds]
    sample = NeighborSampler(graph, [-1]).sample(seeds, 0, 0)
    return model, expected, BlockModel(model)(x[sample.vertices.long()], sample)


@pytest.mark.parametrize("name", EXACT)
def test_edges_of_neighbours_are_there(graph, name):
    for seeds in torch.arange(VERTICES).split(25):
        model, expected, found = both(graph, EXACT[name], seeds)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        gradients = [torch.autograd.grad(rows.square().sum(), [*model.parameters()]) for rows in (expected, found)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_further_is_refused(graph, name):
    for seeds in torch.arange(VERTICES).split(25):
        with pytest.raises(ModelError, match="looks further than at the edges of each vertex and of its neighbours"):
            both(graph, REFUSED[name], seeds)


class Shares(Weighs):
    """Divides by sums of neighbours' weights, where it is given some."""

    def __init__(self):
        super().__init__(EXACT["weighted"])

    def forward(self, x, edge_index, edge_weight=None):
        by = torch.ones_like(edge_index[0]) if edge_weight is None else self.function(x, edge_index, edge_weight)
        return self.propagate(edge_index, x=self.lin(x), by=by.to(x.dtype))


class OnceWithout(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = Shares()

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index) + self.conv(x, edge_index, edge_weight)


def test_a_convolution_is_tried_with_each_of_what_it_is_given(graph):
    with seeded(1):
        model, x = OnceWithout().double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    expected = model(x, edges_of(graph), torch.from_numpy(graph.edge_weight).double())
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(25), 0, 0)
    found = BlockModel(model)(x[sample.vertices.long()], sample)
    torch.testing.assert_close(found, expected[:25], rtol=1e-10, atol=1e-10)


class ByRelation(MessagePassing):
    """Divides by how many in-edges of an edge's own type its source has; types go by another name."""

    def __init__(self, of=None):
        super().__init__(aggr="add")
        self.lin, self.of = nn.Linear(WIDTH, OUT), of

    def forward(self, x, edge_index, kinds):
        alike = torch.ones_like(kinds) if self.of is None else kinds == self.of
        many = scatter(alike.to(x.dtype), edge_index[1] * 200 + kinds, 0, 200 * len(x))
        return self.propagate(edge_index, x=self.lin(x), by=1 / (1 + many[edge_index[0] * 200 + kinds]))

    def message(self, x_j, by):
        return x_j * by[:, None]


class OfKinds(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


@pytest.mark.parametrize("kinds", [3, 100])
@pytest.mark.parametrize("of", [None, 1])
def test_degrees_by_relation_are_of_neighbours_too(graph, kinds, of):
    typed = replace(graph, edge_weight=None, edge_type=(np.arange(graph.num_edges) % kinds).astype(np.int32))
    with seeded(1):
        model, x = OfKinds(ByRelation(of)).double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    expected = model(x, edges_of(graph), torch.from_numpy(typed.edge_type).long())
    for seeds in torch.arange(VERTICES).split(25):
        sample = NeighborSampler(typed, [-1]).sample(seeds, 0, 0)
        found = BlockModel(model)(x[sample.vertices.long()], sample)
        torch.testing.assert_close(found, expected[seeds], rtol=1e-10, atol=1e-10)


class Table(MessagePassing):
    """Takes weights for places in a table."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.lin, self.table = nn.Linear(WIDTH, OUT), nn.Embedding(2, OUT)

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.lin(x), by=self.table(edge_weight.round().long()))

    def message(self, x_j, by):
        return x_j * by


def test_values_that_no_graph_has_are_not_insisted_on(graph):
    with seeded(1):
        model, x = OfKinds(Table()).double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    low = replace(graph, edge_weight=np.minimum(graph.edge_weight, 1))
    model.forward = lambda x, edge_index, edge_weight: model.conv(x, edge_index, edge_weight)
    sample = NeighborSampler(low, [3]).sample(torch.arange(30), 0, 0)
    assert BlockModel(model)(x[sample.vertices.long()], sample).shape == (30, OUT)


def assert_is_pygs(graph, conv, x):
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(30), 0, 0)
    model = Sequential("x, edge_index", [(conv, "x, edge_index -> x")])
    found = BlockModel(model)(x[sample.vertices.long()], sample)
    torch.testing.assert_close(found, conv(x, edges_of(graph))[:30], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("how", ["replaced", "said"])
@pytest.mark.parametrize("make", [GCNConv, SAGEConv, GATConv])
def test_an_aggregation_that_was_replaced_is_that(graph, make, how):
    with seeded(1):
        conv, x = make(WIDTH, OUT).double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    if how == "replaced":
        conv.aggr_module = MaxAggregation()
    else:
        conv.aggr = "max"  # which PyG doesn't read any more
    assert_is_pygs(graph, conv, x)


@pytest.mark.parametrize(("width", "out"), [(WIDTH, 8), (WIDTH, 2)])
def test_a_map_with_a_bias_is_summed_with_it(graph, width, out):
    with seeded(1):
        conv, x = GCNConv(width, out).double(), torch.randn(VERTICES, width, dtype=torch.float64)
        conv.lin = nn.Linear(width, out).double()
    assert_is_pygs(graph, conv, x)


def test_lists_that_were_drawn_with_repeats_are_not_whole_though_as_long(graph):
    model, x = One(EXACT["a source's degree"]).double(), torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    src = np.arange(VERTICES)[None] + np.array([1, 5, 9])[:, None]
    edges = np.stack([(src % VERTICES).ravel(), np.tile(np.arange(VERTICES), 3)])
    regular = Graph.from_arrays(edges, num_vertices=VERTICES, edge_weight=np.ones(3 * VERTICES, np.float32))
    sample = NeighborSampler(regular, [3], replace=True).sample(torch.arange(30), 0, 0)
    with pytest.raises(ModelError, match="of which batches draw some"):
        BlockModel(model)(x[sample.vertices.long()], sample)
    sample = NeighborSampler(regular, [3]).sample(torch.arange(30), 0, 0)
    assert BlockModel(model)(x[sample.vertices.long()], sample).shape == (30, OUT)


def test_a_model_without_edges_in_a_batch_is_let_go(graph):
    lone = torch.arange(VERTICES - 5, VERTICES)
    *_, found = both(graph, EXACT["a source's degree"], lone)
    assert not found.any() and len(found) == 5
