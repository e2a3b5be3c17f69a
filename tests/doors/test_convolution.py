"""A convolution from outside: exact under every placement that splits edges, and the same as PyG's own code."""

import pytest
import torch
from exactness import HOME, check_exact, make_parts
from torch import nn
from torch_geometric.nn import ResGatedGraphConv

from weft.nn import BlackBox, convolution_of
from weft.plugins import CONVOLUTIONS

PLANS = {
    "leap": {"layers": ["local", "local"], **HOME},
    "pull, partitioned": {"layers": ["pull", "pull"], "topology": "partitioned", **HOME},
    "push": {"layers": ["push", "push"], **HOME},
    "cover": {"layers": ["cover", "cover"], **HOME},
    "shared": {"layers": ["shared", "shared"], **HOME},  # the stranger's own placement
}


class Net(nn.Module):
    """A model of two such convolutions."""

    def __init__(self, width, classes):
        super().__init__()
        self.convs = nn.ModuleList([ResGatedGraphConv(width, 8), ResGatedGraphConv(8, classes, root_weight=False)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("graphs"))


def test_it_serves_its_class():
    assert "torch_geometric.nn.conv.res_gated_graph_conv.ResGatedGraphConv" in CONVOLUTIONS.names()
    assert type(convolution_of(ResGatedGraphConv(3, 4))).__name__ == "ResidualGated"
    assert isinstance(convolution_of(ResGatedGraphConv(3, 4, edge_dim=2)), BlackBox)


def test_every_plan_trains_what_one_worker_trains(ranks, parts):
    check_exact(ranks, parts, Net, PLANS)


def test_it_computes_what_pyg_does(ranks, parts, monkeypatch):
    """The module's own forward, as a black box, on whole neighbourhoods."""
    _, ours = check_exact(ranks, parts, Net, {})
    monkeypatch.setattr("weft_stranger.convolution.ResidualGated.serves", lambda conv: False)
    _, theirs = check_exact(ranks, parts, Net, {})
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)


def test_it_can_be_sampled_layer_by_layer(ranks, parts):
    check_exact(ranks, parts, Net, {"push": PLANS["push"]}, sampler="layer", fanouts=(200, 200))
