"""Who looks what torch draws sees the model's own random numbers, and none where a function draws none."""

import torch
import torch.nn.functional as F

from weft.operations import Draws


def test_what_is_drawn_is_seen_with_its_shape():
    with Draws() as outer, Draws() as inner:
        out = torch.ones(2) + torch.rand(5)[0]
        F.dropout(out, 0.5, training=False)
        torch.empty(3).normal_()
    assert [shape for _, shape in inner.shapes] == [torch.Size([5]), torch.Size([3])]
    assert outer.shapes == inner.shapes


def test_functions_with_a_gradient_of_their_own_are_looked_into():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + torch.rand(7)

        @staticmethod
        def backward(ctx, g):
            return g

    with Draws() as drawn:
        Noisy.apply(torch.ones(7, requires_grad=True)).sum().backward()
    assert drawn.shapes == [("torch.rand", torch.Size([7]))]
