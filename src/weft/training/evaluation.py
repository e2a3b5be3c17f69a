"""How a model is measured: by sampled batches, or exactly over all neighbours."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph import SPLITS
from weft.training.inference import infer
from weft.training.run import Run

_SPLITS = tuple(name for name in SPLITS if name != "unused")


def measure(run: Run, split: str) -> dict[str, float]:
    """All figures of a run's model on a split, by rows made as the settings say. All workers call this together."""
    _check_split(run, split)
    run.model.eval()
    with run.meter.stage("evaluate"), torch.no_grad():
        vertices, objective = run.objective.vertices(split), run.objective
        return objective.measure(run.model, split, _OUTPUTS[run.settings.evaluation.how](run, vertices), run.comm)


def _check_split(run: Run, split: str) -> None:
    """Refuse a split of another name, and one of which there is nothing to measure."""
    if split not in _SPLITS:
        raise InputError(f"no split to measure is called {split!r}: choose one of {', '.join(_SPLITS)}")
    if not run.objective.count(split):
        raise InputError(f"the {split} split is empty, so that nothing can be measured on it: choose another one")


def _sampled(run: Run, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    """The rows that this worker computes, a batch at a time, each drawing neighbours as in training."""
    for batch in run.loader.over(vertices):
        for part in batch:
            yield part.targets.host.ids.numpy(), run(part)


def _exact(run: Run, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    """All rows, on the first worker, which infers over the whole graph: all neighbours count."""
    if run.world.rank == 0:
        outputs = infer(run.encoder, run.objective.graph, dtype=run.dtype, threads=run.threads).outputs
        yield vertices, torch.from_numpy(outputs[vertices]).to(run.device)


_OUTPUTS = {"sampled": _sampled, "exact": _exact}
