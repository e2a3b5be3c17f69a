"""A user's convolution that declares its split: the same as its own forward; lies are found out."""

import pytest
import torch
from test_models import CLASSES, WIDTH, assert_equals_pyg, make_graph, rand
from torch import nn
from torch_geometric.nn import MessagePassing

from weft import Split, check_split
from weft.errors import ModelError
from weft.nn import BlockModel
from weft.sampling import NeighborSampler


class Shift(MessagePassing):
    """Neighbours' tanh, merged, beside the own row."""

    def __init__(self, width, out, merge="mean", lie=None):
        super().__init__(aggr=merge)
        self.in_channels = width
        self.lin = nn.Linear(2 * width, out)
        self.merge, self.lie = merge, lie

    def weft_split(self):
        if self.lie == "kind":
            return "sum"
        source = torch.sigmoid if self.lie == "source" else torch.tanh
        keep = 4 if self.lie == "shape" else None
        return Split(lambda merged, own: self.lin(torch.cat([own, merged], 1))[:, :keep], source, self.merge)

    def forward(self, x, edge_index):
        return self.lin(torch.cat([x, self.propagate(edge_index, x=x)], 1))

    def message(self, x_j):
        return x_j.tanh()


class Two(nn.Module):
    """Two of them."""

    def __init__(self, merge):
        super().__init__()
        self.convs = nn.ModuleList([Shift(WIDTH, 7, merge), Shift(7, CLASSES, merge)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("merge", ["sum", "mean", "max"])
def test_the_split_is_the_forward(merge):
    model = Two(merge)
    check_split(model.convs[0], WIDTH)
    assert all("(fast)" in line for line in BlockModel(model).kinds())
    assert_equals_pyg(model, layers=2)


class Scaled(Shift):
    """Makes a value of a parameter where it says how it is split, outside of what acts on rows."""

    def __init__(self, width, out):
        super().__init__(width, out)
        self.scale = nn.Parameter(torch.ones(1))

    def weft_split(self):
        by = self.scale.exp()
        return Split(lambda merged, own: self.lin(torch.cat([own, merged * by], 1)), torch.tanh, self.merge)

    def forward(self, x, edge_index):
        return self.lin(torch.cat([x, self.propagate(edge_index, x=x) * self.scale.exp()], 1))


def test_a_split_is_of_parameters_as_they_are():
    graph, edge_index = make_graph()
    conv, x, seeds = Scaled(WIDTH, CLASSES).double(), rand(120, WIDTH), torch.arange(0, 120, 3)
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample, runs = NeighborSampler(graph, [-1]).sample(seeds.numpy(), 0, 0), BlockModel(model, WIDTH)
    for _ in range(2):
        got = runs(x[sample.vertices.long()], sample)
        assert (got - conv(x, edge_index)[seeds]).abs().max() < 1e-12
        got.sum().backward()
        with torch.no_grad():
            conv.scale += 0.1


@pytest.mark.parametrize(
    ("lie", "told"),
    [("source", "differ by up to"), ("shape", r"rows of shape \(12, 4\)"), ("kind", "return a weft.Split")],
)
def test_lies_are_found_out(lie, told):
    with pytest.raises(ModelError, match=told):
        check_split(Shift(6, 5, lie=lie), 6)


class Forgetful(Shift):
    """What begins at nought is not in its split."""

    def __init__(self, width, out):
        super().__init__(width, out)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + self.bias


def test_what_begins_at_nought_is_compared():
    with pytest.raises(ModelError, match="its split and its forward differ by up to"):
        check_split(Forgetful(6, 5), 6)


class Positive(Shift):
    """Does not run with any parameters."""

    def __init__(self, width, out):
        super().__init__(width, out)
        self.scale = nn.Parameter(torch.ones(50))

    def weft_split(self):
        split = super().weft_split()
        return Split(lambda merged, own: split.finish(merged, own) * self.factor(), split.source, split.merge)

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) * self.factor()

    def factor(self):
        assert (self.scale > 0).all()
        return self.scale.mean()


def test_what_does_not_run_with_other_parameters_is_compared_as_it_is():
    conv = Positive(6, 5)
    check_split(conv, 6)
    assert conv.factor() == 1  # its own again


class Among(Shift):
    """Takes the mean of all rows away."""

    def weft_split(self):
        return Split(super().weft_split().finish, lambda x: (x - x.mean(0)).tanh(), self.merge)


def test_a_split_that_mixes_rows_is_refused():
    model, graph = nn.ModuleList([conv := Among(WIDTH, CLASSES)]).double(), make_graph()[0]
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(0, 120, 3).numpy(), 0, 0)
    with pytest.raises(ModelError, match=r"Among\(\): source of its split mixes rows, of which each worker has others"):
        BlockModel(model, WIDTH)(rand(120, WIDTH)[sample.vertices.long()], sample)


def test_what_is_missing_or_wrong_is_said():
    plain = Shift(6, 5)
    plain.weft_split = None
    with pytest.raises(ModelError, match="declares no split"):
        check_split(plain, 6)
    with pytest.raises(ModelError, match="merge = 'median'"):
        Split(lambda merged, own: own, merge="median")
