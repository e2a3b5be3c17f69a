"""Dropout keyed by what a row, or an edge, is of, so that it is the same wherever that is computed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft.errors import ModelError
from weft.keys import key as make_key
from weft.operations import operations_on

COMPUTED_AGAIN = (
    "what dropout is in is computed again for gradients (torch.utils.checkpoint), where other numbers would be drawn: leave "
    "out checkpoint (micro_batches take less memory, too), or keep dropout out of what it computes again"
)


def dropout_mask(rows: int, columns: int, p: float, row_keys: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p): each a function of (key, the row's key, the column) alone."""
    out = torch.empty(rows, columns, dtype=dtype, device=row_keys.device)
    scale = 1 / (1 - p) if p < 1 else 0.0
    operations_on(row_keys.device).dropout_mask(key, row_keys, round(p * 2**32), scale, out)
    return out


def dropped(x: Tensor, p: float, row_keys: Tensor, key: int, inplace: bool = False) -> Tensor:
    """Dropout of x [rows, ...], each row's by its key; there may be several dimensions of rows."""
    columns, dtype = x.numel() // max(1, len(row_keys)), x.dtype if x.dtype == torch.float64 else torch.float32
    mask = dropout_mask(len(row_keys), columns, p, row_keys, key, dtype).to(x.dtype).view(x.shape)
    return x.mul_(mask) if inplace else x * mask


DROPOUTS = F.dropout, torch.dropout  # whose third argument is called `training` and `train`


def asked(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
) -> tuple[Tensor, float, bool]:
    """What one of them is asked for: rows, how many of their numbers are dropped (none in eval mode), and in place?"""
    return input, p if training and train else 0.0, inplace


def edge_keys(dst_keys: Tensor, dst: Tensor, places: Tensor) -> Tensor:
    """A key for each edge, of its destination and its place in the destination's list: the same on any worker."""
    return dst_keys[dst.long()] * 0x9E3779B97F4A7C1 + places


def edge_mask(
    dst_keys: Tensor, key: int, dst: Tensor, places: Tensor, columns: int, p: float, dtype: torch.dtype
) -> Tensor:
    """Dropout of edges, keyed by destination and place in its list."""
    return dropout_mask(len(dst), columns, p, edge_keys(dst_keys, dst, places), key, dtype)


class OtherDropout(TorchFunctionMode):
    """Within it dropout is another; `dropped` is told of what is dropped in training."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func not in DROPOUTS:
            return func(*args, **(kwargs or {}))
        x, p, inplace = asked(*args, **(kwargs or {}))
        return self.dropped(x, p, inplace) if p else x

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        """What is left of x."""
        raise NotImplementedError


class KeyedDropout(OtherDropout):
    """Within it dropout is by the keys of rows; what has other rows is left to torch."""

    def __init__(self, key: int, rows: Sequence[Tensor]) -> None:
        """`rows`: the keys of each kind of rows that there may be, such as [pairs, tails] and [pairs]."""
        super().__init__()
        self._key, self._rows, self._calls = key, rows, 0
        self._backward = torch._C._current_graph_task_id()  # the backward pass that goes on; none has a number, too

    def of_others(self, x: Tensor, p: float) -> Tensor:
        """Dropout of rows that have no keys here."""
        return torch.dropout(x, p, True)

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        alike = (keys for keys in self._rows if x.shape[: keys.dim()] == keys.shape or x.shape[:1] == (keys.numel(),))
        keys = next(alike, None)
        if keys is None:
            return self.of_others(x, p)
        if torch._C._current_graph_task_id() != self._backward:
            raise ModelError(COMPUTED_AGAIN)
        self._calls += 1
        return dropped(x, p, keys.ravel(), make_key(self._key, self._calls), inplace)
