"""An `Answer` of the planner in words, for tables and pages; and as plain data."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite

import numpy as np

from weft.planner import STAGES, Answer, Prediction
from weft.quantities import as_age
from weft.report.formats import NONE, amount, figure, seconds, share

Json = dict[str, "Json"] | list["Json"] | str | float | bool | None
OF_SWEEPS = "Here an epoch counts with its part of what filling a cache takes, by how many epochs there are (--epochs)."
OTHER = "other"  # measured stages that predictions do not have


def ranked(answer: Answer) -> list[Prediction]:
    """The plans that can be used, fastest first; the chosen one among them."""
    usable = [prediction for prediction in answer.predictions if prediction.excluded is None]
    if all(prediction.name != answer.best.name for prediction in usable):
        usable.append(answer.best)
    return sorted(usable, key=lambda prediction: (prediction.seconds, prediction.name != answer.best.name))


def excluded(answer: Answer) -> list[Prediction]:
    """The plans that can't be used, as the answer orders them."""
    return [
        prediction
        for prediction in answer.predictions
        if prediction.excluded is not None and prediction.name != answer.best.name
    ]


def slower(prediction: Prediction, answer: Answer) -> str:
    """How much longer an epoch takes than by the best plan, as +12%."""
    if prediction.name == answer.best.name:
        return "best"
    return share(prediction.seconds / answer.best.seconds - 1) if answer.best.seconds else NONE


def stages_of(times: Mapping[str, float]) -> dict[str, float]:
    """Seconds by stage in the order of STAGES, then what else was measured, as one; only what is a positive time."""
    known = {stage: times[stage] for stage in STAGES if _positive(times.get(stage, 0.0))}
    rest = sum(other_stages(times).values())
    return known | ({OTHER: rest} if rest else {})


def other_stages(times: Mapping[str, float]) -> dict[str, float]:
    """Measured stages that predictions do not have."""
    return {name: value for name, value in times.items() if name not in (*STAGES, "seconds") and _positive(value)}


def stage_names(answer: Answer) -> list[str]:
    """The stages of plans, and what else was measured, if anything was."""
    return [*STAGES, *([OTHER] if any(map(other_stages, answer.measured.values())) else [])]


def stage_cells(times: Mapping[str, float], names: Iterable[str]) -> list[str]:
    """Seconds of these stages, as figures."""
    shown = stages_of(times)
    return [figure(shown[name]) if name in shown else NONE for name in names]


def measured_seconds(prediction: Prediction, answer: Answer) -> float | None:
    """What an epoch took when it was measured, if it was."""
    return answer.measured.get(prediction.name, {}).get("seconds")


def memory_of(prediction: Prediction) -> str:
    """The peak and its limit, as 1.2 of 16 GB; a device's, if it is nearer to its own. The peak alone if there is none."""
    used, limit, where = prediction.memory, prediction.room, ""
    device = prediction.device
    if device is not None and used * device.room <= device.memory * limit:
        used, limit, where = device.memory, device.room, " on device"
    if not (isfinite(limit) and limit > 0):
        return amount(used)
    peak, room = amount(used), f"{amount(limit)}{where}"
    same_unit = peak.split()[-1] == room.split()[1]
    return f"{peak.split()[0] if same_unit else peak} of {room}"


def limit_of(prediction: Prediction) -> str:
    """What limits an epoch most, in a word."""
    return prediction.limit if prediction.limits else NONE


def dry_run(answer: Answer) -> str:
    """What the prediction is based on, in a sentence."""
    more = answer.looked_at > answer.batches  # the one of the next epoch, by which caches are judged
    looked_at = "two epochs' batches" if more else f"{answer.looked_at:,} of {answer.batches:,} batches"
    return (
        f"Looked at {looked_at}, standard error {answer.error:.1%}; planning took "
        f"{seconds(answer.took)}{_of_layers(answer)}."
    )


def _of_layers(answer: Answer) -> str:
    """Whose figures it took for the layers, if not its own."""
    return "" if answer.timed is None else f", with layers as timed {as_age(answer.timed)} ago"


def keys_in_order(tables: Iterable[Mapping[str, float]]) -> list[str]:
    """All keys of several tables: stages in their order, then others as they come."""
    found = dict.fromkeys(key for table in tables for key in table)
    return [stage for stage in STAGES if stage in found] + [key for key in found if key not in STAGES]


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0


def answer_as_dict(answer: Answer) -> Json:
    """The answer as plain data that strict JSON parsers accept: a number that is not finite becomes null."""
    data = asdict(answer) | {
        "best": _prediction(answer.best),
        "predictions": [_prediction(prediction) for prediction in answer.predictions],
    }
    return plain(data)


def _prediction(prediction: Prediction) -> dict[str, object]:
    limit = prediction.limit if prediction.limits else None
    return asdict(prediction) | {"plan": prediction.plan.as_dict(), "limit": limit}


def plain(value: object) -> Json:
    """Lists for tuples, Python's numbers for numpy's, null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return None
    assert value is None or isinstance(value, str | int | float), f"{value!r} has no place in JSON"
    return value
