"""A model's convolutions, found by a walk through it: how deep each lies, and its widths."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError, SlicesError, WeftError, reason_of
from weft.graph import edge_arrays
from weft.keys import drawing_alone, generator
from weft.nn.alongside import Alongside, own_forward
from weft.nn.forwards import LEARNED_ROWS, arguments_of, taken_by
from weft.nn.handles import ATTRIBUTES, EDGE_ARGUMENTS, FEATURES, Handle
from weft.nn.kept_state import state_kept
from weft.nn.rows import Convolve, Hooked, Pass, call_model
from weft.nn.serving import serving
from weft.nn.small_graph import alike

DEEPEST = 1000  # convolutions in a row
_DRAWN = 64  # random rows that a model is tried on


class Walked(NamedTuple):
    """A convolution on the way through a model."""

    conv: MessagePassing
    depth: int  # of its results
    wide: int  # columns of its rows going in
    out: int  # and coming out
    alongside: dict[str, Alongside]  # other rows that it is given, among its own
    handles: dict[str, Handle]  # values of edges that it is given


def walk(model: nn.Module, width: int | None = None, there_are_rows: bool = True) -> list[Walked]:
    """The first convolution to each depth, that nearest the inputs first.

    Unless it is known that `there_are_rows`, a model is refused that runs on rows, but not where there are none.
    """
    met, deepest = _walk(model, width, there_are_rows)
    first = {one.depth: one for one in reversed(met)}
    return [first[depth] for depth in range(1, deepest + 1)]


def edge_arguments(model: nn.Module, width: int | None = None) -> set[str]:
    """Which values of edges the model's forward gives to any of its convolutions, of those that a graph may have."""
    used: set[str] = set()
    for one in _walk(model, width)[0]:
        kind = serving(one.conv)
        ignores = kind.ignores if kind is not None and kind.serves(one.conv) else ()
        used |= {handle.stands_for for name, handle in one.handles.items() if name not in ignores}
    return used


def takes_slices(model: nn.Module, width: int) -> bool:
    """May inputs be slices of columns: does training compute with them in the first convolutions alone?"""
    try:
        _on_few_rows(model, width, sliced=True)
    except ModelError as error:  # other reasons are a run's to tell
        return not isinstance(error, SlicesError)
    return True


class Joined(NamedTuple):
    """Rows from before a layer that a model joins with those behind it, such as a residual's."""

    wide: int
    learned: bool  # do gradients go back to them?


class Passage(NamedTuple):
    """How rows go through a model in training."""

    as_they_are: bool  # does the first convolution take the inputs, and nothing that is made of them?
    learned: set[int]  # the layers, 0 nearest the inputs, from which gradients go on to what is before them
    joined: dict[int, list[Joined]]  # by layer, 0 nearest the inputs
    known: bool  # or could it not be found out?
    out: int  # columns of the model's rows; nought, where that is not known

    def goes_on(self, layer: int) -> bool:
        """Do gradients go on from a layer to what is before it, as far as that is known?"""
        return layer in self.learned if self.known else layer > 0


def passage(model: nn.Module, width: int | None) -> Passage:
    """How rows go through a model: the inputs into its convolutions one by one, if that can't be found out.

    It may ask whether there are rows of some kind, so it is tried on rows of zeros and on random ones.
    """
    as_they_are, learned, out = list[bool](), set[int](), 0
    joined: dict[int, list[Joined]] = {}

    def enters(x: Tensor, depth: int, inputs: Tensor) -> None:
        learned.update([depth] if x.requires_grad else [])
        as_they_are.extend([] if depth else [x.is_set_to(inputs)])

    def deeper(x: Tensor, depth: int, to: int) -> Tensor:
        for layer in range(depth, to):
            joined.setdefault(layer, []).append(Joined(x[:1].numel(), x.requires_grad))
        return x

    with suppress(ModelError):  # which a run tells
        out = _on_few_rows(model, width, enters, deeper=deeper)
    with suppress(ModelError):
        _on_few_rows(model, width, enters, drawn=True)
    return Passage(all(as_they_are), learned, joined, bool(as_they_are), out)


def _on_few_rows(
    model: nn.Module,
    width: int | None,
    enters: Callable[[Tensor, int, Tensor], object] = lambda x, depth, inputs: None,
    sliced: bool = False,
    deeper: Callable[[Tensor, int, int], Tensor] | None = None,
    drawn: bool = False,
    hooked: Hooked | None = None,
) -> int:
    """The columns of the results of a forward as in training, of as many rows as norms need, or of more that are `drawn`.

    `enters` is told what convolutions get, at which depth, of which inputs.
    """
    made: list[Tensor] = []
    count = _DRAWN if drawn else 2

    def inputs(like: Tensor, width: int) -> Tensor:
        rows = like.new_zeros(count, width)
        made.append(rows + torch.from_numpy(generator(0).normal(0, 4, rows.shape)).to(rows) if drawn else rows)
        return made[0]

    def passed(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        enters(x, depth, made[0])
        learned = x.requires_grad or any(parameter.requires_grad for parameter in conv.parameters())
        with in_mode(conv, False):  # of one row
            return x.new_zeros(len(x), output_width(conv, x, given)).requires_grad_(learned) + 0

    run = Pass([count] * DEEPEST, deeper=deeper, sliced=sliced, hooked=hooked)
    with drawing_alone(0), state_kept(model):
        out, _ = answered(model, width, inputs, passed, run, training=True, gradients=True)
    return out.shape[-1]


def check_hooks(model: nn.Module, width: int) -> None:
    """Refuse hooks of rows' gradients that do not treat each part of a sum alike: several workers have parts of them."""
    hooked: Hooked = []
    with suppress(ModelError):  # which a run tells
        _on_few_rows(model, width, drawn=True, hooked=hooked)
    for rows, hook in hooked:
        one, other = (torch.from_numpy(generator(seed).normal(size=rows.shape)).to(rows) for seed in (0, 1))
        first, second, both = (hook(gradient) for gradient in (one, other, one + other))
        if first is not None and second is not None and both is not None and not alike(first + second, both):
            raise ModelError(
                f"{type(model).__name__} hooks the gradient of rows by a function that is not linear (register_hook), of "
                f"which workers and pieces of a batch have parts: change parameters' gradients behind their sum "
                f"(run.sync(), or clip_norm), or train on the full graph"
            )


def check_tables(model: nn.Module) -> None:
    """Refuse tables that change by how often, or which, ids are looked up: workers and pieces of a batch have some each."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (module.scale_grad_by_freq or module.max_norm):
            option = "scale_grad_by_freq=True" if module.scale_grad_by_freq else "max_norm=..."
            raise ModelError(
                f"{name}: {type(module).__name__}({option}) hangs on which ids are looked up together, of which workers and "
                f"pieces of a batch have some each: build it without"
            )


# Of how many columns of edge_attr a model was tried: does it run with these? And of how many it gets some in trials: as many
# as the last graph has that was asked for, nought where it runs only without.
_TRIED: WeakKeyDictionary[nn.Module, dict[int, bool]] = WeakKeyDictionary()
_GIVEN: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def takes_attributes(model: nn.Module, width: int | None, wide: int = 0) -> int:
    """Of how many columns a model takes `edge_attr`, which a graph has so many of, if known; nought: it runs only without.

    As PyG's own models do, which take it whatever their convolutions are. One is what edges weigh.
    """
    taken = taken_by(model).get(ATTRIBUTES)
    if taken is None:
        return 0
    needed, tried = taken.default is taken.empty, _TRIED.get(model, {})
    if model not in _GIVEN or (wide and not tried.get(wide) and (needed or wide not in tried)):
        wrong = _take(model, width, [wide] if wide else [1, *_widths_within(model)])
        # One that runs without as well, but is built for features, has other ones than it was built for.
        others = [one for one in _widths_within(model) if one != wide] if wide > 1 else []
        if wrong is not None and (needed or (others and _take(model, width, others) is None)):
            del _TRIED[model], _GIVEN[model]
            raise ModelError(
                f"{type(model).__name__}.forward takes edge_attr, features of edges, or what they weigh, a number each "
                f"([edges, 1]), and does not run on {wide or 1} of each edge: build its convolutions with "
                f"edge_dim={wide or 1} ({wrong})"
            ) from wrong
    if wide:
        _GIVEN[model] = wide if _TRIED[model][wide] else 0
    return _GIVEN[model]


def edge_values_there(model: nn.Module, width: int | None, graph: object) -> dict[str, int]:
    """What there is of a graph's edges for a model; `edge_attr` is their features, or else what they weigh, as a column."""
    of_edges = edge_arrays(graph)
    there = {name: int(name in of_edges) for name in EDGE_ARGUMENTS}
    if FEATURES in of_edges:
        return there | {FEATURES: takes_attributes(model, width, of_edges[FEATURES].shape[1])}
    return there | {ATTRIBUTES: int("edge_weight" in of_edges and takes_attributes(model, width, 1))}


def _take(model: nn.Module, width: int | None, several: Sequence[int]) -> ModelError | None:
    """Find the first number of columns that a model runs with; where there is none, why not."""
    wrong, tried = None, _TRIED.setdefault(model, {})
    for wide in several:
        _GIVEN[model] = wide
        try:
            _walk(model, width)
        except ModelError as error:
            wrong, tried[wide] = wrong or error, False
        else:
            tried[wide] = True
            return None
    _GIVEN[model] = 0
    return wrong


def _widths_within(model: nn.Module) -> list[int]:
    """The numbers that its convolutions and parameters are built with: of features of edges it takes one of these."""
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    built = [value for conv in convs for value in vars(conv).values() if type(value) is int]
    return sorted({size for size in (*built, *(size for p in model.parameters() for size in p.shape)) if size > 1})


def _walk(model: nn.Module, width: int | None, there_are_rows: bool = True) -> tuple[list[Walked], int]:
    """Each call of a convolution, and the depth of the model's results, by a forward that passes depths on and no more.

    What the model keeps, such as a count of its calls, stays as it is.
    """
    check_can_run(model)

    def on(rows: int) -> tuple[list[Walked], int]:
        met: list[Walked] = []

        def count(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
            width = output_width(conv, x, given)
            alongside = {name: value for name, value in given.items() if isinstance(value, Alongside)}
            handles = {name: value for name, value in given.items() if isinstance(value, Handle)}
            met.append(Walked(conv, depth + 1, x.shape[-1], width, alongside, handles))
            return x.new_zeros(len(x), width)

        with state_kept(model):
            run = Pass([rows] * DEEPEST)
            return met, answered(model, width, lambda like, width: like.new_zeros(rows, width), count, run)[1]

    try:
        return on(0)
    except ModelError as error:
        found = on(2)  # what is wrong there is told: that there are no rows may be wrong besides
        if there_are_rows:
            return found
        reason = reason_of(error.__cause__ or error)
        remedy = (
            ": write the width out, as in h.view(-1, heads, width), or h.flatten(1)"
            if reason.startswith("cannot reshape") and reason.endswith("ambiguous")
            else ", as what looks at all rows together, such as h.max(): that mixes the rows of different vertices; take "
            "each row's own, as in h.max(dim=1)"
        )
        raise ModelError(
            f"{type(model).__name__} runs on rows, but not where a worker has none in a batch ({reason}){remedy}"
        ) from error


class _WithinTables(TorchFunctionMode):
    """Within it made-up rows find something in tables, such as embeddings, whatever numbers they are, and leave them be."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given, named = list(args), kwargs or {}
        if given and isinstance(given[0], Handle):  # which tells of what the model does with it
            return func(*given, **named)
        if func in (F.embedding, F.embedding_bag) and len(given) > 1:
            given[0] = given[0].remainder(len(given[1]))
            named = {**named, "max_norm": None}  # which would change the table
        elif func is F.one_hot and (classes := named.get("num_classes", args[-1])) is not args[0] and classes > 0:
            given[0] = given[0].remainder(classes)
        return func(*given, **named)


def answered(
    model: nn.Module,
    width: int | None,
    rows: Callable[[Tensor, int], Tensor],
    answer: Convolve,
    run: Pass,
    training: bool = False,
    gradients: bool = False,
) -> tuple[Tensor, int]:
    """The model's results, and their depth: its forward on rows made like a parameter, with answered convolutions.

    `run`: without keys, which it gets here. `gradients`: is it seen what rows go through?
    """
    like = max(model.parameters(), key=lambda p: (p.is_floating_point(), p.dim() > 1), default=torch.empty(0))
    like = like.detach().flatten()[:0]
    try:
        with torch.set_grad_enabled(gradients), in_mode(model, training), _WithinTables():
            width = width or _input_width(model)
            x, everything = rows(like, width), dict.fromkeys(EDGE_ARGUMENTS, 1)
            wide = takes_attributes(model, width)
            everything |= {ATTRIBUTES: int(wide == 1), FEATURES: wide if wide > 1 else 0}
            types = torch.zeros(len(x), dtype=torch.int64, device=x.device)
            of_size = {size: types[:size] for size in {*run.sizes}}
            run.key, run.keys = (), [of_size[size] for size in run.sizes]
            return call_model(model, x, run, answer, everything, types)
    except RuntimeError as error:
        if type(model).forward is nn.Module.forward and "forward" not in vars(model):
            raise ModelError(
                f"{type(model).__name__} has no forward: write forward(self, x, edge_index), which gives a row for each "
                f"vertex (of links: what encode does; the task's decoder scores pairs of rows)"
            ) from None
        raise ModelError(
            f"{type(model).__name__} does not run on rows of {width} features: build it for as many as the graph has, and "
            f"for any number of rows, of which each convolution leaves fewer: h.size(0) behind it, not x.size(0) before it, "
            f"and F.embedding(ids, table), not table[ids] ({error})"
        ) from error
    except WeftError:
        raise
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__} does not run as forward(x, edge_index), on {width} features of each of some vertices "
            f"({type(error).__name__}: {error})"
        ) from error


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training mode or in eval mode; then each of its modules is as it was."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.train(training)
        yield
    finally:
        for module, before in modes.items():
            module.training = before


def check_can_run(model: nn.Module) -> None:
    """Refuse a model of dictionaries, one with parameters that have no values, or whose convolutions can't be answered in
    place: compiled code runs them; and one that keeps a graph, or hooks what modules' gradients are.
    """
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise ModelError(f"the model is {what}, and no torch.nn.Module: give one that is built, as in Model(...)")
    if meta := [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]:
        raise ModelError(
            f"{type(model).__name__} has no values yet ({meta[0]} is on the meta device): build it on the CPU, or call "
            f"model.to_empty(device='cpu') and load its parameters"
        )
    arguments = list(taken_by(model))[:2]
    if arguments[:1] == ["edge_index"] and {*arguments[1:]} <= {*EDGE_ARGUMENTS}:
        raise ModelError(
            f"{type(model).__name__}.forward takes {' and '.join(arguments)}, and no rows of vertices: write "
            f"forward(self, x, {', '.join(arguments)}). {LEARNED_ROWS}"
        )
    by_type = isinstance(model, torch.fx.GraphModule) and any(isinstance(of, nn.ModuleDict) for of in model.modules())
    if by_type or (all(name.endswith("_dict") for name in arguments) and arguments):  # to_hetero; written by hand
        raise ModelError(
            f"{type(model).__name__}.forward takes dictionaries by type ({', '.join(arguments)}): a model gets the rows of "
            f"all types as one x, then edge_index, edge_type and node_type: use RGCNConv, or weft.nn.build('rgcn', ...)"
        )
    if complex_ := [name for name, of in (*model.named_parameters(), *model.named_buffers()) if of.dtype.is_complex]:
        raise ModelError(
            f"{type(model).__name__} has complex numbers ({complex_[0]}), and models are computed in real ones: keep both "
            f"parts of each (torch.view_as_real), or make them in the forward (torch.polar)"
        )
    if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        raise ModelError(
            f"{type(model).__name__} has parameters without values yet ({lazy[0]}): give its layers in_channels in place of "
            f"-1 (of the first one graph.num_features), or run it once before"
        )
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing) and getattr(module, "cached", False):
            raise ModelError(
                f"{name}: cached=True keeps what it made of the first graph (a batch's) for all others; build {module} with "
                f"cached=False"
            )
        if module._backward_hooks or module._backward_pre_hooks:
            raise ModelError(
                f"{name or type(model).__name__} has hooks of a module's gradients (register_full_backward_hook), which do "
                f"not run in batches: hook rows in the forward, as in h.register_hook(...), or parameters"
            )
        scripted = isinstance(module, torch.jit.ScriptModule)
        compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        if scripted or compiled:
            by = "torch.jit" if scripted else "torch.compile"
            who = type(model).__name__ if module is model else f"{type(model).__name__} has a part that"
            raise ModelError(
                f"{who} is compiled ({by}), and can't be run on batches' rows and blocks: pass the model as it was before"
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


def output_width(conv: MessagePassing, rows: Tensor, given: dict[str, object]) -> int:
    """What a convolution makes of its rows: found by running it on one vertex with a self-loop."""
    if rows.dim() != 2:
        shape = ", ".join(["vertices", *map(str, rows.shape[1:])])
        raise ModelError(
            f"{conv} gets rows of shape [{shape}]: a vertex's row must be one list of numbers, so call the convolution once "
            f"for each step or channel, or flatten them before it (x.flatten(1))"
        )
    out = _of_own_forward(conv, rows.new_zeros(1, *rows.shape[1:]), given)
    if not isinstance(out, Tensor):
        raise ModelError(
            f"{conv} gave a {type(out).__name__}: a convolution must give one row a vertex, and nothing else"
        )
    return int(out.shape[-1])


def by_itself(conv: MessagePassing, rows: Tensor, given: dict[str, object]) -> Tensor | None:
    """What a convolution makes of rows that have only themselves as neighbours; None where it does not run so."""
    try:
        out = _of_own_forward(conv, rows, given)
    except Exception:  # its own code, on what it may not be made for: blocks will show
        return None
    return out if isinstance(out, Tensor) and len(out) == len(rows) else None


def _of_own_forward(conv: MessagePassing, x: Tensor, given: dict[str, object]) -> object:
    """The module's own forward on rows that have an edge each, from themselves."""
    count, names = len(x), arguments_of(type(conv).forward)[2:]
    options = {name: _of_edges(value, x) for name, value in given.items()}
    if "edge_type" in names and hasattr(conv, "num_relations"):
        options["edge_type"] = torch.zeros(count, dtype=torch.int64, device=x.device)
    loops = torch.arange(count, device=x.device).expand(2, count)
    return own_forward(conv, x, loops, options)


def _of_edges(value: object, x: Tensor) -> object:
    """What a convolution is given for an edge of each row, where the model hands it values of edges."""
    if not isinstance(value, Handle):
        return value
    if value.stands_for == FEATURES:
        return x.new_ones(len(x), value.size(1))
    of_type = value.stands_for == "edge_type"
    return value.shaped(torch.zeros(len(x), dtype=torch.int64, device=x.device) if of_type else x.new_ones(len(x)))
