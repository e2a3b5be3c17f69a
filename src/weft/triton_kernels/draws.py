"""Neighbours drawn on a device: those that kernels/sampling.cpp draws, to the bit; and whole samples of them.

The graph's lists (all, or those of a span of vertices) are on the device. A hop waits for it twice, to learn how many edges
and how many vertices there are: blocks are as long as what is in them.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.keys import signed
from weft.triton_kernels.launch import cdiv, launch
from weft.triton_kernels.mixing import GOLDEN, chain, mix64
from weft.triton_kernels.numbering import number

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
            state += GOLDEN
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
