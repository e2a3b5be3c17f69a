"""What a checkpoint saves of a model, and of what it learns by, besides what a state_dict has; and what it is without."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from inspect import ismethod
from typing import cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from weft.nn.as_built import (
    NOTHING_BUILT,
    Built,
    can_be_kept,
    has_fraction,
    memory_of,
    numbers_of,
    otherwise,
    place_of,
    sum_of,
)
from weft.nn.attributes import (
    PLAIN,
    TABLE,
    Snapshot,
    from_json,
    has_other_numbers,
    held_by,
    hold,
    is_of_library,
    is_of_librarys_class,
    is_own_generator,
    is_plain,
    put_state,
    state_of,
    stored,
    with_helpers,
)
from weft.nn.kept_state import plain_of

_LEARNED = "the objective"  # begins the names of what belongs to it
_GENERATOR = "generator"  # where one is, as JSON has it
KEEP_NUMBERS = "keep numbers, or tensors, as attributes or buffers"  # in place of what `left_out` tells
_REQUIRES_GRAD = ".requires_grad"  # ends the names of what is kept of parameters

Kept = tuple[list[tuple[str, str, object]], dict[str, Tensor]]  # plain values by thing and name, and tensors by both
NOTHING_KEPT: Kept = [], {}
Rest = dict[tuple[str, str], tuple[object, Snapshot]]  # by thing and name, what can't be saved, and how it was


def learned_by(objective: object) -> dict[str, object]:
    """What may keep something as it is learned: an objective of the user's, a loss, modules that it has; by name."""
    its = {f"{_LEARNED}'s {name.lstrip('_')}": value for name, value in held_by(objective).items()}
    things = {_LEARNED: objective, **its}
    things = {name: thing.__self__ if ismethod(thing) else thing for name, thing in things.items()}
    return {name: of for name, of in things.items() if isinstance(of, nn.Module) or not is_of_library(of)}


class Unlisted:
    """What things and helpers of theirs keep that no state_dict has, and that training changes: checkpoints save it beside.

    Plain values, and tensors: attributes, or buffers that are not persistent. Of those that are made late, or as large as
    they were not, such as are as large as parameters are: others are results, of so many rows. Of a loss that is a module,
    what its state_dict has, too.
    """

    def __init__(self, model: nn.Module, learned_by: Mapping[str, object]) -> None:
        """`learned_by`: a loss and the like, by name."""
        self._things: dict[str, object] = dict(model.named_modules())
        for name, thing in learned_by.items():
            modules = thing.named_modules(prefix=name) if isinstance(thing, nn.Module) else ()
            self._things |= dict(modules) or {name: thing}
        self._things = with_helpers(self._things)
        self._generators = {
            (at, name): value
            for at, thing in self._things.items()
            for name, value in stored(thing).items()
            if is_own_generator(value)
        }
        # What a checkpoint told of. It may be as it was when this was made, if the same model goes on, not one built anew.
        self._told: set[tuple[str, str]] = set()
        self._model, self._plain = model, self._plain_now()
        self._numbers = numbers_of(self._things, self._plain)
        now = self._tensors_now()
        self._tensors = {key: _on_cpu(tensor) for key, tensor in now.items() if tensor.numel() <= TABLE}
        self._tables = now.keys() - self._tensors.keys()
        self._saved = {key for key, one in now.items() if can_be_kept(one) and not key.startswith(_LEARNED)}
        modules = (one for one in self._things.values() if isinstance(one, nn.Module))
        listed = [of for module in modules for of in (*module.parameters(), *module.buffers()) if not is_lazy(of)]
        self._sizes = {1}.union(*(of.shape for of in (*listed, *self._tensors.values())))
        rest = self._rest_now()
        self._rest = {place: (value, self._as_it_is(value)) for place, value in rest.items()}
        memory = {None, *map(memory_of, listed)}
        compared = {f"{at}/{name}": value for (at, name), value in rest.items()}
        compared |= {key: one for key, one in now.items() if key not in self._saved and one.grad_fn is None}
        sums = ((key, sum_of(value, memory, not key.startswith(_LEARNED))) for key, value in compared.items())
        self._sums = {key: one for key, one in sums if one is not None}

    def built(self) -> Built:
        """What things had at first, in whatever state they are."""
        return Built(self._numbers, {key: self._tensors[key] for key in self._saved}, self._sums)

    def go_on(
        self, facts: Mapping[str, object], built: Mapping[str, Tensor], then: Kept
    ) -> tuple[list[str], list[str]]:
        """Let things be what they were then: `facts` and tensors of what they were `built` with, and what had changed.

        Numbers stay as they are now, for their author may have changed them. Gives what was built otherwise then and is
        not taken, in words, and the keys of tensors that were others.
        """
        plain, kept = then
        since = {(at, name) for at, name, _ in plain} | {*map(place_of, kept)}
        was = Built(**NOTHING_BUILT._asdict() | dict(facts) | {"tensors": dict(built)})  # of an older Weft: not known
        others = otherwise(was, self.built(), since)
        taken = self.take_built(built, since)
        self.take(plain, kept)
        return others, taken

    def take_built(self, tensors: Mapping[str, Tensor], but: Collection[tuple[str, str]] = ()) -> list[str]:
        """Let the model have the tensors that it had at first then; which were others. `but` these it has since."""
        found, now = [], self._tensors_now()
        for key in tensors.keys() & self._saved:
            of_now = self._tensors[key]
            then = tensors[key].to(of_now.dtype)
            if then.shape == of_now.shape and has_other_numbers(then, of_now):
                self._tensors[key] = then
                if place_of(key) not in but:
                    now[key].data = then.to(now[key].device, copy=True)
                    found += [] if is_of_library(self._things[place_of(key)[0]]) else [key]
        return sorted(found)

    def take_fractions(self, numbers: Sequence[tuple[str, str, object]]) -> None:
        """Let things have the numbers with a fraction that others had at first, where they have such themselves."""
        for at, name, value in numbers:
            there = self._plain.get((at, name))
            if has_fraction(value) and has_fraction(there) and not is_of_library(self._things[at]) and value != there:
                _set_plain(self._things[at], at, name, value)

    def changed(self) -> Kept:
        """Plain values by thing and name, and tensors by both, that are others now, or were not there, or were told of."""
        plain = [
            (*place, value)
            for place, value in self._plain_now().items()
            if place in self._told
            or place not in self._plain
            or [value] != [self._plain[place]]  # in lists, what is no number is itself
        ]
        now = {
            key: tensor
            for key, tensor in self._tensors_now().items()
            if tensor.numel() <= TABLE and key not in self._tables and self._sizes.issuperset(tensor.shape)
        }
        first = self._tensors
        return plain, {
            key: _on_cpu(tensor)
            for key, tensor in now.items()
            if key not in first or place_of(key) in self._told or has_other_numbers(tensor.cpu(), first[key])
        }

    def rest(self) -> Rest:
        """What `changed` tells nothing of, and the model's modules keep, as it is."""
        of_model = ((place, value) for place, value in self._rest_now().items() if not place[0].startswith(_LEARNED))
        return {place: (value, self._as_it_is(value)) for place, value in of_model}

    def put_back(self, then: Kept, rest: Rest) -> None:
        """Let the model's modules keep what `changed` and `rest` told of them then, and else what they did at first."""
        (plain_now, tensors_now), (plain, tensors) = self.changed(), then
        kept = {(at, name) for at, name, _ in plain} | {place_of(key) for key in tensors} | rest.keys()
        back, tensors_back = list(plain), dict(tensors)
        for at, name in ({(at, name) for at, name, _ in plain_now} | {place_of(key) for key in tensors_now}) - kept:
            if (at, name) in self._plain:
                back.append((at, name, self._plain[at, name]))
            elif f"{at}/{name}" in self._tensors:
                tensors_back[f"{at}/{name}"] = self._tensors[f"{at}/{name}"].clone()
            elif not at.startswith(_LEARNED):  # made since
                _forget(self._things[at], name)
        of_model = {key: tensor for key, tensor in tensors_back.items() if not key.startswith(_LEARNED)}
        self.take([one for one in back if not one[0].startswith(_LEARNED)], of_model)
        for (at, name), (value, before) in rest.items():
            before.put_back()
            hold(self._things[at], name, value)

    def left_out(self) -> list[str]:
        """Attributes that training has changed, and that are not saved: what holds several things, or is no number."""
        now = self._rest_now()
        return [
            f"{name} of {at or 'the model'}"
            for at, name in {**self._rest, **now}
            if name not in held_by(self._things[at])
            or ((at, name) in now and self._is_another((at, name), now[at, name]))
        ]

    def _as_it_is(self, value: object) -> Snapshot:
        """But for helpers that have names, which are told of by themselves.

        In a tuple, so that of a library's object, such as a graph, what it looks up is not taken for what it keeps.
        """
        return Snapshot([(value,)], apart=self._things.values())

    def _is_another(self, place: tuple[str, str], now: object) -> bool:
        if place not in self._rest:  # what a library's class makes late it makes again
            return not (place[1].startswith("_") and is_of_librarys_class(self._things[place[0]]))
        value, before = self._rest[place]
        return now is not value or before.has_changed()

    def take(self, plain: Sequence[tuple[str, str, object]], tensors: Mapping[str, Tensor]) -> None:
        """Give things what `changed` told of them, as it does from now on; a ValueError where they can have no such."""
        self._told |= {(at, name) for at, name, _ in plain} | {place_of(key) for key in tensors}
        for at, name, value in plain:
            if at in self._things:
                _set_plain(self._things[at], at, name, value)
            elif not at.startswith(_LEARNED):  # another loss now, which is told of
                raise _not_kept(at, name, value)
        now = self._tensors_now()
        for key, tensor in tensors.items():
            at, name = place_of(key)
            if key in now:
                now[key].data = tensor.to(now[key].device)  # of another type where a loss has taken its rows'
            elif at in self._things and _may_have(self._things[at], name):  # made late
                setattr(self._things[at], name, tensor.to(next(self._model.parameters(), tensor).device))
            elif not at.startswith(_LEARNED):
                raise ValueError(f"{at}.{name}, a tensor, which is not kept there")

    def _plain_now(self) -> dict[tuple[str, str], object]:
        """Plain values, and of parameters whether they are learned, as JSON has them."""
        modules = [(at, thing) for at, thing in self._things.items() if isinstance(thing, nn.Module)]
        parameters = ((at, *named) for at, of in modules for named in of.named_parameters(recurse=False))
        learned = {(at, name + _REQUIRES_GRAD): one.requires_grad for at, name, one in parameters}
        drawing = {
            place: {_GENERATOR: state_of(one)} for place, one in self._generators.items() if self._holds(place, one)
        }
        return {(at, name): value for at, name, value in plain_of(self._things.items())} | learned | drawing

    def _holds(self, place: tuple[str, str], value: object) -> bool:
        return held_by(self._things[place[0]]).get(place[1]) is value

    def _rest_now(self) -> dict[tuple[str, str], object]:
        """What is neither a plain value nor a tensor, but for what libraries' modules have, which know what they keep."""
        return {
            (at, name): value
            for at, thing in self._things.items()
            if not is_of_library(thing)
            for name, value in held_by(thing).items()
            if not (
                is_plain(value) or isinstance(value, Tensor | nn.Module) or self._generators.get((at, name)) is value
            )
        }

    def _tensors_now(self) -> dict[str, Tensor]:
        """All but those that the model's state_dict has."""
        listed, tensors = frozenset(_in_state_dict(self._model)), dict[str, Tensor]()
        for at, thing in self._things.items():
            found = stored(thing)
            if isinstance(thing, nn.Module):
                found |= {**dict(thing.named_buffers(recurse=False)), **dict(thing.named_parameters(recurse=False))}
            tensors |= {
                f"{at}/{name}": value
                for name, value in found.items()
                if isinstance(value, Tensor) and (at, name) not in listed
            }
        return tensors


def _set_plain(thing: object, at: str, name: str, said: object) -> None:
    """Let a thing have a plain value, as JSON has it; a ValueError where it can have no such."""
    parameter = getattr(thing, "_parameters", {}).get(name.removesuffix(_REQUIRES_GRAD))
    if name.endswith(_REQUIRES_GRAD):
        if not isinstance(parameter, Tensor) or not isinstance(said, bool):
            raise _not_kept(at, name, said)
        parameter.requires_grad_(said)
        return
    of_class = hasattr(type(thing), name) and is_plain(getattr(type(thing), name))
    held = held_by(thing)
    if name not in held and hasattr(thing, name) and not of_class:  # a method, a buffer
        raise _not_kept(at, name, said)
    now = held.get(name)
    try:
        if is_own_generator(now) and isinstance(said, dict):
            put_state(now, said[_GENERATOR])
            return
        value = from_json(said, now)
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise _not_kept(at, name, said) from None
    if name in held:
        hold(thing, name, value)
    else:
        setattr(thing, name, value)


def _not_kept(at: str, name: str, value: object) -> ValueError:
    return ValueError(f"{at}.{name} = {value!r}, which is not kept there")


def _may_have(thing: object, name: str) -> bool:
    """May a tensor be of this name? No method or property is."""
    of_class = getattr(type(thing), name, None)  # such as a None that says what there will be
    return name in held_by(thing) or (isinstance(of_class, PLAIN) and isinstance(getattr(thing, name, None), PLAIN))


def _forget(thing: object, name: str) -> None:
    if name.endswith(_REQUIRES_GRAD):  # of a parameter that is there since
        return
    if name in getattr(thing, "_buffers", {}):
        cast(nn.Module, thing)._buffers[name] = None
    else:
        delattr(thing, name)


def _in_state_dict(module: nn.Module) -> Iterator[tuple[str, str]]:
    """The parameters and buffers that a state_dict has, by module and name."""
    for at, part in module.named_modules():
        yield from ((at, name) for name in part._parameters)
        yield from ((at, name) for name in part._buffers.keys() - part._non_persistent_buffers_set)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
