"""The sum of all workers' gradients."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import compress
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from weft.errors import TrainingError
from weft.exchange import Communicator
from weft.training.beside import LoopDraws

# Which batch it was, as a number of which sums over workers are exact in float32.
_EPOCHS_APART, _PLACES = 1009, 4093
# Workers' parameters differ in the last digits at most, where processors do: by so much of what they have moved, and of
# what they are.
_OF_MOVED, _OF_SIZE = 1e-3, 1e-5
# A table, such as an nn.Embedding's, of which a batch reads few rows: it has so many, and so many numbers.
_ROWS, _NUMBERS = 1 << 16, 1 << 22
# What a gradient knows: is it all workers'? Which part of it is? Does it hold what a batch gave on this worker alone?
_SUMMED, _PARTS, _OWN = "weft_summed", "weft_parts", "weft_own"
# What the node that adds to a gradient knows: were rows computed here that neither went backward nor were summed of yet?
_RAN = "weft_ran"
_CHANGED = (
    "gradients are changed between loss.backward() and run.sync(), where each worker has its own: what is not linear, as "
    "clipping is not, makes another model than on one; change them behind run.sync()"
)
# Passes in which rows of batches go backward, by number, until their gradients are summed.
_OF_BATCHES: set[int] = set()


@torch.no_grad()
def sum_gradients(parameters: Sequence[nn.Parameter], comm: Communicator, *numbers: float | Tensor) -> list[float]:
    """Sum this worker's own gradients over all workers in place, and in the same exchange some numbers.

    In the workers' order, so that all get the same bits. All workers call this together, after `backward`.
    """
    if comm.size == 1:
        return _as_floats(numbers)
    tables = [_Table(parameter) for parameter in parameters if _is_table(parameter)]
    others = [parameter for parameter in parameters if not _is_table(parameter)]
    numbers = (*numbers, *(number for table in tables for number in table.told))
    flat = pack(others, *numbers) if others else torch.cat([_as_one(each, parameters[0]) for each in numbers])
    comm.sum(flat)
    count = len(numbers)
    known = flat[: count + len(others)].tolist()  # one wait for the device, if they are on one
    unpack(known[count:], flat[len(known) :], others)
    told = known[count - 2 * len(tables) : count]
    for table, have, share in zip(tables, told[::2], told[1::2], strict=True):
        table.sum(comm, have, share)
    return known[: count - 2 * len(tables)]


class GradientSum:
    """Sums parameters' gradients again and again. All workers call it together, as they do `sum_gradients`.

    Those that nobody had the last time, as of frozen parameters, are not sent, unless somebody has one now.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], comm: Communicator) -> None:
        """`parameters`: of which the same are frozen on all workers."""
        self._parameters, self._comm = parameters, comm
        self._idle = _unless_all(not parameter.requires_grad for parameter in parameters)

    def __call__(self, *numbers: float | Tensor) -> list[float]:
        """Sum them, and in the same exchange some numbers."""
        idle = list(compress(self._parameters, self._idle))
        sent = [parameter for parameter, is_idle in zip(self._parameters, self._idle, strict=True) if not is_idle]
        have = [float(_split(parameter.grad)[1] is not None) for parameter in idle]
        of_all = sum_gradients(sent, self._comm, *numbers, *have)
        if self._comm.size > 1:
            found = of_all[len(numbers) :]
            for parameter, some in zip(idle, found, strict=True):
                parameter.grad = parameter.grad if some else None
            if awake := list(compress(idle, found)):
                sum_gradients(awake, self._comm)
            self._idle = _unless_all(parameter.grad is None for parameter in self._parameters)
        return of_all[: len(numbers)]


def _unless_all(idle: Iterable[bool]) -> list[bool]:
    """Which are idle; none, if there is no other whose exchange they could be told in."""
    found = list(idle)
    return [one and not all(found) for one in found]


def _is_table(parameter: nn.Parameter) -> bool:
    """May there be few rows of it in a gradient? On devices, whose links are faster, that is not looked at."""
    large = parameter.dim() == 2 and len(parameter) >= _ROWS and parameter.numel() >= _NUMBERS
    return large and parameter.device.type == "cpu"


class _Table:
    """A large parameter's own gradient: of its rows, only those that some worker has are sent, where they are few."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self._parameter, self._own = parameter, _split(parameter.grad)[1]
        _check_dense(self._own)
        self._rows = torch.empty(0, dtype=torch.int64) if self._own is None else self._own.any(1).nonzero()[:, 0]
        self.told = float(self._own is not None), len(self._rows) / len(parameter)  # to be summed over all workers

    def sum(self, comm: Communicator, have: float, share: float) -> None:
        """Sum it over all workers, in their order, as all numbers are. `have`, `share`: the sums of what was told."""
        if not have:
            self._parameter.grad = None
            return
        own = torch.zeros_like(self._parameter) if self._own is None else self._own
        if share > 1:
            self._parameter.grad = comm.sum(own.clone())
            return
        total = torch.zeros_like(own)
        mine = [self._rows.numpy(), own[self._rows].flatten().numpy()]
        for ids, rows in zip(*comm.gather_arrays(mine, "sync"), strict=True):
            total.index_add_(0, torch.from_numpy(ids), torch.from_numpy(rows).view(-1, own.shape[1]))
        self._parameter.grad = total


@dataclass
class _Parts:
    """What a gradient is the sum of that has grown since it was summed."""

    summed: Tensor  # all workers'
    own: Tensor  # this worker's, since then;
    of_batch: bool = False  # is that known to be of a batch?


class GradientSync:
    """Sums gradients over all workers, for loops that may let them add up.

    What was summed is not summed again: where gradients are not set to zero, the next ones add to them, as on one worker.
    """

    def __init__(self, trained: nn.ModuleList, comm: Communicator, in_hand: Callable[[], tuple[int, int]]) -> None:
        """`trained`: the model, and modules beside it, whose parameters all workers have alike by now.

        `in_hand`: tells the epoch, and the batch, of the loop that trains them.
        """
        self._trained, self._parameters, self._comm = trained, list(trained.parameters()), comm
        self._sum = GradientSum(self._parameters, comm)
        self._in_hand = in_hand
        self.last: bool | None = None  # was something run since the last time, and in training mode?
        self._compared: int | None = None  # the epoch in which parameters were compared with the others'
        self._moving = [one for one in self._parameters if not is_lazy(one) and one.is_floating_point()]
        self._begun = self._size()  # in the beginning
        self._syncs = 0  # how often gradients were summed that came of batches
        # What adds to each parameter's gradient, by its place, which lives for as long as it is kept here; and its hooks.
        self._hooks: dict[int, tuple[Node, RemovableHandle, RemovableHandle]] = {}
        self.watches = False  # are steps of optimizers looked at?
        self._loop: LoopDraws | None = None  # whose steps these are, and which may draw
        self._tell: Callable[[str], None] | None = None  # that own gradients were changed, once
        self._passes: list[int] = []  # of its rows, since the last time
        for place, parameter in enumerate(self._parameters):
            if hasattr(parameter.grad, _SUMMED):  # by another run, which may end
                self._hook(place, parameter)

    def __call__(self, *numbers: float | Tensor) -> list[float]:
        """Sum them, and in the same exchange some numbers. All workers call this together, after `backward`."""
        if self._comm.size == 1:
            return _as_floats(numbers)
        if self._loop is not None:
            self._loop.end()
        if self._tell is not None and any(_was_changed(parameter.grad) for parameter in self._parameters):
            self._tell(_CHANGED)
            self._tell = None
        _OF_BATCHES.difference_update(self._passes)
        self._passes.clear()
        self._mark(False)
        before, marks = [summed_before(parameter.grad) for parameter in self._parameters], self._marks()
        of_all = self._sum(*numbers, *marks)
        known, sums = of_all[: len(numbers)], of_all[len(numbers) :]
        self._compare(marks, sums)
        for place, (parameter, summed) in enumerate(zip(self._parameters, before, strict=True)):
            self._is_summed(place, parameter, summed)
        return known

    def watch(self, loop: LoopDraws, tell: Callable[[str], None]) -> None:
        """From now on refuse steps of optimizers by gradients that were not summed, if there are other workers.

        And tell, once, if they are changed before that.
        """
        if self._comm.size > 1:
            self.watches, self._loop, self._tell = True, loop, tell
            _watch_steps()
            self._hook_all()

    def follow(self, rows: Tensor, trains: bool) -> None:
        """These are rows of a batch: gradients that come from them are this worker's alone.

        Of a batch of training all are that grow before the rows go backward, or something is summed: where the model is
        frozen, or its rows are detached, what is trained on them is not seen to come from them.
        """
        if self._loop is None:
            return
        if trains:
            self._hook_all()  # which may be learned since
            self._mark(True)
        if rows.requires_grad:
            rows.register_hook(self._goes_backward)
            self._loop.begin()

    def _mark(self, ran: bool) -> None:
        for adds, *_ in self._hooks.values():
            cast(dict[str, bool], adds.metadata)[_RAN] = ran  # which runs of one model share

    def _goes_backward(self, _: Tensor) -> None:
        self._passes.append(number := torch._C._current_graph_task_id())
        _OF_BATCHES.add(number)
        self._mark(False)

    def known(self) -> None:
        """Let optimizers step by what gradients hold now: it may have been summed otherwise."""
        self._mark(False)
        for grad in (parameter.grad for parameter in self._parameters):
            if grad is not None:
                vars(grad).pop(_OWN, None)
                if (parts := getattr(grad, _PARTS, None)) is not None:
                    parts.of_batch = False

    def _size(self) -> Tensor:
        """How large all parameters are together: another number, where some are others."""
        sizes = [parameter.detach().abs().sum(dtype=torch.float64) for parameter in self._moving]
        return torch.stack(sizes).sum() if sizes else torch.zeros((), dtype=torch.float64)

    def _marks(self) -> list[float | Tensor]:
        """What workers that ran a batch have alike: 1, which it is, its mode; now and then 1, how far they moved, squared.

        That is in every epoch, and after one step, three, seven and so on, as there may be few epochs.
        """
        if self.last is None:
            return [0.0] * 6
        (epoch, batch), training, self.last = self._in_hand(), self.last, None
        self._syncs, place = self._syncs + 1, float((epoch * _EPOCHS_APART + batch) % _PLACES)
        if self._compared == epoch and self._syncs & (self._syncs - 1):
            return [1.0, place, float(training), 0.0, 0.0, 0.0]
        self._compared = epoch
        self._check_trained()
        moved = self._size() - self._begun
        return [1.0, place, float(training), 1.0, moved, moved.square()]

    def _compare(self, mine: Sequence[float | Tensor], sums: Sequence[float]) -> None:
        (ran, place, training, *_), (all_ran, places, modes, looked, moved, squares) = mine, sums
        if ran and places != all_ran * place:
            raise TrainingError(
                "this worker is at another batch than others are: let all go over the same ones, and sync in each, those "
                "without seeds of it too, and load the same state (loader.load_state_dict)"
            )
        if ran and modes != all_ran * training:
            raise TrainingError(
                f"this worker's model is {'' if training else 'not '}in training mode, and another one's is otherwise: "
                f"call model.train() on all workers behind what one of them evaluates"
            )
        if looked == self._comm.size and self._are_apart(looked * squares - moved**2, looked * squares):
            raise TrainingError(
                "workers' parameters have come to differ: let all step alike, learning rates included (schedulers go by "
                "numbers that all have, run.sum(loss), not by each worker's own)"
            )

    def _are_apart(self, spread: float, moved: float) -> bool:
        """Is it more than rounding? Both are squares, over all pairs of workers."""
        rounding = max((torch.finfo(parameter.dtype).eps for parameter in self._moving), default=0.0)
        if spread <= max(_OF_MOVED**2, 16 * self._comm.size * rounding) * moved:
            return False
        squares = sum(float(parameter.detach().double().square().sum()) for parameter in self._moving)
        return spread > (_OF_SIZE * self._comm.size) ** 2 * squares

    def close(self) -> None:
        """Leave the parameters as they were."""
        self.known()
        _OF_BATCHES.difference_update(self._passes)
        for _, *hooks in self._hooks.values():
            for hook in hooks:
                hook.remove()
        self._hooks.clear()

    def _check_trained(self) -> None:
        """Refuse parameters to learn that were not there when workers began alike."""
        known = {*map(id, self._parameters)}
        if not known.issuperset(id(parameter) for parameter in self._trained.parameters() if parameter.requires_grad):
            named = ((name.partition(".")[2], parameter) for name, parameter in self._trained.named_parameters())
            new = [name for name, parameter in named if id(parameter) not in known]
            raise TrainingError(
                f"the model has got new parameters ({', '.join(new[:3])}) since it was given to weft.parallel, which sums "
                f"the gradients of those that it had then: call weft.parallel and make the optimizer again"
            )

    def _is_summed(self, place: int, parameter: nn.Parameter, before: Tensor | None) -> None:
        """Remember that a gradient is all workers', so that what is added to it is told from it."""
        if before is not None:
            parameter.grad = before if parameter.grad is None else before + parameter.grad
        if parameter.grad is None:
            return
        setattr(parameter.grad, _SUMMED, True)
        self._hook(place, parameter)

    def _hook_all(self) -> None:
        for place, parameter in enumerate(self._parameters):
            self._hook(place, parameter)

    def _hook(self, place: int, parameter: nn.Parameter) -> None:
        """Have it noted when something is added to a parameter's gradient, if there is any."""
        if place not in self._hooks and parameter.requires_grad:
            adds = get_gradient_edge(parameter).node
            growth = _Growth(parameter, adds)
            self._hooks[place] = adds, adds.register_prehook(growth.begins), adds.register_hook(growth.ends)


def pack(parameters: Sequence[nn.Parameter], *numbers: float | Tensor) -> Tensor:
    """Numbers, a 1 for each parameter that has a gradient, and this worker's own gradients, in one row."""
    own = [_split(parameter.grad)[1] for parameter in parameters]
    for gradient in own:
        _check_dense(gradient)
    have, both = parameters[0].new_tensor([g is not None for g in own]), zip(parameters, own, strict=True)
    like = have.to(reduce(torch.promote_types, (p.dtype for p in parameters)))
    first = [*(_as_one(number, like) for number in numbers), like]
    return torch.cat([*first, *(torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in both)])


def _check_dense(gradient: Tensor | None) -> None:
    if gradient is not None and gradient.layout != torch.strided:
        raise TrainingError(
            "a gradient is sparse, as nn.Embedding(sparse=True) gives it: several workers add up whole ones, so drop sparse"
        )


def unpack(have: Sequence[float], flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """The gradients of `pack`, or of sums of it, whose first numbers were `have`: None where no worker had one.

    Pieces of one tensor, but each counts its own writes (`_version`), which those of detach() would together.
    """
    for some, parameter, part in zip(have, parameters, split_like(flat, parameters), strict=True):
        parameter.grad = part.view_as(parameter).data.to(parameter.dtype) if some else None


def summed_before(grad: Tensor | None) -> Tensor | None:
    """What was summed of a gradient already, unless it was set to zero since."""
    return _split(grad)[0]


def set_before(parameter: nn.Parameter, summed: Tensor | None, of_batch: bool = False) -> None:
    """Let the gradient of a parameter, which is this worker's own, be one that follows a summed one."""
    grown = parameter.grad
    if summed is None:
        return
    parameter.grad = both = summed if grown is None else summed + grown
    if grown is not None:
        setattr(both, _PARTS, _Parts(summed, grown, of_batch))


def _split(grad: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What of a gradient is all workers', and what is this worker's alone."""
    parts: _Parts | None = getattr(grad, _PARTS, None)
    if grad is None or parts is None:
        return (grad, None) if hasattr(grad, _SUMMED) else (None, grad)
    if torch.equal(grad, parts.summed + parts.own) or grad.isnan().any():
        return parts.summed, parts.own
    if grad.any():
        raise TrainingError(
            "a gradient was changed (clipped?) that has grown since run.sync() summed it: call run.sync() before, as what "
            "belongs to all workers can't be told from this worker's own any more"
        )
    delattr(grad, _PARTS)  # it was set to zero
    return None, grad


def _is_of_batch(grad: Tensor | None) -> bool:
    """Does a gradient hold what a batch gave on this worker alone, as far as is known?"""
    parts: _Parts | None = getattr(grad, _PARTS, None)
    if grad is None or not hasattr(grad, _OWN):
        return parts is not None and parts.of_batch
    return grad._version == getattr(grad, _OWN) or bool(grad.any())  # or it was set to zero


def _was_changed(grad: Tensor | None) -> bool:
    """Was a gradient written to since it grew by a batch, other than by setting it to zero?"""
    return grad is not None and grad._version != getattr(grad, _OWN, grad._version) and bool(grad.any())


class _Growth:
    """Lets a parameter's gradient that was summed grow, by each run of the parameter: what is summed is set aside meanwhile.

    By hooks of the node that adds, as those of the parameter run for torch.autograd.grad, too, which adds nothing.
    """

    def __init__(self, parameter: nn.Parameter, adds: Node) -> None:
        self._parameter, self._knows = parameter, cast(dict[str, bool], adds.metadata)
        self._summed: Tensor | None = None  # while something is added, and no other run has set it aside
        self._of_batch = False  # is what it is added to?

    def begins(self, *_: Any) -> None:
        grad = self._parameter.grad
        if hasattr(grad, _SUMMED) and grad is not None and not grad.any():  # set to zero
            delattr(grad, _SUMMED)
        self._summed, alone = _split(grad)
        self._of_batch = _is_of_batch(grad)
        if self._summed is not None and torch.is_grad_enabled():
            raise TrainingError(
                "gradients of gradients (create_graph) can't be added to gradients that run.sync() has summed: call "
                "optimizer.zero_grad() before"
            )
        if self._summed is not None:
            self._parameter.grad = alone

    def ends(self, *_: Any) -> None:
        of_rows = torch._C._current_graph_task_id() in _OF_BATCHES or self._knows.get(_RAN, False)
        of_batch = self._of_batch or of_rows
        set_before(self._parameter, self._summed, of_batch)
        self._summed, grad = None, self._parameter.grad
        if (parts := getattr(grad, _PARTS, None)) is not None:
            parts.of_batch |= of_batch
        elif of_batch and grad is not None:
            setattr(grad, _OWN, grad._version)
        elif grad is not None:
            vars(grad).pop(_OWN, None)


@cache
def _watch_steps() -> None:
    """Once and for all: torch's hooks may not come and go while another thread takes a step."""
    register_optimizer_step_pre_hook(_check_summed)


def _check_summed(optimizer: Optimizer, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
    """Called before each step of an optimizer; one with a closure makes its gradients in it, and is looked at there."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(closure):  # some are given numbers
        _check_gradients(optimizer)
        return None

    def looked_at(*given: Any, **more: Any) -> object:
        loss = closure(*given, **more)
        _check_gradients(optimizer)
        return loss

    return ((*args[:1], looked_at, *args[2:]), kwargs) if len(args) > 1 else (args, kwargs | {"closure": looked_at})


def _check_gradients(optimizer: Optimizer) -> None:
    """Refuse gradients of this worker alone."""
    gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
    if any(_is_of_batch(grad) and grad is not None and grad.any() for grad in gradients):  # zeros were thrown away
        raise TrainingError(
            "the gradients of this step are this worker's alone: call run.sync() between loss.backward() and "
            "optimizer.step(), before gradients are clipped, or at the end of its closure, which sums those of all workers"
        )
    for grad in gradients:
        if grad is not None and vars(grad).pop(_PARTS, None) is not None:
            setattr(grad, _SUMMED, True)  # as it is stepped by, all workers have it alike


def _as_floats(numbers: Iterable[float | Tensor]) -> list[float]:
    return [float(number.detach() if isinstance(number, Tensor) else number) for number in numbers]


def _as_one(number: float | Tensor, like: Tensor) -> Tensor:
    """A number as one among those of a tensor."""
    return number.view(1).to(like.dtype) if isinstance(number, Tensor) else like.new_full((1,), number)


def split_like(flat: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """A row of numbers in pieces as long as some tensors."""
    return iter(flat.split([tensor.numel() for tensor in like]))
