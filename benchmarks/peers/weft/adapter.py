"""Weft in the peers' harness, so that all sides are measured alike."""

import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from protocol import serve

from weft.graph import Graph
from weft.plan import Settings
from weft.sampling import NeighborSampler
from weft.training import Trainer, make_model


def sampling(job):
    """Blocks by Weft's sampler; several threads make a batch each, as the loader's do."""
    graph = Graph.open(job["graph"])
    samplers = queue.SimpleQueue()
    for _ in range(job["threads"]):
        samplers.put(NeighborSampler(graph, job["fanouts"]))
    batches = list(np.load(job["batches"]))

    def count(number, index):
        sampler = samplers.get()
        sample = sampler.sample(batches[index], number, index)
        samplers.put(sampler)
        return sum(block.num_edges for block in sample.blocks)

    def run(number):
        start = time.perf_counter()
        with ThreadPoolExecutor(job["threads"]) as pool:
            edges = sum(pool.map(lambda index: count(number, index), range(len(batches))))
        return {"seconds": time.perf_counter() - start, "edges": edges}

    return run


def epoch(job):
    graph = Graph.open(job["graph"])
    settings = Settings.of(
        model=job["model"],
        hidden=job["hidden"],
        fanouts=tuple(job["fanouts"]),
        batch_size=job["batch_size"],
        threads=job["threads"],
        device=job["device"],
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
