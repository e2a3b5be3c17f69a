"""How kernels are started, how large their pieces are, and what programs begin with: which rows and columns are theirs."""

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

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


@triton.jit
def some_rows(indptr, rows, WIDTH: constexpr, R: constexpr, C: constexpr):
    """The cells of some rows and columns, whether they are there, the columns, and the first and last edge of each row."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here, within = row < rows, (column < WIDTH)[None, :]
    first = tl.load(indptr + row, mask=here, other=0)
    stop = tl.load(indptr + row + 1, mask=here, other=0)
    return row[:, None] * WIDTH + column[None, :], here[:, None] & within, column, within, first, stop


@triton.jit
def other_ends(lists, e, stop, column, within, WIDTH: constexpr):
    """Of one edge of each row: whether it is there, and the cells of the row at its other end, and whether they are."""
    live = e < stop
    other = tl.load(lists + e, mask=live, other=0).to(tl.int64)
    return live, other[:, None] * WIDTH + column[None, :], live[:, None] & within


@triton.jit
def some_pairs(indptr, rows, HEADS: constexpr, COLUMNS: constexpr, P: constexpr, F: constexpr):
    """Pairs of a row and a head: their places, their heads, all columns, which of the cells are there, and rows' edges."""
    pair = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    row, column = pair // HEADS, tl.arange(0, F)
    known = row < rows  # pairs may be more than 2^31, rows times heads would not be
    first = tl.load(indptr + row, mask=known, other=0)
    stop = tl.load(indptr + row + 1, mask=known, other=0)
    return pair, pair - row * HEADS, known, column, known[:, None] & (column < COLUMNS)[None, :], first, stop


@triton.jit
def some_pieces(rows, HEADS: constexpr, COLUMNS: constexpr, ROWS: constexpr, P: constexpr, F: constexpr):
    """Pairs of a piece of rows and a head: first rows, heads, all columns, which of the cells are there, and their places.

    The places are of the heads' own columns, and of each piece's.
    """
    pair, column = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P), tl.arange(0, F)
    piece = pair // HEADS
    head = pair - piece * HEADS
    cells = (piece * ROWS < rows)[:, None] & (column < COLUMNS)[None, :]
    of_head = head[:, None] * COLUMNS + column[None, :]
    return piece * ROWS, head, column, cells, of_head, pair[:, None] * COLUMNS + column[None, :]


@triton.jit
def some_edges(first, stop, at, E: constexpr):
    """The next edges of each pair's row, and which of them are there."""
    e = (first + at)[:, None] + tl.arange(0, E).to(tl.int64)[None, :]
    return e, e < stop[:, None]


@triton.jit
def rows_at(x, at, live, column, COLUMNS: constexpr, ACC: constexpr):
    """The rows of some edges: of each one row and head, by its place."""
    cells = live[:, :, None] & (column < COLUMNS)[None, None, :]
    return tl.load(x + at[:, :, None] * COLUMNS + column[None, None, :], mask=cells, other=0).to(ACC)
