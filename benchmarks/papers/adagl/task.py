"""What AdaGL's tables compare: the rows that servers wait for under an allocation, by its simulator, the mean over seeds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from papers.bench import Bench, Unequal
from papers.sheet import Figures
from weft.partition import Traces, TrainingTask, allocate, measure

GRAPHS = ("debian", "facebook-johns")
PARTS, SEEDS = 4, 128  # servers, and seeds of each
BATCHES = 10  # of an epoch on the clock, at most
TASK = TrainingTask((10, 10, 10), SEEDS * PARTS)
SERVERS = Unequal(shares=(2, 2, 1, 1), bandwidths=(1, 1, 1, 0.2))  # that differ
UNTOLD = ("random", "metis")  # of that
UNSEEN = replace(TASK, seed=TASK.seed + 1)  # such training, of which methods sampled no batch
WAITING, BUSIEST, ROWS, CUT = "waiting, rows", "busiest link, rows", "all rows", "cut, %"
VERTICES, TRAINING = "vertices over the mean, %", "training vertices over the mean, %"
ABOUT = (
    "Rows of other servers in a batch, seeds at home, as training draws them in batches that no method has seen: those that "
    "the busiest server waits for (the paper's T), those on the busiest link, to a server or from it, and all. "
    f"{PARTS} servers, fanouts 10,10,10, {SEEDS} seeds each."
)


def waiting(
    bench: Bench, graph: str, method: str, options: Mapping[str, Any] | None = None, **goal: Any
) -> dict[str, float]:
    """The figures of a method's allocations; `goal`: bandwidths, shares and balance that it is told."""
    opened = bench.graph(graph)
    traces = Traces(opened, UNSEEN, batches=8)
    found = []
    for seed in range(bench.fewer(3)):
        owners = allocate(opened, PARTS, method, options=options, task=TASK, seed=seed, **goal)
        found.append(_figures(traces.rows(owners, PARTS), measure(opened, owners, PARTS)))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def busiest(rows: np.ndarray, bandwidths: np.ndarray | float = 1.0, ways: tuple[int, ...] = (2,)) -> float:
    """Of rows [batches, to, from]: those of the server that gets most in a mean batch, by what its link carries.

    `ways`: the axes that are summed over: 2, what it gets; 1, what it sends.
    """
    others = rows * ~np.eye(rows.shape[1], dtype=bool)
    return max(float((others.sum(axis=way) / bandwidths).sum(axis=0).max() / len(rows)) for way in ways)


def _figures(rows: np.ndarray, quality: Mapping[str, Any]) -> Figures:
    balance = quality["balance"]
    return {
        WAITING: busiest(rows),
        BUSIEST: busiest(rows, ways=(1, 2)),
        ROWS: float((rows * ~np.eye(PARTS, dtype=bool)).sum() / len(rows)),
        CUT: 100 * quality["cut"],
        VERTICES: 100 * (balance["vertices"] - 1),
        TRAINING: 100 * (balance["training"] - 1),
    }
