"""Which of torch's functions give a row for each row, of the same vertex: by their names and arguments."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

# Functions that move numbers along a dimension: the names and defaults of their arguments behind the tensor.
_ALONG: dict[str, dict[str, Any]] = {
    "sort": {"dim": -1},
    "argsort": {"dim": -1},
    "index_select": {"dim": 0},
    "gather": {"dim": 0},
    "take_along_dim": {"indices": None, "dim": None},
    "roll": {"shifts": None, "dims": None},
}
_SWAP = ("transpose", "swapaxes", "swapdims")
_ALL = ("take", "t", "adjoint", "msort")


def keeps_rows(func: Callable[..., object], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Is what a function gives still a row for each row of its first argument, if there are as many?"""
    name, x = getattr(func, "__name__", ""), args[0] if args else kwargs.get("input")
    if not isinstance(x, Tensor):
        return True
    if func is Tensor.__getitem__:
        first = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
        return first is Ellipsis or (isinstance(first, slice) and first == slice(None))
    if name in _ALONG:
        names = list(_ALONG[name])
        given = _ALONG[name] | dict(zip(names, args[1:], strict=False)) | kwargs
        along = many(given[names[-1]])
        return None not in along and all(dim % max(x.dim(), 1) for dim in along)
    if name == "flip":
        return all(dim % x.dim() for dim in many(*(args[1:] or kwargs["dims"])))
    if name == "permute":
        return next(iter(many(*(args[1:] or kwargs["dims"])))) % x.dim() == 0
    if name in _SWAP:
        return all(dim % x.dim() for dim in (*args[1:], *kwargs.values()))
    if name == "__get__":  # of a property, such as x.T
        of = getattr(getattr(func, "__self__", None), "__name__", "")
        return not (of in ("T", "H") or (of in ("mT", "mH") and x.dim() == 2))
    return name not in _ALL


def many(*given: Any) -> Sequence[Any]:
    """Dimensions, given one by one or as a tuple."""
    return given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
