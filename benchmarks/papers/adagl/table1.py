"""AdaGL's Table I: what of an epoch is communication where vertices are allocated at random."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from papers.adagl.task import BATCHES, PARTS, SEEDS
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet, grid_in_turn

GRAPHS, LINK = ("communities", "debian"), "200mbit"
COMMUNICATION, COMPUTATION = "communication, s", "computation, s"
STAGES = {COMMUNICATION: ("sample", "route", "fetch"), COMPUTATION: ("compute",)}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}, {}", bench.first(GRAPHS), ("random", "metis"))


def _measured(bench: Bench, graph: str, methods: Sequence[str]) -> list[Figures]:
    """Seconds of the first worker, one batch after another, as the paper's servers have them."""
    settings = {"model": "sage", "hidden": 128, "batch_size": SEEDS, "fanouts": (10, 10, 10)}
    options = {"plan": "leap", "prefetch": 0}
    runs = [{"graph": bench.parts(graph, PARTS, method), "options": options} for method in methods]
    return [
        {name: median(sum(one.get(of, 0.0) for of in stages) for one in run[1:]) for name, stages in STAGES.items()}
        for run in bench.epochs(settings, runs, hosts=PARTS, link=LINK, batches=bench.fewer(BATCHES))
    ]


def _compare(measured: Measured) -> Iterator[Finding]:
    def shares(method: str) -> dict[str, float]:
        found = {case: one for case, one in measured.items() if case.endswith(method)}
        return {case: one[COMMUNICATION] / sum(one[name] for name in STAGES) for case, one in found.items()}

    random, metis = shares("random"), shares("metis")
    yield Finding(
        "communication is 81% of the time (Arxiv 29.8 s of 36.9, Products 87.9 s of 107.8) under a random allocation",
        ", ".join(f"{case} {share:.0%}" for case, share in random.items()),
        min(random.values()) > 0.6,
        "the paper's servers compute on GPUs; two processors are shared by four workers here",
    )
    yield Finding(
        "(what the paper is about) an allocation for less communication leaves it a smaller share",
        ", ".join(f"{case} {share:.0%}" for case, share in metis.items()),
        all(after < before for before, after in zip(random.values(), metis.values(), strict=True)),
        "METIS cuts few edges, but three hops of as many seeds reach most of so small a graph all the same",
    )


SHEET = Sheet(
    "Table I",
    "where an epoch's time goes",
    f"Median seconds of an epoch of GraphSAGE (hidden dimension 128, fanouts 10,10,10, {SEEDS} seeds each, {BATCHES} "
    f"batches at most) of a worker on {PARTS} hosts with links of {LINK}, data parallel with seeds at home, nothing "
    "prepared ahead. Communication is making the sampled graph and fetching rows, as the paper counts it.",
    _cases,
    _compare,
    root=True,
)
