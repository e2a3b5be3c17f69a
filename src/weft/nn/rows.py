"""Rows: the tensor that a model sees as `x`. It knows how many convolutions it has passed, hence whose rows it holds.

Destinations come first among a block's sources, so the rows left after d convolutions are the first sizes[d] of the
batch's vertices. When a model joins rows of different depth (x + conv(x), jumping knowledge), the shallower ones are
trimmed to the deepest: that is all it takes to run residual models unchanged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError, SlicesError
from weft.keys import key as make_key
from weft.nn.alongside import put_alongside
from weft.nn.batch_norm import by_running_averages, count_no_more
from weft.nn.dropout import COMPUTED_AGAIN, DROPOUTS, asked, dropped
from weft.nn.forwards import Arguments, arguments_of, no_rows, not_of_vertices, of_edges, taken_by
from weft.nn.handles import ATTRIBUTES, EDGE_ARGUMENTS, FEATURES, Handle
from weft.nn.serving import serving
from weft.operations import linear

if TYPE_CHECKING:
    from weft.nn.conv.hops import DegreeHop, Unrolled

Hooked = list[tuple[Tensor, Callable[[Tensor], Tensor | None]]]  # rows, and what hooks their gradients

# Functions that tell the same of a slice of columns as of whole rows, by name.
_KNOWN_OF_SLICES = ("__get__", "size", "dim")
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
_SHAPE = (Tensor.shape.__get__, Tensor.size)  # type: ignore[attr-defined]
# What is of this very tensor, as gradients come to it: not of another with the same numbers.
_TOLD: tuple[Any, ...] = Tensor.grad, Tensor.grad_fn, Tensor.retains_grad, Tensor.is_leaf
_GIVEN: tuple[Any, ...] = Tensor.grad, Tensor.requires_grad
_OF_ITSELF = {
    Tensor.register_hook,
    Tensor.retain_grad,
    Tensor.requires_grad_,
    *(of.__get__ for of in _TOLD),
    *(of.__set__ for of in _GIVEN),
    _GIVEN[0].__delete__,
}


@dataclass
class Pass:
    """One forward pass: how many rows there are at each depth, whose they are, and the key of its dropout."""

    sizes: Sequence[int]
    keys: Sequence[Tensor] = ()  # by depth: [sizes[depth]] int64
    key: tuple[int, ...] | None = None  # its parts
    deeper: Callable[[Tensor, int, int], Tensor] | None = None  # rows of a depth -> those of a deeper one's vertices
    sliced: bool = False  # are the inputs slices of columns, of which nothing can be made but a convolution's sums?
    hooked: Hooked | None = None  # gets rows whose gradients are hooked
    not_averaged: list[Tensor] = field(default_factory=list)  # running means of norms that had too few rows to train on
    backward: int = field(default_factory=torch._C._current_graph_task_id)  # the one that it is made in, if any
    dropouts: int = field(default=0)
    deepest: int = field(default=0)  # of the convolutions so far, the depth of the last one's results

    def next_dropout(self) -> int:
        """The key of the next dropout call; calls are counted, as a model makes the same ones each time."""
        if self.key is None or not self.keys:
            raise ModelError(
                "a model draws dropout for batches of training only: call model.eval() before it is run on others "
                "(loader.over(...)), and give F.dropout training=self.training, or it drops in eval mode, too"
            )
        if self.backward != torch._C._current_graph_task_id():
            raise ModelError(COMPUTED_AGAIN)
        self.dropouts += 1
        return make_key(make_key(*self.key), self.dropouts)

    def descend(self, x: Tensor, depth: int, to: int) -> Tensor:
        """Rows of a depth, only those of a deeper one's vertices: they come first, unless others hold them."""
        return x[: self.sizes[to]] if self.deeper is None else self.deeper(x, depth, to)

    def depth_of(self, count: int, depth: int) -> int | None:
        """Whose rows the first ones of a depth's are, so many: those of the last convolution that left as many."""
        return next((to for to in range(max(depth, self.deepest), depth - 1, -1) if self.sizes[to] == count), None)

    def by_row(self, function: Callable[..., Tensor], depth: int, *rows: Tensor) -> Tensor:
        """What a function makes of each row by itself, its dropout keyed as outside of convolutions."""
        return without_depth(function(*(Rows.of(x, depth, self) for x in rows)))


class RowCount(int):
    """How many rows there are at a depth of a pass: as many as at any other one, where they are compared.

    On the whole graph they are. So `if h.shape == x.shape: h = h + x` hangs on widths alone, and not on who is in a batch.
    """

    run: Pass

    @staticmethod
    def of(count: int, run: Pass) -> "RowCount":
        """A count in a pass."""
        found = RowCount(count)
        found.run = run
        return found

    def __eq__(self, other: object) -> bool:
        return self._alike(other) or int.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self._alike(other) and int.__ne__(self, other)

    def __lt__(self, other: int) -> bool:
        return not self._alike(other) and int.__lt__(self, other)

    def __gt__(self, other: int) -> bool:
        return not self._alike(other) and int.__gt__(self, other)

    def __le__(self, other: int) -> bool:
        return self._alike(other) or int.__le__(self, other)

    def __ge__(self, other: int) -> bool:
        return self._alike(other) or int.__ge__(self, other)

    __hash__ = int.__hash__

    def _alike(self, other: object) -> bool:
        return isinstance(other, RowCount) and other.run is self.run


class Rows(Tensor):
    """A tensor of one row a vertex, at some depth of a forward pass."""

    depth: int
    run: Pass

    @staticmethod
    def of(x: Tensor, depth: int, run: Pass) -> "Rows":
        """Plain rows as Rows; their number must be that of the depth."""
        assert len(x) == run.sizes[depth], (len(x), depth, run.sizes)
        rows = x.as_subclass(Rows)
        rows.depth, rows.run = depth, run
        return rows

    def __len__(self) -> int:
        """As of a tensor, which goes through `__torch_function__` twice for it."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.size(0)

    def plain(self) -> Tensor:
        """The same tensor without its knowledge."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Trim what goes in to the deepest, run the function on plain tensors, mark what comes out."""
        kwargs = kwargs or {}
        if func in _OF_ITSELF:
            if func is Tensor.register_hook and args[0].run.hooked is not None:
                args[0].run.hooked.append((args[0].plain().detach(), args[1]))
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        found = list(_rows_in(args)) + list(_rows_in(tuple(kwargs.values())))
        deepest = max(found, key=lambda rows: rows.depth)
        depth, run = deepest.depth, deepest.run
        if run.sliced and any(rows.depth == 0 for rows in found) and func.__name__ not in _KNOWN_OF_SLICES:
            raise SlicesError(
                "layer 1 is placed by columns, but the model computes with its inputs outside of its first convolution: "
                "place layer 1 local, pull or push"
            )
        shallower = any(rows.depth < depth for rows in found)
        if shallower and any(rows.depth < depth for rows in _rows_in(_written(func, args, kwargs))):
            raise ModelError(
                f"the model writes what a convolution gave into rows from before it ({func.__name__}), of which there may "
                f"be more here: make new rows of them, as in x + y, torch.cat([x, y], 1) or torch.stack([x, y], 1).sum(1)"
            )
        first = _first_rows(func, args, kwargs)
        if first is not None and (to := run.depth_of(first.rows, depth)) is not None:  # as in h + x[: len(h)]
            with torch._C.DisableTorchFunctionSubclass():
                rows = _trimmed(args[0], to, run)[(slice(None), *first.columns)]
                return Rows.of(rows, to, run)
        with torch._C.DisableTorchFunctionSubclass():
            size = run.sizes[depth]
            args = _trimmed(args, depth, run)
            kwargs = {name: _trimmed(value, depth, run) for name, value in kwargs.items()}
            if func in DROPOUTS:
                return Rows.of(_keyed_dropout(run, depth, *asked(*args, **kwargs)), depth, run)
            if func is F.batch_norm and size < 2:
                args, kwargs = by_running_averages(run.not_averaged, *args, **kwargs)
            result = linear(*args, **kwargs) if func is F.linear and "input" not in kwargs else func(*args, **kwargs)
            if func in _SHAPE:
                return _counted(cast(torch.Size | int, result), args[0].dim(), [*args[1:], *kwargs.values()], run)
            return _marked(result, depth, size if _keeps_rows(func, args, kwargs) else -1, run)


def without_depth(x: Tensor) -> Tensor:
    """The same rows as an ordinary tensor, whether or not they know their depth."""
    return x.plain() if isinstance(x, Rows) else x


_EDGE_INDEX = Handle.of("edge_index")


@cache
def _handles(dtype: torch.dtype) -> dict[str, Handle]:
    """Of a model of some numbers."""
    plain = {name: Handle.of(name, dtype=dtype) for name in EDGE_ARGUMENTS}
    return plain | {ATTRIBUTES: Handle.of("edge_weight", column=True, dtype=dtype)}


# What answers in a convolution's place: (module, rows, their depth, named arguments) -> rows one deeper.
Convolve = Callable[[MessagePassing, Tensor, int, dict[str, object]], Tensor]


def call_model(
    model: nn.Module,
    x: Tensor,
    run: Pass,
    answer: Convolve,
    available: Mapping[str, int] | None = None,
    node_type: Tensor | None = None,
) -> tuple[Tensor, int]:
    """The model's forward on rows of inputs, its convolutions answered by `answer`: rows, and their depth.

    `available`: which edge arguments there are, and of features, `edge_attr`, how many; `node_type`: of each row, if known.
    """
    there = available or {}
    given: dict[str, Tensor | None] = {name: handle for name, handle in _handles(x.dtype).items() if there.get(name)}
    if wide := there.get(FEATURES):
        given[ATTRIBUTES] = Handle.of(FEATURES, columns=wide, dtype=x.dtype)
    if node_type is not None:
        given["node_type"] = Rows.of(node_type.long(), 0, run)
    with forwards_replaced(model, lambda conv: _Bound(conv, run, answer)):
        out = forward_on(model, Rows.of(x, 0, run), _EDGE_INDEX, given)
    if not isinstance(out, Rows):
        raise ModelError(f"the model's forward gave {no_rows(out)}")
    return out.plain(), out.depth


def forward_on(model: nn.Module, x: Tensor, edge_index: Tensor, there: Mapping[str, Tensor | None]) -> Any:
    """What its forward gives, which may take the edges first; `there`: of which it gets what it takes."""
    accepted = taken_by(model)
    given = {name: value for name, value in there.items() if value is not None and name in accepted}
    _check_arguments(model, accepted, given)
    both = (edge_index, x) if next(iter(accepted)) == "edge_index" else (x, edge_index)
    out = model(*both, **given)
    if isinstance(x, Rows) and x.run.not_averaged:
        count_no_more(model, x.run.not_averaged)
        x.run.not_averaged.clear()
    return out


def _check_arguments(model: nn.Module, accepted: Arguments, given: Mapping[str, object]) -> None:
    """Refuse a forward that takes no edges, or asks for what it can't be given."""
    if len(accepted) < 2 and not any(one.kind is one.VAR_POSITIONAL for one in accepted.values()):
        one = next(iter(accepted), "nothing")
        remedy = (
            "torch_geometric.nn.Sequential hands it to convolutions"
            if isinstance(model, nn.Sequential)
            else f"write forward(self, x, edge_index), with x and edge_index in place of {one}.x and {one}.edge_index"
        )
        raise ModelError(
            f"{type(model).__name__}.forward takes {one} alone, and no edge_index besides the vertices' rows: {remedy}"
        )
    named = [one for one in [*accepted.values()][2:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if missing := [one.name for one in named if one.default is one.empty and one.name not in given]:
        raise ModelError(
            f"{type(model).__name__}.forward asks for {', '.join(missing)}: besides rows and edge_index, the first two, "
            f"it may be given {', '.join(EDGE_ARGUMENTS)}, {ATTRIBUTES} (their features, or what they weigh) and node_type, "
            f"where the graph has them; give what else it takes a default"
        )


@contextmanager
def forwards_replaced(model: nn.Module, by: Callable[[MessagePassing], Callable[..., Any]]) -> Iterator[None]:
    """While this lasts, the forward of each of the model's convolutions is another."""
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    if not convs:
        raise ModelError(f"{type(model).__name__} has no MessagePassing convolution: nothing to run on a graph")
    for conv in convs:
        if not isinstance(vars(conv).get("forward"), _Bound | None):
            raise ModelError(f"{conv} has a forward that was set on it, and that of its class is run: derive a class")
    try:
        for conv in convs:
            conv.__dict__["forward"] = by(conv)
        yield
    finally:
        for conv in convs:
            conv.__dict__.pop("forward", None)


class _Bound:
    """The forward of one convolution for one pass: answered, where it is given the handle of the graph's edges."""

    def __init__(self, conv: MessagePassing, run: Pass, answer: Convolve) -> None:
        self._conv, self._run, self._answer = conv, run, answer
        self._parameters = arguments_of(type(conv).forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._parameters, args, strict=False)) | kwargs
        edge_index = next((name for name, value in given.items() if _is_edge_index(value)), None)
        if edge_index is None:  # a convolution inside another's own code, on edges that are real
            return type(self._conv).forward(self._conv, *args, **kwargs)
        self._check_place(edge_index, *range(1, len(self._parameters)))
        edges = given.pop(edge_index)
        x = given.pop(self._parameters[0])
        if isinstance(x, tuple | list) and len(x) == 2 and x[0] is x[1]:
            x = x[0]
        if not isinstance(x, Rows):
            raise ModelError(f"{self._conv} was called with {not_of_vertices(x)}")
        for name in (*EDGE_ARGUMENTS, ATTRIBUTES):
            if is_foreign(value := given.get(name)) and len(value) != 1:
                raise ModelError(of_edges(f"{self._conv} is given {name}", value))
        if (unrolled := _unrolled(self._conv)) is not None:
            kind, module = unrolled
            hop = _Bound(module, self._run, self._answer)
            return kind(self._conv).unroll(x, lambda rows: hop(rows, edges, given.get("edge_weight")))
        given = {name: given[name] for name in (*self._parameters, *given) if given.get(name) is not None}
        if given.get("size") == (len(x), len(x)):  # what a block has, too
            del given["size"]
        others = {name: value for name, value in given.items() if next(_rows_in([value]), None) is not None}
        place = next(at for at, name in enumerate(self._parameters) if at and name not in others)
        if isinstance(given.get(name := self._parameters[place]), Tensor) and edge_index in self._parameters[place:]:
            raise ModelError(
                f"{self._conv} is given a {name} that does not come of its vertices' rows ({[*given[name].shape]}): what "
                f"comes before edge_index must be a row of each; make it one by {name} + 0 * x"
            )
        self._check_place(edge_index, place)
        if others:
            rows, alongside = put_alongside(self._conv, x, others, place - 1)
            x, given = cast(Rows, rows), given | alongside
        self._run.deepest = max(self._run.deepest, x.depth + 1)
        return Rows.of(self._answer(self._conv, x.plain(), x.depth, given), x.depth + 1, self._run)

    def _check_place(self, edge_index: str, *places: int) -> None:
        """Refuse a convolution that takes the edges elsewhere."""
        if edge_index not in [self._parameters[place] for place in places]:
            raise ModelError(
                f"{type(self._conv).__name__}.forward takes {', '.join(self._parameters[:3])}: let a convolution take rows "
                f"first, then edge_index, then what else there is"
            )


# What takes a convolution apart into hops, and the module of one; None: it runs as one.
_Unrolled = tuple["type[Unrolled]", "DegreeHop"] | None
_UNROLLED: "WeakKeyDictionary[MessagePassing, _Unrolled]" = WeakKeyDictionary()


def _unrolled(conv: MessagePassing) -> _Unrolled:
    if conv not in _UNROLLED:
        kind = cast("type[Unrolled] | None", serving(conv))
        _UNROLLED[conv] = (kind, kind.hop_of(conv)) if kind is not None and kind.unrolls else None
    found = _UNROLLED[conv]
    return found if found is not None and found[0].takes_apart(conv, found[1]) else None


def is_foreign(value: object) -> TypeGuard[Tensor]:
    """Is it a list that does not come of the vertices' rows, nor of the graph's edges?"""
    return isinstance(value, Tensor) and not isinstance(value, Handle | Rows) and value.dim() > 0


def _is_edge_index(value: object) -> bool:
    return isinstance(value, Handle) and value.stands_for == "edge_index"


def _keyed_dropout(run: Pass, depth: int, x: Tensor, p: float, inplace: bool) -> Tensor:
    return dropped(x, p, run.keys[depth], run.next_dropout(), inplace) if p else x


def _rows_in(values: Iterable[object]) -> Iterator[Rows]:
    for value in values:
        if isinstance(value, Rows):
            yield value
        elif isinstance(value, tuple | list):
            yield from _rows_in(value)


def _trimmed(value: Any, depth: int, run: Pass) -> Any:
    if isinstance(value, Rows):
        plain = value.as_subclass(Tensor)
        return plain if value.depth == depth else run.descend(plain, value.depth, depth)
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(_trimmed(part, depth, run) for part in value)
    return value


def _written(func: Callable[..., object], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that a function changes."""
    name = getattr(func, "__name__", "")
    first = name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))
    return [kwargs.get("out"), *(args[:1] if first else ())]


class _First(NamedTuple):
    """The first rows of some, and what of each."""

    rows: int
    columns: tuple[Any, ...]


def _first_rows(func: Callable[..., object], args: Sequence[Any], kwargs: dict[str, Any]) -> _First | None:
    """Which of the first rows a function gives, if it does no more; None: it does something else."""
    if not args or not isinstance(args[0], Rows):
        return None
    if func is Tensor.__getitem__:
        first, *columns = args[1] if isinstance(args[1], tuple) and args[1] else (args[1],)
        if isinstance(first, slice) and first.start in (None, 0) and first.step in (None, 1):
            return _First(first.stop, tuple(columns)) if isinstance(first.stop, int) else None
    if func in (Tensor.narrow, torch.narrow):
        given = dict(zip(("dim", "start", "length"), args[1:], strict=False)) | kwargs
        if given["dim"] % args[0].dim() == 0 and isinstance(given["start"], int) and given["start"] == 0:
            return _First(given["length"], ())
    return None


def _keeps_rows(func: Callable[..., object], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Is what a function gives still a row for each row of its first argument, if there are as many?"""
    name, x = getattr(func, "__name__", ""), args[0] if args else kwargs.get("input")
    if name == "stack" and isinstance(x, tuple | list):
        return kwargs.get("dim", args[1] if len(args) > 1 else 0) not in (0, -1 - x[0].dim())
    if not isinstance(x, Tensor):
        return True
    if func is Tensor.__getitem__:
        first = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
        return first is Ellipsis or (isinstance(first, slice) and first == slice(None))
    if name in _ALONG:
        names = list(_ALONG[name])
        given = _ALONG[name] | dict(zip(names, args[1:], strict=False)) | kwargs
        along = _many(given[names[-1]])
        return None not in along and all(dim % max(x.dim(), 1) for dim in along)
    if name == "flip":
        return all(dim % x.dim() for dim in _many(*(args[1:] or kwargs["dims"])))
    if name == "permute":
        return next(iter(_many(*(args[1:] or kwargs["dims"])))) % x.dim() == 0
    if name in _SWAP:
        return all(dim % x.dim() for dim in (*args[1:], *kwargs.values()))
    if name == "__get__":  # of a property, such as x.T
        of = getattr(getattr(func, "__self__", None), "__name__", "")
        return not (of in ("T", "H") or (of in ("mT", "mH") and x.dim() == 2))
    return name not in _ALL


def _many(*given: Any) -> Sequence[Any]:
    """Dimensions, given one by one or as a tuple."""
    return given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _counted(shape: torch.Size | int, dims: int, asked: Sequence[int], run: Pass) -> torch.Size | int:
    """The shape of rows, or one of its numbers, in which that of rows is a count of this pass."""
    if isinstance(shape, torch.Size):
        return torch.Size((RowCount.of(shape[0], run), *shape[1:]))
    return RowCount.of(shape, run) if asked[0] % dims == 0 else shape


def _marked(result: Any, depth: int, size: int, run: Pass) -> Any:
    """What a function gave, with its depth where it has so many rows; -1: none of them are vertices'."""
    if isinstance(result, Tensor):
        return Rows.of(result, depth, run) if result.dim() and len(result) == size else without_depth(result)
    if isinstance(result, tuple | list) and any(isinstance(part, Tensor) for part in result):
        parts = [_marked(part, depth, size, run) for part in result]
        return type(result)(parts)  # a list, a tuple, or one with names (values, indices)
    return result
