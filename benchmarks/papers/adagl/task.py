"""What AdaGL's tables compare: the rows that servers wait for under an allocation, by its simulator, the mean over seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from papers.bench import Bench
from papers.sheet import Figures
from weft.partition import Traces, TrainingTask, allocate, measure

GRAPHS = ("debian", "facebook-johns")
PARTS, SEEDS = 4, 128  # servers, and seeds of each
TASK = TrainingTask((10, 10, 10), SEEDS * PARTS)
WAITING, ROWS, CUT = "waiting, rows", "all rows", "cut, %"
VERTICES, TRAINING = "vertices over the mean, %", "training vertices over the mean, %"
ABOUT = (
    "Rows of other servers in a batch, seeds at home, as training draws them: those that the busiest server waits for (the "
    f"paper's T), and all. {PARTS} servers, fanouts 10,10,10, {SEEDS} seeds each."
)


def waiting(
    bench: Bench, graph: str, method: str, options: Mapping[str, Any] | None = None, **goal: Any
) -> dict[str, float]:
    """The figures of a method's allocations; `goal`: bandwidths, shares and balance that it is told."""
    opened = bench.graph(graph)
    traces = Traces(opened, TASK, batches=8)
    found = []
    for seed in range(3):  # in quick size, too: one alone tells little
        owners = allocate(opened, PARTS, method, options=options, task=TASK, seed=seed, **goal)
        found.append(_figures(traces.rows(owners, PARTS), measure(opened, owners, PARTS)))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def busiest(rows: np.ndarray, bandwidths: np.ndarray | float = 1.0) -> float:
    """Of rows [batches, to, from]: those of the server that gets most in a mean batch, by what its link carries."""
    others = rows * ~np.eye(rows.shape[1], dtype=bool)
    return float((others.sum(axis=2) / bandwidths).sum(axis=0).max() / len(rows))


def _figures(rows: np.ndarray, quality: Mapping[str, Any]) -> Figures:
    balance = quality["balance"]
    return {
        WAITING: busiest(rows),
        ROWS: float((rows * ~np.eye(PARTS, dtype=bool)).sum() / len(rows)),
        CUT: 100 * quality["cut"],
        VERTICES: 100 * (balance["vertices"] - 1),
        TRAINING: 100 * (balance["training"] - 1),
    }
