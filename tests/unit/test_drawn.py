"""Who looks what torch draws sees the model's own random numbers, and is spared Weft's functions."""

import torch

from weft.operations import Draws, OwnFunction


class Twice(OwnFunction):
    """2 x, and a random number that nobody is to see."""

    @staticmethod
    def forward(ctx, x):
        torch.rand(3)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_own_functions_are_not_looked_at():
    x = torch.ones(4, requires_grad=True)
    with Draws() as drawn:
        out = Twice.apply(x) + torch.rand(5)[0]
    out.sum().backward()
    assert drawn.shapes == [("torch.rand", torch.Size([5]))]
    assert x.grad.tolist() == [2.0] * 4


def test_looking_goes_on_after_them():
    with Draws() as outer, Draws() as inner:
        Twice.apply(torch.ones(2))
        torch.rand(7)
    assert [shape for _, shape in inner.shapes] == [torch.Size([7])] == [shape for _, shape in outer.shapes][-1:]
