"""GSplit's Figs 6 to 9: split parallelism against DGL, PaGraph and P3*, by the size of caches and of batches."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.gsplit.task import GRAPHS, PARTS
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import NAMED, Plan

CACHES, SIZES = (0.05, 0.1, 0.25), (16, 64, 256)  # shares of all rows; seeds of a worker
CACHE, SEEDS, DEPTH = 0.25, 64, 3
SYSTEMS = ("DGL", "PaGraph", "P3*", "GSplit")
ABOUT = (
    f"Megabytes that {PARTS} workers send in an epoch of GraphSAGE, hidden dimension 64, fanouts 10,10,10, without sums of "
    "gradients, as the planner's dry run counts them; METIS. DGL is gdp, PaGraph gdp with a cache, P3* nfp, GSplit split. "
    "GSplit has no cache here, though the paper's has one."
)


def _sent(bench: Bench, graph: str, cache: float, seeds: int) -> Figures:
    """Each system with its own cache: DGL has none, slices of all rows leave P3* nothing to cache."""
    told: dict[str, Any] = {"model": "sage", "hidden": 64, "fanouts": (10,) * DEPTH, "batch_size": seeds, "threads": 1}
    plain: dict[str, Plan] = {"DGL": NAMED["gdp"](DEPTH), "P3*": NAMED["nfp"](DEPTH), "GSplit": NAMED["split"](DEPTH)}
    kept = {"PaGraph": NAMED["gdp"](DEPTH, cache=cache)}
    parts, four = bench.parts(graph, PARTS), hosts(PARTS, "1gbit")
    found = foreseen(parts, told, plain, four) | foreseen(parts, told | {"cache": cache}, kept, four)
    return {system: megabytes(found[system]) for system in SYSTEMS}


def _by_cache(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_sent, bench, "{}, cache {:.0%}, {} seeds", GRAPHS, bench.ends(CACHES), (SEEDS,))


def _by_batch(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_sent, bench, "{}, cache {:.0%}, {} seeds", GRAPHS, (CACHE,), bench.ends(SIZES))


def _gains(measured: Measured, system: str, of: str = "") -> list[float]:
    return [one[system] / one["GSplit"] for case, one in measured.items() if of in case]


def _told(gains: list[float]) -> str:
    return f"{min(gains):.1f} to {max(gains):.1f} times"


def _compare_caches(measured: Measured) -> Iterator[Finding]:
    dgl = _gains(measured, "DGL")
    yield Finding(
        "GSplit outperforms DGL by up to one order of magnitude",
        f"DGL sends {_told(dgl)} as much",
        min(dgl) > 1 and max(dgl) > 5,
        "here links carry partial sums as well, which the paper's machines have NVLink for",
    )
    for cache in (CACHES[0], CACHES[-1]):
        gains = _gains(measured, "PaGraph", f"cache {cache:.0%}")
        yield Finding(
            f"and PaGraph, whatever its cache: of {cache:.0%} of all rows",
            f"PaGraph sends {_told(gains)} as much",
            min(gains) > 1 or None,
            "GSplit has the same cache in the paper, and none here",
        )
    columns = _gains(measured, "P3*")
    yield Finding(
        "and push-pull parallelism",
        f"P3* sends {_told(columns)} as much",
        min(columns) > 1.05,
        "vertices of an R-MAT graph have neighbours in all parts, so that three layers send as much as slices of one",
        partly=max(columns) > 1.05,
    )


def _compare_batches(measured: Measured) -> Iterator[Finding]:
    small, large = (_gains(measured, "DGL", f", {size} seeds") for size in (SIZES[0], SIZES[-1]))
    yield Finding(
        "the gain on DGL is consistent whatever the size of batches, a little more with larger ones",
        f"DGL sends {_told(small)} as much with {SIZES[0]} seeds a worker, {_told(large)} with {SIZES[-1]}",
        min(small) > 1 and all(after > 0.8 * before for before, after in zip(small, large, strict=True)),
        "large batches reach most of so small a graph, so that there is less and less to split",
    )


SHEETS = (
    Sheet("Fig. 6", "by the size of caches (and Fig. 7)", ABOUT, _by_cache, _compare_caches),
    Sheet("Fig. 8", "by the size of batches (and Fig. 9)", ABOUT, _by_batch, _compare_batches),
)
