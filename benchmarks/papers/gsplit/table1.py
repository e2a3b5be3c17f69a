"""GSplit's Table 1: features loaded again and again by data parallelism, with caches of their own or a shared one."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from papers.bench import Bench
from papers.draws import count, hottest, inputs
from papers.gsplit.task import PARTS, batch_size, draws
from papers.sheet import Figures, Finding, Measured, Sheet

CACHES = (0, 10, 25)  # percent of all rows, each GPU's
FROM_CPU, FROM_GPU, TIMES = "CPU to GPU, MB", "GPU to GPU, MB", "rows loaded / distinct rows"
_GRAPH = "communities"
ROW = 4  # bytes of a number


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    systems = {"PaGraph": _own_caches, "Quiver": _shared_cache, "split": _split}
    return {
        f"{name}, cache {cache}%": partial(load, bench, cache / 100)
        for name, load in systems.items()
        for cache in CACHES
    }


def _own_caches(bench: Bench, cache: float) -> Figures:
    """Each GPU keeps the same rows of most out-edges."""
    drawn, kept = draws(bench, _GRAPH, batch_size(bench)), hottest(bench.graph(_GRAPH), cache)
    loads = [(count(~kept[inputs(one)]), 0) for batch in drawn.dealt() for one in batch]
    return _figures(bench, loads)


def _shared_cache(bench: Bench, cache: float) -> Figures:
    """Each row of most out-edges is kept at one GPU, dealt by id; others fetch it there."""
    drawn, kept = draws(bench, _GRAPH, batch_size(bench)), hottest(bench.graph(_GRAPH), cache * PARTS)
    loads = []
    for batch in drawn.dealt():
        for gpu, one in enumerate(batch):
            rows = inputs(one)
            others = kept[rows] & (rows % PARTS != gpu)
            loads.append((count(~kept[rows]), count(others)))
    return _figures(bench, loads)


def _split(bench: Bench, cache: float) -> Figures:
    """Each row of the mini-batch is loaded by its owner alone, which keeps its own rows of most out-edges."""
    graph, owners = bench.graph(_GRAPH), bench.owners(_GRAPH, PARTS, "metis")
    kept = np.logical_or.reduce([hottest(graph, cache, owners == part) for part in range(PARTS)])
    loads = [(count(~kept[inputs(one)]), 0) for one in draws(bench, _GRAPH, batch_size(bench)).whole()]
    return _figures(bench, loads)


def _figures(bench: Bench, loads: list[tuple[int, int]]) -> Figures:
    """Megabytes of a mean iteration."""
    graph, distinct = bench.graph(_GRAPH), [len(inputs(one)) for one in draws(bench, _GRAPH, batch_size(bench)).whole()]
    cpu, gpu = np.array(loads).sum(axis=0)
    row = ROW * graph.num_features / 1e6 / len(distinct)
    return {FROM_CPU: cpu * row, FROM_GPU: gpu * row, TIMES: (cpu + gpu) / sum(distinct)}


def _compare(measured: Measured) -> Iterator[Finding]:
    def of(system: str, cache: int, name: str) -> float:
        return measured[f"{system}, cache {cache}%"][name]

    again = of("PaGraph", 0, TIMES)
    yield Finding(
        "without a cache the GPUs load many rows more than once (13,682 MB for PaGraph's batches)",
        f"{of('PaGraph', 0, FROM_CPU):.1f} MB, each distinct row {again:.2f} times",
        again > 1.1,
    )
    left = of("PaGraph", 25, FROM_CPU) / of("PaGraph", 0, FROM_CPU)
    yield Finding(
        f"PaGraph's own caches of 25% leave {7404 / 13682:.0%} of the loads",
        f"{left:.0%}",
        0.3 < left < 0.9,
        "the degrees of this graph are more even, or less, than those of ogbn-products",
    )
    cpu, gpu = (of("Quiver", 25, name) for name in (FROM_CPU, FROM_GPU))
    share = gpu / of("Quiver", 0, FROM_CPU)
    yield Finding(
        f"Quiver's shared caches of 25% load nothing from the CPU, and {14448 / 19267:.0%} of it from other GPUs",
        f"{cpu:.1f} MB from the CPU, {share:.0%} from other GPUs",
        cpu == 0 and 0.6 < share < 0.9,
    )
    split = of("split", 0, TIMES)
    yield Finding(
        "split parallelism loads no row twice, and none from other GPUs",
        f"each distinct row {split:.2f} times, {of('split', 0, FROM_GPU):.0f} MB from other GPUs",
        split == 1 and all(of("split", cache, FROM_GPU) == 0 for cache in CACHES),
    )


SHEET = Sheet(
    "Table 1",
    "redundant loads of features",
    "Rows counted in batches that are drawn as training draws them, on a communities graph (for ogbn-products): fanouts of "
    "20 in three hops, four GPUs. Mini-batches are as much smaller as the graph is. Caches hold rows of most out-edges.",
    _cases,
    _compare,
)
