"""The compiled kernels, which take arrays: the operations of `choice.py` on the CPU; and products of many rows with small
matrices, with their gradients.
"""

from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import _kernels
from weft.operations.arguments import JoinedTerms, Lists, Saved, Scores, Terms, Turned

Array = np.ndarray | None

_MANY_ROWS = 512  # for fewer, a general library's product is as good


@overload
def array(x: Tensor) -> np.ndarray: ...
@overload
def array(x: None) -> None: ...
@overload
def array(x: Tensor | None) -> np.ndarray | None: ...
def array(x: Tensor | None) -> np.ndarray | None:
    """A tensor as the kernels take it."""
    return None if x is None else x.detach().contiguous().numpy()


def sum_rows(
    lists: Lists | Turned, weight: Tensor | None, x: Tensor, out: Tensor, mean: bool, onto: bool, threads: int = 0
) -> None:
    numbers = lists.edge.numpy() if isinstance(lists, Turned) and weight is not None else None
    arrays = (*_arrays(lists), numbers, array(weight), array(x), out.numpy())
    _kernels.sum_rows(*arrays, mean, onto, threads or torch.get_num_threads())


def edge_dot(lists: Lists, g: Tensor, x: Tensor) -> Tensor:
    out = g.new_empty(len(lists.other))
    _kernels.edge_dot(*_arrays(lists), array(g), array(x), out.numpy(), torch.get_num_threads())
    return out


def max_rows(lists: Lists, x: Tensor) -> tuple[Tensor, Tensor]:
    out, ties = (x.new_empty(len(lists.indptr) - 1, x.shape[1]) for _ in range(2))
    _kernels.max_rows(*_arrays(lists), array(x), out.numpy(), ties.numpy(), torch.get_num_threads())
    return out, ties


def max_rows_backward(turned: Turned, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    arrays = (*_arrays(turned), array(share), array(best), array(x), gx.numpy())
    _kernels.max_rows_backward(*arrays, torch.get_num_threads())
    return gx


def attend(lists: Lists, x: Tensor, terms: Terms) -> tuple[Tensor, Tensor, Saved]:
    """What is saved: the probabilities [edges, heads]."""
    rows, heads = len(lists.indptr) - 1, x.shape[1]
    p, out, lse = x.new_empty(len(lists.other), heads), x.new_empty(rows, *x.shape[1:]), x.new_empty(rows, heads)
    arrays = (*_arrays(lists), *_of_logits(terms), array(x), p.numpy(), out.numpy(), lse.numpy())
    _kernels.gat(*arrays, terms.slope, torch.get_num_threads())
    return out, lse, (p,)


def attend_backward(
    lists: Lists, turned: Turned, x: Tensor, terms: Terms, saved: Saved, g: Tensor, g_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Between the passes by destination and by source, edges hold pairs: p keep, and the gradient of the sum in leaky."""
    threads, gradient, (p,) = torch.get_num_threads(), array(g), saved
    shares, g_dst = x.new_empty(len(p), 2, x.shape[1]), x.new_empty(len(g), x.shape[1])
    given = (*_arrays(lists), *_of_logits(terms), array(x), array(p), gradient, array(g_lse))
    _kernels.gat_backward_dst(*given, shares.numpy(), g_dst.numpy(), terms.slope, threads)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    outputs = (shares.numpy(), gradient, gx.numpy(), g_src.numpy())
    _kernels.gat_backward_src(*_arrays(turned), turned.edge.numpy(), *outputs, threads)
    return gx, g_src, g_dst, shares[:, 1]


def head_terms(x: Tensor, att: Tensor, rows: int) -> Tensor:
    out = x.new_empty(rows, x.shape[1])
    _kernels.head_terms(array(x), array(att), out.numpy(), torch.get_num_threads())
    return out


def head_terms_backward(x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
    """The sums for `att` are made piece by piece of rows, so that no bit depends on the number of threads."""
    sums = x.new_empty(_pieces(len(g)), att.numel())
    arrays = (array(x), array(att), g.numpy(), gx.numpy(), sums.numpy())
    _kernels.head_terms_backward(*arrays, torch.get_num_threads())
    return sums.sum(0).view_as(att)


def attend_v2(lists: Lists, terms: JoinedTerms) -> tuple[Tensor, Saved]:
    """What is saved: the probabilities [edges, heads]."""
    xl, xr, att, keep, slope = terms
    p, out = xl.new_empty(len(lists.other), xl.shape[1]), xl.new_empty(len(lists.indptr) - 1, *xl.shape[1:])
    arrays = (*_arrays(lists), array(xl), array(xr), array(att), array(keep), p.numpy(), out.numpy())
    _kernels.gatv2(*arrays, slope, torch.get_num_threads())
    return out, (p,)


def attend_v2_backward(
    lists: Lists, turned: Turned, terms: JoinedTerms, saved: Saved, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (xl, xr, att, keep, slope), (p,), threads, gradient = terms, saved, torch.get_num_threads(), array(g)
    rows = (array(xl), array(xr), array(att), array(keep), array(p))
    d_logit, g_xr, g_xl = torch.empty_like(p), xr.new_empty(xr.shape), xl.new_empty(xl.shape)
    g_att = xl.new_empty(_pieces(len(g)), att.numel())
    of_rows = (*_arrays(lists), *rows, gradient, d_logit.numpy(), g_xr.numpy(), g_att.numpy())
    _kernels.gatv2_backward_dst(*of_rows, slope, threads)
    of_sources = (*_arrays(turned), turned.edge.numpy(), *rows, d_logit.numpy(), gradient, g_xl.numpy())
    _kernels.gatv2_backward_src(*of_sources, slope, threads)
    return g_xl, g_xr, g_att.sum(0).view_as(att)


def edge_shares(lists: Lists, scores: Scores) -> tuple[Tensor, Tensor, Saved]:
    a_src, a_dst, keep, own_keep, slope, loops = scores
    out, own = a_src.new_empty(len(lists.other)), a_src.new_zeros(len(lists.indptr) - 1, 1)
    given = (*_arrays(lists), array(a_src), array(a_dst), array(keep), array(own_keep))
    _kernels.edge_shares(*given, out.numpy(), own.numpy(), slope, loops, torch.get_num_threads())
    return out, own, ()


def edge_shares_backward(
    lists: Lists, turned: Turned, scores: Scores, saved: Saved, g: Tensor, g_own: Tensor
) -> tuple[Tensor, Tensor]:
    """Through the soft-max again; sources' gradients are summed by turned lists."""
    a_src, a_dst, keep, own_keep, slope, loops = scores
    g_edge = a_src.new_empty(len(lists.other), a_src.shape[1])
    g_dst, g_src = torch.empty_like(a_dst), torch.zeros_like(a_src)
    given = (*_arrays(lists), array(a_src), array(a_dst), array(keep), array(own_keep), array(g), array(g_own))
    arrays = (*given, g_edge.numpy(), g_dst.numpy(), g_src.numpy())
    _kernels.edge_shares_backward(*arrays, slope, loops, torch.get_num_threads())
    sum_rows(Lists(turned.indptr, turned.edge), None, g_edge, g_src, False, True)
    return g_src, g_dst


def film(lists: Lists, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
    out = x.new_empty(len(lists.indptr) - 1, x.shape[1])
    arrays = (array(x), array(gamma), array(beta), out.numpy())
    _kernels.film(*_arrays(lists), *arrays, mean, torch.get_num_threads())
    return out


def film_backward(
    lists: Lists, turned: Turned, x: Tensor, gamma: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    threads, given = torch.get_num_threads(), (array(x), array(gamma), array(beta), array(g))
    gx, g_gamma, g_beta = (t.new_empty(t.shape) for t in (x, gamma, beta))
    _kernels.film_backward_dst(*_arrays(lists), *given, g_gamma.numpy(), g_beta.numpy(), threads)
    _kernels.film_backward_src(*_arrays(turned), *given, gx.numpy(), threads)
    return gx, g_gamma, g_beta


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    _kernels.dropout_mask(key, array(row_keys), threshold, scale, out.numpy(), torch.get_num_threads())


def _arrays(lists: Lists | Turned) -> tuple[np.ndarray, np.ndarray]:
    return lists.indptr.numpy(), lists.other.numpy()


def _of_logits(terms: Terms) -> tuple[Array, Array, Array, Array]:
    return array(terms.of_sources), array(terms.of_destinations), array(terms.of_edges), array(terms.keep)


def _pieces(rows: int) -> int:
    return -(-rows // _kernels.ROWS_A_PIECE)


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
