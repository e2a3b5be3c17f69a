"""NeutronTP's Fig. 16 by time: how soon the full graph is as good as sampled batches (DistDGL) after some epochs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from papers.bench import Bench
from papers.neutrontp.task import SYSTEMS, WORKERS
from papers.sheet import Figures, Finding, Measured, Sheet, grid_in_turn

GRAPH, LINK = "debian", "200mbit"
LAYERS, EPOCHS, SAMPLED = 2, 60, "DistDGL"
# The rates of both are those that serve them best, of 0.003 to 0.05 (five epochs of batches, 60 of the full graph).
BATCHES: Mapping[str, Any] = {
    "plan": "gdp",
    "fanouts": (25, 10),
    "batch_size": 1024,
    "epochs": 5,
    "lr": 0.03,
    "dropout": 0.0,
}
WHOLE: Mapping[str, Any] = {"full_graph": True, "layers": LAYERS, "epochs": EPOCHS, "lr": 0.02, "dropout": 0.0}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    SAMPLED: BATCHES,
    **{name: {**WHOLE, **options} for name, options in SYSTEMS.items()},
}
SECONDS, BEST, NEEDED, SOON = "seconds an epoch", "best accuracy, %", "epochs to DistDGL's", "seconds to DistDGL's"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}", OPTIONS)


def _measured(bench: Bench, systems: Sequence[str]) -> list[Figures]:
    """Only training is timed; who never gets as good as DistDGL has no figure for when it is."""
    parts, settings = bench.parts(GRAPH, WORKERS), {"model": "sage", "hidden": 128, "evaluates": True}
    whole = [OPTIONS[system] for system in systems]
    runs = [{"graph": parts, "options": {**one, "epochs": bench.fewer(one["epochs"])}} for one in whole]
    every = bench.epochs(settings, runs, hosts=WORKERS, link=LINK)
    reached = {system: [epoch["validation"] for epoch in epochs] for system, epochs in zip(systems, every, strict=True)}
    target = reached[SAMPLED][-1]
    found: list[Figures] = []
    for system, epochs in zip(systems, every, strict=True):
        each = [epoch["seconds"] for epoch in epochs]
        figures = {SECONDS: float(np.median(each)), BEST: 100 * max(reached[system])}
        needed = next((number for number, worth in enumerate(reached[system], 1) if worth >= target), None)
        soon = {} if needed is None else {NEEDED: float(needed), SOON: sum(each[:needed])}
        found.append(figures | soon)
    return found


def _compare(measured: Measured) -> Iterator[Finding]:
    soon = {system: one.get(SOON, float("inf")) for system, one in measured.items()}
    yield Finding(
        "NeutronTP reaches an accuracy sooner than DistDGL",
        f"as good as DistDGL after {BATCHES['epochs']} epochs: "
        + ", ".join(
            f"{system} {'not reached' if seconds == float('inf') else f'in {seconds:.1f} s'}"
            for system, seconds in soon.items()
        ),
        soon["DTP"] < soon[SAMPLED],
        "an epoch of batches is many updates, so that a few of them are worth as many epochs of the full graph",
    )
    yield Finding(
        "decoupled, the model is about as accurate at the same epoch",
        ", ".join(f"{case} {one[BEST]:.1f}%" for case, one in measured.items()),
        measured["DTP"][BEST] > measured["halo"][BEST] - 2,
    )


SHEET = Sheet(
    "Fig. 16, by time",
    "accuracy by time",
    f"GraphSAGE with {LAYERS} layers and a hidden dimension of 128 on Debian's packages, {WORKERS} hosts with links of "
    f"{LINK}, METIS's parts. For DistDGL stands gdp, fanouts {', '.join(map(str, BATCHES['fanouts']))}, "
    f"{BATCHES['batch_size']} seeds a worker, {BATCHES['epochs']} epochs; the full graph has {EPOCHS}, each one update. "
    "Both have the learning rate that serves them best. Only training is timed; accuracy is of validation vertices, with "
    "all neighbours.",
    _cases,
    _compare,
    root=True,
)
