"""The words and figures in which tables and pages tell an `Answer`; units are decimal: 1 MB is a million bytes."""

from collections.abc import Iterable, Mapping
from math import isfinite

from weft.planner.prediction import STAGES, Answer, Prediction

NONE = "–"
OTHER = "other"  # stages that were measured and that predictions do not tell apart
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def figure(value: float) -> str:
    """A number in two or three significant digits: 1,234, 32.1, 3.21, 0.32, 0.032."""
    if not isfinite(value):
        return NONE
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if 0 < size < 0.0005:
        return "<0.001"
    digits = next(digits for bound, digits in ((9.995, 1), (0.0995, 2), (0.00995, 3), (0, 4)) if size >= bound)
    return f"{value:.{digits}f}" if size else "0"


def seconds(value: float) -> str:
    """A time, as 3.21 s."""
    return f"{figure(value)} s" if isfinite(value) else NONE


def amount(count: float) -> str:
    """A number of bytes, as 3.1 MB."""
    if not isfinite(count):
        return NONE
    for size, unit in _BYTES:
        if (scaled := count / size) >= 0.9995:
            return f"{scaled:,.0f} {unit}" if scaled >= 9.95 else f"{scaled:.1f} {unit}"
    return f"{count:.0f} B"


def share(part: float) -> str:
    """A signed share, as +12% or −5.6%; a decimal where it is small."""
    if not isfinite(part):
        return NONE
    text = f"{part:+,.0%}" if abs(part) >= 0.0995 else f"{part:+.1%}"
    return text.replace("-", "−")


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
    """What was measured besides the stages of predictions."""
    return {name: value for name, value in times.items() if name not in (*STAGES, "seconds") and _positive(value)}


def measured_seconds(prediction: Prediction, answer: Answer) -> float | None:
    """What an epoch took when it was measured, if it was."""
    return answer.measured.get(prediction.name, {}).get("seconds")


def error_of(prediction: Prediction, measured: float) -> str:
    """The prediction's error, as a share of what was measured."""
    return error_of_seconds(prediction.seconds, measured)


def error_of_seconds(predicted: float, measured: float) -> str:
    """The error of a time, as a share of what was measured."""
    return share(predicted / measured - 1) if measured else NONE


def memory_of(prediction: Prediction) -> str:
    """The peak and its limit, as 1.2 of 16 GB; the peak alone where no limit is known."""
    if not (isfinite(prediction.room) and prediction.room > 0):
        return amount(prediction.memory)
    peak, room = amount(prediction.memory), amount(prediction.room)
    same_unit = peak.split()[-1] == room.split()[-1]
    return f"{peak.split()[0] if same_unit else peak} of {room}"


def limit_of(prediction: Prediction) -> str:
    """What holds the epoch up most, in a word."""
    return prediction.limit if prediction.limits else NONE


def dry_run(answer: Answer) -> str:
    """What the prediction rests on, in a sentence."""
    return (
        f"Looked at {answer.looked_at:,} of {answer.batches:,} batches, standard error {answer.error:.1%}; planning took "
        f"{seconds(answer.took)}."
    )


def keys_in_order(tables: Iterable[Mapping[str, float]]) -> list[str]:
    """All keys of several tables: stages in their order, then others as they come."""
    found = dict.fromkeys(key for table in tables for key in table)
    return [stage for stage in STAGES if stage in found] + [key for key in found if key not in STAGES]


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0
