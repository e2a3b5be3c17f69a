"""Epochs measured: by some plan, on all workers, for rehearsals and for predictions to be held against."""

import time

import torch

from weft.exchange import Wire
from weft.parallel import Plan
from weft.planner.fitting import Observation
from weft.planner.planner import Planner
from weft.training.trainer import Trainer


def observed(trainer: Trainer, wire: Wire, planner: Planner, plan: Plan, epoch: int) -> Observation:
    """An epoch by the plan that the trainer uses; all workers call this together, with a wire to all of them."""
    stages = Observation.STAGES
    wire.barrier()
    before, start = trainer.meter, time.perf_counter()
    elapsed, busy = before.seconds(), before.processor()
    trainer.train_epoch(epoch)
    wire.barrier()
    took = time.perf_counter() - start
    now, worked = trainer.meter.seconds(), trainer.meter.processor()
    mine = [took, *(now.get(s, 0.0) - elapsed.get(s, 0.0) for s in stages)]
    mine += [worked.get(s, 0.0) - busy.get(s, 0.0) for s in stages]
    told = torch.stack(wire.gather(torch.tensor(mine, dtype=torch.float64))).numpy()
    seconds = {stage: float(told[:, 1 + at].max()) for at, stage in enumerate(stages)}
    processor = {stage: told[:, 1 + len(stages) + at] for at, stage in enumerate(stages)}
    return Observation(planner, plan, float(told[:, 0].max()), seconds, processor)
