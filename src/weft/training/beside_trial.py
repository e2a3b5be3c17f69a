"""Modules beside the model, tried: workers, and pieces of a batch, that have some of its rows each are to add up to all."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from weft.errors import ModelError
from weft.keys import seeded
from weft.nn import KeyedDropout, alike, in_mode, state_kept
from weft.operations import Draws
from weft.training.objectives import Halves

_SEVERAL, _MANY = 2, 1024  # rows: a tensor of one number is not of several; more of them are not tried
_REMEDY = "or train on one worker, by whole batches"


class _OfThread(threading.local):
    tries = False


_HERE = _OfThread()


class _NotTried(Exception):
    """What is tried talks to other workers, or gives nothing that is of rows."""


def is_trying() -> bool:
    """Is a module tried by this thread?"""
    return _HERE.tries


def check_alone() -> None:
    """Called before workers exchange anything: of what is tried others know nothing."""
    if _HERE.tries:
        raise _NotTried


@contextmanager
def _trying() -> Iterator[None]:
    _HERE.tries = True
    try:
        yield
    finally:
        _HERE.tries = False


class _Columns(NamedTuple):
    """So many columns of what a module told: of what it gives for each row, or of one number."""

    width: int
    of_number: bool


class BesideTrial:
    """A module that is given some rows, and what else it is given, tried on all of them and on halves.

    Each time from the state that it is in, and with the same random numbers; of neither anything remains.
    """

    def __init__(
        self,
        module: nn.Module,
        given: tuple[Sequence[object], Mapping[str, object]],
        rows: int,
        dropout: Callable[[slice], KeyedDropout],
    ) -> None:
        """`dropout`: of some of the rows."""
        self._module, (self._given, self._named), self._rows, self._dropout = module, given, rows, dropout
        self._count = min(rows, _MANY)
        self._trains = torch.is_grad_enabled()  # else no gradient comes of what it gives
        self._told: list[_Columns] = []  # by the last time

    def can_be(self) -> bool:
        """Are there rows to be halved, of which a half is several; nothing that names them by place; and all parameters?"""
        tensors = [x for x in (*self._given, *self._named.values()) if isinstance(x, Tensor) and x.dim()]
        names = any(len(x) != self._rows and not x.is_floating_point() for x in tensors)
        some = any(len(x) == self._rows for x in tensors)
        return self._rows >= 2 * _SEVERAL and some and not names and not any(map(is_lazy, self._module.parameters()))

    def check(self) -> None:
        """Refuse what hangs on which rows are together, or were before."""
        with _trying():
            for check in self._check_training, self._check_evaluation:
                try:
                    check()
                except ModelError:
                    raise
                except Exception:  # its own code, on fewer rows than it may be made for
                    continue

    def _check_training(self) -> None:
        tried, who = Halves.of(self._tell, self._count, self._module), type(self._module).__name__
        if tried.by is not None:
            raise ModelError(
                f"{who} draws random numbers by {tried.by} for its rows, which several workers, or pieces of a batch, would "
                f"draw otherwise: take nn.Dropout (or F.dropout) of rows, whose numbers are each vertex's own, {_REMEDY}"
            )
        if tried.drew:
            return
        if not alike(tried.whole, tried.again):
            raise ModelError(
                f"{who} gives other numbers for the same rows each time, by something that Weft can't put back (a variable "
                f"around it, a global one), which several workers, or pieces of a batch, would step otherwise: keep it as "
                f"an attribute of the module, {_REMEDY}"
            )
        self._check(tried.whole, tried.first, tried.rest)
        if tried.keeps:
            raise ModelError(
                f"{who} keeps something of its rows by which the next ones are told (a running centre), but each worker, or "
                f"piece of a batch, has others: make it of all workers' (run.sum), keep nothing of rows, {_REMEDY}"
            )

    def _check_evaluation(self) -> None:
        """As it computes in the end: what is a number is for training."""
        self._trains, half = False, self._count // 2
        with torch.no_grad(), in_mode(self._module, False), Draws() as drawn:
            told = [self._undone(*some) for some in ((0, self._count), (0, half), (half, self._count))]
        if not drawn.shapes:
            self._check(*told)

    def _undone(self, first: int, end: int) -> Tensor:
        with state_kept(self._module):
            return self._tell(first, end)

    def _check(self, whole: Tensor, first: Tensor, rest: Tensor) -> None:
        """Refuse what halves tell otherwise than all rows do."""
        widths, who, of_all = [each.width for each in self._told], type(self._module).__name__, self._count
        mixed = ModelError(
            f"{who} mixes the rows of different vertices, of which each worker, or piece of a batch, has some: normalise by "
            f"vertex (nn.LayerNorm), {_REMEDY}"
        )
        if not whole.shape[1] == first.shape[1] == rest.shape[1] == sum(widths):
            raise mixed
        for about, *parts in zip(self._told, *(one.split(widths, 1) for one in (whole, first, rest)), strict=True):
            if _add_up(*parts):
                continue
            if not about.of_number:
                raise mixed
            if not _add_up(*(part * (len(part) - 1) for part in parts)):  # nor is it a mean
                number, of_first, of_rest = (float(part[0, 0]) for part in parts)
                raise ModelError(
                    f"{who} gives {number:.6g} for {of_all} rows, and {of_first:.6g} and {of_rest:.6g} for the halves of "
                    f"them, or a row's gradient hangs on others beside it, but each worker, or piece of a batch, has some: "
                    f"let it be a sum over rows (as with reduction='sum'), {_REMEDY}"
                )

    def _tell(self, first: int, end: int) -> Tensor:
        """What it gives for some of the rows: a line for each, below one with what is a number, whose gradients they get."""
        leaves: list[Tensor] = []

        def some_of(x: object) -> object:
            if not isinstance(x, Tensor) or isinstance(x, nn.Parameter):
                return x
            of_rows = x.dim() > 0 and len(x) == self._rows
            part = x.detach()[first:end] if of_rows else x.detach()
            if part.dtype in (torch.float16, torch.bfloat16):  # of autocast
                part = part.float()
            if of_rows and self._trains and x.requires_grad:
                leaves.append(part.requires_grad_())
            return part.clone()

        device = next((x.device.type for x in self._given if isinstance(x, Tensor)), "cpu")
        with torch.set_grad_enabled(self._trains), seeded(0), torch.autocast(device, enabled=False):
            given, named = map(some_of, self._given), {name: some_of(x) for name, x in self._named.items()}
            with self._dropout(slice(first, end)):
                made = self._module.forward(*given, **named)
        found = [made] if isinstance(made, Tensor) else made if isinstance(made, tuple | list) else []
        told: list[Tensor] = []
        self._told = []
        for one in found:
            if not isinstance(one, Tensor) or not one.is_floating_point():
                continue
            of_number = one.numel() == 1 and one.requires_grad
            if of_number:
                told.append(_with_gradients(one, leaves, end - first))
            elif one.shape[:1] == (end - first,):
                told.append(F.pad(one.detach().reshape(len(one), -1), (0, 0, 1, 0)))
            else:
                continue
            self._told.append(_Columns(told[-1].shape[1], of_number))
        if not told:
            raise _NotTried
        return torch.cat(told, 1)


def _with_gradients(number: Tensor, leaves: Sequence[Tensor], rows: int) -> Tensor:
    """A number, and below it each row's gradient of it."""
    below = [number.new_zeros(rows, 1)]
    if leaves:
        ones, of_unused = torch.ones_like(number), {"allow_unused": True, "materialize_grads": True}
        of_rows = torch.autograd.grad(number, leaves, ones, retain_graph=True, **of_unused)
        below += [each.reshape(rows, -1) for each in of_rows]
    told = F.pad(torch.cat(below, 1), (0, 0, 1, 0))
    told[0, 0] = number.detach().squeeze()
    return told


def _add_up(whole: Tensor, first: Tensor, rest: Tensor) -> bool:
    """Is what halves told of their rows the same, and does what is told of each at once add up?"""
    parts = torch.cat([first[:1], rest[:1]])  # beside which a sum near nought is rounded
    sums = _same(torch.cat([first[:1] + rest[:1], parts]), torch.cat([whole[:1], parts]), len(whole))
    return sums and _same(torch.cat([first[1:], rest[1:]]), whole[1:], 1)


def _same(x: Tensor, y: Tensor, terms: int) -> bool:
    """But for rounding, of sums of so many terms that may be about 1 where these are near nought."""
    return alike(x, y) or float((x - y).abs().max()) <= 16 * terms * torch.finfo(x.dtype).eps
