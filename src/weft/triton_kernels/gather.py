"""Rows of features from where they are nearest: the device's cache, else the host's memory, read across the bus."""

import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import launch, row_tiles


def gather_tiers(ids: Tensor, slots: Tensor, cached: Tensor, host: Tensor, out: Tensor) -> None:
    """out[i] = cached[slots[ids[i]]], or host[ids[i]] where the slot is below 0.

    `host` is in pinned memory, which the device reads where it lies; rows of half precision come out as `out` has them.
    """
    rows, width = out.shape
    grid, tiles = row_tiles(rows, width)
    given = (ids.contiguous(), slots.contiguous(), cached.contiguous(), host, out, rows)
    launch(_gather, grid, *given, WIDTH=width, **tiles)


@triton.jit(do_not_specialize=["rows"])
def _gather(ids, slots, cached, host, out, rows, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here, within = row < rows, (column < WIDTH)[None, :]
    id = tl.load(ids + row, mask=here, other=0).to(tl.int64)
    slot = tl.load(slots + id, mask=here, other=0).to(tl.int64)
    near, far = here & (slot >= 0), here & (slot < 0)
    of_cache = tl.load(cached + slot[:, None] * WIDTH + column[None, :], mask=near[:, None] & within, other=0)
    of_host = tl.load(host + id[:, None] * WIDTH + column[None, :], mask=far[:, None] & within, other=0)
    value = tl.where(near[:, None], of_cache, of_host).to(out.dtype.element_ty)
    tl.store(out + row[:, None] * WIDTH + column[None, :], value, mask=here[:, None] & within)
