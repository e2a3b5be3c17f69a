"""Refuse models that mix rows elsewhere than in convolutions: tried on some random rows, and on a part of them.

What a vertex gets must not hang on which others are in its batch, or several workers would train another model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import MessagePassing

from weft.errors import AllRowsError, ModelError
from weft.keys import drawing_alone, generator
from weft.nn.attributes import BY_ITS_OWN
from weft.nn.batch_norm import running_averages
from weft.nn.depths import (
    DEEPEST,
    answered,
    by_itself,
    check_can_run,
    in_mode,
    output_width,
    takes_attributes,
    walk,
)
from weft.nn.kept_state import KeptState, state_kept
from weft.nn.rows import Pass, Rows
from weft.nn.small_graph import alike
from weft.operations import DrawnShapes, Draws, drawn_otherwise

_SOME, _PART = 12, 8  # rows on which a model is tried
_AGAIN = 5  # times, at most, where the generators of numpy or Python ended in other states
_DRAWING = nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.RReLU
_TABLE = 1 << 22  # numbers of a parameter that stays as it is, and of a buffer that may: no gate is so large

Noted = list[tuple[str, Tensor]]  # rows by who gave them, in the order of a forward
Left = dict[str, Tensor]  # what tells of what a module keeps for its next forward, by name
Widths = dict[tuple[MessagePassing, int], int]  # of what convolutions give, by the depth of their rows


@dataclass(frozen=True)
class _Trial:
    """What a model did with some rows."""

    noted: Noted
    drew: DrawnShapes
    generators: tuple[object, ...]  # those of numpy and Python, afterwards
    held: list[object]  # and those that the model holds
    count: int  # of rows: those of the last vertices
    moved: bool  # are the rows that convolutions leave the last ones, not the first?
    stepped: bool  # did attributes change, by which the next rows may come out otherwise?

    def first(self, rows: Tensor) -> int:
        """The vertex of the first of some rows."""
        return _SOME - self.count + (self.count - len(rows)) * self.moved


def check_rows(model: nn.Module, width: int | None = None, fewer: int = 0, several: bool = False) -> None:
    """Refuse a model that mixes rows: it would be another with other rows beside them.

    Tried with products by random matrices in place of convolutions, of which the first ones leave `fewer` rows, one each:
    in eval mode; and as in training, with random parameters, as what is multiplied by nought at first is learned.
    `several`: are there several workers?
    """
    check_can_run(model)
    takes_attributes(model, width)  # found out by a forward that no trial is to see
    widths: Widths = {}
    for training in (False, True):
        tried = partial(_try, model, width, widths, _Way(_SOME, fewer, training))
        with other_parameters(model) if training else nullcontext():
            try:
                whole, part = tried(_SOME), tried(_PART)
            except ModelError:
                if training:  # it does not run so by itself
                    break
                raise
            if whole.stepped != part.stepped:  # what the next rows come out as is compared in both
                tried = partial(tried, twice=True)
                whole, part = tried(_SOME), tried(_PART)
            if whole.generators != part.generators:
                whole, part = _undisturbed(whole, tried, _SOME), _undisturbed(part, tried, _PART)
            _check(model, whole, part, tried, several, " in training" if training else "")
    if several:
        walk(model, width, there_are_rows=False)


def _undisturbed(trial: _Trial, tried: Callable[..., _Trial], rows: int) -> _Trial:
    """A trial in which nobody else drew by numpy or Python: workers that are threads share their generators.

    One that ends as the next one does; of a model that draws otherwise each time, the last.
    """
    for _ in range(_AGAIN):
        before, trial = trial, tried(rows)
        if trial.generators == before.generators:
            break
    return trial


def _check(
    model: nn.Module, whole: _Trial, part: _Trial, tried: Callable[..., _Trial], several: bool, when: str
) -> None:
    """Refuse what drew other numbers for fewer rows, or made others of them."""
    by = drawn_otherwise(whole.drew, part.drew)
    if several and by is not None:
        raise ModelError(of_random_numbers(model, by))
    if several and whole.generators != part.generators:
        raise ModelError(of_random_numbers(model, "numpy or Python"))
    if several and whole.held != part.held:
        raise ModelError(of_random_numbers(model, BY_ITS_OWN))
    if by is not None or (whole.generators, whole.held) != (part.generators, part.held):
        return
    mixing = _unlike(whole, part)
    if mixing is None and (asks := _unlike(tried(_SOME, fewer=0), whole, strict=True)) is not None:
        raise ModelError(
            f"{asks} hangs{when} on whether a convolution leaves as many rows as it takes, which it does on the whole graph "
            f"and not in a batch: compare shapes or sizes, as in h.shape == x.shape (not len or numel), or widths alone"
        )
    if mixing is None and several and _is_as_before(tried, part):
        return
    if mixing is None and several and (by_place := _unlike(tried(_SOME, moved=True), part)) is not None:
        raise ModelError(
            f"{by_place} takes rows from before a convolution by their places{when}, which under some plans are other "
            f"vertices' than those behind it: join them as they are (h + x), or take the first ones as x[: len(h)]"
        )
    if mixing is None:
        try:
            mixing = _unlike(tried(_SOME, unknown=True), part)
        except ModelError:  # it does not run on what is no number
            return
    if mixing is not None:
        raise AllRowsError(
            f"{mixing} mixes the rows of different vertices{when}, so that a vertex's results would hang on what else is "
            f"in its batch",
            "normalise by vertex (LayerNorm(mode='node')) or by BatchNorm, or set full_graph = true with one worker",
        )


def _is_as_before(tried: Callable[..., _Trial], part: _Trial) -> bool:
    """Does a part stay as it is with other last rows behind convolutions, where what it lacks is no numbers?

    Both in one trial: only of a model that is then another is it found out by which.
    """
    try:
        return _unlike(tried(_SOME, moved=True, unknown=True), part, strict=True) is None
    except ModelError:  # it does not run on what is no number
        return False


def _unlike(whole: _Trial, part: _Trial, strict: bool = False) -> str | None:
    """Who made other rows of some vertices where there were more of them; None: nobody did, or the model went other ways.

    `strict`: other ways count, too.
    """
    if len(whole.noted) != len(part.noted):
        return whole.noted[-1][0] if strict else None
    for (name, rows), (_, some) in zip(whole.noted, part.noted, strict=True):
        first = whole.first(rows)
        theirs = rows if len(rows) == len(some) else rows[part.first(some) - first :][: len(some)]
        if not alike(theirs, some):
            return name
    return None


def of_random_numbers(model: nn.Module, function: str) -> str:
    """Why a model that draws random numbers for rows, by some function, trains on one worker alone."""
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, _DRAWING)]
    drawing = [f"{name} ({type(module).__name__})" for name, module in modules]
    return (
        f"the model draws random numbers by {', '.join(drawing) or function}, which several workers would draw otherwise "
        f"under each plan: take nn.Dropout (or F.dropout) of rows, whose numbers are each vertex's own, build a convolution "
        f"that drops other numbers without, or train on one worker"
    )


@contextmanager
def other_parameters(module: nn.Module) -> Iterator[None]:
    """Within it a module has random parameters, about as large as those of a layer are."""
    before = {p: p.data for p in module.parameters() if p.is_floating_point() and p.numel() <= _TABLE}
    numbers = generator(1)
    try:
        for parameter in before:
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 1.0
            drawn = torch.as_tensor(numbers.standard_normal(parameter.shape)) * scale  # of a scalar it is one number
            parameter.data = drawn.to(parameter.data)
        yield
    finally:
        for parameter, own in before.items():
            parameter.data = own


@contextmanager
def tried_again(module: nn.Module) -> Iterator[None]:
    """The same; that the module does not run with them (some must be positive, it may be) is no error."""
    with other_parameters(module), as_far_as_it_runs():
        yield


@contextmanager
def as_far_as_it_runs() -> Iterator[None]:
    """Within it only what Weft refuses is an error."""
    try:
        yield
    except ModelError:
        raise
    except Exception:  # its own code
        return


@contextmanager
def on_trial(module: nn.Module, training: bool, like: Tensor, *left_out: Callable) -> Iterator[Draws]:
    """Within it a part of a model is tried in a mode, exactly, on rows `like` these; it gives what is drawn at random.

    In training batch normalisation is left out, and what else is to be; of generators and gradients nothing remains.
    """
    leaves = LeftOut(F.batch_norm, *left_out) if training else nullcontext()
    exactly = torch.autocast(like.device.type, enabled=False)
    with torch.no_grad(), in_mode(module, training), drawing_alone(0), exactly, leaves, Draws() as drawn:
        yield drawn


class _Way(NamedTuple):
    """How a model is tried."""

    rows: int
    fewer: int  # convolutions that leave a row less each, the first ones
    training: bool
    moved: bool = False  # do they leave the last rows, and not the first?
    unknown: bool = False  # are rows that a part lacks no numbers?
    twice: bool = False  # in training: do they run again, though nothing was kept of them?


def _try(model: nn.Module, width: int | None, widths: Widths, usual: _Way, rows: int, **otherwise: Any) -> _Trial:
    """What a model does with so many rows; in training with batch normalisation left out, and buffers besides.

    What the model keeps stays as it is, and so do the generators of torch, numpy and Python.
    """
    way = usual._replace(rows=rows, **otherwise)
    with drawing_alone(0) as state, state_kept(model) as kept, Draws() as draws:
        with LeftOut(F.batch_norm) if way.training else nullcontext():
            noted = _outputs(model, width, widths, way)
            stepped = way.training and kept.has_changed()
            if stepped or (way.training and way.twice):  # what is kept of these rows may come out in the next ones
                noted += _outputs(model, width, widths, way)
        noted += _buffers(model, kept) if way.training else []
        return _Trial(noted, draws.shapes, state(), kept.generators(), rows, way.moved, stepped)


def _buffers(module: nn.Module, kept: KeptState) -> Noted:
    """What a module keeps in buffers by now, but for the averages of batch normalisations; and in what is not learned."""
    of_norms = running_averages(module)
    buffers = [
        (f"the buffer {name}", buffer.clone()[None])
        for name, buffer in module.named_buffers()
        # No table, which nobody writes.
        if name not in of_norms and (buffer.numel() <= _TABLE or kept.has_written(buffer))
    ]
    frozen = ((name, one) for name, one in module.named_parameters() if not one.requires_grad and one.numel() <= _TABLE)
    return buffers + [(f"the parameter {name}", one.clone()[None]) for name, one in frozen]


def left_by(module: nn.Module, forward: Callable[[], Tensor | None]) -> tuple[Tensor | None, Left]:
    """What a forward gives; and, in training, what tells of what it keeps for the next one: that one's, and buffers."""
    with state_kept(module) as kept:
        made = forward()
        if not module.training:
            return made, {}
        then = forward() if kept.has_changed() else made
        return made, ({} if then is None else {"what it gives next": then}) | dict(_buffers(module, kept))


def left_otherwise(one: Left, other: Left) -> str | None:
    """What two trials left otherwise, the `other` one of the first of its rows, or what one of them lacks; None: nothing."""
    for name in one | other:
        if name not in one or name not in other or not alike(one[name][: len(other[name])], other[name]):
            return name
    return None


def keeps_of_rows(who: object, kept: str) -> str:
    """Why something that keeps something of its rows for the next ones is refused; `kept`: what tells of it."""
    return (
        f"{who} keeps something of its rows for the next batches, as a running centre does ({kept} hangs on which rows "
        f"there are), but workers, and pieces of batches, have others: let it keep nothing of rows, or take BatchNorm"
    )


def check_by_row(name: str, part: Callable[..., Tensor], module: nn.Module, *rows: Tensor) -> Tensor:
    """What a part of a convolution makes of rows: a row for each, whatever others are beside it, and were before."""

    def make(count: int) -> tuple[Tensor, Left]:
        made, left = left_by(module, lambda: part(*(x[:count].clone() for x in rows)))
        if not isinstance(made, Tensor):
            raise ModelError(f"{name} gives a {type(made).__name__}: a tensor with a row for each is needed")
        if made.dim() != 2 or len(made) != count:
            raise ModelError(
                f"{name} gives a tensor of shape {[*made.shape]} for {count} rows: a row for each is needed"
            )
        return made, left

    (made, left), (of_some, left_by_some) = make(len(rows[0])), make(_PART)
    if not alike(made[:_PART], of_some):
        raise ModelError(f"{name} mixes rows, of which each worker has others: it must act on each row by itself")
    if (kept := left_otherwise(left, left_by_some)) is not None:
        raise ModelError(keeps_of_rows(name, kept))
    return made


class LeftOut(TorchFunctionMode):
    """Within it some functions leave rows as they are, such as batch normalisation, which looks at all rows in training."""

    def __init__(self, *functions: Callable) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in self._functions:
            return args[0] if args else kwargs["input"]
        return func(*args, **kwargs)


def _outputs(model: nn.Module, width: int | None, widths: Widths, way: _Way) -> Noted:
    """What each of the model's modules gets, and gives, for the last of some random rows, which get smaller."""
    sizes = [*range(way.rows, way.rows - way.fewer, -1)] + [way.rows - way.fewer] * (DEEPEST - way.fewer)
    found: Noted = []
    all_of_it = f"{type(model).__name__}.forward"

    def note(who: str, rows: object) -> None:
        if isinstance(rows, Rows):
            found.append((who, rows.plain()))

    def hooks_of(name: str, module: nn.Module) -> list[RemovableHandle]:
        who = f"{name} ({_short(module)})" if name else all_of_it
        before = module.register_forward_pre_hook(lambda _, x: note(f"{all_of_it}, before {who},", next(iter(x), None)))
        return [before, module.register_forward_hook(lambda _, x, out: note(who, out))]

    def drawn(like: Tensor, *shape: int) -> Tensor:
        return torch.from_numpy(generator(0).standard_normal(shape)).to(like)

    def inputs(like: Tensor, wide: int) -> Tensor:
        smaller = torch.arange(_SOME, 0, -1)[:, None].to(like)
        if way.unknown:
            smaller[: _SOME - _PART] = torch.nan
        return (drawn(like, _SOME, wide) * smaller)[-way.rows :]

    def left(x: Tensor, depth: int, to: int) -> Tensor:
        return x[len(x) - sizes[to] :] if way.moved else x[: sizes[to]]

    def product(conv: MessagePassing, x: Tensor, depth: int, given: dict[str, object]) -> Tensor:
        fewer = left(x, depth, depth + 1)
        if (conv, depth) not in widths:
            widths[conv, depth] = output_width(conv, x, given)
        if not way.training and (alone := by_itself(conv, fewer, given)) is not None:
            found.append((_short(conv), alone))
        return fewer @ drawn(x, x.shape[-1], widths[conv, depth])

    hooks = [hook for name, module in model.named_modules() for hook in hooks_of(name, module)]
    try:
        answered(model, width, inputs, product, Pass(sizes, deeper=left), way.training)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _short(module: nn.Module) -> str:
    """A module in a line."""
    text = str(module)
    return type(module).__name__ if "\n" in text else text
