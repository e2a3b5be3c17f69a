"""Weft on many workers for the cluster benchmarks: `python distributed.py JOB.json` as every worker; figures from rank 0.

A job may have several runs, each with what it has of its own: workers start once and train one after another. With
`batches`, an epoch is so many of its last ones.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import torch

from weft.exchange import World
from weft.graph import Graph
from weft.plan import Settings
from weft.training import EpochEnded, Trainer, make_model


def told(number, event):
    """An epoch of a whole run, with what it is worth."""
    if isinstance(event, EpochEnded):
        figures = {"run": number, "epoch": event.epoch, "seconds": event.seconds, "validation": event.validation}
        print(json.dumps(figures), flush=True)


def main(job):
    world = World.join(300, job["options"].get("transport", "sockets"))
    for number, own in enumerate(job.get("runs", [{}])):
        train(world, job | own, number)
    world.leave()


def train(world, job, number):
    graph = Graph.open(job["graph"])
    batches = {"fanouts": tuple(job["fanouts"]), "batch_size": job["batch_size"]} if "fanouts" in job else {}
    settings = Settings.of(model=job["model"], hidden=job["hidden"], threads=1, **batches, **job["options"])
    trainer = Trainer(graph, make_model(settings, graph), settings, partial(told, number), world)
    if job.get("evaluates"):
        trainer.fit()
        return
    trainer.prepare()
    comm, first = trainer.run.comm, max(0, len(trainer.loader) - job["batches"]) if job.get("batches") else 0
    for epoch in range(job["epochs"]):
        comm.barrier()
        stages, sent = trainer.meter.seconds(), sum(map(sum, world.traffic.sent().values()))
        start, cpu = time.perf_counter(), time.process_time()
        trainer.train_epoch(epoch, first)
        comm.barrier()
        seconds = time.perf_counter() - start
        now = sum(map(sum, world.traffic.sent().values()))
        totals = comm.sum(torch.tensor([time.process_time() - cpu, float(now - sent)], dtype=torch.float64)).tolist()
        if world.rank == 0:
            spent = {name: value - stages.get(name, 0) for name, value in trainer.meter.seconds().items()}
            steps = trainer.loader.schedule_state  # of models that migrate
            figures = {
                "run": number,
                "epoch": epoch,
                "seconds": seconds,
                "cpu_seconds": totals[0],
                "megabytes": totals[1] / 1e6,
                "steps": 0 if steps is None else steps["workers"] - len(steps["dropped"]),
                **spent,
            }
            print(json.dumps(figures), flush=True)
    trainer.close()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
