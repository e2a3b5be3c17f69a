"""A user's convolution that declares its split: the same as its own forward; lies are found out."""

import pytest
import torch
from test_models import CLASSES, WIDTH, assert_equals_pyg
from torch import nn
from torch_geometric.nn import MessagePassing

from weft import Split, check_split
from weft.errors import ModelError
from weft.nn import BlockModel


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


@pytest.mark.parametrize(
    ("lie", "told"),
    [("source", "differ by up to"), ("shape", r"rows of shape \(12, 4\)"), ("kind", "return a weft.Split")],
)
def test_lies_are_found_out(lie, told):
    with pytest.raises(ModelError, match=told):
        check_split(Shift(6, 5, lie=lie), 6)


def test_what_is_missing_or_wrong_is_said():
    plain = Shift(6, 5)
    plain.weft_split = None
    with pytest.raises(ModelError, match="declares no split"):
        check_split(plain, 6)
    with pytest.raises(ModelError, match="merge = 'median'"):
        Split(lambda merged, own: own, merge="median")
