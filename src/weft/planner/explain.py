"""The reason in words: what holds a plan up, and what each of its choices saves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from weft.errors import ConfigError
from weft.plan import Plan
from weft.planner.answer import Prediction
from weft.planner.task import Options

IN_WORDS = {
    "processors": "the processors",
    "links": "the links between hosts",
    "training": "the thread that trains, with its exchanges",
    "preparing": "the threads that prepare batches",
    "copies": "copies from host memory to devices",
}

_CACHE, _SHARED = "the cache", "one cache of each host's devices"
_SEEDS = {"home": "at home", "spread": "spread"}
_EXACTNESS = {"float32": 1.0, "float16": 1.05}  # what saves less than this factor is not worth giving it up

Predict = Callable[[Plan], Prediction]
Others = dict[str, Prediction]  # of other plans, by what is different in them


def reasons(shown: list[Prediction], predict: Predict, placements: Sequence[str], prefetch: int) -> list[str]:
    """Sentences on a choice, the first of what is shown: what holds it up, and each layer and option against the next best.

    `placements`: that a layer may have. `prefetch`: batches that could be prepared ahead, if there was memory.
    """
    best = shown[0]
    said = [
        f"{best.name} takes {seconds(best.seconds)} an epoch, held up most by {IN_WORDS[best.limit]}; "
        f"{megabytes(sum(best.sent.values()))} travel between workers"
    ]
    for choice, others in _changes(best.plan, predict, placements):
        fitting = {what: other for what, other in others.items() if other.excluded is None}
        if fitting:
            what, other = min(fitting.items(), key=lambda each: each[1].seconds)
            more = _of_cache(best, other) if choice == _CACHE else ""
            said.append(f"{choice}: {_against(best, other)} ({what}){more}")
    return [*said, *_draws(best), *_precision(best, predict), *_ahead(best, predict, prefetch), *_other_ways(shown)]


def worth(plan: Plan, seconds: float) -> float:
    """What an epoch's seconds count for, against those of other plans."""
    return seconds * _EXACTNESS[plan.wire]


def _changes(plan: Plan, predict: Predict, placements: Sequence[str]) -> Iterator[tuple[str, Others]]:
    """Each choice of a plan that can be another one, with plans in which it is."""
    for at, placement in enumerate(plan.layers):
        layers = {other: (*plan.layers[:at], other, *plan.layers[at + 1 :]) for other in placements}
        yield (
            f"{placement} in layer {at + 1}",
            _others(plan, predict, {name: {"layers": of} for name, of in layers.items()}),
        )
    yield f"seeds {_SEEDS[plan.seeds]}", _other_seeds(plan, predict, placements)
    yield _CACHE, _others(plan, predict, {"without": {"cache": 0.0, "cache_per": "worker"}})
    if plan.cache and plan.cache_per == "host":
        yield _SHARED, _others(plan, predict, {"each its own": {"cache_per": "worker"}})
    yield "near halos computed again", _others(plan, predict, {"sent": {"replicate": False}})


def _other_seeds(plan: Plan, predict: Predict, placements: Sequence[str]) -> Others:
    """The same plan with seeds the other way; its last layer is another one where it could not be as it is."""
    seeds = "spread" if plan.seeds == "home" else "home"
    layers = [(*plan.layers[:-1], last) for last in placements]
    others = {f"{_SEEDS[seeds]}, {'+'.join(each)}": {"seeds": seeds, "layers": each} for each in layers}
    return _others(plan, predict, {_SEEDS[seeds]: {"seeds": seeds}}) or _others(plan, predict, others)


def _others(plan: Plan, predict: Predict, changes: Mapping[str, Options]) -> Others:
    """Other plans, with what is different in each: those changes that make one."""
    found: dict[Plan, str] = {}
    for what, fields in changes.items():
        with suppress(ConfigError):
            found[replace(plan, **fields)] = what
    return {what: predict(other) for other, what in found.items() if other != plan}


def _precision(best: Prediction, predict: Predict) -> Iterator[str]:
    """What half as many bytes of rows save; or would, if that is worth knowing."""
    wire = "float32" if best.plan.wire == "float16" else "float16"
    other = _others(best.plan, predict, {wire: {"wire": wire}})[wire]
    if wire == "float32":
        yield f"float16 on the wire, not exact: {_against(best, other)} (float32)"
    elif other.excluded is None and worth(other.plan, other.seconds) < best.seconds:
        yield (
            f"float32 on the wire, exact: with float16 {best.name} would take {seconds(other.seconds)} (`--wire auto` lets "
            f"the planner choose)"
        )


def _draws(best: Prediction) -> Iterator[str]:
    """That neighbours are drawn on devices, and how that is known."""
    if best.device is not None and best.device.lists:
        known = "was measured" if best.device.measured else "is estimated by their pace"
        there = megabytes(best.device.lists)
        yield f"neighbours are drawn on the devices, with {there} of lists on each; what that takes {known}"


def _ahead(best: Prediction, predict: Predict, prefetch: int) -> Iterator[str]:
    """Why fewer batches are prepared ahead than could be."""
    if best.plan.prefetch < prefetch:
        more = best.plan.prefetch + 1
        other = _others(best.plan, predict, {"more": {"prefetch": more}})["more"]
        yield f"{best.plan.prefetch} batches prepared ahead: with {more} a worker {other.excluded}"


def _other_ways(shown: list[Prediction]) -> Iterator[str]:
    """What plans would take that have no layer in common with the best."""
    best = shown[0]
    for other in shown[1:]:
        if other.seconds and not set(other.plan.layers) & set(best.plan.layers):
            but = f", but {other.excluded}" if other.excluded else ""
            yield f"{other.name} would take {seconds(other.seconds)} and send {megabytes(sum(other.sent.values()))}{but}"


def _of_cache(best: Prediction, bare: Prediction) -> str:
    """What a cache takes, and what one on a device saves of copies."""
    filled = f"; filling it takes {seconds(best.once)}, once"
    if best.device is None or bare.device is None:
        return filled
    there, copied = best.device, megabytes(bare.device.copied)
    lent = f" ({there.lent:.0%} on another device of the host)" if there.lent else ""
    return (
        f"; with {megabytes(there.cache)} of each device it has {there.met:.0%} of all input rows{lent}, so that "
        f"{megabytes(there.copied)} instead of {copied} are copied to a device{filled}"
    )


def _against(best: Prediction, other: Prediction) -> str:
    """What travels, and the seconds, instead of the other's."""
    mine, theirs = sum(best.sent.values()), sum(other.sent.values())
    told = f"{seconds(best.seconds)} instead of {seconds(other.seconds)}"
    if mine == theirs:
        return told
    return f"{megabytes(mine)} instead of {megabytes(theirs)}, {told}"


def seconds(value: float) -> str:
    """Seconds for a person."""
    return f"{value:.3g} s"


def megabytes(count: float) -> str:
    """Bytes for a person."""
    if 0 < count < 1e5:
        return f"{count / 1e3:.1f} kB" if count >= 1e3 else f"{count:.0f} bytes"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
