"""Keyed randomness on a device, to the bit that of kernels/random.h: neighbours drawn, whole samples, and dropout.

The graph's lists (all, or those of a span of vertices) are on the device. A hop waits for it twice, to learn how many edges
and how many vertices there are: blocks are as long as what is in them. Ids are numbered in the order in which they first
appear; a hash table finds duplicates. Who comes first to a slot changes nothing: a slot belongs to one id, and keeps the
earliest of its places.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.keys import signed
from weft.triton_kernels.launch import cdiv, launch, row_tiles

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_IDS = 256  # of a program
_SLOTS_AN_ID = 2  # at least
_MOST = (1 << 31) - 1  # ids, whose places are numbers of 32 bits

DrawnBlock = tuple[Tensor, Tensor, int, Tensor]  # indptr, local sources, their number, places of the edges


def sample(
    indptr: Tensor,
    indices: Tensor,
    seeds: Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    original_ids: Tensor | None,
    replace: bool,
    first: int,
) -> tuple[Tensor, list[DrawnBlock]]:
    """All vertices reached, seeds first, and each hop's block, from the seeds outwards: as `_kernels.HashSampler32` does."""
    vertices, blocks = seeds, []
    for fanout, key in zip(fanouts, keys, strict=True):
        offsets, places = draw(indptr, vertices, fanout, key, original_ids, replace, first)
        vertices, numbers = number(torch.cat([vertices, indices[places]]))
        blocks.append((offsets, numbers[len(numbers) - len(places) :], len(vertices), places))
    return vertices, blocks


def draw(
    indptr: Tensor, vertices: Tensor, fanout: int, key: int, original_ids: Tensor | None, replace: bool, first: int
) -> tuple[Tensor, Tensor]:
    """Where each vertex's edges begin [vertices + 1], and all their places in the graph's edges. `first`: that has lists."""
    rows = vertices.long() - first
    begin = indptr[rows]
    degrees = indptr[rows + 1] - begin
    lengths = degrees if fanout < 0 else (degrees > 0) * fanout if replace else degrees.clamp(max=fanout)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    edges = int(offsets[-1])
    if fanout < 0:
        shift = (begin - offsets[:-1]).repeat_interleave(lengths, output_size=edges)
        return offsets, shift + torch.arange(edges, device=shift.device)
    places = offsets.new_empty(edges)
    lanes = triton.next_power_of_2(fanout)
    some = max(512 // lanes, 1)
    identity = vertices.long() if original_ids is None else original_ids[rows]
    given = (identity, begin, degrees, offsets, places, len(rows), signed(key))
    launch(_draw, (cdiv(len(rows), some),), *given, FANOUT=fanout, REPLACE=replace, R=some, K=lanes)
    return offsets, places


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


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    """out[i, j] = 0 where the 32 bits of (key, row_keys[i], j) are below the threshold, else `scale`."""
    rows, width = out.shape
    grid, tiles = row_tiles(rows, width)
    given = (signed(key), row_keys.contiguous(), out, rows)
    launch(_mask, grid, *given, WIDTH=width, THRESHOLD=threshold, SCALE=scale, **tiles)


@triton.jit
def mix64(x):
    """The finaliser of splitmix64 on uint64."""
    x += _GOLDEN
    x = (x ^ (x >> 30)) * _FIRST
    x = (x ^ (x >> 27)) * _SECOND
    return x ^ (x >> 31)


@triton.jit
def chain(key, part):
    """The key of a part below a key."""
    return mix64(key ^ mix64(part))


@triton.jit(do_not_specialize=["rows", "key"])
def _draw(
    identity,
    begins,
    degrees,
    offsets,
    places,
    rows,
    key,
    FANOUT: tl.constexpr,
    REPLACE: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
):
    """Without replacement by Floyd's method: a pick that is there already becomes the newest place."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here, lane = row < rows, tl.arange(0, K).to(tl.int64)[None, :]
    begin = tl.load(begins + row, mask=here, other=0)
    degree = tl.load(degrees + row, mask=here, other=0)
    offset = tl.load(offsets + row, mask=here, other=0)
    state = chain(key.to(tl.uint64), tl.load(identity + row, mask=here, other=0).to(tl.uint64))
    picks = tl.full([R, K], -1, dtype=tl.int64)
    if tl.max(degree) > (0 if REPLACE else FANOUT):  # some list is drawn from, and not taken as it is
        for taken in range(FANOUT):
            state += _GOLDEN
            if REPLACE:
                pick = tl.umulhi(mix64(state), degree.to(tl.uint64)).to(tl.int64)
            else:
                newest = degree - FANOUT + taken
                pick = tl.umulhi(mix64(state), (newest + 1).to(tl.uint64)).to(tl.int64)
                repeated = tl.max((picks == pick[:, None]).to(tl.int32), axis=1)
                pick = tl.where(repeated > 0, newest, pick)
            picks = tl.where(lane == taken, pick[:, None], picks)
    count = tl.where(degree > 0, FANOUT, 0)
    if not REPLACE:
        count = tl.minimum(degree, FANOUT)
        picks = tl.where((degree <= FANOUT)[:, None], lane, picks)
    tl.store(places + offset[:, None] + lane, begin[:, None] + picks, mask=here[:, None] & (lane < count[:, None]))


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


@triton.jit(do_not_specialize=["count"])
def _insert(ids, held, earliest, slots, count, SHIFT: tl.constexpr, N: tl.constexpr):
    """Linear probing. The slot behind the table is for those that are done: no id is compared with what it holds."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    here = at < count
    id = tl.load(ids + at, mask=here, other=0)
    size = tl.full([N], 1, dtype=tl.int64) << (64 - SHIFT)
    slot = ((id.to(tl.uint64) * _GOLDEN) >> SHIFT).to(tl.int64)
    free, nobody = tl.full([N], -1, dtype=id.dtype), tl.full([N], -2, dtype=id.dtype)
    looking = here
    while tl.max(looking.to(tl.int32)) > 0:
        there = tl.atomic_cas(held + tl.where(looking, slot, size), tl.where(looking, free, nobody), id)
        found = (there == free) | (there == id)
        looking = looking & (found == 0)
        slot = tl.where(looking, (slot + 1) & (size - 1), slot)
    tl.atomic_min(earliest + slot, at.to(tl.int32), mask=here)
    tl.store(slots + at, slot, mask=here)
