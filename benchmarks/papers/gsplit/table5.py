"""GSplit's Table 5: how even splits are, and how many of their edges are local, by the offline partition."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from scipy.optimize import linprog

from papers.bench import Bench
from papers.gsplit.task import FANOUTS, GRAPHS, PARTS, draws, sizes
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.partition import BalanceWeights, TrainingTask, expected_draws
from weft.sampling import Sample

SKEW, EVENED, LOCAL = "edge skew", "edge skew, each batch evened at best", "local edges, %"
MAPS = ("METIS", "METIS, presampled weights", "random")


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}, {} seeds, {}", GRAPHS, sizes(bench), MAPS)


def _counted(bench: Bench, graph: str, size: int, name: str) -> Figures:
    owners = _owners(bench, graph, size, name)
    found = np.array([_split(one, owners) for one in draws(bench, graph, size).whole()])
    return {SKEW: found[:, 0].mean(), EVENED: found[:, 1].mean(), LOCAL: 100 * found[:, 2].mean()}


def _owners(bench: Bench, graph: str, size: int, name: str) -> np.ndarray:
    """The offline map; presampled: edges weigh what is drawn over them, and vertices what is computed for them."""
    if name != "METIS, presampled weights":
        return bench.owners(graph, PARTS, name.lower())
    draws_of = expected_draws(bench.graph(graph), TrainingTask(FANOUTS, size), 1)
    work = draws_of * np.diff(bench.graph(graph).indptr)
    return bench.owners(graph, PARTS, "metis", draws=draws_of, work=work, balance=BalanceWeights(0, 0, work=1))


def _split(sample: Sample, owners: np.ndarray) -> tuple[float, float, float]:
    """Of a mini-batch: (most - fewest edges of a split) / mean; the same, evened; and the share of local edges."""
    edges, held = np.zeros((PARTS, PARTS)), owners[sample.vertices.numpy()]  # by the destination's owner, the source's
    for block in sample.blocks:
        np.add.at(edges, (held[block.dst().numpy()], held[block.src.numpy()]), 1)
    loads = edges.sum(axis=1)
    return float(np.ptp(loads) / loads.mean()), _evened(edges) / loads.mean(), np.trace(edges) / edges.sum()


def _evened(edges: np.ndarray) -> float:
    """The least range of loads, where an edge between owners may be computed by the owner of its source as well.

    What goes from one to another is at most the edges between them: a linear program of these, and of the range's ends.
    """
    between = [(one, other) for one in range(PARTS) for other in range(PARTS) if one != other]
    goes = np.zeros((PARTS, len(between)))
    for number, (one, other) in enumerate(between):
        goes[[one, other], number] = -1, 1
    ones, zeros, loads = np.ones((PARTS, 1)), np.zeros((PARTS, 1)), edges.sum(axis=1)
    at_most, at_least = np.hstack([goes, -ones, zeros]), np.hstack([-goes, zeros, ones])
    bounds = [*((0, edges[pair]) for pair in between), (0, None), (0, None)]
    goal = [*np.zeros(len(between)), 1, -1]
    return float(linprog(goal, np.vstack([at_most, at_least]), np.concatenate([-loads, loads]), bounds=bounds).fun)


def _compare(measured: Measured) -> Iterator[Finding]:
    by = {name: [figures for case, figures in measured.items() if case.endswith(f", {name}")] for name in MAPS}
    local = {name: [figures[LOCAL] for figures in by[name]] for name in MAPS}
    skew = {name: [figures[SKEW] for figures in by[name]] for name in MAPS}
    yield Finding(
        "83 to 96% of the edges are local where METIS maps vertices; a random map would have 25%",
        f"{min(local['METIS']):.0f} to {max(local['METIS']):.0f}%; random {np.mean(local['random']):.0f}%",
        min(local["METIS"]) > 75,
        "R-MAT graphs have no communities, so that no partition keeps their edges together",
        partly=max(local["METIS"]) > 75,
    )
    yield Finding(
        "the price is skew: 0.5 to 1.3, where a random map has none",
        f"{min(skew['METIS']):.2f} to {max(skew['METIS']):.2f}; random {np.mean(skew['random']):.2f}",
        min(skew["METIS"]) > 0.25,
        "METIS's parts of the communities graph have nearly as many edges each",
        partly=bool(np.mean(skew["METIS"]) > np.mean(skew["random"])),
    )
    yield Finding(
        "weights that are presampled even the splits out (as the paper's offline map may have them)",
        f"skew {np.mean(skew[MAPS[1]]):.2f} in place of {np.mean(skew['METIS']):.2f}, local edges "
        f"{np.mean(local[MAPS[1]]):.0f}% in place of {np.mean(local['METIS']):.0f}%",
        np.mean(skew[MAPS[1]]) < np.mean(skew["METIS"]),
    )
    evened = np.mean([figures[EVENED] for figures in by["METIS"]])
    yield Finding(
        "(not in the paper) instead, each batch is evened: edges between owners go to whichever of the two has less to do",
        f"at best skew {evened:.2f} in place of {np.mean(skew['METIS']):.2f}; presampled weights leave "
        f"{np.mean(skew[MAPS[1]]):.2f}, and send nothing for it",
        evened < np.mean(skew[MAPS[1]]),
        "there are few edges between owners, which is what the map is for",
    )


SHEET = Sheet(
    "Table 5",
    "edge skew and local edges",
    "Of the edges of a mini-batch, each at the owner of its destination: most less fewest over the mean, and the share "
    "whose source has the same owner. Four splits; the batches are as much smaller as the graphs are.",
    _cases,
    _compare,
)
