"""GSplit's Table 4: what online splitting adds to sampling."""

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from papers.bench import Bench
from papers.gsplit.task import GRAPHS, PARTS, draws, sizes
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.sampling import Sample

MICRO, MINI = "4 micro-batches, processor s", "1 mini-batch, sampled and split, processor s"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_timed, bench, "{}, {} seeds", GRAPHS, sizes(bench))


def _timed(bench: Bench, graph: str, size: int) -> Figures:
    """Processor time of this thread, the least of some rounds: both ways take turns."""
    drawn, owners = draws(bench, graph, size), bench.owners(graph, PARTS, "metis")
    rounds: dict[str, list[float]] = {MICRO: [], MINI: []}
    for _ in range(3):
        start = time.thread_time()
        for _micro in drawn.dealt():
            pass
        between = time.thread_time()
        for sample in drawn.whole():
            _split(sample, owners)
        rounds[MICRO].append(between - start)
        rounds[MINI].append(time.thread_time() - between)
    return {name: min(each) / len(drawn.seeds()) for name, each in rounds.items()}


def _split(sample: Sample, owners: np.ndarray) -> list[list[np.ndarray]]:
    """Of each hop: each part's destinations, in the order of the sample."""
    held = owners[sample.vertices.numpy()]
    return [[np.flatnonzero(held[: block.num_dst] == part) for part in range(PARTS)] for block in sample.blocks]


def _compare(measured: Measured) -> Iterator[Finding]:
    more = {case: one[MINI] / one[MICRO] - 1 for case, one in measured.items()}
    yield Finding(
        "sampling one mini-batch and splitting it takes at most 74% longer than four micro-batches, often less",
        ", ".join(f"{case} {part:+.0%}" for case, part in more.items()),
        max(more.values()) < 0.74,
    )


SHEET = Sheet(
    "Table 4",
    "sampling and splitting",
    "Processor seconds of one thread for a batch: four workers' samples of a quarter of the seeds each, against one sample "
    "whose vertices are then dealt to their owners. Fanouts of 20 in three hops.",
    _cases,
    _compare,
)
