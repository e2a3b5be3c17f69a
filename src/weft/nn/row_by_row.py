"""Refuse models that mix rows elsewhere than in convolutions: tried on some random rows, and on a part of them.

What a vertex gets must not hang on which others are in its batch, or several workers would train another model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.keys import drawing_alone, generator
from weft.nn.depths import DEEPEST, answered, check_can_run, output_width
from weft.nn.rows import Rows, alike, running_averages

_SOME, _PART = 12, 8  # rows on which a model is tried

Noted = list[tuple[str, Tensor]]  # rows by who gave them, in the order of a forward


@dataclass(frozen=True)
class _Trial:
    """What a model did with some rows in training."""

    noted: Noted
    drew: bool  # random numbers by torch
    generators: tuple[object, ...]  # those of numpy and Python, afterwards


def check_rows(model: nn.Module, width: int | None = None, fewer: int = 0, several: bool = False) -> None:
    """Refuse a model that mixes rows: it would be another with other rows beside them.

    Tried with products by random matrices in place of convolutions, of which the first ones leave `fewer` rows, one each;
    in eval mode, and as in training. `several`: are there several workers?
    """
    check_can_run(model)
    _compare(_outputs(model, width, _SOME, fewer), _outputs(model, width, _PART, fewer))
    whole, part = (_in_training(model, width, rows, fewer) for rows in (_SOME, _PART))
    if whole is None or part is None:
        return
    if whole.generators != part.generators:
        if several:
            raise ModelError(
                f"{type(model).__name__} draws random numbers for rows by numpy or Python in training, which several "
                f"workers would draw otherwise under each plan: take nn.Dropout (or F.dropout), whose numbers are each "
                f"vertex's own, or train on one worker"
            )
    elif not (whole.drew or part.drew) and len(whole.noted) == len(part.noted):
        _compare(whole.noted, part.noted, " in training")


def _compare(all_of_it: Noted, part: Noted, when: str = "") -> None:
    for (name, whole), (_, some) in zip(all_of_it, part, strict=True):
        if not alike(whole[len(whole) - len(some) :], some):
            raise ModelError(
                f"{name} mixes the rows of different vertices{when}, so that a vertex's results would hang on what else is "
                f"in its batch: normalise by vertex (LayerNorm(mode='node')) or by BatchNorm, or set full_graph = true with "
                f"one worker"
            )


def _in_training(model: nn.Module, width: int | None, rows: int, fewer: int) -> _Trial | None:
    """The same in training mode, batch normalisation left out, and buffers besides; None where it does not run by itself.

    The model's buffers stay as they are, and so do the generators of numpy and Python.
    """
    before, of_norms = {name: buffer.clone() for name, buffer in model.named_buffers()}, running_averages(model)
    with drawing_alone(0) as state, _Draws() as draws:
        try:
            with _NoBatchNorm():
                noted = _outputs(model, width, rows, fewer, training=True)
            others = [(name, buffer) for name, buffer in model.named_buffers() if name not in of_norms]
            noted += [(f"the buffer {name}", buffer.clone()[None]) for name, buffer in others]
            return _Trial(noted, draws.any, state())
        except ModelError:
            return None
        finally:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    buffer.copy_(before.get(name, buffer))


class _Draws(TorchDispatchMode):
    """Notes whether torch draws random numbers."""

    any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.any |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class _NoBatchNorm(TorchFunctionMode):
    """Within it batch normalisation leaves rows as they are: it is known to look at all of them in training."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return args[0] if func is F.batch_norm else func(*args, **(kwargs or {}))


def _outputs(model: nn.Module, width: int | None, count: int, fewer: int, training: bool = False) -> Noted:
    """What each of the model's modules gets, and gives, for the last of some random rows, which get smaller."""
    sizes = [count - min(fewer, depth) for depth in range(DEEPEST)]
    found: Noted = []
    all_of_it = f"{type(model).__name__}.forward"

    def note(who: str, rows: object) -> None:
        if isinstance(rows, Rows):
            found.append((who, rows.plain()))

    def hooks_of(name: str, module: nn.Module) -> list[RemovableHandle]:
        text = str(module)
        who = f"{name} ({type(module).__name__ if chr(10) in text else text})" if name else all_of_it
        before = module.register_forward_pre_hook(lambda _, x: note(f"{all_of_it}, before {who},", next(iter(x), None)))
        return [before, module.register_forward_hook(lambda _, x, out: note(who, out))]

    def drawn(like: Tensor, *shape: int) -> Tensor:
        return torch.from_numpy(generator(0).standard_normal(shape)).to(like)

    def inputs(like: Tensor, wide: int) -> Tensor:
        smaller = torch.arange(_SOME, 0, -1)[:, None].to(like)
        return (drawn(like, _SOME, wide) * smaller)[-count:]

    def product(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        return x[: sizes[depth + 1]] @ drawn(x, x.shape[-1], output_width(conv, x, given))

    hooks = [hook for name, module in model.named_modules() for hook in hooks_of(name, module)]
    try:
        answered(model, width, inputs, product, sizes, training)
    finally:
        for hook in hooks:
            hook.remove()
    return found
