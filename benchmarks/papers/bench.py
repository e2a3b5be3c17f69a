"""What sheets run on: graphs of two sizes, their allocations, and hosts of a sandbox; made once, kept in a folder."""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.graph import BUILT_IN, EdgeOptions, Graph, communities, from_folder, import_graph, rmat
from weft.lab import Sandbox
from weft.partition import TrainingTask, allocate, write_partitioned

ROOT = Path(__file__).resolve().parents[2]
QUICK, WHOLE = "quick", "whole"
REAL = (
    "debian",
    "facebook-johns",
    "cora",
)  # Debian's packages are skewed as ogbn-papers100M is; friends are a dense graph
GENERATED: Mapping[str, Callable[..., Graph]] = {
    "communities": communities,
    "rmat": partial(rmat, classes=47, width=100, train=0.08),
}
SIZES = {QUICK: (60_000, 1_250_000), WHOLE: (240_000, 5_000_000)}  # vertices and edges of generated ones
_WORKERS = ROOT / "benchmarks" / "peers" / "weft"


@dataclass(frozen=True)
class Bench:
    """Where and at which size sheets are measured."""

    quick: bool
    data: Path
    shared: Path  # the real graphs

    @property
    def size(self) -> str:
        """In a word."""
        return QUICK if self.quick else WHOLE

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
        vertices, edges = SIZES[self.size]
        path = self._path(name, width)
        return Graph.open(path) if path.exists() else GENERATED[name](path, vertices=vertices, edges=edges, width=width)

    def owners(self, name: str, parts: int, method: str, **goal: Any) -> np.ndarray:
        """The part of each vertex."""
        return allocate(self.graph(name), parts, method, **goal)

    def parts(
        self, name: str, parts: int, method: str = "metis", width: int = 100, task: TrainingTask | None = None
    ) -> Path:
        """The directory of a graph that is partitioned; `task`: the training that it is for, for methods that ask."""
        of_task = "" if task is None else f"-for-{'-'.join(map(str, task.fanouts))}-{task.batch_size}"
        path = self.data / f"{self._path(name, width).name}-{method}-{parts}{of_task}"
        if not path.exists():
            graph = self.graph(name, width)
            write_partitioned(graph, allocate(graph, parts, method, task=task), parts, path)
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
        job |= {"rounds": 1 if self.quick else 3, "epochs": 2 if self.quick else 5, "enough": 3.0, "slow": 4.0}
        found: dict[str, Any] = self._on_hosts("plans", job, Sandbox(hosts, workers, link))[-1]["plans"]
        return found

    def epochs(
        self, graph: Path, settings: Mapping[str, Any], plan: Mapping[str, Any], *, hosts: int = 4, link: str = "1gbit"
    ) -> list[dict[str, Any]]:
        """Every measured epoch of a run by one plan, on hosts like these."""
        job = {"graph": str(graph), "epochs": 4 if self.quick else 10, "options": dict(plan), **settings}
        return self._on_hosts("distributed", job, Sandbox(hosts, link=link))

    def _on_hosts(self, script: str, job: Mapping[str, Any], hosts: Sandbox) -> list[dict[str, Any]]:
        """The figures that the workers of a sandbox print, line by line."""
        with tempfile.TemporaryDirectory() as folder:
            file, out = Path(folder) / "job.json", Path(folder) / "out.txt"
            file.write_text(json.dumps(job))
            command = [sys.executable, str(_WORKERS / f"{script}.py"), str(file)]
            with hosts as sandbox, open(out, "wb") as output:
                code = sandbox.run(command, output=output, timeout=900.0)
            lines = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
        if code or not lines:
            raise ConfigError(f"a run on {hosts.hosts} hosts of a sandbox ended with code {code}: see above")
        return lines

    def _path(self, name: str, width: int) -> Path:
        of_real = name in REAL
        return self.data / (name if of_real else f"{name}-{self.size}-{width}")
