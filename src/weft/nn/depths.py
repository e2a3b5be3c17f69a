"""A model's convolutions, found by a walk through it: how deep each lies, and its widths; and what it does between them."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError, WeftError
from weft.nn.rows import EDGE_ARGUMENTS, Convolve, Handle, Pass, Rows, alike, call_model

_SOME = 8  # rows on which a model is tried


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


def check_rows(model: nn.Module, width: int | None = None) -> None:
    """Refuse a model that mixes rows elsewhere than in convolutions: it would be another with other rows beside them.

    Tried in eval mode on a few rows and on fewer of them, with products by random matrices in place of convolutions.
    """
    for (name, whole), (_, half) in zip(*(_outputs(model, width, rows) for rows in (_SOME, _SOME // 2)), strict=True):
        if not alike(whole[-len(half) :], half):
            raise ModelError(
                f"{name} mixes the rows of different vertices, so that a vertex's results would hang on what else is in its "
                f"batch: normalise by vertex (LayerNorm(mode='node')) or by BatchNorm, or set full_graph = true with one "
                f"worker"
            )


def _outputs(model: nn.Module, width: int | None, count: int) -> list[tuple[str, Tensor]]:
    """What each of the model's modules gets, and gives, for the last of some random rows, which get smaller."""
    found: list[tuple[str, Tensor]] = []
    all_of_it = f"{type(model).__name__}.forward"

    def note(who: str, rows: object) -> None:
        if isinstance(rows, Rows):
            found.append((who, rows.plain()))

    def hooks_of(name: str, module: nn.Module) -> list[RemovableHandle]:
        text = str(module)
        who = f"{name} ({type(module).__name__ if chr(10) in text else text})" if name else all_of_it
        before = module.register_forward_pre_hook(lambda _, x: note(f"{all_of_it}, before {who},", next(iter(x), None)))
        return [before, module.register_forward_hook(lambda _, x, out: note(who, out))]

    def random(like: Tensor, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(like)

    def product(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        return x @ random(x, x.shape[-1], _output_width(conv, x, given))

    check_can_run(model)
    hooks = [hook for name, module in model.named_modules() for hook in hooks_of(name, module)]
    try:
        smaller = torch.arange(_SOME, 0, -1)[:, None]
        _forward(model, width, lambda like, wide: (random(like, _SOME, wide) * smaller.to(like))[-count:], product)
    finally:
        for hook in hooks:
            hook.remove()
    return found


# Told of each convolution: the depth of its results, the widths of its rows, and the named arguments it is given.
Meet = Callable[[MessagePassing, int, tuple[int, int], dict[str, object]], None]


def _walk(model: nn.Module, width: int | None, meet: Meet) -> int:
    """The depth of the model's results, by a forward whose convolutions do nothing but pass their depth on."""

    def count(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        sizes = (0, *x.shape[1:-1], _output_width(conv, x, given))
        meet(conv, depth + 1, (x.shape[-1], sizes[-1]), given)
        return x.new_empty(sizes)

    return _forward(model, width, lambda like, wide: like.new_empty(0, wide), count)


def _forward(model: nn.Module, width: int | None, rows: Callable[[Tensor, int], Tensor], answer: Convolve) -> int:
    """The depth of the model's results: its forward on rows, which are made like a parameter, with answered convolutions."""
    check_can_run(model)
    like = max(model.parameters(), key=lambda p: (p.is_floating_point(), p.dim() > 1), default=torch.empty(0))
    like = like.detach().flatten()[:0]
    try:
        with torch.no_grad(), evaluating(model):
            width = width or _input_width(model)
            x, everything = rows(like, width), dict.fromkeys(EDGE_ARGUMENTS, True)
            types = torch.zeros(len(x), dtype=torch.int64, device=x.device)
            run = Pass([len(x)] * 1000, [types] * 1000, ())
            _, deepest = call_model(model, x, run, answer, everything, types)
    except RuntimeError as error:
        raise ModelError(
            f"{type(model).__name__} does not run on rows of {width} features: build it for as many as the graph has, and "
            f"for any number of rows ({error})"
        ) from error
    except WeftError:
        raise
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__} does not run as forward(x, edge_index), on {width} features of each of some vertices "
            f"({type(error).__name__}: {error})"
        ) from error
    return deepest


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; then each of its modules is as it was."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def check_can_run(model: nn.Module) -> None:
    """Refuse a model of dictionaries, one with parameters that have no values, or whose convolutions can't be answered in
    place: compiled code runs them.
    """
    if meta := [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]:
        raise ModelError(
            f"{type(model).__name__} has no values yet ({meta[0]} is on the meta device): build it on the CPU, or call "
            f"model.to_empty(device='cpu') and load its parameters"
        )
    arguments = list(inspect.signature(model.forward).parameters)[:2]
    by_type = isinstance(model, torch.fx.GraphModule) and any(isinstance(of, nn.ModuleDict) for of in model.modules())
    if by_type or (all(name.endswith("_dict") for name in arguments) and arguments):  # to_hetero; written by hand
        raise ModelError(
            f"{type(model).__name__}.forward takes dictionaries by type ({', '.join(arguments)}): a model gets the rows of "
            f"all types as one x, then edge_index, edge_type and node_type: use RGCNConv, or weft.nn.build('rgcn', ...)"
        )
    if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        raise ModelError(
            f"{type(model).__name__} has parameters without values yet ({lazy[0]}): give its layers in_channels in place of "
            f"-1 (of the first one graph.num_features), or run it once before"
        )
    for module in model.modules():
        scripted = isinstance(module, torch.jit.ScriptModule)
        compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        if scripted or (compiled and any(isinstance(inner, MessagePassing) for inner in module.modules())):
            raise ModelError(
                f"{type(model).__name__} is compiled ({'torch.jit' if scripted else 'torch.compile'}), and its convolutions "
                f"can't be run on batches' blocks: pass the model as it was before"
            )


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
    if not isinstance(out, Tensor):
        raise ModelError(
            f"{conv} gave a {type(out).__name__}: a convolution must give one row a vertex, and nothing else"
        )
    return int(out.shape[-1])
