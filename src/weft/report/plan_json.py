"""An `Answer` as plain data, for `--json`."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from weft.planner.prediction import Answer, Prediction


def answer_as_dict(answer: Answer) -> dict[str, Any]:
    """The answer as plain data that strict JSON parsers accept: a number that is not finite becomes null."""
    data = asdict(answer) | {
        "best": _prediction(answer.best),
        "predictions": [_prediction(prediction) for prediction in answer.predictions],
    }
    return _plain(data)


def _prediction(prediction: Prediction) -> dict[str, Any]:
    limit = prediction.limit if prediction.limits else None
    return asdict(prediction) | {"plan": prediction.plan.as_dict(), "limit": limit}


def _plain(value: Any) -> Any:
    """Lists for tuples, Python's numbers for numpy's, null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
