"""Epochs measured: by some plan, on all workers, for rehearsals and for predictions to be held against."""

import statistics
import time
from dataclasses import replace

import numpy as np
import torch

from weft.exchange import Communicator
from weft.plan import Plan
from weft.planner import Answer, Observation, Planner
from weft.training.trainer import Trainer


def measured(trainer: Trainer, comm: Communicator, answer: Answer, epochs: int) -> Answer:
    """The answer with what some epochs by each of its plans took, after one to warm up; all workers call this together."""
    found = {}
    for prediction in answer.predictions:
        if prediction.excluded is None:
            trainer.use(prediction.plan)
            trainer.train_epoch(0)
            seen = [_epoch(trainer, comm, epoch) for epoch in range(1, epochs + 1)]
            stages = {stage: statistics.median(of[stage] for _, of, _ in seen) for stage in Observation.STAGES}
            found[prediction.name] = {"seconds": statistics.median(took for took, _, _ in seen), **stages}
    return replace(answer, measured=found)


def observed(trainer: Trainer, comm: Communicator, planner: Planner, plan: Plan, epoch: int) -> Observation:
    """An epoch by the plan that the trainer uses; all workers call this together, with a communicator to all of them."""
    return Observation(planner, plan, *_epoch(trainer, comm, epoch))


def _epoch(trainer: Trainer, comm: Communicator, epoch: int) -> tuple[float, dict[str, float], dict[str, np.ndarray]]:
    """Seconds of an epoch; by stage, of the worker with most; and those of each worker's processor."""
    stages = Observation.STAGES
    comm.barrier()
    before, start = trainer.meter, time.perf_counter()
    elapsed, busy = before.seconds(), before.processor()
    trainer.train_epoch(epoch)
    comm.barrier()
    took = time.perf_counter() - start
    now, worked = trainer.meter.seconds(), trainer.meter.processor()
    mine = [took, *(now.get(s, 0.0) - elapsed.get(s, 0.0) for s in stages)]
    mine += [worked.get(s, 0.0) - busy.get(s, 0.0) for s in stages]
    gathered = torch.stack(comm.gather(torch.tensor(mine, dtype=torch.float64))).numpy()
    seconds = {stage: float(gathered[:, 1 + at].max()) for at, stage in enumerate(stages)}
    processor = {stage: gathered[:, 1 + len(stages) + at] for at, stage in enumerate(stages)}
    return float(gathered[:, 0].max()), seconds, processor
