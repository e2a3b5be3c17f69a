"""NeutronTP's Table 3: R-GCN on a graph of several relations, against sampled batches (DistDGLv2), on the clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from papers.bench import SPREAD, Bench, medians, spread
from papers.neutrontp.task import SYSTEMS, WORKERS
from papers.sheet import Figures, Finding, Measured, Sheet, by_clock, grid_in_turn

GRAPH, LINK = "debian", "200mbit"  # its dependencies are of four relations
FANOUTS, SEEDS, LAYERS, HIDDEN = (25, 15), 256, 2, 64
SAMPLED = "DistDGLv2"  # data parallelism: rows of others' vertices come for every batch
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    SAMPLED: {"plan": "gdp", "fanouts": FANOUTS, "batch_size": SEEDS},
    **{name: {"full_graph": True, "layers": LAYERS, **options} for name, options in SYSTEMS.items()},
}
SECONDS, SENT = "seconds an epoch", "MB an epoch"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}", OPTIONS)


def _measured(bench: Bench, systems: Sequence[str]) -> list[Figures]:
    parts, settings = bench.parts(GRAPH, WORKERS), {"model": "rgcn", "hidden": HIDDEN}
    runs = [{"graph": parts, "options": OPTIONS[system]} for system in systems]
    every = bench.epochs(settings, runs, hosts=WORKERS, link=LINK)
    return [medians(epochs, {SECONDS: "seconds", SENT: "megabytes"}) | spread(epochs[1:]) for epochs in every]


def _compare(measured: Measured) -> Iterator[Finding]:
    def more(name: str, figure: str) -> float:
        return measured[name][figure] / measured["DTP"][figure]

    yield by_clock(
        "NeutronTP trains R-GCN 6.15 times faster than DistDGLv2 (Ogbn-mag: 5.9 s against 36.3 s)",
        f"{more(SAMPLED, SECONDS):.2f} times: {measured[SAMPLED][SECONDS]:.2f} s against {measured['DTP'][SECONDS]:.2f} s, "
        f"{more(SAMPLED, SENT):.1f} times the bytes",
        more(SAMPLED, SECONDS),
        1.2,
        max(measured[name][SPREAD] for name in (SAMPLED, "DTP")),
    )
    yield Finding(
        "(not in the paper) decoupling sends less than naive tensor parallelism and than vertices at owners",
        f"TP sends {more('TP', SENT):.2f} times as much and takes {more('TP', SECONDS):.2f} times as long, halo "
        f"{more('halo', SENT):.2f} and {more('halo', SECONDS):.2f} times",
        min(more("TP", SENT), more("halo", SENT)) > 1,
        "halo has the inputs once, for they stay, and sends hidden rows to workers alone that have neighbours",
        partly=more("TP", SENT) > 1,
    )


SHEET = Sheet(
    "Table 3",
    "R-GCN",
    f"Medians of epochs of R-GCN ({LAYERS} layers, hidden dimension {HIDDEN}) on Debian's packages with their four "
    f"relations, METIS's parts, {WORKERS} hosts with links of {LINK}. For DistDGLv2 stands gdp, fanouts "
    f"{', '.join(map(str, FANOUTS))}, {SEEDS} seeds a worker: its way by Weft's kernels, which are faster than DGL's "
    "(benchmarks/cluster.py holds the two against each other). An epoch of batches is many updates, one of the full graph "
    "is one: see Fig. 16, by time.",
    _cases,
    _compare,
    root=True,
)
