"""A convolution from outside: exact under every placement that splits edges, and the same as PyG's own code."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from above import Above, Over
from exactness import HOME, check_exact, make_parts, trained
from torch import nn
from torch_geometric.nn import MessagePassing, ResGatedGraphConv, TransformerConv

from weft import MessageConvolution
from weft.errors import ModelError
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


class Dropped(MessagePassing):
    """Drops what is said along edges, and of the soft-max of what it scores."""

    def __init__(self, width, out, join):
        super().__init__(aggr=join)
        self.value, self.key, self.p = nn.Linear(width, out), nn.Linear(width, out), 0.4

    def forward(self, x, edge_index):
        return self.propagate(edge_index, value=self.value(x), key=self.key(x))

    def message(self, value_j, key_i):
        return F.dropout((value_j + key_i).tanh(), self.p, self.training)


class Dropping(MessageConvolution):
    module = Dropped

    def prepare(self, x):
        return self.conv.value(x)

    def describe(self, own):
        return self.conv.key(own)

    def message(self, source, destination):
        return F.dropout((source + destination).tanh(), self.conv.p, self.conv.training)

    def finish(self, merged, own):
        return merged


class DroppingMax(Dropping):
    join = "max"


class DroppingAttention(MessageConvolution):
    """PyG's dropout of a soft-max, as messages have it."""

    module, join = TransformerConv, "softmax"

    def prepare(self, x):
        return torch.cat([self.conv.lin_key(x), self.conv.lin_value(x)], 1)

    def describe(self, own):
        return self.conv.lin_query(own)

    def message(self, source, destination):
        kept = F.dropout(source.new_ones(len(source), 2), self.conv.dropout, self.conv.training)
        return (kept[:, :, None] * source.chunk(2, 1)[1].view(-1, 2, 4)).flatten(1)

    def score(self, source, destination):
        keys = source.chunk(2, 1)[0]
        return (keys * destination).view(-1, 2, 4).sum(-1) / 2

    def finish(self, merged, own):
        return merged + self.conv.lin_skip(own)


@pytest.mark.parametrize(
    ("made", "by"),
    [
        (lambda width: Dropped(width, 8, "sum"), Dropping),
        (lambda width: Dropped(width, 8, "max"), DroppingMax),
        (lambda width: TransformerConv(width, 4, heads=2, dropout=0.5), DroppingAttention),
    ],
    ids=["sum", "max", "soft-max"],
)
def test_dropout_of_messages_is_by_edge(ranks, parts, monkeypatch, made, by):
    class Two(nn.Module):
        def __init__(self, width, classes):
            super().__init__()
            self.first, self.second = made(width), made(8)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)[:, :4]

    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda kind: by if kind is by.module else None)
    losses, parameters = ranks(1, trained, parts[1], Two, None, {})[0]
    for name in ("leap", "push"):
        got, other = ranks(3, trained, parts[3], Two, PLANS[name], {})[0]
        assert np.abs(got - losses).max() < 1e-10, name
        assert float((other - parameters).abs().max()) < 1e-10, name


class DroppedColumns(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return F.dropout(x_j, 0.4, self.training)


class DroppingColumns(MessageConvolution):
    module, columnwise = DroppedColumns, True

    def message(self, source, destination):
        return F.dropout(source, 0.4, self.conv.training)

    def finish(self, merged, own):
        return merged


def test_dropout_of_slices_of_columns_is_refused(ranks, parts, monkeypatch):
    class Two(nn.Module):
        def __init__(self, width, classes):
            super().__init__()
            self.first, self.second = DroppedColumns(), ResGatedGraphConv(width, classes)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    kinds = {DroppedColumns: DroppingColumns}
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", kinds.get)
    with pytest.raises(ModelError, match="drops what is said along edges, so its layer can't be placed by columns"):
        ranks(2, trained, parts[2], Two, None, {"plan": "nfp"})


def test_columns_that_are_prepared_and_described_are_not_sliced(ranks, parts, monkeypatch):
    """Of slices there would be prepared rows alone, and the rows are described."""

    class Two(nn.Module):
        def __init__(self, width, classes):
            super().__init__()
            self.first, self.second, self.last = Above(), Above(), nn.Linear(width, classes)

        def forward(self, x, edge_index):
            return self.last(self.second(self.first(x, edge_index), edge_index))

    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", {Above: Over}.get)
    whole = {"full_graph": True, "plan": "tp", "fanouts": None, "batch_size": None}
    with pytest.raises(ModelError, match="has no known split by columns"):
        ranks(2, trained, parts[2], Two, None, whole)


def test_it_can_be_sampled_layer_by_layer(ranks, parts):
    check_exact(ranks, parts, Net, {"push": PLANS["push"]}, sampler="layer", fanouts=(200, 200))
