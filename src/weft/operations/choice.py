"""The operations of a device, and the one place that chooses whose they are."""

from functools import cache
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from weft.errors import reason_of
from weft.operations import compiled, plain
from weft.operations.arguments import JoinedTerms, Lists, Saved, Scores, Terms, Turned


class Operations(Protocol):
    """Functions of a module, on tensors of its device; no gradients, no order that changes from run to run."""

    def sum_rows(
        self,
        lists: Lists | Turned,
        weight: Tensor | None,
        x: Tensor,
        out: Tensor,
        mean: bool,
        onto: bool,
        threads: int = 0,
    ) -> None:
        """out[i] = the sum (mean) over i's edges of weight[edge] x[other]; `onto`: added to what is there.

        `threads`: of the CPU; 0: as many as torch's.
        """

    def edge_dot(self, lists: Lists, g: Tensor, x: Tensor) -> Tensor:
        """<g[row], x[other]> of each edge."""

    def max_rows(self, lists: Lists, x: Tensor) -> tuple[Tensor, Tensor]:
        """The largest of each column, and how many edges attain it; without edges 0, and 1."""

    def max_rows_backward(self, turned: Turned, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
        """By source: the sum of `share` over its edges to where it attains `best`."""

    def attend(self, lists: Lists, x: Tensor, terms: Terms) -> tuple[Tensor, Tensor, Saved]:
        """Rows x [sources, heads, columns], summed by the soft-max over edges, times `keep`.

        Then the log of the sum of exponentials [rows, heads] (-1e30 without edges), and what the gradients need again.
        """

    def attend_backward(
        self, lists: Lists, turned: Turned, x: Tensor, terms: Terms, saved: Saved, g: Tensor, g_lse: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of x through the sum, of what sources and destinations add to logits, and of logits before leaky."""

    def head_terms(self, x: Tensor, att: Tensor, rows: int) -> Tensor:
        """<att[head], x[row, head]> of the first rows, [rows, heads]."""

    def head_terms_backward(self, x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
        """The gradient of `att`; that of x is added to gx."""

    def attend_v2(self, lists: Lists, terms: JoinedTerms) -> tuple[Tensor, Saved]:
        """`attend` of the sources' terms, without the log."""

    def attend_v2_backward(
        self, lists: Lists, turned: Turned, terms: JoinedTerms, saved: Saved, g: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the terms: of sources, of destinations, and the vector."""

    def edge_shares(self, lists: Lists, scores: Scores) -> tuple[Tensor, Tensor, Saved]:
        """The mean over heads of the soft-max over a row's edges, times `keep`.

        Of edges [edges], and of own rows [rows, 1] (0 without loops). Then what the gradients need again.
        """

    def edge_shares_backward(
        self, lists: Lists, turned: Turned, scores: Scores, saved: Saved, g: Tensor, g_own: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of what sources and destinations add to logits."""

    def film(self, lists: Lists, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
        """The sum (mean) over edges of relu(gamma[row] x[source] + beta[row])."""

    def film_backward(
        self, lists: Lists, turned: Turned, x: Tensor, gamma: Tensor, beta: Tensor, g: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of x, gamma and beta; g is divided by degrees already where the mean was taken."""

    def dropout_mask(self, key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
        """out[i, j] = 0 where the 32 bits of (key, row_keys[i], j) are below the threshold, else `scale`."""


@cache
def operations_on(device: torch.device) -> Operations:
    """Those of a device: compiled for the CPU, in Triton for CUDA's, or of torch alone where there is none."""
    if device.type == "cpu":
        return compiled
    if not has_kernels(device):
        return plain
    from weft import triton_kernels  # only here: Triton takes its time, and the CPU has no use for it

    return triton_kernels


@cache
def has_triton() -> bool:
    """Are there kernels for CUDA's devices?"""
    return find_spec("triton") is not None


@cache
def why_no_kernels() -> str:
    """Why Triton can't start its kernels here: it compiles some C when it first runs. Nothing, where it can."""
    try:
        import triton

        _ = triton.runtime.driver.active.get_current_target  # asked for anything, it compiles what loads kernels
    except Exception as error:  # whatever Triton's build of it meets
        return reason_of(error)
    return ""


def has_kernels(device: torch.device) -> bool:
    """Are there kernels in Triton for the device?"""
    return device.type == "cuda" and has_triton()
