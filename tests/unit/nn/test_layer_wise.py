"""Convolutions on layer-wise samples against their formulas, written out with dense matrices."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from weft.errors import InputError, ModelError
from weft.graph import Graph
from weft.nn import BlockModel
from weft.sampling import LayerSampler

WIDTH, OUT, VERTICES = 5, 3, 60


class One(nn.Module):
    """A model of one convolution."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@pytest.fixture(scope="module")
def graph():
    """Without self-loops, which GCN treats on their own; with repeated edges and vertices without in-edges."""
    rng = np.random.default_rng(0)
    edges = rng.integers(VERTICES, size=(2, 700))
    edges = edges[:, (edges[0] != edges[1]) & (edges[1] % 7 != 0)]
    return Graph.from_arrays(np.concatenate([edges, edges[:, :90]], 1), num_vertices=VERTICES)


class Fractions(LayerSampler):
    """Edges count for less than one, as an array says."""

    def source_weights(self, number, vertices):
        return super().source_weights(number, vertices).numpy() / 100


@pytest.fixture(scope="module", params=[LayerSampler, Fractions])
def drawn(request, graph):
    """A sample, its inputs, and as dense matrices: how often each edge counts, and what it weighs besides."""
    sampler = request.param(graph, [15], seed=1)
    sample = sampler.sample(torch.arange(0, VERTICES, 2), 0, 0)
    (block,), vertices = sample.blocks, sample.vertices.long()
    torch.manual_seed(0)
    x = torch.randn(VERTICES, WIDTH, dtype=torch.float64)
    counts = sampler.source_weights(0, np.arange(VERTICES))
    weighted = torch.zeros(block.num_dst, VERTICES, dtype=torch.float64)
    for dst, src in zip(block.dst().tolist(), vertices[block.src.long()].tolist(), strict=True):
        weighted[dst, src] += counts[src]
    assert (weighted.sum(1) == 0).any()
    assert ((weighted > 0).sum(1) > 1).any()
    return sample, x, vertices[: block.num_dst], weighted


def total(weighted):
    """What each destination's edges count for together, as a column."""
    sums = weighted.sum(1, keepdim=True)
    return sums.where(sums > 0, torch.ones_like(sums))


def run(conv, drawn):
    sample, x, _, _ = drawn
    return BlockModel(One(conv.double()))(x[sample.vertices.long()], sample)


def test_means_are_normalised_by_the_sum_of_weights(drawn):
    conv = SAGEConv(WIDTH, OUT).double()
    _, x, dst, weighted = drawn
    means = weighted @ x / total(weighted)
    assert torch.allclose(run(conv, drawn), conv.lin_l(means) + conv.lin_r(x[dst]), atol=1e-12)


def test_sums_estimate_the_full_sum(drawn):
    _, x, dst, weighted = drawn
    conv = SAGEConv(WIDTH, OUT, aggr="sum").double()
    assert torch.allclose(run(conv, drawn), conv.lin_l(weighted @ x) + conv.lin_r(x[dst]), atol=1e-12)
    gin = GINConv(nn.Linear(WIDTH, OUT), eps=0.3).double()
    assert torch.allclose(run(gin, drawn), gin.nn(weighted @ x + 1.3 * x[dst]), atol=1e-12)


def test_gcn_scales_weighed_means_to_the_whole_degree(drawn, graph):
    conv = GCNConv(WIDTH, OUT).double()
    _, x, dst, weighted = drawn
    degrees = torch.from_numpy(np.diff(graph.indptr)).double()
    roots = (degrees + 1).rsqrt()
    scaled = weighted * degrees[dst, None] / total(weighted)
    merged = roots[dst, None] * (scaled @ (roots[:, None] * x) + roots[dst, None] * x[dst])
    assert torch.allclose(run(conv, drawn), conv.lin(merged) + conv.bias, atol=1e-12)


def test_weights_that_are_not_a_number_for_each_vertex_are_refused(graph):
    class Wrong(LayerSampler):
        def source_weights(self, number, vertices):
            return np.ones(3)

    with pytest.raises(InputError, match=r"sampler 'layer' gave source_weights of shape \[3\] for \d+ vertices"):
        Wrong(graph, [15]).sample(torch.arange(9), 0, 0)


def test_what_does_not_sum_is_refused_on_such_samples(drawn):
    for conv in (GATConv(WIDTH, OUT), SAGEConv(WIDTH, OUT, aggr="max")):
        with pytest.raises(ModelError, match="can't be sampled layer by layer"):
            run(conv, drawn)
