"""Handles: what stands for a graph's edges in a model's forward, until a convolution gets them of a block."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from weft.errors import ModelError, caller_outside

EDGE_ARGUMENTS = ("edge_weight", "edge_type")
FEATURES = "edge_features"  # as a graph has them; of which
ATTRIBUTES = "edge_attr"  # is PyG's name, and where there are none, of what edges weigh, as a column

_HARMLESS = (
    "dtype",
    "device",
    "ndim",
    "layout",
    "requires_grad",
    "is_leaf",
    "is_sparse",
    "is_cuda",
    "is_meta",
    "grad_fn",
)
_TYPES = {"long": torch.int64, "int": torch.int32, "float": torch.float32, "double": torch.float64}  # by what converts
_DROPPED = "in place of dropout_edge lower fanouts, by which each epoch draws other edges"
_AS_THEY_ARE = ("contiguous", "clone", "detach")


class Handle(Tensor):
    """Stands for `edge_index` (or edge weights, types) on the way from the model's forward to its convolutions."""

    stands_for: str
    column: bool  # does it stand for values [edges, 1], not [edges]?

    @staticmethod
    def of(name: str, column: bool = False, columns: int = 0, dtype: torch.dtype = torch.float32) -> "Handle":
        """The handle of an edge argument; isinstance(handle, Tensor) holds, but there is nothing in it to compute with.

        `columns`: of features; `dtype`: of what are no ids.
        """
        shape = (2, 0) if name == "edge_index" else (0, columns) if name == FEATURES else (0, 1) if column else (0,)
        ids = name in ("edge_index", "edge_type")
        handle = torch.empty(shape, dtype=torch.int64 if ids else dtype).as_subclass(Handle)
        handle.stands_for, handle.column = name, column
        return handle

    def is_plainly(self, name: str, columns: bool = False) -> bool:
        """Does it stand for values of this name, as a graph has them, or for a column of them, where such do (`columns`)?"""
        return self.stands_for == name and (columns or not self.column)

    def shaped(self, values: Tensor) -> Tensor:
        """Values of edges in the shape that it stands for."""
        return values[:, None] if self.column else values

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Refuse: the whole graph's edges do not exist here. That values are to be a column is noted."""
        name, of = getattr(func, "__name__", str(func)), args[0] if args else None
        if isinstance(of, Handle):
            if _makes_column(name, args[1:], kwargs or {}) and of.stands_for in EDGE_ARGUMENTS:
                return Handle.of(of.stands_for, column=True)
            if name == "__get__":
                name = func.__self__.__name__  # type: ignore[attr-defined]  # of a property
            if name in ("size", "shape"):
                sizes = EdgeSizes(of)
                return sizes[given[0]] if (given := (*args[1:], *(kwargs or {}).values())) and name == "size" else sizes
            if name in ("as_subclass", "dim", *_HARMLESS):
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            if _keeps_values(of, name, (*args[1:], *(kwargs or {}).values())):
                return of
        raise ModelError(
            f"the model computes with the graph's edges outside of a convolution ({name} in "
            f"{caller_outside('torch', 'weft')}): on blocks they differ from layer to layer. Move that computation into "
            f"a MessagePassing convolution (or leave out checkpoint, ckpt_grad and reversible layers, if these did so; "
            f"{_DROPPED})"
        )


class EdgeSizes(tuple):
    """The shape of what a handle stands for, but for how many edges there are, which differs from block to block."""

    def __new__(cls, handle: Handle) -> "EdgeSizes":
        """-1, where the edges are counted: torch refuses that, too."""
        with torch._C.DisableTorchFunctionSubclass():
            return super().__new__(cls, (size or -1 for size in handle.shape))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        return super().__getitem__(at) if super().__getitem__(at) > 0 else self._refused()

    def __iter__(self) -> Iterator[int]:
        return (self[at] for at in range(len(self)))

    def _refused(self, *_: object) -> Any:
        raise ModelError(
            f"the model asks how many edges there are (in {caller_outside('torch', 'weft')}), and blocks have others from "
            f"layer to layer: move what is computed by it into a MessagePassing convolution ({_DROPPED})"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __contains__ = count = index = numel = (
        _refused
    )
    __hash__ = _refused


def _makes_column(function: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Does a function make [edges, 1] of [edges]?"""
    given = (*args, *kwargs.values())
    if function in ("view", "reshape"):
        return given in ((-1, 1), ((-1, 1),), ([-1, 1],))
    if function == "unsqueeze":
        return given[0] in (1, -1)
    return function == "__getitem__" and args == ((slice(None), None),)


def _keeps_values(handle: Handle, function: str, given: tuple) -> bool:
    """Does a function only move values, or convert them to a type in which they are the same?"""
    wanted: torch.dtype | None = _TYPES.get(function)
    if function in ("to", "type_as"):
        types = [one.dtype if isinstance(one, Tensor) else one for one in given]
        wanted = next((one for one in types if isinstance(one, torch.dtype)), None)
    elif wanted is None:
        return function in _AS_THEY_ARE
    kept = {"edge_type": ("long", "int"), "edge_index": ("long",)}.get(handle.stands_for, ("float", "double"))
    return wanted is None or wanted in [_TYPES[name] for name in kept]
