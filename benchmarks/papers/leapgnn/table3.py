"""LeapGNN's Table 3: test accuracy by batches of all vertices (DGL, LeapGNN), and by each server's own (LO)."""

from collections.abc import Callable, Iterator, Mapping
from statistics import mean

import numpy as np

from papers.bench import Bench
from papers.leapgnn.task import SERVERS
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import Settings
from weft.sampling import Batches
from weft.training import Trainer, VertexObjective, make_model

GRAPHS, MODELS = ("facebook-johns", "debian"), ("gcn", "sage", "gat")
BATCH, EPOCHS = 512, {"facebook-johns": 30, "debian": 10}
ALL, LOCAL = "batches of all (DGL, LeapGNN), %", "of each server's own (LO), %"


class _LocalBatches(Batches):
    """As many seeds of each server, drawn from its own; one that is through begins again while others are not."""

    def __init__(self, servers: list[Batches]) -> None:
        self._servers = servers

    def __len__(self) -> int:
        return max(map(len, self._servers))

    def of(self, epoch: int) -> list[np.ndarray]:
        each = [server.of(epoch) for server in self._servers]
        return [np.concatenate([own[number % len(own)] for own in each]) for number in range(len(self))]


class _LocalSeeds(VertexObjective):
    """Classes of vertices, in batches that each server makes of its own vertices."""

    def __init__(self, owners: np.ndarray) -> None:
        self._owners = owners

    def batches(self, size: int | None) -> Batches:
        assert size is not None
        seeds, ids = self.seeds["train"], self.graph.original_ids
        own = [seeds[self._owners[seeds] == server] for server in range(SERVERS)]
        return _LocalBatches([Batches(of_one, ids, size // SERVERS, self._seed) for of_one in own])


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_trained, bench, "{}, {}", bench.first(GRAPHS), bench.first(MODELS))


def _trained(bench: Bench, graph: str, model: str) -> Figures:
    """The mean over three seeds, at the best validation; one worker computes all servers' parts."""
    opened, owners, tests = bench.graph(graph), bench.owners(graph, SERVERS, "metis"), dict[str, list[float]]()
    for seed in range(3):
        settings = {"model": model, "hidden": 64, "fanouts": (10, 10), "batch_size": BATCH, "epochs": EPOCHS[graph]}
        told = Settings.of(threads=1, seed=seed, lr=0.01, **settings)
        for name in (ALL, LOCAL):
            objective = _LocalSeeds(owners).setup(opened, told) if name == LOCAL else None
            test = Trainer(opened, make_model(told, opened), told, objective=objective).fit().test
            assert test is not None
            tests.setdefault(name, []).append(100 * test)
    return {name: mean(each) for name, each in tests.items()}


def _compare(measured: Measured) -> Iterator[Finding]:
    lost = {case: one[LOCAL] - one[ALL] for case, one in measured.items()}
    yield Finding(
        "batches of each server's own vertices lose up to 0.53 points (Arxiv, GCN); LeapGNN's are DGL's and lose none",
        ", ".join(f"{case} {points:+.2f} points" for case, points in lost.items()),
        max(lost.values()) < 0,
        "parts of these graphs have all classes, so that a server's own vertices are as good a sample",
        partly=min(lost.values()) < -0.1,
    )


SHEET = Sheet(
    "Table 3",
    "accuracy of locality-optimized batches",
    f"Test accuracy, the mean over three seeds: batches of {BATCH} seeds of all vertices, or a quarter each of the "
    f"vertices of {SERVERS} servers by METIS. Two layers, fanouts 10,10. Updates of leap and migrate are those of gdp.",
    _cases,
    _compare,
)
