"""Ids numbered in the order in which they first appear: duplicates are found by a hash table on the device.

Who comes first to a slot changes nothing: a slot belongs to one id, and keeps the earliest of its places.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import cdiv, launch
from weft.triton_kernels.mixing import GOLDEN

_IDS = 256  # of a program
_SLOTS_AN_ID = 2  # at least
_MOST = (1 << 31) - 1  # ids, whose places are numbers of 32 bits


def number(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ids (of 0 and more) in order of appearance, and each id's place among them, int32."""
    if len(ids) > _MOST:
        raise OverflowError("more than 2^31 ids at once: use smaller batches or fanouts, or more workers")
    bits = max((_SLOTS_AN_ID * len(ids)).bit_length(), 1)
    size = 1 << bits
    held, earliest = ids.new_full((size + 1,), -1), torch.full((size,), len(ids), dtype=torch.int32, device=ids.device)
    slots = torch.empty(len(ids), dtype=torch.int64, device=ids.device)
    grid = (cdiv(len(ids), _IDS),)
    launch(_insert, grid, ids.contiguous(), held, earliest, slots, len(ids), SHIFT=64 - bits, N=_IDS)
    first = earliest[slots].long()
    new = first == torch.arange(len(ids), device=ids.device)
    places = new.cumsum(0) - 1
    return ids[new], places[first].int()


@triton.jit(do_not_specialize=["count"])
def _insert(ids, held, earliest, slots, count, SHIFT: tl.constexpr, N: tl.constexpr):
    """Linear probing. The slot behind the table is for those that are done: no id is compared with what it holds."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    here = at < count
    id = tl.load(ids + at, mask=here, other=0)
    size = tl.full([N], 1, dtype=tl.int64) << (64 - SHIFT)
    slot = ((id.to(tl.uint64) * GOLDEN) >> SHIFT).to(tl.int64)
    free, nobody = tl.full([N], -1, dtype=id.dtype), tl.full([N], -2, dtype=id.dtype)
    looking = here
    while tl.max(looking.to(tl.int32)) > 0:
        there = tl.atomic_cas(held + tl.where(looking, slot, size), tl.where(looking, free, nobody), id)
        found = (there == free) | (there == id)
        looking = looking & (found == 0)
        slot = tl.where(looking, (slot + 1) & (size - 1), slot)
    tl.atomic_min(earliest + slot, at.to(tl.int32), mask=here)
    tl.store(slots + at, slot, mask=here)
