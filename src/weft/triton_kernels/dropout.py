"""Keyed dropout."""

import triton
import triton.language as tl
from torch import Tensor

from weft.keys import signed
from weft.triton_kernels.launch import launch, row_tiles
from weft.triton_kernels.mixing import chain, mix64


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    """out[i, j] = 0 where the 32 bits of (key, row_keys[i], j) are below the threshold, else `scale`."""
    rows, width = out.shape
    grid, tiles = row_tiles(rows, width)
    given = (signed(key), row_keys.contiguous(), out, rows)
    launch(_mask, grid, *given, WIDTH=width, THRESHOLD=threshold, SCALE=scale, **tiles)


@triton.jit(do_not_specialize=["key", "rows"])
def _mask(
    key,
    row_keys,
    out,
    rows,
    WIDTH: tl.constexpr,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here = row < rows
    state = chain(key.to(tl.uint64), tl.load(row_keys + row, mask=here, other=0).to(tl.uint64))
    bits = mix64(state[:, None] + (column // 2).to(tl.uint64)[None, :])
    bits = tl.where((column % 2 == 0)[None, :], bits & 0xFFFFFFFF, bits >> 32).to(tl.int64)
    kept = (bits >= THRESHOLD).to(out.dtype.element_ty) * SCALE
    cells = here[:, None] & (column < WIDTH)[None, :]
    tl.store(out + row[:, None] * WIDTH + column[None, :], kept, mask=cells)
