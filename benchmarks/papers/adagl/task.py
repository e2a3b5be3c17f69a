"""What AdaGL allocates for: three layers on four servers; and what an allocation makes training wait for, counted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from papers.bench import Bench
from papers.sheet import Figures
from weft.graph import Graph
from weft.partition import PartitionGoal, Traces, TrainingTask, allocate, measure

GRAPHS = ("debian", "facebook-johns", "communities")
ONE = "debian"  # for OGB-Arxiv, on which the paper looks at its choices one by one
PARTS = 4
WAITING, ROWS, CUT, UNEVEN = "waiting, rows", "all rows", "cut, %", "largest part above its share, %"
ABOUT = (
    "Waiting is the paper's T: rows that the busiest server gets in a mean batch, seeds at home. The batches "
    "that are counted are others than those that the search has seen."
)
Owners = Callable[[Graph, PartitionGoal], np.ndarray]


def goal(seed: int, **more: Any) -> PartitionGoal:
    """Four servers, 128 seeds each; fanouts of 10 in three hops."""
    return PartitionGoal(PARTS, task=TrainingTask((10, 10, 10), 128 * PARTS, 0), seed=seed, **more)


def figures(bench: Bench, name: str, owners: Owners, **more: Any) -> Figures:
    """What allocations make wait for, their mean over seeds; `more`: of the goal."""
    graph = bench.graph(name)
    traces = Traces(graph, TrainingTask((10, 10, 10), 128 * PARTS, 1), batches=8)
    found = [
        _waited(traces, graph, owners(graph, goal(seed, **more)), more.get("shares"))
        for seed in range(1 if bench.quick else 3)
    ]
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]}


def by_name(method: str, **options: Any) -> Owners:
    """A method's allocation."""

    def allocated(graph: Graph, of: PartitionGoal) -> np.ndarray:
        return allocate(graph, of.parts, method, options=options, task=of.task, seed=of.seed, shares=of.shares)

    return allocated


def shorter(measured: Mapping[str, Figures], one: str, other: str) -> float:
    """By how much one case waits less than another, as a share."""
    return 1 - measured[one][WAITING] / measured[other][WAITING]


def told(measured: Mapping[str, Figures]) -> str:
    """Each case's waiting, in words."""
    return ", ".join(f"{case} {found[WAITING]:,.0f}" for case, found in measured.items())


def _waited(traces: Traces, graph: Graph, owners: np.ndarray, shares: Sequence[float] | None) -> Figures:
    rows = traces.rows(owners, PARTS, shares=shares)
    rows[:, range(PARTS), range(PARTS)] = 0
    quality = measure(graph, owners, PARTS, shares=shares)
    most = max(quality["balance"][kind] for kind in ("vertices", "training"))
    return {
        WAITING: float(rows.sum(axis=2).sum(axis=0).max()) / len(rows),
        ROWS: float(rows.sum()) / len(rows),
        CUT: 100 * quality["cut"],
        UNEVEN: 100 * (most - 1),
    }
