"""Dropout outside of the model's forward: keyed by what a row is of, so that it is the same wherever that is computed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft.errors import ModelError
from weft.keys import key as make_key
from weft.nn import functional

COMPUTED_AGAIN = (
    "what dropout is in is computed again for gradients (torch.utils.checkpoint), where other numbers would be drawn: leave "
    "out checkpoint (micro_batches take less memory, too), or keep dropout out of what it computes again"
)


class OtherDropout(TorchFunctionMode):
    """Within it dropout is another; `dropped` is told of what is dropped in training."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in (F.dropout, torch.dropout):
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        """What is left of x."""
        raise NotImplementedError

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return self.dropped(input, p, inplace) if training and p else input


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
        return functional.dropped(x, p, keys.ravel(), make_key(self._key, self._calls), inplace)
