"""What sheets run on: graphs of two sizes, their allocations, and hosts of a sandbox; made once, kept in a folder.

A sheet says what it measures in whole size, and where quick size may have less of it: `ends` of an axis, the `first` of
several kinds, `fewer` of what is counted. What less is, is said here alone.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from weft.errors import ConfigError
from weft.graph import BUILT_IN, EdgeOptions, Graph, communities, from_folder, import_graph, rmat
from weft.lab import Sandbox
from weft.partition import BalanceWeights, TrainingTask, allocate, write_partitioned

ROOT = Path(__file__).resolve().parents[2]
REAL = (
    "debian",
    "facebook-johns",
    "cora",
)  # Debian's packages are skewed as ogbn-papers100M is; friends are a dense graph
GENERATED: Mapping[str, Callable[..., Graph]] = {
    "communities": communities,
    "rmat": partial(rmat, classes=47, width=100, train=0.08),
}
_WORKERS = ROOT / "benchmarks" / "peers" / "weft"


T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """How much is measured. Records are of a size as it is written out, so that those of another one don't pass for it."""

    name: str
    vertices: int  # of generated graphs
    edges: int

    def __str__(self) -> str:
        return f"{self.name} size (generated graphs: {self.vertices:,} vertices, {self.edges:,} edges)"


WHOLE = Size("whole", 240_000, 5_000_000)
QUICK = Size("quick", 30_000, 625_000)
SIZES = (WHOLE, QUICK)
SPREAD = "epochs differ by, %"  # those that should take as long
_EPOCHS, _FEW = 6, 3  # of a run, and in quick size: the first one warms up
_LESS = 8  # times fewer batches, seeds or roots in quick size: as much as its graphs are smaller


@dataclass(frozen=True)
class Unequal:
    """Servers that differ in processors, and in links: as shares of each other, and of the rate of a whole link."""

    shares: Sequence[float]
    bandwidths: Sequence[float]

    @property
    def told(self) -> dict[str, Any]:
        """What a method of allocation is told of them."""
        return {"shares": self.shares, "bandwidths": self.bandwidths, "balance": BalanceWeights(imbalance=0.1)}

    def processors(self) -> dict[str, float]:
        """How many processors of this machine each host of a sandbox may take: half of all, so that the shares bind."""
        one = 0.5 * (os.cpu_count() or 1) / sum(self.shares)
        return {f"h{number}": share * one for number, share in enumerate(self.shares, 1)}

    def links(self, whole: str) -> dict[str, str]:
        """The links that are slower than the others."""
        rate, unit = float(whole.rstrip("abcdefghijklmnopqrstuvwxyz")), whole.lstrip("0123456789.")
        return {f"h{at}": f"{rate * part:g}{unit}" for at, part in enumerate(self.bandwidths, 1) if part < 1}


@dataclass(frozen=True)
class Bench:
    """Where and at which size sheets are measured."""

    size: Size
    data: Path
    shared: Path  # the real graphs

    @property
    def _quick(self) -> bool:
        return self.size.name == QUICK.name

    def ends(self, axis: Sequence[T]) -> tuple[T, ...]:
        """The values of an axis; in quick size the first and the last."""
        return (axis[0], axis[-1]) if self._quick else tuple(axis)

    def first(self, kinds: Sequence[T]) -> tuple[T, ...]:
        """Graphs, models or other kinds; in quick size the first of them alone."""
        return tuple(kinds[:1] if self._quick else kinds)

    def fewer(self, count: int) -> int:
        """So many seeds, batches or rounds; in quick size an eighth, and at least one."""
        return max(1, count // _LESS) if self._quick else count

    def graph(self, name: str, width: int = 100) -> Graph:
        """A real graph, undirected, or a generated one; `width` is of a generated one's features."""
        if name in REAL:
            path = self.data / name
            if not path.exists():
                folder = (BUILT_IN if (BUILT_IN / name).is_dir() else self.shared) / name
                if not folder.is_dir():
                    raise ConfigError(f"{folder} is not there: say with --shared where the real graphs are")
                import_graph(from_folder(folder), path, EdgeOptions(undirected=True))
            return Graph.open(path)
        path, size = self._path(name, width), {"vertices": self.size.vertices, "edges": self.size.edges}
        return Graph.open(path) if path.exists() else GENERATED[name](path, **size, width=width)

    def owners(self, name: str, parts: int, method: str, **goal: Any) -> np.ndarray:
        """The part of each vertex."""
        return allocate(self.graph(name), parts, method, **goal)

    def parts(
        self,
        name: str,
        parts: int,
        method: str = "metis",
        width: int = 100,
        task: TrainingTask | None = None,
        unequal: Unequal | None = None,
    ) -> Path:
        """The directory of a graph that is partitioned.

        `task`: the training that it is for, for methods that ask; `unequal`: the servers that it is for.
        """
        of_task = "" if task is None else f"-for-{'-'.join(map(str, task.fanouts))}-{task.batch_size}"
        told = {} if unequal is None else unequal.told
        path = self.data / f"{self._path(name, width).name}-{method}-{parts}{of_task}{'-unequal' if told else ''}"
        if not path.exists():
            graph = self.graph(name, width)
            owners = allocate(graph, parts, method, task=task, **told)
            write_partitioned(graph, owners, parts, path, shares=told.get("shares"))
        return path

    def plans(
        self,
        graph: Path,
        settings: Mapping[str, Any],
        plans: Sequence[str],
        *,
        hosts: int = 4,
        workers: int = 1,
        link: str = "1gbit",
    ) -> dict[str, Any]:
        """Measured epochs by some plans, side by side on hosts of a sandbox with some workers each, a thread a worker."""
        job: dict[str, Any] = {
            "graph": str(graph),
            "cluster": None,
            "known": [],
            "named": list(plans),
            "settings": dict(settings),
        }
        job |= {"rounds": self.fewer(3), "epochs": 2 if self._quick else 5, "enough": 3.0, "slow": 4.0}
        found: dict[str, Any] = self._on_hosts("plans", job, Sandbox(hosts, workers, link))[-1]["plans"]
        return found

    def epochs(
        self,
        settings: Mapping[str, Any],
        runs: Sequence[Mapping[str, Any]],
        *,
        hosts: int = 4,
        link: str = "1gbit",
        batches: int | None = None,
        unequal: Unequal | None = None,
        settle: bool = False,
    ) -> list[list[dict[str, Any]]]:
        """Every measured epoch of each run, one after another on hosts like these; `runs`: each one's graph and options.

        With `batches`, epochs are so many batches at most. Runs that are evaluated are as long as their options say. In
        quick size there are fewer epochs, unless runs `settle` by them.
        """
        count = _FEW if self._quick and not settle else _EPOCHS
        own = [{"graph": str(run["graph"]), "options": run["options"]} for run in runs]
        job = {"epochs": count, "batches": batches, "options": {}, "runs": own, **settings}
        sandbox = Sandbox(hosts, link=link)
        if unequal is not None:
            sandbox = Sandbox(hosts, link=link, links=unequal.links(link), shares=unequal.processors())
        lines = self._on_hosts("distributed", job, sandbox, 900.0 * len(runs))
        return [[line for line in lines if line["run"] == number] for number in range(len(runs))]

    def _on_hosts(
        self, script: str, job: Mapping[str, Any], hosts: Sandbox, timeout: float = 900.0
    ) -> list[dict[str, Any]]:
        """The figures that the workers of a sandbox print, line by line."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.json"
            file.write_text(json.dumps(job))
            printed = output_of("a run", [sys.executable, str(_WORKERS / f"{script}.py"), str(file)], hosts, timeout)
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        if not lines:
            raise ConfigError(f"a run on {hosts.hosts} hosts of a sandbox printed no figures: see above")
        return lines

    def _path(self, name: str, width: int) -> Path:
        of_real = name in REAL
        return self.data / (name if of_real else f"{name}-{self.size.vertices}-{width}")


def output_of(what: str, command: Sequence[str], hosts: Sandbox, timeout: float) -> str:
    """What the first worker prints of a command that all workers of a sandbox run; `what`: its name, should it fail."""
    with tempfile.TemporaryFile() as out:
        with hosts as sandbox:
            code = sandbox.run(command, output=out, timeout=timeout)
        if code:
            raise ConfigError(f"{what} on {hosts.hosts} hosts of a sandbox ended with code {code}: see above")
        out.seek(0)
        return out.read().decode()


def medians(epochs: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, float]:
    """Figures of the epochs after the first one; `keys`: by what they are called."""
    return {name: median(epoch[key] for epoch in epochs[1:]) for name, key in keys.items()}


def spread(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By how much epochs differ that should take as long: the third quartile's seconds over the first one's."""
    low, high = np.quantile([epoch["seconds"] for epoch in epochs], (0.25, 0.75))
    return {SPREAD: 100 * (float(high / low) - 1)}
