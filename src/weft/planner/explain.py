"""The reason in words: what holds a plan up, and what each of its choices saves."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from weft.errors import ConfigError
from weft.parallel import PLACEMENTS, Plan
from weft.planner.prediction import Prediction

IN_WORDS = {
    "processors": "the processors",
    "links": "the links between hosts",
    "training": "the thread that trains, with its exchanges",
    "preparing": "the threads that prepare batches",
}

_EXACTNESS = 1.05  # what saves less than this factor is not worth giving it up

Predict = Callable[[Plan], Prediction]


def reasons(best: Prediction, predict: Predict, prefetch: int) -> list[str]:
    """Sentences on a choice: what its epoch is held up by, and each layer and option against the next best.

    `prefetch`: batches that could be prepared ahead, if there was memory.
    """
    total = sum(best.sent.values())
    said = [
        f"{best.name} takes {seconds(best.seconds)} an epoch, held up most by {IN_WORDS[best.limit]}; {megabytes(total)} "
        f"travel between workers"
    ]
    for number, placement in enumerate(best.plan.layers, start=1):
        other = _next_best(_other_layers(best.plan, number - 1), predict)
        if other is not None:
            instead = other.plan.layers[number - 1]
            said.append(f"{placement} in layer {number}: {_against(best, other)} ({instead})")
    other = _next_best(_other_seeds(best.plan), predict)
    if other is not None:
        places = {"home": "at home", "spread": "spread"}
        said.append(
            f"seeds {places[best.plan.seeds]}: {_against(best, other)} ({places[other.plan.seeds]}"
            f"{'' if other.plan.layers == best.plan.layers else ', ' + '+'.join(other.plan.layers)})"
        )
    if best.plan.cache:
        other = _next_best(iter([replace(best.plan, cache=0.0)]), predict)
        said += [] if other is None else [f"the cache: {_against(best, other)} (without)"]
    return [*said, *_comm(best, predict), *_ahead(best, predict, prefetch)]


def _comm(best: Prediction, predict: Predict) -> Iterator[str]:
    """What half as many bytes of rows save; or would, if that is worth knowing."""
    if best.plan.wire == "float16":
        other = predict(replace(best.plan, wire="float32"))
        yield f"float16 on the wire, not exact: {_against(best, other)} (float32)"
        return
    other = predict(replace(best.plan, wire="float16"))
    if other.excluded is None and worth(other.plan, other.seconds) < best.seconds:
        yield (
            f"float32 on the wire, exact: with float16 {best.name} would take {seconds(other.seconds)} (`--wire auto` lets "
            f"the planner choose)"
        )


def _ahead(best: Prediction, predict: Predict, prefetch: int) -> Iterator[str]:
    """Why fewer batches are prepared ahead than could be."""
    if best.plan.prefetch < prefetch:
        other = predict(replace(best.plan, prefetch=best.plan.prefetch + 1))
        yield f"{best.plan.prefetch} batches prepared ahead: with {other.plan.prefetch} a worker {other.excluded}"


def worth(plan: Plan, seconds: float) -> float:
    """What an epoch's seconds count for, against those of other plans."""
    return seconds if plan.wire == "float32" else seconds * _EXACTNESS


def _other_layers(plan: Plan, at: int) -> Iterator[Plan]:
    """The same plan with another placement of one layer, where there is such a plan."""
    for placement in PLACEMENTS:
        if placement != plan.layers[at]:
            try:
                yield replace(plan, layers=(*plan.layers[:at], placement, *plan.layers[at + 1 :]))
            except ConfigError:
                continue


def _other_seeds(plan: Plan) -> Iterator[Plan]:
    """The same plan with seeds the other way; its last layer is pushed where it could not be as it is."""
    seeds = "spread" if plan.seeds == "home" else "home"
    try:
        yield replace(plan, seeds=seeds)
    except ConfigError:
        yield replace(plan, seeds=seeds, layers=(*plan.layers[:-1], "push"))


def _next_best(plans: Iterator[Plan], predict: Predict) -> Prediction | None:
    found = [one for one in map(predict, plans) if one.excluded is None]
    return min(found, key=lambda one: one.seconds, default=None)


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
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
