"""Which random numbers torch draws, and in which shapes."""

from functools import cache
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DrawnShapes = list[tuple[str, torch.Size]]  # random numbers by torch: by which function, in which shapes


class Draws(TorchDispatchMode):
    """Notes in which shapes torch draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: DrawnShapes = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if draws(func, args, kwargs or {}):
            drawn = out if isinstance(out, Tensor) else out[0]
            self.shapes.append((str(func._schema.name.replace("aten::", "torch.")), drawn.shape))
        return out


def drawn_otherwise(whole: DrawnShapes, part: DrawnShapes) -> str | None:
    """The function that drew other numbers for all rows than for a part of them; None: all were alike."""
    pairs = zip_longest(whole, part)
    return next(((one or other)[0] for one, other in pairs if one != other), None)


@cache
def _may_draw(func: Any) -> bool:
    """Does a function of torch ever draw random numbers? (Kept, for torch makes its tags anew each time.)"""
    return torch.Tag.nondeterministic_seeded in func.tags


def draws(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Does a function of torch draw random numbers here?"""
    if not _may_draw(func):
        return False
    said = func._schema.arguments
    given = {one.name: one.default_value for one in said if one.has_default_value()}
    given |= dict(zip((one.name for one in said), args, strict=False)) | kwargs
    never = any(given.get(name) == 0 for name in ("dropout_p", "dropout"))  # of attention, and of recurrent layers
    return given.get("training") is not False and given.get("train") is not False and not never
