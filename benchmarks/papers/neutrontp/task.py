"""Full-graph epochs of NeutronTP's systems on workers that are threads of this process: what each computes and sends."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from papers.bench import Bench
from papers.sheet import Chart, Figures, Measured, values
from weft.exchange import World, simulate
from weft.graph import Graph
from weft.keys import seeded
from weft.plan import Settings
from weft.planner import Sweep
from weft.training import Trainer, make_model

WORKERS = 4
MOST, LEAST, TOTAL = "most sent, MB", "least sent, MB", "all sent, MB"
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "halo": {"plan": "halo"},  # every vertex at its owner, as NeutronStar and DistDGL have it
    "TP": {"plan": "tp"},
    "DTP": {"plan": "tp-decoupled", "overlap": False},
}
ABOUT = (
    f"Bytes that each of {WORKERS} workers sends in an epoch after the first, rows and sums alone, counted while "
    "it is trained; halo has METIS's parts, and stands for the full-graph systems with vertices at owners."
)


def placed(bench: Bench, graph: str, system: str, width: int = 100, workers: int = WORKERS) -> Graph:
    """A graph by METIS for halo; for others as it is, of which each worker takes as many vertices."""
    return Graph.open(bench.parts(graph, workers, "metis", width)) if system == "halo" else bench.graph(graph, width)


def volumes(graph: Graph, system: str, workers: int = WORKERS, **settings: Any) -> Figures:
    """What workers send in an epoch of a system."""
    by_worker = sent(graph, {**settings, **SYSTEMS[system]}, workers).sum(axis=1) / 1e6
    return {MOST: by_worker.max(), LEAST: by_worker.min(), TOTAL: by_worker.sum()}


def sent(graph: Graph, settings: Mapping[str, Any], workers: int = WORKERS) -> np.ndarray:
    """Bytes from each worker to each other in the second epoch, [workers, workers]."""
    told = Settings.of(full_graph=True, threads=1, epochs=2, **settings)

    def work(world: World) -> np.ndarray:
        with seeded(0):
            model = make_model(told, graph)
        trainer = Trainer(graph, model, told, world=world)
        trainer.prepare()
        trainer.train_epoch(0)
        before = _exchanged(world)
        trainer.train_epoch(1)
        after = _exchanged(world)
        trainer.close()
        return after - before

    return np.array(simulate(workers, work, timeout=600.0))


def of(measured: Measured, figure: str = TOTAL) -> dict[str, float]:
    """One figure of each case."""
    return {case: figures[figure] for case, figures in measured.items()}


def totals(measured: Measured, axis: str) -> Chart:
    """What all workers send by system, where cases are called "3 layers, halo": lines along the axis."""
    points = values(measured)
    lines = {system: [measured[f"{point}, {system}"][TOTAL] for point in points] for system in SYSTEMS}
    return Chart(Sweep(axis, [float(point.split()[0]) for point in points], lines), "MB an epoch")


def _exchanged(world: World) -> np.ndarray:
    return np.array(world.traffic.sent().get("exchange", [0] * world.size), dtype=np.int64)
