"""AdaGL's allocations on the clock: Fig. 5a, R-GAT's, and those of Table II on servers that are unequal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from papers.adagl.task import BATCHES, PARTS, SEEDS, SERVERS, TASK, UNSEEN, UNTOLD
from papers.bench import SPREAD, Bench, Unequal, medians, spread
from papers.sheet import Figures, Finding, Measured, Sheet, all_by_clock, grid_in_turn, values
from weft.graph import Graph
from weft.partition import Traces, TrainingTask, fit
from weft.plan import Plan

GRAPHS, METHODS, LINK = (
    ("facebook-johns", "communities", "rmat", "debian"),
    ("random", "metis", "adagl", "traffic"),
    "200mbit",
)
SECONDS, SENT, ROWS = "an epoch, s", "sent, MB", "busiest link, rows a batch"
KEYS = {SECONDS: "seconds", SENT: "megabytes"}
SAGE: Mapping[str, Any] = {"model": "sage", "hidden": 128}
RGAT: Mapping[str, Any] = {"model": "rgat", "hidden": 64}
OF_RGAT = replace(TASK, fanouts=(3,) * 5)  # five layers, as the paper's


def _measured(
    task: TrainingTask,
    unseen: TrainingTask,
    settings: Mapping[str, Any],
    unequal: Unequal | None,
    bench: Bench,
    graph: str,
    methods: Sequence[str],
) -> list[Figures]:
    told = {method: None if method in UNTOLD else unequal for method in methods}
    parts = [bench.parts(graph, PARTS, method, task=task, unequal=told[method]) for method in methods]
    runs = [{"graph": one, "options": {"plan": "leap"}} for one in parts]
    settings = {**settings, "batch_size": SEEDS, "fanouts": task.fanouts}
    every = bench.epochs(settings, runs, hosts=PARTS, link=LINK, batches=bench.fewer(BATCHES), unequal=unequal)
    rates = np.ones(PARTS) if unequal is None else np.array(unequal.bandwidths)
    rows = [{ROWS: _busiest(Graph.open(one), unseen, rates)} for one in parts]
    return [medians(epochs, KEYS) | spread(epochs[1:]) | of for epochs, of in zip(every, rows, strict=True)]


def _busiest(graph: Graph, task: TrainingTask, rates: np.ndarray) -> float:
    """What the simulator tells of training: rows on the busiest link of a mean batch, to a server or from it."""
    assert graph.bounds is not None
    owners = np.repeat(np.arange(PARTS), np.diff(graph.bounds))
    rows = Traces(graph, task, batches=BATCHES).rows(owners, PARTS, shares=graph.shares, slack=Plan.slack)
    rows[:, range(PARTS), range(PARTS)] = 0
    return float((np.maximum(rows.sum(axis=1), rows.sum(axis=2)) / rates).sum(axis=0).max() / len(rows))


def _equal(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(partial(_measured, TASK, UNSEEN, SAGE, None), bench, "{}, {}", bench.first(GRAPHS), METHODS)


def _typed(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    unseen = replace(OF_RGAT, seed=UNSEEN.seed)
    return grid_in_turn(partial(_measured, OF_RGAT, unseen, RGAT, None), bench, "{}, {}", ("debian",), METHODS)


def _unequal(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    graphs = bench.first(("facebook-johns", "debian"))
    return grid_in_turn(partial(_measured, TASK, UNSEEN, SAGE, SERVERS), bench, "{}, {}", graphs, METHODS)


def _finding(measured: Measured, claim: str, method: str, than: str, why: str) -> Finding:
    both = {graph: [measured[f"{graph}, {name}"] for name in (method, than)] for graph in values(measured)}
    times = {graph: ours[SECONDS] / theirs[SECONDS] for graph, (ours, theirs) in both.items()}
    told = ", ".join(f"{graph} {share:.2f}" for graph, share in times.items())
    each = [(1 / times[graph], max(one[SPREAD] for one in pair)) for graph, pair in both.items()]
    return all_by_clock(claim, f"{method}'s seconds in place of {than}'s: {told}", each, 1.0, why)


def _of_simulator(measured: Measured) -> Finding:
    """What an epoch takes by the simulator, fitted to the other allocations of that graph, against the clock."""
    errors = {}
    for graph in values(measured):
        of_graph = {case: one for case, one in measured.items() if case.startswith(f"{graph}, ")}
        for case, one in of_graph.items():
            others = [other for name, other in of_graph.items() if name != case]
            each = np.array([[other[ROWS], other[SECONDS]] for other in others])
            alpha, beta = fit(each[:, 0], each[:, 1])
            errors[case] = (alpha + beta * one[ROWS]) / one[SECONDS] - 1
    sizes = np.abs([*errors.values()])
    worst = max(errors, key=lambda case: abs(errors[case]))
    return Finding(
        "the simulator tells what epochs take: its error is 0.6%",
        f"fitted to the other allocations of a graph: {sizes.mean():.1%} in the mean, {sizes.max():.1%} at most ({worst})",
        float(sizes.mean()) < 0.01,
        "batches wait for processors as well, which four workers share here, and two figures are fitted to three epochs",
        partly=float(sizes.mean()) < 0.05,
    )


def _compare(claims: Sequence[tuple[str, str, str, str]], measured: Measured) -> Iterator[Finding]:
    """`claims`: each with the two methods that it compares, and why it may not hold."""
    for claim, method, than, why in claims:
        yield _finding(measured, claim, method, than, why)
    yield _of_simulator(measured)


OF_EQUAL = (
    (
        "AdaGL is up to 1.78 times faster than a random allocation",
        "adagl",
        "random",
        "its parts are uneven, and seeds are dealt by where they live: who has more of them holds up the others",
    ),
    (
        "AdaGL is faster than METIS",
        "adagl",
        "metis",
        "its parts are uneven, and its refining moves hardly any node on the finer levels",
    ),
    (
        "(not in the paper) Weft's traffic, which makes the busiest link's rows few, is faster than METIS",
        "traffic",
        "metis",
        "the busiest link has fewer rows on all of them; where computing holds an epoch up, that does not show",
    ),
)
OF_TYPED = (
    (
        "on MAG240M, by R-GAT, AdaGL is 1.78 times faster than a random allocation",
        "adagl",
        "random",
        "its parts are uneven: who has more seeds at home holds up the others",
    ),
    (
        "(not in the paper) Weft's traffic is faster than METIS for R-GAT",
        "traffic",
        "metis",
        "five hops reach much of so small a graph from any part of it",
    ),
)
OF_UNEQUAL = (
    (
        "33% faster than METIS on heterogeneous servers",
        "adagl",
        "metis",
        "its search judges allocations as they were bred, before they are refined",
    ),
    (
        "(not in the paper) Weft's traffic, told of the servers, is faster than METIS, which is not",
        "traffic",
        "metis",
        "what is computed holds these epochs up as much as the link",
    ),
)


def _about(of: str, fanouts: Sequence[int], hosts: str) -> str:
    return (
        f"Seconds of an epoch of {of} (fanouts {','.join(map(str, fanouts))}, {SEEDS} seeds each, {BATCHES} batches at "
        f"most) on {PARTS} hosts {hosts}, data parallel with seeds at home, and what all of them send. Rows on the busiest "
        "link are the simulator's, of batches that no method has seen."
    )


SHEETS = (
    Sheet(
        "Fig. 5a",
        "epochs on the clock, by allocation",
        _about("GraphSAGE with a hidden dimension of 128", TASK.fanouts, f"with links of {LINK}"),
        _equal,
        partial(_compare, OF_EQUAL),
        root=True,
    ),
    Sheet(
        "Fig. 5a, R-GAT",
        "epochs of R-GAT on the clock, by allocation",
        _about(
            "R-GAT with five layers and a hidden dimension of 64 on Debian's packages with their four relations",
            OF_RGAT.fanouts,
            f"with links of {LINK}",
        ),
        _typed,
        partial(_compare, OF_TYPED),
        root=True,
    ),
    Sheet(
        "Table II, on the clock",
        "epochs on unequal servers, by allocation",
        _about(
            "GraphSAGE with a hidden dimension of 128",
            TASK.fanouts,
            f"with links of {LINK} and one of a fifth, of which two have twice the others' processors",
        )
        + " METIS and random are not told of the servers.",
        _unequal,
        partial(_compare, OF_UNEQUAL),
        root=True,
    ),
)
