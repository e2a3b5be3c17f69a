"""How kernels are started, and how large their pieces are."""

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_FLOATS = {torch.float16: tl.float32, torch.bfloat16: tl.float32, torch.float32: tl.float32, torch.float64: tl.float64}

_CELLS = 128  # of a program's tile of rows
_EDGES = 8  # of each pair of a row and a head that a program reads at once, at most,
_ROOM = 1024  # and the cells that they have


def launch(kernel: Any, grid: tuple[int, ...], *args: object, **constants: object) -> None:
    """Run a kernel over a grid, on the device of its first tensor; nothing, where the grid is empty."""
    if 0 in grid:
        return
    first = next(arg for arg in args if isinstance(arg, Tensor))
    with torch.cuda.device_of(first) if first.is_cuda else nullcontext():  # the interpreter is for the CPU's
        kernel[grid](*args, **constants)


def sums_in(x: Tensor) -> tl.dtype:
    """The type in which such numbers are added up."""
    return _FLOATS[x.dtype]


def sums_dtype(x: Tensor) -> torch.dtype:
    """The same, as torch calls it."""
    return torch.promote_types(x.dtype, torch.float32)


def row_tiles(rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """For rows of `width` columns: the grid, and how many rows (R) and columns (C) a program has.

    A program is one warp, with four cells a lane: many are under way at once, and none waits for another's longer list.
    (Of several warps, Triton 3.7 can't compile the loops of some tiles.)
    """
    columns = min(triton.next_power_of_2(max(width, 1)), _CELLS)
    some = _CELLS // columns
    return (cdiv(rows, some), cdiv(width, columns)), {"R": some, "C": columns, "num_warps": 1}


def pair_tiles(rows: int, heads: int, columns: int, joined: bool = False) -> tuple[tuple[int], dict[str, int]]:
    """For rows of heads: the grid, and how many pairs of a row and a head (P) a program has, of all their columns (F).

    And how many edges of each (E) it reads at once, as much as one warp has room for; `joined`: beside an edge's row there
    is what was made of both its ends'.
    """
    f = triton.next_power_of_2(max(columns, 1))
    p = max(_CELLS // f, 1)
    e = min(_EDGES // 2 if joined else _EDGES, _ROOM // (p * f))
    return (cdiv(rows * heads, p),), {"P": p, "F": f, "E": max(e, 1), "num_warps": 1}


def cdiv(number: int, by: int) -> int:
    """How many pieces of `by` it takes."""
    return -(-number // by)
