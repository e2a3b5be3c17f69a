"""NeutronTP's Table 4: what an epoch of vertices' classes and one of links is spent on, decoupled."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from papers.bench import Bench
from papers.neutrontp.task import SYSTEMS, TOTAL, placed, volumes
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import Settings
from weft.training import Trainer, make_model

GRAPH = "debian"
TASKS: Mapping[str, Mapping[str, Any]] = {"classes": {}, "links": {"task": "link"}}
NEGATIVES, GNN, LOSS = "negatives, processor s", "GNN, processor s", "scores and loss, processor s"
_SETTINGS: Mapping[str, Any] = {"model": "gcn", "layers": 2, "hidden": 64}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_measured, bench, "{}, {}", TASKS, ("halo", "DTP"))


def _measured(bench: Bench, task: str, system: str) -> Figures:
    """Processor seconds of an epoch on one worker, the least of some; and what four workers send in one."""
    told = Settings.of(full_graph=True, threads=1, epochs=4, **_SETTINGS, **TASKS[task], **SYSTEMS[system])
    graph = bench.graph(GRAPH)
    trainer = Trainer(graph, make_model(told, graph), told)
    trainer.prepare()
    epochs = [_epoch(trainer, number) for number in range(4)][1:]
    trainer.close()
    spent = {name: min(one[name] for one in epochs) for name in epochs[0]}
    return spent | {TOTAL: volumes(placed(bench, GRAPH, system), system, **_SETTINGS, **TASKS[task])[TOTAL]}


def _epoch(trainer: Trainer, number: int) -> Figures:
    """One update: the rows, then the loss and its gradient by rows, then what is left of the way back."""
    clock, run = time.process_time, trainer.run
    start = clock()
    batch = next(iter(trainer.loader.feed.epoch(number, last=True)))  # none is made ahead
    ready = clock()
    rows = run(batch)
    computed = clock()
    given = rows.detach().requires_grad_()
    (trainer.objective.loss(trainer.model, given, batch.part.targets) / batch.terms).backward()
    scored = clock()
    rows.backward(given.grad)
    return {NEGATIVES: ready - start, GNN: computed - ready + clock() - scored, LOSS: scored - computed}


def _compare(measured: Measured) -> Iterator[Finding]:
    def share(case: str, what: str) -> float:
        one = measured[case]
        return one[what] / (one[NEGATIVES] + one[GNN] + one[LOSS])

    both = {task: share(f"{task}, DTP", GNN) for task in TASKS}
    yield Finding(
        "the GNN is most of an epoch: 90% of it for vertices' classes, 67% for links",
        f"{both['classes']:.0%} for classes, {both['links']:.0%} for links",
        min(both.values()) > 0.5,
        "links are scored on this worker's processor, by rows as wide as the hidden dimension, and there are more of them",
        partly=max(both.values()) > 0.5,
    )
    besides = [
        measured[f"links, {system}"][NEGATIVES] + measured[f"links, {system}"][LOSS] for system in ("halo", "DTP")
    ]
    yield Finding(
        "negatives and scores of links take as long whoever computes the GNN",
        f"halo {besides[0]:.2f} s, DTP {besides[1]:.2f} s: {share('links, DTP', NEGATIVES):.0%} of its time for negatives, "
        f"{share('links, DTP', LOSS):.0%} for scores and loss",
        max(besides) < 1.1 * min(besides),
    )
    sent = {case: one[TOTAL] for case, one in measured.items()}
    yield Finding(
        "(not in the paper) links cost rows of the other ends besides, from worker to worker",
        ", ".join(f"{case} {megabytes:.1f} MB" for case, megabytes in sent.items()),
        sent["links, DTP"] > sent["classes, DTP"],
    )


SHEET = Sheet(
    "Table 4",
    "what an epoch is spent on",
    "GCN of two layers, hidden dimension 64, on Debian's packages: processor seconds of an epoch on one worker, forward and "
    "backward; and bytes that four workers send in one. Links have a negative each, and scores are products of rows.",
    _cases,
    _compare,
)
