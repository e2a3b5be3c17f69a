"""Convolutions written edge by edge: the same as the module's own forward, whatever the join."""

from typing import ClassVar

import pytest
import torch
from test_models import CLASSES, WIDTH, make_graph, rand
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from weft import Graph, MessageConvolution
from weft.nn import BlockModel
from weft.sampling import NeighborSampler


class Gated(MessagePassing):
    """Neighbours' rows through a gate that both ends open; merged as it is told."""

    def __init__(self, width, out, join):
        super().__init__(aggr={"softmax": "sum"}.get(join, join))
        self.value, self.gate, self.own = nn.Linear(width, out), nn.Linear(width, out), nn.Linear(width, out)
        self.join = join

    def forward(self, x, edge_index):
        return self.propagate(edge_index, value=self.value(x), gate=self.gate(x)) + self.own(x)

    def message(self, value_j, gate_i, index):
        said = value_j * gate_i.sigmoid()
        return said * softmax((value_j * gate_i).sum(1, keepdim=True), index) if self.join == "softmax" else said


def serving(join_by):
    class Serving(MessageConvolution):
        module = Gated
        join: ClassVar[str] = join_by

        def prepare(self, x):
            return self.conv.value(x)

        def describe(self, own):
            return self.conv.gate(own)

        def message(self, source, destination):
            return source * destination.sigmoid()

        def score(self, source, destination):
            return (source * destination).sum(1, keepdim=True)

        def finish(self, merged, own):
            return merged + self.conv.own(own)

    return Serving


@pytest.mark.parametrize("join", ["sum", "mean", "max", "softmax"])
def test_it_equals_the_module(join, monkeypatch):
    torch.manual_seed(0)
    conv = Gated(WIDTH, CLASSES, join).double()
    graph, edge_index = make_graph()
    x, seeds = rand(120, WIDTH).requires_grad_(), torch.arange(0, 120, 3)
    wanted = conv(x, edge_index)[seeds]
    gradients = torch.autograd.grad(wanted.sin().sum(), [x, *conv.parameters()])

    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: serving(join))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(seeds.numpy(), 0, 0)
    assert BlockModel(model, WIDTH).kinds()[0].endswith("(fast)")
    got = BlockModel(model, WIDTH)(x[sample.vertices.long()], sample)
    assert (got - wanted).abs().max() < 1e-12
    for one, other in zip(torch.autograd.grad(got.sin().sum(), [x, *conv.parameters()]), gradients, strict=True):
        assert (one - other).abs().max() < 1e-10


class Weighted(Gated):
    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, value=self.value(x), gate=self.gate(x), w=edge_weight) + self.own(x)

    def message(self, value_j, gate_i, w):
        return value_j * gate_i.sigmoid() * w[:, None]


def test_edge_weights_that_messages_do_not_know_leave_the_module_as_it_is(monkeypatch):
    torch.manual_seed(0)
    conv = Weighted(WIDTH, CLASSES, "sum").double()
    plain, _ = make_graph()
    weights = rand(len(plain.indices))
    graph = Graph(plain.indptr, plain.indices, edge_weight=weights.numpy())
    dst = torch.arange(120).repeat_interleave(torch.from_numpy(plain.indptr).diff())
    x, edge_index = rand(120, WIDTH), torch.stack([torch.from_numpy(plain.indices).long(), dst])
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: serving("sum"))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index, edge_weight=None: conv(x, edge_index, edge_weight)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0)
    got = BlockModel(model, WIDTH)(x[sample.vertices.long()], sample)
    assert (got - conv(x, edge_index, weights.float().double())[sample.vertices[:120].long()]).abs().max() < 1e-6
