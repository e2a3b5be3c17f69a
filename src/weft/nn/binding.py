"""Standing in for a model's convolutions while its forward runs; the model itself never changes."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.rows import Rows

# What a convolution is given in place of the graph: (module, rows, named arguments) -> rows one deeper.
Convolve = Callable[[MessagePassing, Rows, dict[str, Any]], Rows]


class Handle(Tensor):
    """Stands for `edge_index` (or edge weights, types) on the way from the model's forward to its convolutions."""

    stands_for: str

    @staticmethod
    def of(name: str) -> "Handle":
        """The handle of an edge argument; isinstance(handle, Tensor) holds, but there is nothing in it to compute with."""
        shape = (2, 0) if name == "edge_index" else (0,)
        handle = torch.empty(shape, dtype=torch.int64).as_subclass(Handle)
        handle.stands_for = name
        return handle

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Refuse: the whole graph's edges do not exist here."""
        if getattr(func, "__name__", "") in ("__get__", "as_subclass", "dim", "size"):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise ModelError(
            f"the model computes with the graph's edges outside of a convolution ({getattr(func, '__name__', func)}): on "
            f"blocks the edges differ from layer to layer. Move that computation into a MessagePassing convolution"
        )


EDGE_ARGUMENTS = ("edge_weight", "edge_type")


def call_model(
    model: nn.Module, x: Rows, convolve: Convolve, available: dict[str, bool], node_type: Tensor | None = None
) -> Any:
    """Run the model's forward on rows, its convolutions answered by `convolve`; `node_type`: of each row, if known."""
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, Tensor] = {
        name: Handle.of(name) for name in EDGE_ARGUMENTS if available.get(name) and name in accepted
    }
    if node_type is not None and "node_type" in accepted:
        given["node_type"] = Rows.of(node_type.long(), x.depth, x.run)
    with _bound(model, convolve):
        return model(x, Handle.of("edge_index"), **given)


def takes_types(model: nn.Module) -> bool:
    """Does the model's forward ask for the types of edges?"""
    return "edge_type" in inspect.signature(model.forward).parameters


@contextmanager
def _bound(model: nn.Module, convolve: Convolve) -> Iterator[None]:
    """While this lasts, the forward of each convolution hands over to `convolve` when it is given the handle."""
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    if not convs:
        raise ModelError(
            f"{type(model).__name__} has no MessagePassing convolution: there is nothing to run on a graph"
        )
    try:
        for conv in convs:
            conv.__dict__["forward"] = _Bound(conv, convolve)
        yield
    finally:
        for conv in convs:
            conv.__dict__.pop("forward", None)


class _Bound:
    """The forward of one convolution for one pass."""

    def __init__(self, conv: MessagePassing, convolve: Convolve) -> None:
        self._conv = conv
        self._convolve = convolve
        self._parameters = list(inspect.signature(type(conv).forward).parameters)[1:]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._parameters, args, strict=False)) | kwargs
        edge_index = next((name for name, value in given.items() if _is_edge_index(value)), None)
        if edge_index is None:  # a convolution inside another's own code, on edges that are real
            return type(self._conv).forward(self._conv, *args, **kwargs)
        del given[edge_index]
        x = given.pop(self._parameters[0])
        if isinstance(x, tuple | list) and len(x) == 2 and x[0] is x[1]:
            x = x[0]
        if not isinstance(x, Rows):
            raise ModelError(
                f"{self._conv} was called with {type(x).__name__} in place of the vertices' rows: pass it the rows that "
                f"came into the model's forward, or what row-wise operations and convolutions made of them"
            )
        return self._convolve(self._conv, x, {name: value for name, value in given.items() if value is not None})


def _is_edge_index(value: Any) -> bool:
    return isinstance(value, Handle) and value.stands_for == "edge_index"
