"""Who looks what torch draws sees the model's own random numbers, and none where a function draws none."""

import pytest
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


@pytest.mark.parametrize(("dropout", "train", "drawn"), [(0.0, True, 0), (0.5, True, 1), (0.5, False, 0)])
def test_recurrent_layers_on_a_device_draw_for_what_they_drop(dropout, train, drawn):
    """Which needs no device to be told: nothing is computed."""
    x, hidden = torch.empty(5, 3, 4, device="meta"), torch.empty(2, 3, 4, device="meta")
    weights = [torch.empty(shape, device="meta") for shape in (*2 * [(16, 4)], *2 * [(16,)])]
    with Draws() as seen:
        torch.ops.aten._cudnn_rnn(
            x, [*weights, *weights], 4, None, hidden, hidden, 2, 4, 0, 2, False, dropout, train, False, [], None
        )
    assert len(seen.shapes) == drawn
