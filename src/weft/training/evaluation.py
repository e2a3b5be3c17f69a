"""How a model is measured: by sampled batches, or exactly over all neighbours."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError, TrainingError
from weft.graph import SPLITS
from weft.nn import Steps
from weft.training.inference import inferred
from weft.training.meanwhile import meanwhile, nothing
from weft.training.objectives import Objective, Outputs
from weft.training.run import Run
from weft.training.same_values import of_one_worker

_ROUNDING = 1e-5  # by how much figures of two workers may differ

_SPLITS = tuple(name for name in SPLITS if name != "unused")


def measure(run: Run, split: str) -> dict[str, float]:
    """All figures of a run's model on a split, by rows made as the settings say. All workers call this together.

    What the model keeps, such as a count of its calls, stays as it is, for each batch and in the end.
    """
    _check_split(run, split)
    run.model.eval()
    with run.meter.stage("evaluate"), torch.no_grad(), Steps(run.model).undone(), of_one_worker(run.model, run.comm):
        objective, strange = run.objective, [0]
        outputs = _counted(_OUTPUTS[run.settings.evaluation.how](run, objective.vertices(split)), strange)
        figures = _figures(objective, objective.measure(run.model, split, outputs, run.comm))
        told = [json.loads(said) for said in run.comm.told(json.dumps((strange[0], figures)))]
    if of_all := sum(count for count, _ in told):
        raise TrainingError(
            f"the model's rows of {of_all:,} vertices of the {split} split hold nan, so that nothing can be said of them: "
            f"lower lr, set clip_norm, or look at the features with `weft info --verify`"
        )
    return _of_all([found for _, found in told], objective)


def _figures(objective: Objective, measured: object) -> dict[str, float]:
    """Refuse what are no figures by name, or are without the one by which the best model is known."""
    try:
        if isinstance(measured, Mapping) and objective.metric in measured:
            return {str(name): float(figure) for name, figure in measured.items()}
    except (TypeError, ValueError, RuntimeError, OverflowError):  # such as a tensor of several numbers
        pass
    raise TrainingError(
        f"{type(objective).__name__}.measure() gave {measured!r}: let it give a dict of numbers by name, "
        f"{objective.metric!r} among them (that is its metric, by which the best model is known)"
    )


def _of_all(found: Sequence[dict[str, float]], objective: Objective) -> dict[str, float]:
    """The first worker's figures, by which all go; others may have added up the metric in another order, and no more."""
    first, name = found[0], objective.metric
    for worker, figures in enumerate(found):
        one, other = first[name], figures[name]
        alike = math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
        if not alike and not (math.isnan(one) and math.isnan(other)):
            raise TrainingError(
                f"{type(objective).__name__}.measure() gave {name} = {one:.6g} on worker 0, {other:.6g} on worker {worker}: "
                f"each has some of the rows, so let it add up what all have (comm.sum), for all to give the same"
            )
    return first


def _counted(outputs: Outputs, strange: list[int]) -> Iterator[tuple[np.ndarray, Tensor]]:
    """The same; and how many rows hold what is no number."""
    for vertices, rows in outputs:
        strange[0] += int(rows.isnan().reshape(len(rows), -1).any(1).sum()) if len(rows) else 0
        yield vertices, rows


def _check_split(run: Run, split: str) -> None:
    """Refuse a split of another name, and one of which there is nothing to measure."""
    if split not in _SPLITS:
        raise InputError(f"no split to measure is called {split!r}: choose one of {', '.join(_SPLITS)}")
    if not run.objective.count(split):
        raise InputError(f"the {split} split is empty, so that nothing can be measured on it: choose another one")


def _sampled(run: Run, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    """The rows that this worker computes, a batch at a time, each drawing neighbours as in training."""
    steps = Steps(run.model)
    for batch in run.loader.over(vertices):
        for part in batch:
            with steps.undone():
                rows = run(part)
            yield part.targets.host.ids.numpy(), rows


def _exact(run: Run, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    """All rows, on the first worker, which infers over the whole graph: all neighbours count. Others wait, however long."""
    work: Callable[[], Tensor | None] = partial(_inferred, run, vertices) if run.world.rank == 0 else nothing
    rows = meanwhile(run.comm, work, TrainingError, "infer over the whole graph, to evaluate exactly")
    return iter([] if rows is None else [(vertices, rows)])


def _inferred(run: Run, vertices: np.ndarray) -> Tensor:
    """The rows of some vertices; in whatever thread this is."""
    there = torch.cuda.device(run.device) if run.device.type == "cuda" else nullcontext()
    with torch.no_grad(), there, run.exactly():
        outputs = inferred(run.encoder, run.objective.graph, run.dtype, run.threads).outputs
        return torch.from_numpy(outputs[vertices]).to(run.device)


_OUTPUTS = {"sampled": _sampled, "exact": _exact}
