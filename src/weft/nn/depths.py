"""A model's convolutions, found by a walk through it: how deep each lies, and its widths."""

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.rows import EDGE_ARGUMENTS, Handle, Pass, call_model


def walk(model: nn.Module, width: int | None = None) -> dict[int, tuple[MessagePassing, int, int]]:
    """The first convolution to each depth, with the widths of its rows going in and coming out."""
    met: dict[int, tuple[MessagePassing, int, int]] = {}

    def meet(conv: MessagePassing, depth: int, widths: tuple[int, int], given: dict[str, object]) -> None:
        met.setdefault(depth, (conv, *widths))

    deepest = _walk(model, width, meet)
    return {depth: met[depth] for depth in range(1, deepest + 1)}


def edge_arguments(model: nn.Module, width: int | None = None) -> set[str]:
    """Which values of edges the model's forward gives to any of its convolutions, of those that a graph may have."""
    used: set[str] = set()

    def meet(conv: MessagePassing, depth: int, widths: tuple[int, int], given: dict[str, object]) -> None:
        used.update(value.stands_for for value in given.values() if isinstance(value, Handle))

    _walk(model, width, meet)
    return used


# Told of each convolution: the depth of its results, the widths of its rows, and the named arguments it is given.
Meet = Callable[[MessagePassing, int, tuple[int, int], dict[str, object]], None]


def _walk(model: nn.Module, width: int | None, meet: Meet) -> int:
    """The depth of the model's results, by a forward whose convolutions do nothing but pass their depth on."""
    none = next((p.detach().flatten()[:0] for p in model.parameters() if p.dim() > 1), torch.empty(0))
    ids = none.to(torch.int64)
    run = Pass([0] * 1000, [ids] * 1000, 0)

    def count(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        sizes = (0, *x.shape[1:-1], _output_width(conv, x, given))
        meet(conv, depth + 1, (x.shape[-1], sizes[-1]), given)
        return none.new_empty(sizes)

    training = model.training
    try:
        with torch.no_grad():
            width = width or _input_width(model)
            model.eval()
            x, everything = none.new_empty(0, width), dict.fromkeys(EDGE_ARGUMENTS, True)
            _, deepest = call_model(model, x, run, count, everything, ids)
    except RuntimeError as error:
        raise ModelError(
            f"{type(model).__name__} does not run on rows of {width} features: build it for as many as the graph has "
            f"({error})"
        ) from error
    finally:
        model.train(training)
    return deepest


def _input_width(model: nn.Module) -> int:
    for module in model.modules():
        width = getattr(module, "in_channels", getattr(module, "in_features", None))
        if isinstance(width, tuple):
            width = width[0]
        if isinstance(width, int) and width > 0:
            return width
    raise ModelError(
        "can't tell how many features the model takes: give its first layer in_channels or in_features, or set fanouts"
    )


def _output_width(conv: MessagePassing, rows: Tensor, given: dict[str, object]) -> int:
    """What a convolution makes of its rows: found by running it on one vertex with a self-loop."""
    inner = type(conv).forward
    names = list(inspect.signature(inner).parameters)[3:]
    x = rows.new_zeros(1, *rows.shape[1:])
    options = {name: value for name, value in given.items() if not isinstance(value, Handle)}
    if "edge_type" in names and hasattr(conv, "num_relations"):
        options["edge_type"] = torch.zeros(1, dtype=torch.int64, device=x.device)
    out = inner(conv, x, torch.zeros(2, 1, dtype=torch.int64, device=x.device), **options)
    return int(out.shape[-1])
