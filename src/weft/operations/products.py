"""Products of many rows with small matrices, and their gradients: by compiled kernels for float32 on the CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import _kernels
from weft.operations.compiled import array

_MANY_ROWS = 512  # for fewer, a general library's product is as good


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
    """x weight^T (+ bias) (+ plus), as torch's linear: by the kernel for many rows of float32 on the CPU."""
    if _for_kernel(x, weight, bias):
        return _Linear.apply(x, weight, bias, plus, None, None)
    out = torch.nn.functional.linear(x, weight, bias)
    return out if plus is None else out + plus


def linear_of_two(x: Tensor, weight: Tensor, x2: Tensor, weight2: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + x2 weight2^T (+ bias): together, the result's rows are written once."""
    if _for_kernel(x, weight, bias) and _for_kernel(x2, weight2):
        return _Linear.apply(x, weight, bias, None, x2, weight2)
    return torch.nn.functional.linear(x, weight, bias) + torch.nn.functional.linear(x2, weight2)


def linear_pair(
    x: Tensor, weight: Tensor, weight2: Tensor, rows2: int, bias2: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x weight^T; and of the first `rows2` rows, x weight2^T (+ bias2): together, for x is read once."""
    if _for_kernel(x, weight) and _for_kernel(x, weight2, bias2):
        return _LinearPair.apply(x, weight, weight2, rows2, bias2)
    return torch.nn.functional.linear(x, weight), torch.nn.functional.linear(x[:rows2], weight2, bias2)


def _for_kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    wide = x.dim() == weight.dim() == 2 and x.shape[1] > 0
    of_each = bias is None or (bias.shape == weight.shape[:1] and bias.dtype == weight.dtype)  # others torch may expand
    return x.is_cpu and x.dtype == weight.dtype == torch.float32 and wide and of_each and len(x) >= _MANY_ROWS


class _Linear(torch.autograd.Function):
    """Forward: rows times a small matrix, for one or two of each. Backward: of the rows, times the transpose; of the
    matrix, a sum over rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        plus: Tensor | None,
        x2: Tensor | None,
        weight2: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, x2, weight2)
        y = x.new_empty(len(x), len(weight))
        factors = (array(x), array(weight), array(x2), array(weight2))
        _kernels.multiply(*factors, True, array(bias), array(plus), y.numpy(), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, x2, weight2 = ctx.saved_tensors
        of_x, of_weight, of_bias, of_plus, of_x2, of_weight2 = ctx.needs_input_grad
        g = g.contiguous()
        return (
            _of_rows(g, weight) if of_x else None,
            _of_matrix(g, x, weight) if of_weight else None,
            g.sum(0) if of_bias else None,
            g if of_plus else None,
            _of_rows(g, weight2) if of_x2 else None,
            _of_matrix(g, x2, weight2) if of_weight2 else None,
        )


def _of_rows(g: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the rows that a matrix multiplies."""
    gx = g.new_empty(len(g), weight.shape[1])
    _kernels.multiply(array(g), array(weight), None, None, False, None, None, gx.numpy(), torch.get_num_threads())
    return gx


def _of_matrix(g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """And that of the matrix."""
    g_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    _kernels.multiply_transposed(array(g), array(x), g_weight.numpy(), torch.get_num_threads())
    return g_weight


class _LinearPair(torch.autograd.Function):
    """Forward: two products with the same rows. Backward: likewise, for the matrices' gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, weight2: Tensor, rows2: int, bias2: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight, weight2)
        y, y2 = x.new_empty(len(x), len(weight)), x.new_empty(rows2, len(weight2))
        factors = (array(x), array(weight), array(weight2), array(bias2))
        _kernels.multiply_pair(*factors, y.numpy(), y2.numpy(), torch.get_num_threads())
        return y, y2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g2: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, weight2 = ctx.saved_tensors
        g, g2 = g.contiguous(), g2.contiguous()
        gx = None
        if ctx.needs_input_grad[0]:
            gx = _of_rows(g, weight)
            gx[: len(g2)] += _of_rows(g2, weight2)
        g_weight, g_weight2 = (torch.empty_like(w, memory_format=torch.contiguous_format) for w in (weight, weight2))
        outputs = (g_weight.numpy(), g_weight2.numpy())
        _kernels.multiply_transposed_pair(array(g), array(g2), array(x), *outputs, torch.get_num_threads())
        return gx, g_weight, g_weight2, None, g2.sum(0) if ctx.needs_input_grad[4] else None
