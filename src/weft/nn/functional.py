"""The operations on blocks that convolutions are made of: compiled kernels on the CPU, plain torch elsewhere.

Forward passes go by destination; gradients of sources go over the transposed block, so that one thread writes each row.
"""

from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import _kernels
from weft.nn import reference
from weft.placements import EdgeLists
from weft.sampling import Block


def aggregate(block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean or max of the sources' rows [num_src, ...] into [num_dst, ...]; no edges give zero."""
    if not x.is_cpu or (reduce == "max" and weight is not None):
        return reference.aggregate(block, x, weight, reduce)
    rows = x.reshape(len(x), x[:0].flatten(1).shape[1])
    out = _Max.apply(block, rows) if reduce == "max" else _Sum.apply(block, rows, weight, reduce == "mean")[0]
    return out.view(len(out), *x.shape[1:])


def aggregate_with_own(
    block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum"
) -> tuple[Tensor, Tensor]:
    """`aggregate`, and the destinations' own rows: together, for their gradients meet in one tensor without a detour."""
    if not x.is_cpu or reduce == "max" or x.dim() != 2:
        return aggregate(block, x, weight, reduce), x[: block.num_dst]
    return _Sum.apply(block, x, weight, reduce == "mean")


def sums(
    block: Block, x: Tensor, weight: Tensor | None = None, mean: bool = False, threads: int | None = None
) -> Tensor:
    """Weighted sums (means) of source rows x [num_src, columns] by destination; without a gradient."""
    if not x.is_cpu:
        return reference.aggregate(block, x, weight, "mean" if mean else "sum")
    out = x.new_empty(len(block.indptr) - 1, x.shape[1])
    arrays = (block.indptr.numpy(), block.src.numpy(), None, array(weight), array(x), out.numpy())
    _kernels.sum_rows(*arrays, mean, False, threads or torch.get_num_threads())
    return out


def merged(block: Block, x: Tensor, reduce: str, weight: Tensor | None = None) -> Tensor:
    """Weighted sum or mean of source rows by destination, by one thread; without a gradient."""
    return sums(block, x, weight, reduce == "mean", threads=1)


def sums_backward(block: Block, g: Tensor, weight: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
    """The gradient of `sums` by its rows: sums of g by source; added to `onto`, where that is given."""
    gx = g.new_empty(block.num_src, g.shape[1]) if onto is None else onto
    if not g.is_cpu:
        rows = g[block.dst().long()]
        gx = gx.zero_() if onto is None else gx
        return gx.index_add_(0, block.src.long(), (rows if weight is None else rows * weight[:, None]).to(gx.dtype))
    indptr, dst, edge = (part.numpy() for part in block.transposed())
    numbers = edge if weight is not None else None
    arrays = (indptr, dst, numbers, array(weight), array(g), gx.numpy())
    _kernels.sum_rows(*arrays, False, onto is not None, torch.get_num_threads())
    return gx


def sum_over(lists: EdgeLists, rows: slice, weight: Tensor | None, h: Tensor, to: Tensor, onto: bool) -> None:
    """to[i] (+)= sum over the edges of vertex rows[i] of weight x h[other end]."""
    if not h.is_cpu:
        return reference.sum_over(lists, rows, weight, h, to, onto)
    indptr = lists.indptr[rows.start : rows.stop + 1]
    arrays = (indptr.numpy(), lists.other.numpy(), None, array(weight), array(h), to.numpy())
    _kernels.sum_rows(*arrays, False, onto, torch.get_num_threads())


def edge_products(lists: EdgeLists, g: Tensor, h: Tensor) -> Tensor:
    """<g[vertex], h[other end]> for each edge: the gradient of what edges count for."""
    if not g.is_cpu:
        return (g[reference.ends(lists.indptr, len(lists.other))] * h[lists.other.long()]).sum(1)
    out = g.new_empty(len(lists.other))
    arrays = (lists.indptr.numpy(), lists.other.numpy(), array(g), array(h), out.numpy())
    _kernels.edge_dot(*arrays, torch.get_num_threads())
    return out


def edge_softmax_aggregate(block: Block, logits: Tensor, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Rows x [num_src, heads, columns], summed by the soft-max of logits [edges, heads] over a destination's edges."""
    if not x.is_cpu:
        return reference.edge_softmax_aggregate(block, logits, x, keep)
    return attention_part(block, x, logits, 1.0, keep)[0]


def attention_part(
    block: Block,
    x: Tensor,
    terms: tuple[Tensor, Tensor] | Tensor,
    slope: float = 1.0,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over parts of lists: rows summed by the part's own soft-max, and the log of its sum of exponentials.

    Logits are leaky(terms[0][source] + terms[1][destination]), or given for each edge. The log is -1e30 without edges.
    """
    if not x.is_cpu:
        return reference.attention_part(block, x, terms, slope, keep)
    of_edges = isinstance(terms, Tensor)
    a_src, a_dst = (None, None) if of_edges else terms
    return _Attention.apply(block, x, a_src, a_dst, terms if of_edges else None, keep, slope)


def gat(block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GAT's attention: logits leaky(<att_src, x[source]> + <att_dst, x[destination]>) per head, then times `keep`."""
    if not x.is_cpu:
        return reference.gat(block, x, att_src, att_dst, slope, keep)
    return _Gat.apply(block, x, att_src, att_dst, keep, slope)


def gatv2(block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GATv2's attention: logits <att, leaky(xl[source] + xr[destination])> per head."""
    if not xl.is_cpu:
        return reference.gatv2(block, xl, xr, att, slope, keep)
    return _AttentionV2.apply(block, xl, xr, att, keep, slope)


def film(block: Block, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""
    if not x.is_cpu:
        return reference.film(block, x, gamma, beta, reduce)
    return _Film.apply(block, x, gamma, beta, reduce == "mean")


def largest(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest source value of each column, and how many edges attain it; without a gradient."""
    if not x.is_cpu:
        return reference.largest(block, x)
    out, ties = (x.new_empty(block.num_dst, x.shape[1]) for _ in range(2))
    indptr, src = block.indptr.numpy(), block.src.numpy()
    _kernels.max_rows(indptr, src, array(x), out.numpy(), ties.numpy(), torch.get_num_threads())
    return out, ties


def largest_backward(block: Block, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    """The sources' gradient: `share` for each edge that attains `best`."""
    if not x.is_cpu:
        return reference.largest_backward(block, share, best, x)
    indptr, dst, _ = (part.numpy() for part in block.transposed())
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    arrays = (array(share), array(best), array(x), gx.numpy())
    _kernels.max_rows_backward(indptr, dst, *arrays, torch.get_num_threads())
    return gx


def dropout_mask(rows: int, columns: int, p: float, row_keys: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p): each a function of (key, the row's key, the column) alone."""
    if not row_keys.is_cpu:
        return reference.dropout_mask(rows, columns, p, row_keys, key, dtype)
    out = torch.empty(rows, columns, dtype=dtype)
    threshold, scale = reference.dropout_threshold(p)
    _kernels.dropout_mask(key, row_keys.contiguous().numpy(), threshold, scale, out.numpy(), torch.get_num_threads())
    return out


@overload
def array(x: Tensor) -> np.ndarray: ...
@overload
def array(x: None) -> None: ...
@overload
def array(x: Tensor | None) -> np.ndarray | None: ...
def array(x: Tensor | None) -> np.ndarray | None:
    """A tensor as the kernels take it."""
    return None if x is None else x.detach().contiguous().numpy()


def inverse(degrees: Tensor, like: Tensor) -> Tensor:
    """One over each degree, as a column; one where there are no edges."""
    return degrees.clamp(min=1).to(like.dtype).reciprocal()[:, None]


class _Sum(torch.autograd.Function):
    """Forward: sum (mean) of weighted source rows by destination, and the destinations' own rows.

    Backward: the same sum over the transposed block, plus the gradient of the own rows.
    """

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, weight: Tensor | None, mean: bool) -> tuple[Tensor, Tensor]:
        ctx.block, ctx.mean = block, mean
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if weight is not None and ctx.needs_input_grad[2] else None, weight)
        out = sums(block, x, weight, mean)
        return out, x[: len(out)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        block, threads = ctx.block, torch.get_num_threads()
        if g is None:
            assert g_own is not None
            g = g_own.new_zeros(g_own.shape)
        g = (g * inverse(block.indptr.diff(), g) if ctx.mean else g).contiguous()
        gx = g_weight = None
        if ctx.needs_input_grad[1]:
            gx = sums_backward(block, g, weight)
            if g_own is not None:
                gx[: len(g_own)] += g_own
        if x is not None:
            g_weight = g.new_empty(block.num_edges)
            indptr, src = block.indptr.numpy(), block.src.numpy()
            _kernels.edge_dot(indptr, src, array(g), array(x), g_weight.numpy(), threads)
        return None, gx, g_weight, None


class _Max(torch.autograd.Function):
    """Forward: the largest source value of each column. Backward: edges that attain it share the gradient evenly."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor) -> Tensor:
        out, ties = largest(block, x)
        ctx.block = block
        ctx.save_for_backward(x, out, ties)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, out, ties = ctx.saved_tensors
        return None, largest_backward(ctx.block, g / ties, out, x)


def _attend(
    block: Block,
    x: Tensor,
    terms: tuple[Tensor | None, ...],
    keep: Tensor | None,
    slope: float,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Soft-max probabilities [edges, heads] and the rows summed by them; `terms` are a_src, a_dst and edge logits."""
    p, out = x.new_empty(block.num_edges, x.shape[1]), x.new_empty(block.num_dst, *x.shape[1:])
    a_src, a_dst, edges = (array(term) for term in terms)
    indptr, src, threads = block.indptr.numpy(), block.src.numpy(), torch.get_num_threads()
    arrays = (array(keep), array(x), p.numpy(), out.numpy(), array(lse))
    _kernels.gat(indptr, src, a_src, a_dst, edges, *arrays, slope, threads)
    return p, out


def _attend_backward(
    block: Block,
    x: Tensor,
    terms: tuple[Tensor | None, ...],
    keep: Tensor | None,
    slope: float,
    p: Tensor,
    g: Tensor,
    g_lse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x (by way of the weighted sum), of a_src, of a_dst, and of the sum inside leaky at each edge."""
    threads, g = torch.get_num_threads(), g.contiguous()
    shares, g_dst = x.new_empty(block.num_edges, 2, x.shape[1]), x.new_empty(block.num_dst, x.shape[1])
    a_src, a_dst, edges = (array(term) for term in terms)
    indptr, src = block.indptr.numpy(), block.src.numpy()
    arrays = (array(x), array(p), array(g), array(g_lse), shares.numpy(), g_dst.numpy())
    _kernels.gat_backward_dst(indptr, src, a_src, a_dst, edges, array(keep), *arrays, slope, threads)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    t_indptr, t_dst, t_edge = (part.numpy() for part in block.transposed())
    outputs = (shares.numpy(), array(g), gx.numpy(), g_src.numpy())
    _kernels.gat_backward_src(t_indptr, t_dst, t_edge, *outputs, threads)
    return gx, g_src, g_dst, shares[:, 1]


class _Attention(torch.autograd.Function):
    """Forward: weighted sum by soft-max, and the log of its sum of exponentials. Backward: by destination, by source."""

    @staticmethod
    def forward(
        ctx: Any,
        block: Block,
        x: Tensor,
        a_src: Tensor | None,
        a_dst: Tensor | None,
        edges: Tensor | None,
        keep: Tensor | None,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        lse = x.new_empty(block.num_dst, x.shape[1])
        p, out = _attend(block, x, (a_src, a_dst, edges), keep, slope, lse)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, a_src, a_dst, edges, keep, p)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a_src, a_dst, edges, keep, p = ctx.saved_tensors
        terms = (a_src, a_dst, edges)
        gx, g_src, g_dst, d_edge = _attend_backward(ctx.block, x, terms, keep, ctx.slope, p, g, g_lse)
        if edges is not None:
            return None, gx, None, None, d_edge, None, None
        return None, gx, g_src, g_dst, None, None, None


class _Gat(torch.autograd.Function):
    """Forward: each row's part of the logits, then as _Attention. Backward: likewise, and on to the attention vectors."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        threads, rows = torch.get_num_threads(), array(x)
        a_src, a_dst = x.new_empty(x.shape[:2]), x.new_empty(block.num_dst, x.shape[1])
        _kernels.head_terms(rows, array(att_src), a_src.numpy(), threads)
        _kernels.head_terms(rows, array(att_dst), a_dst.numpy(), threads)
        p, out = _attend(block, x, (a_src, a_dst, None), keep, slope)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, att_src, att_dst, a_src, a_dst, keep, p)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, att_src, att_dst, a_src, a_dst, keep, p = ctx.saved_tensors
        gx, g_src, g_dst, _ = _attend_backward(ctx.block, x, (a_src, a_dst, None), keep, ctx.slope, p, g)
        g_atts = []
        for att, gradient in ((att_src, g_src), (att_dst, g_dst)):
            sums = x.new_empty(-(-len(gradient) // _kernels.ROWS_A_PIECE), att.numel())
            arrays = (array(x), array(att), gradient.numpy(), gx.numpy(), sums.numpy())
            _kernels.head_terms_backward(*arrays, torch.get_num_threads())
            g_atts.append(sums.sum(0).view_as(att))
        return None, gx, *g_atts, None, None


class _AttentionV2(torch.autograd.Function):
    """As _Attention, with logits of joined rows; the gradient of `att` is summed in pieces of fixed length."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        p = xl.new_empty(block.num_edges, xl.shape[1])
        out = xl.new_empty(block.num_dst, *xl.shape[1:])
        rows = (array(xl), array(xr), array(att), array(keep))
        indptr, src = block.indptr.numpy(), block.src.numpy()
        _kernels.gatv2(indptr, src, *rows, p.numpy(), out.numpy(), slope, torch.get_num_threads())
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att, keep, p)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att, keep, p = ctx.saved_tensors
        block, threads = ctx.block, torch.get_num_threads()
        rows = (array(xl), array(xr), array(att), array(keep), array(p))
        d_logit, g_xr, g_xl = torch.empty_like(p), xr.new_empty(xr.shape), xl.new_empty(xl.shape)
        g_att = xl.new_empty(-(-block.num_dst // _kernels.ROWS_A_PIECE), att.numel())
        indptr, src = block.indptr.numpy(), block.src.numpy()
        outputs = (d_logit.numpy(), g_xr.numpy(), g_att.numpy())
        _kernels.gatv2_backward_dst(indptr, src, *rows, array(g), *outputs, ctx.slope, threads)
        t_indptr, t_dst, t_edge = (part.numpy() for part in block.transposed())
        gradients = (array(d_logit), array(g), g_xl.numpy())
        _kernels.gatv2_backward_src(t_indptr, t_dst, t_edge, *rows, *gradients, ctx.slope, threads)
        return None, g_xl, g_xr, g_att.sum(0).view_as(att), None, None


class _Film(torch.autograd.Function):
    """Forward: sum (mean) of relu(gamma x + beta). Backward: gamma and beta by destination, x by source."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
        out = x.new_empty(block.num_dst, x.shape[1])
        indptr, src = block.indptr.numpy(), block.src.numpy()
        _kernels.film(indptr, src, array(x), array(gamma), array(beta), out.numpy(), mean, torch.get_num_threads())
        ctx.block, ctx.mean = block, mean
        ctx.save_for_backward(x, gamma, beta)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        block, threads = ctx.block, torch.get_num_threads()
        x, gamma, beta = ctx.saved_tensors
        rows = (array(x), array(gamma), array(beta))
        scaled = array(g * inverse(block.indptr.diff(), g) if ctx.mean else g)
        gx, g_gamma, g_beta = (t.new_empty(t.shape) for t in (x, gamma, beta))
        indptr, src = block.indptr.numpy(), block.src.numpy()
        _kernels.film_backward_dst(indptr, src, *rows, scaled, g_gamma.numpy(), g_beta.numpy(), threads)
        t_indptr, t_dst, _ = (part.numpy() for part in block.transposed())
        _kernels.film_backward_src(t_indptr, t_dst, *rows, scaled, gx.numpy(), threads)
        return None, gx, g_gamma, g_beta, None
