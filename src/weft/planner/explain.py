"""The reason in words: what a plan saves against others, and where its time goes."""

from weft.planner.prediction import Prediction

_IN_WORDS = {
    "processors": "the processors",
    "links": "the links between hosts",
    "training": "the thread that trains, and its exchanges",
    "preparing": "the threads that prepare batches",
}


def reasons(best: Prediction, others: list[Prediction]) -> list[str]:
    """Sentences on a choice, against the other plans that are shown."""
    total = sum(best.sent.values())
    said = [
        f"{best.name}: {best.seconds:.3g} s an epoch, held up most by {_IN_WORDS[best.limit]}; "
        f"{megabytes(total)} travel between workers"
    ]
    for other in others:
        if other.excluded is None and other.name != best.name:
            said.append(_against(best, other))
    return said


def _against(best: Prediction, other: Prediction) -> str:
    ratio = other.seconds / best.seconds if best.seconds else 1.0
    stage = max(best.sent, key=lambda name: other.sent[name] - best.sent[name])
    more = other.sent[stage] - best.sent[stage]
    worked = max(best.stages, key=lambda name: other.stages[name] - best.stages[name])
    why = f"{worked} {other.stages[worked]:.2g} s instead of {best.stages[worked]:.2g} s"
    if more > 0.05 * sum(other.sent.values()):
        why = f"{megabytes(other.sent[stage])} to {stage} instead of {megabytes(best.sent[stage])}, " + why
    return f"{other.name} takes {ratio:.2f} times as long: {why}"


def megabytes(count: float) -> str:
    """Bytes for a person."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
