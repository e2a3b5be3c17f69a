"""Rows of features from two tiers: the device's cache, and those that came from beyond."""

import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import launch, row_tiles


def gather_tiers(places: Tensor, near: Tensor, far: Tensor, out: Tensor) -> None:
    """out[i] = near[places[i]], or far[-1 - places[i]] where the place is below 0; in out's precision."""
    rows, width = out.shape
    grid, tiles = row_tiles(rows, width)
    given = (places.contiguous(), near.contiguous(), far.contiguous(), out, rows)
    launch(_gather, grid, *given, WIDTH=width, **tiles)


@triton.jit(do_not_specialize=["rows"])
def _gather(places, near, far, out, rows, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here, within = row < rows, (column < WIDTH)[None, :]
    place = tl.load(places + row, mask=here, other=0).to(tl.int64)
    cached, beyond = here & (place >= 0), here & (place < 0)
    of_cache = tl.load(near + place[:, None] * WIDTH + column[None, :], mask=cached[:, None] & within, other=0)
    of_rest = tl.load(far + (-1 - place)[:, None] * WIDTH + column[None, :], mask=beyond[:, None] & within, other=0)
    to = out.dtype.element_ty
    value = tl.where(cached[:, None], of_cache.to(to), of_rest.to(to))
    tl.store(out + row[:, None] * WIDTH + column[None, :], value, mask=here[:, None] & within)
