"""Modules beside the model, such as heads: what they do with its rows is the same on any worker, or refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import current_thread, main_thread
from typing import ClassVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from weft.errors import ModelError
from weft.graph import Graph
from weft.keys import Stream
from weft.keys import key as make_key
from weft.nn import KeyedDropout, of_random_numbers
from weft.operations import Draws
from weft.sampling import keys_of
from weft.training.batches import Part
from weft.training.beside_trial import BesideTrial, is_trying
from weft.training.objectives import is_tried

_STEPS = 3  # of the model's parameters, in which others that the optimizer has would have been moved, too


def check_draws(drawn: Draws, model: nn.Module, rows: Callable[[], set[int]]) -> None:
    """Refuse random numbers of torch for so many rows or edges: which are whose differs from plan to plan.

    What is drawn in the shape of parameters, all workers draw alike.
    """
    if not drawn.shapes:
        return
    counts = rows() - {1, *(size for parameter in model.parameters() for size in parameter.shape)}
    for function, shape in drawn.shapes:
        if counts.intersection(shape):
            raise ModelError(of_random_numbers(model, function))


class Added:
    """What an objective has trained besides the model, such as a decoder: does a loop's optimizer know of it?"""

    def __init__(self, trained: nn.Module, given: Sequence[nn.Module]) -> None:
        """`trained`: holds what was `given`, and what is added."""
        self._own = [one for module in given for one in module.parameters() if not is_lazy(one)]
        known = {id(one) for module in given for one in module.parameters()}
        self._added = {n: one for n, one in trained.named_parameters() if id(one) not in known and one.requires_grad}
        self._before: tuple[list[int], list[int]] | None = None  # from the first batch on
        self._steps = 0  # in which the model's alone were moved

    def _writes(self) -> tuple[list[int], list[int]]:
        return [one._version for one in self._own], [one._version for one in self._added.values()]

    def left(self) -> list[str]:
        """Those that stay as they are, by name, where the model's parameters have moved in several steps; told once."""
        if not self._added:
            return []
        before, self._before = self._before, (now := self._writes())
        if before is None or now[0] == before[0]:
            return []
        self._steps += 1
        moved = now[1] != before[1]
        if not moved and self._steps < _STEPS:
            return []
        names, self._added = list(self._added), {}  # now it is known
        return [] if moved else names


class LoopDraws:
    """Tells, once, of random numbers that a loop draws by itself between a batch's rows and the sum of gradients.

    Torch's generator is the process's: another run begins where the loop of one ends, and in a thread beside others, which
    draw too, nothing is told.
    """

    _running: ClassVar["LoopDraws | None"] = None

    def __init__(self, generators: Callable[[], bytes], tell: Callable[[str], None]) -> None:
        """`generators`: the state of torch's."""
        self._generators, self._tell = generators, tell
        self._state, self._told = b"", False

    def begin(self) -> None:
        """From here on the loop itself runs."""
        if not self._told and current_thread() is main_thread():
            LoopDraws._running, self._state = self, self._generators()

    @staticmethod
    def end() -> "LoopDraws | None":
        """Now others do. Whose loop was it until now?"""
        loop, LoopDraws._running = LoopDraws._running, None
        if loop is not None and loop._state != loop._generators():
            loop._told = True
            loop._tell(
                "the loop draws random numbers behind run(batch) (F.dropout, torch.randn_like): of rows, they are others on "
                "each number of workers; dropout belongs into the model, or a module that weft.parallel is given besides"
            )
        return loop

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within this, something that is looked at otherwise runs."""
        loop = self.end()
        yield
        if loop is not None:
            loop.begin()


class _OfLinks(KeyedDropout):
    """Dropout by the heads of links, and of parameters."""

    def of_others(self, x: Tensor, p: float) -> Tensor:
        if isinstance(x, nn.Parameter):  # all workers draw alike
            return super().of_others(x, p)
        raise ModelError(
            "dropout of vertices' rows in a module beside a model of links would be another one on other workers: leave it "
            "to the model, or give the module the links' own rows, [links, width] or [links, tails, width]"
        )


# The one that each module goes by now, where several runs share it: that of the run whose rows came last.
_CURRENT: "WeakKeyDictionary[nn.Module, Beside]" = WeakKeyDictionary()


class Beside:
    """A module beside the model, such as a head: its dropout is by the vertices of the rows that the model gave last."""

    def __init__(self, module: nn.Module | None = None, in_parts: bool = False, loop: LoopDraws | None = None) -> None:
        """`in_parts`: are batches computed in parts, by workers or one after another? `loop`: what calls it."""
        self._in_parts, self._loop = in_parts, loop
        self._kind, self._key, self._ids = KeyedDropout, 0, torch.empty(0, dtype=torch.int64)  # of the rows' dropout
        self._dropout: KeyedDropout | None = None
        self._draws: Draws | None = None
        self._looks, self._within = False, ExitStack()
        self._parts = 0  # that were trained on
        self._unchecked = self._tried = False  # is it to be tried on this part's rows, and was it?
        self._count: int | None = None  # of the rows; None: those that it is given
        self._hooks: list[RemovableHandle] = []
        self._module = None if module is None else ref(module)
        if module is not None:
            before = module.register_forward_pre_hook(self._begin, with_kwargs=True)
            self._hooks = [before, module.register_forward_hook(self._end, always_call=True)]

    def __reduce__(self) -> tuple[type["Beside"], tuple[()]]:
        """A copy of the module, or one that is saved, is not in the run."""
        return Beside, ()

    def follow(self, part: Part, key: tuple[int, ...] | None, graph: Graph, look: bool) -> None:
        """Rows of a part come; `look`: at whether it draws random numbers for them."""
        self._ids = part.targets.from_host(lambda targets: keys_of(graph, targets.ids.numpy()))
        by_row = part.targets.by_row
        self._kind = _OfLinks if self._in_parts and not by_row else KeyedDropout
        self._dropout = None
        if key is not None:
            self._key = make_key(*key, Stream.HEAD)
            self._dropout = self._kind(self._key, [self._ids])
            self._parts += 1
            left = self._unchecked and not self._tried  # of the part before
            self._unchecked, self._tried = self._in_parts and (left or is_tried(self._parts)), False
        self._looks, self._count = look, len(self._ids) if by_row else None
        if self._module is not None and (module := self._module()) is not None:
            _CURRENT[module] = self

    def close(self) -> None:
        """The module is as it was before."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: nn.Module, given: tuple, named: Mapping[str, object]) -> None:
        if is_trying():
            return
        self._within.close()
        if self._dropout is not None and module.training and _CURRENT.get(module) is self:
            if self._loop is not None:
                self._within.enter_context(self._loop.paused())
            if self._unchecked:
                self._try(module, given, named)
            self._within.enter_context(self._dropout)
            self._draws = self._within.enter_context(Draws()) if self._looks else None

    def _try(self, module: nn.Module, given: tuple, named: Mapping[str, object]) -> None:
        """Try it before it has kept anything of these rows."""
        count = self._count_of(*given, *named.values())

        def dropout(some: slice) -> KeyedDropout:
            return self._kind(self._key, [self._ids[some] if len(self._ids) == count else self._ids])

        tried = BesideTrial(module, (given, named), count, dropout)
        if tried.can_be():
            self._tried = True
            tried.check()

    def _end(self, module: nn.Module, given: tuple, out: object) -> None:
        if is_trying():
            return
        self._within.close()
        if self._draws is not None:
            drawn, self._draws = self._draws, None
            check_draws(drawn, module, lambda: {self._count_of(*given)})

    def _count_of(self, *given: object) -> int:
        """How many rows there are."""
        lengths = [len(x) for x in given if isinstance(x, Tensor) and x.dim()]
        return max(lengths, default=0) if self._count is None else self._count
