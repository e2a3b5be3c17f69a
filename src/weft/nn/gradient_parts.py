"""Gradients of which several workers, or pieces of a batch, have a part each: what is not a sum of parts is refused."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from weft.errors import ModelError
from weft.keys import generator
from weft.nn.small_graph import alike

Hook = Callable[[Tensor], Tensor | None]


def adds_up(hook: Hook, like: Tensor) -> bool:
    """Does a hook make of a sum of gradients what it makes of each of them, summed?"""
    one, other = (torch.from_numpy(generator(seed).normal(size=like.shape)).to(like) for seed in (0, 1))
    parts, both = (hook(one), hook(other)), hook(one + other)
    first, second = parts
    return first is None or second is None or both is None or alike(first + second, both)


def check_parts(model: nn.Module) -> None:
    """Refuse a model in which what a parameter learns is no sum of parts."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.scale_grad_by_freq:
            raise ModelError(
                f"{name}: {type(module).__name__}(scale_grad_by_freq=True) divides gradients by how often an id is among "
                f"the rows, of which workers and pieces of a batch have a part each: leave it out"
            )
    check_hooks_of_parameters(model.named_parameters())


def hooks_of_parameter(parameter: nn.Parameter) -> Iterator[int]:
    """The numbers of the hooks of its gradient."""
    for hooks in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks):
        yield from hooks or ()


def check_hooks_of_parameters(named: Iterable[tuple[str, nn.Parameter]]) -> None:
    """Refuse hooks that do not treat each part of a gradient alike, and those that step before all parts are summed."""
    for name, parameter in named:
        if parameter._post_accumulate_grad_hooks:
            raise ModelError(
                f"{name} has a hook that runs as soon as a part of its gradient is there "
                f"(register_post_accumulate_grad_hook), before the parts of other workers or pieces of a batch are added: "
                f"do what it does behind the sum of gradients (run.sync())"
            )
        for hook in (parameter._backward_hooks or {}).values():
            if not adds_up(hook, parameter.detach()):
                raise ModelError(
                    f"{name} has a hook of its gradient that is not linear (register_hook), of which workers and pieces of "
                    f"a batch have parts: change the gradients behind their sum (run.sync()), or set clip_norm"
                )
