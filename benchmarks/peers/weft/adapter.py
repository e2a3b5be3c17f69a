"""Weft in the peers' harness, so that all sides are measured alike."""

import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from protocol import serve

from weft.graph import Graph
from weft.sampling import NeighborSampler
from weft.training import Settings, Trainer, make_model


def sampling(job):
    """Blocks by Weft's sampler."""
    torch.set_num_threads(job["threads"])
    graph = Graph.open(job["graph"])
    sampler = NeighborSampler(graph, job["fanouts"], threads=job["threads"])
    batches = list(np.load(job["batches"]))

    def run(number):
        start, edges = time.perf_counter(), 0
        for index, seeds in enumerate(batches):
            sample = sampler.sample(seeds, number, index)
            edges += sum(block.num_edges for block in sample.blocks)
        return {"seconds": time.perf_counter() - start, "edges": edges}

    return run


def epoch(job):
    graph = Graph.open(job["graph"])
    settings = Settings(
        model=job["model"],
        hidden=job["hidden"],
        fanouts=tuple(job["fanouts"]),
        batch_size=job["batch_size"],
        threads=job["threads"],
        epochs=1,
    )
    trainer = Trainer(graph, make_model(settings, graph), settings)
    trainer.prepare()

    def run(number):
        before = trainer.meter.seconds()
        start = time.perf_counter()
        edges, loss = trainer.train_epoch(number)
        seconds = time.perf_counter() - start
        stages = {name: total - before.get(name, 0) for name, total in trainer.meter.seconds().items()}
        return {"seconds": seconds, "edges": edges, "loss": loss, **stages}

    return run


serve(lambda job: {"sampling": sampling, "epoch": epoch}[job["what"]](job))
