"""LeapGNN's Figs 19 and 21: on a larger graph, and with whole neighbourhoods; both on the clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from papers.bench import SPREAD, Bench, medians, spread
from papers.leapgnn.task import BATCHES, FANOUTS, SERVERS
from papers.sheet import Figures, Finding, Measured, Sheet, by_clock, grid_in_turn, values

LARGE, SMALL, LINK = "rmat", "debian", "200mbit"
SECONDS, SENT = "seconds an epoch", "MB an epoch"
KEYS = {SECONDS: "seconds", SENT: "megabytes"}
DGL, P3, STAR, LEAP = "DGL", "P3", "NeutronStar", "LeapGNN"
Systems = Mapping[str, Mapping[str, Any]]
SAMPLED: Systems = {DGL: {"plan": "gdp"}, P3: {"plan": "nfp"}, LEAP: {"plan": "leap"}}
# A batch is all training vertices with all their neighbours; NeutronStar computes each vertex once, at its owner.
# Nothing is prepared ahead: of one batch an epoch that would be another epoch's.
WHOLE: Systems = {name: {"plan": plan, "prefetch": 0} for name, plan in ((DGL, "gdp"), (STAR, "dnp"), (LEAP, "leap"))}
MODELS = ("gcn", "sage")


def _cases(systems: Systems, run: Callable[..., list[Figures]], bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(run, bench, "{}, {}", bench.first(MODELS), systems)


def _sampled(bench: Bench, model: str, systems: Sequence[str]) -> list[Figures]:
    settings = {"model": model, "hidden": 16, "batch_size": 256, "fanouts": FANOUTS}
    return _clocked(bench, LARGE, settings, [SAMPLED[system] for system in systems])


def _whole(bench: Bench, model: str, systems: Sequence[str]) -> list[Figures]:
    seeds = -(-len(bench.graph(SMALL).seeds("train")) // SERVERS)
    settings = {"model": model, "hidden": 16, "batch_size": seeds, "fanouts": (-1, -1)}
    return _clocked(bench, SMALL, settings, [WHOLE[system] for system in systems])


def _clocked(
    bench: Bench, graph: str, settings: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]
) -> list[Figures]:
    runs = [{"graph": bench.parts(graph, SERVERS), "options": plan} for plan in plans]
    every = bench.epochs(settings, runs, hosts=SERVERS, link=LINK, batches=BATCHES, settle=True)
    return [medians(epochs, KEYS) | spread(epochs[1:]) for epochs in every]


def _compare(claims: Mapping[str, tuple[str, str]], measured: Measured) -> Iterator[Finding]:
    models = values(measured)
    for other, (claim, why) in claims.items():
        gains = [measured[f"{model}, {other}"][SECONDS] / measured[f"{model}, {LEAP}"][SECONDS] for model in models]
        told = ", ".join(f"{model} {gain:.2f} times" for model, gain in zip(models, gains, strict=True))
        noise = max(one[SPREAD] for case, one in measured.items() if case.endswith((other, LEAP)))
        yield by_clock(claim, told, min(gains), 1.05, noise, why)


_NO_HOMES = "an R-MAT graph has no parts to be at home in, so that a seed's neighbours are as far from there"
_LARGE_CLAIMS = {
    DGL: ("LeapGNN is 1.91 times faster than DGL on the largest graph", _NO_HOMES),
    P3: ("and 1.48 times faster than P3", _NO_HOMES),
}
_WHOLE_CLAIMS = {
    DGL: (
        "LeapGNN outperforms DGL without sampling, too",
        "all neighbours of a quarter of the training vertices are most of so small a graph, wherever these are",
    ),
    STAR: (
        "and NeutronStar, 1.05 to 1.82 times",
        "hidden rows are few and narrow beside the features that LeapGNN fetches",
    ),
}
_HOSTS = f"Median seconds of epochs on {SERVERS} hosts with links of {LINK}, METIS, hidden dimension 16."
SHEETS = (
    Sheet(
        "Fig. 19",
        "on a larger graph",
        f"{_HOSTS} An R-MAT graph stands for IT; epochs of {BATCHES} batches, 256 seeds each, fanouts of 10 in three hops. "
        "P3 is nfp.",
        partial(_cases, SAMPLED, _sampled),
        partial(_compare, _LARGE_CLAIMS),
        root=True,
    ),
    Sheet(
        "Fig. 21",
        "without sampling",
        f"{_HOSTS} A batch is all training vertices of Debian's packages with all neighbours of two hops. NeutronStar "
        "is dnp: each vertex is computed once, at its owner. Nothing is prepared ahead.",
        partial(_cases, WHOLE, _whole),
        partial(_compare, _WHOLE_CLAIMS),
        root=True,
    ),
)
