"""What convolutions ask of a device's kernels, and the one place that chooses whose they are.

Lists of edges are `indptr` [rows + 1] int64 and `other` [edges] int32, the row at each edge's other end; turned around, they
come with `edge`, the number that each edge has in the lists as they were. A block gives both; `indptr` begins with 0.
"""

from functools import cache
from importlib.util import find_spec
from typing import Protocol

from torch import Tensor

from weft.nn import compiled, plain

Turned = tuple[Tensor, Tensor, Tensor]  # indptr, other, edge
Kept = tuple[Tensor | None, Tensor | None]  # what dropout leaves of edges [edges, heads], and of own rows [rows, heads]
# Attention's logits are leaky(of_sources[source] + of_destinations[destination]), or leaky(of_edges[edge]).
Terms = tuple[Tensor | None, Tensor | None, Tensor | None]  # of_sources, of_destinations, of_edges


class Operations(Protocol):
    """Functions of a module, on tensors of its device; no gradients, no order that changes from run to run."""

    def sum_rows(
        self,
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
        """out[i] = the sum (mean) over i's edges of weight[edge] x[other]; `onto`: added to what is there.

        `threads`: of the CPU, if not as many as torch's.
        """

    def edge_dot(self, indptr: Tensor, other: Tensor, g: Tensor, x: Tensor) -> Tensor:
        """<g[row], x[other]> of each edge."""

    def max_rows(self, indptr: Tensor, other: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The largest of each column, and how many edges attain it; without edges 0, and 1."""

    def max_rows_backward(self, turned: Turned, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
        """By source: the sum of `share` over its edges to where it attains `best`."""

    def attend(
        self, indptr: Tensor, src: Tensor, x: Tensor, terms: Terms, keep: Tensor | None, slope: float
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Rows x [sources, heads, columns], summed by the soft-max over edges, times `keep` [edges, heads].

        Then the log of the sum of exponentials [rows, heads] (-1e30 without edges), and what the gradients need again.
        """

    def attend_backward(
        self,
        indptr: Tensor,
        src: Tensor,
        turned: Turned,
        x: Tensor,
        terms: Terms,
        keep: Tensor | None,
        slope: float,
        saved: tuple[Tensor, ...],
        g: Tensor,
        g_lse: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of x through the sum, of what sources and destinations add to logits, and of logits before leaky."""

    def head_terms(self, x: Tensor, att: Tensor, rows: int) -> Tensor:
        """<att[head], x[row, head]> of the first rows, [rows, heads]."""

    def head_terms_backward(self, x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
        """The gradient of `att`; that of x is added to gx."""

    def attend_v2(
        self, indptr: Tensor, src: Tensor, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`attend` with logits <att, leaky(xl[source] + xr[destination])>, without the log."""

    def attend_v2_backward(
        self,
        indptr: Tensor,
        src: Tensor,
        turned: Turned,
        xl: Tensor,
        xr: Tensor,
        att: Tensor,
        keep: Tensor | None,
        slope: float,
        saved: tuple[Tensor, ...],
        g: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of xl, xr and att."""

    def edge_shares(
        self,
        indptr: Tensor,
        other: Tensor,
        a_src: Tensor,
        a_dst: Tensor,
        keep: Kept,
        slope: float,
        loops: bool,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The mean over heads of the soft-max over a row's edges of leaky(a_src[other] + a_dst[row]), times `keep`.

        With `loops` edges of a row to itself count for nothing, and it has one more: shares of edges [edges], and of own
        rows [rows, 1]. Then what the gradients need again.
        """

    def edge_shares_backward(
        self,
        indptr: Tensor,
        other: Tensor,
        turned: Turned,
        a_src: Tensor,
        a_dst: Tensor,
        keep: Kept,
        slope: float,
        loops: bool,
        saved: tuple[Tensor, ...],
        g: Tensor,
        g_own: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Gradients of a_src and a_dst."""

    def film(self, indptr: Tensor, src: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
        """The sum (mean) over edges of relu(gamma[row] x[source] + beta[row])."""

    def film_backward(
        self, indptr: Tensor, src: Tensor, turned: Turned, x: Tensor, gamma: Tensor, beta: Tensor, g: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of x, gamma and beta; g is divided by degrees already where the mean was taken."""

    def dropout_mask(self, key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
        """out[i, j] = 0 where the 32 bits of (key, row_keys[i], j) are below the threshold, else `scale`."""


def operations(x: Tensor) -> Operations:
    """Those of the tensor's device."""
    if x.is_cpu:
        return compiled
    return _of_cuda() if x.is_cuda else plain


@cache
def _of_cuda() -> Operations:
    if find_spec("triton") is None:
        return plain
    from weft import triton_kernels  # only here: Triton takes its time, and the CPU has no use for it

    return triton_kernels
