"""The operations of `operations.py` on the CPU: the compiled kernels, which take arrays."""

from typing import overload

import numpy as np
import torch
from torch import Tensor

from weft import _kernels


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
    indptr: Tensor,
    other: Tensor,
    edge: Tensor | None,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    mean: bool,
    onto: bool,
    threads: int | None = None,
) -> None:
    numbers = edge if weight is not None else None
    arrays = (indptr.numpy(), other.numpy(), array(numbers), array(weight), array(x), out.numpy())
    _kernels.sum_rows(*arrays, mean, onto, threads or torch.get_num_threads())


def edge_dot(indptr: Tensor, other: Tensor, g: Tensor, x: Tensor) -> Tensor:
    out = g.new_empty(len(other))
    arrays = (indptr.numpy(), other.numpy(), array(g), array(x), out.numpy())
    _kernels.edge_dot(*arrays, torch.get_num_threads())
    return out


def max_rows(indptr: Tensor, other: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    out, ties = (x.new_empty(len(indptr) - 1, x.shape[1]) for _ in range(2))
    arrays = (indptr.numpy(), other.numpy(), array(x), out.numpy(), ties.numpy())
    _kernels.max_rows(*arrays, torch.get_num_threads())
    return out, ties


def max_rows_backward(turned: tuple[Tensor, Tensor, Tensor], share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    arrays = (turned[0].numpy(), turned[1].numpy(), array(share), array(best), array(x), gx.numpy())
    _kernels.max_rows_backward(*arrays, torch.get_num_threads())
    return gx


def attend(
    indptr: Tensor,
    src: Tensor,
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """What is saved: the probabilities [edges, heads]."""
    rows, heads = len(indptr) - 1, x.shape[1]
    p, out, lse = x.new_empty(len(src), heads), x.new_empty(rows, *x.shape[1:]), x.new_empty(rows, heads)
    arrays = (*_arrays(terms), array(keep), array(x), p.numpy(), out.numpy(), lse.numpy())
    _kernels.gat(indptr.numpy(), src.numpy(), *arrays, slope, torch.get_num_threads())
    return out, lse, (p,)


def attend_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
    g_lse: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Between the passes by destination and by source, edges hold pairs: p keep, and the gradient of the sum in leaky."""
    (p,) = saved
    threads, gradient = torch.get_num_threads(), array(g)
    shares, g_dst = x.new_empty(len(src), 2, x.shape[1]), x.new_empty(len(indptr) - 1, x.shape[1])
    given = (*_arrays(terms), array(keep), array(x), array(p), gradient, array(g_lse))
    _kernels.gat_backward_dst(indptr.numpy(), src.numpy(), *given, shares.numpy(), g_dst.numpy(), slope, threads)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    outputs = (shares.numpy(), gradient, gx.numpy(), g_src.numpy())
    _kernels.gat_backward_src(*_lists(turned), *outputs, threads)
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


def attend_v2(
    indptr: Tensor, src: Tensor, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What is saved: the probabilities [edges, heads]."""
    p, out = xl.new_empty(len(src), xl.shape[1]), xl.new_empty(len(indptr) - 1, *xl.shape[1:])
    arrays = (array(xl), array(xr), array(att), array(keep), p.numpy(), out.numpy())
    _kernels.gatv2(indptr.numpy(), src.numpy(), *arrays, slope, torch.get_num_threads())
    return out, (p,)


def attend_v2_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    xl: Tensor,
    xr: Tensor,
    att: Tensor,
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    (p,) = saved
    threads, gradient = torch.get_num_threads(), array(g)
    rows = (array(xl), array(xr), array(att), array(keep), array(p))
    d_logit, g_xr, g_xl = torch.empty_like(p), xr.new_empty(xr.shape), xl.new_empty(xl.shape)
    g_att = xl.new_empty(_pieces(len(indptr) - 1), att.numel())
    outputs = (d_logit.numpy(), g_xr.numpy(), g_att.numpy())
    _kernels.gatv2_backward_dst(indptr.numpy(), src.numpy(), *rows, gradient, *outputs, slope, threads)
    gradients = (d_logit.numpy(), gradient, g_xl.numpy())
    t_indptr, t_dst, t_edge = _lists(turned)
    _kernels.gatv2_backward_src(t_indptr, t_dst, t_edge, *rows, *gradients, slope, threads)
    return g_xl, g_xr, g_att.sum(0).view_as(att)


def edge_shares(
    indptr: Tensor,
    other: Tensor,
    a_src: Tensor,
    a_dst: Tensor,
    keep: tuple[Tensor | None, Tensor | None],
    slope: float,
    loops: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    out, own = a_src.new_empty(len(other)), a_src.new_zeros(len(indptr) - 1, 1)
    arrays = (
        indptr.numpy(),
        other.numpy(),
        array(a_src),
        array(a_dst),
        array(keep[0]),
        array(keep[1]),
        out.numpy(),
        own.numpy(),
    )
    _kernels.edge_shares(*arrays, slope, loops, torch.get_num_threads())
    return out, own, ()


def edge_shares_backward(
    indptr: Tensor,
    other: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    a_src: Tensor,
    a_dst: Tensor,
    keep: tuple[Tensor | None, Tensor | None],
    slope: float,
    loops: bool,
    saved: tuple[Tensor, ...],
    g: Tensor,
    g_own: Tensor,
) -> tuple[Tensor, Tensor]:
    """Through the soft-max again; sources' gradients are summed by turned lists."""
    threads, g_edge = torch.get_num_threads(), a_src.new_empty(len(other), a_src.shape[1])
    g_dst, g_src = torch.empty_like(a_dst), torch.zeros_like(a_src)
    given = (array(a_src), array(a_dst), array(keep[0]), array(keep[1]), array(g), array(g_own))
    outputs = (g_edge.numpy(), g_dst.numpy(), g_src.numpy())
    _kernels.edge_shares_backward(indptr.numpy(), other.numpy(), *given, *outputs, slope, loops, threads)
    sum_rows(turned[0], turned[2], None, None, g_edge, g_src, False, True)
    return g_src, g_dst


def film(indptr: Tensor, src: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
    out = x.new_empty(len(indptr) - 1, x.shape[1])
    arrays = (array(x), array(gamma), array(beta), out.numpy())
    _kernels.film(indptr.numpy(), src.numpy(), *arrays, mean, torch.get_num_threads())
    return out


def film_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    g: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    threads, given = torch.get_num_threads(), (array(x), array(gamma), array(beta), array(g))
    gx, g_gamma, g_beta = (t.new_empty(t.shape) for t in (x, gamma, beta))
    _kernels.film_backward_dst(indptr.numpy(), src.numpy(), *given, g_gamma.numpy(), g_beta.numpy(), threads)
    _kernels.film_backward_src(turned[0].numpy(), turned[1].numpy(), *given, gx.numpy(), threads)
    return gx, g_gamma, g_beta


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    _kernels.dropout_mask(key, array(row_keys), threshold, scale, out.numpy(), torch.get_num_threads())


def _arrays(
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    of_sources, of_destinations, of_edges = terms
    return array(of_sources), array(of_destinations), array(of_edges)


def _lists(turned: tuple[Tensor, Tensor, Tensor]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indptr, other, edge = turned
    return indptr.numpy(), other.numpy(), edge.numpy()


def _pieces(rows: int) -> int:
    return -(-rows // _kernels.ROWS_A_PIECE)
