"""An `Answer` as plain data, for `--json`."""

from dataclasses import asdict
from math import isfinite

import numpy as np

from weft.planner import Answer, Prediction

Json = dict[str, "Json"] | list["Json"] | str | float | bool | None


def answer_as_dict(answer: Answer) -> Json:
    """The answer as plain data that strict JSON parsers accept: a number that is not finite becomes null."""
    data = asdict(answer) | {
        "best": _prediction(answer.best),
        "predictions": [_prediction(prediction) for prediction in answer.predictions],
    }
    return _plain(data)


def _prediction(prediction: Prediction) -> dict[str, object]:
    limit = prediction.limit if prediction.limits else None
    return asdict(prediction) | {"plan": prediction.plan.as_dict(), "limit": limit}


def _plain(value: object) -> Json:
    """Lists for tuples, Python's numbers for numpy's, null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return None
    assert value is None or isinstance(value, str | int | float), f"{value!r} has no place in JSON"
    return value
