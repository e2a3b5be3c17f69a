"""A Ray cluster of nodes in namespaces of this machine (root): imports on several nodes and one, training beside torchrun.

    python benchmarks/on_ray.py import --edges 100000000      time, and the peak memory of the largest process
    python benchmarks/on_ray.py train                         an epoch on Ray and under torchrun, in turn

Nodes share this machine's processors and disk; only what they say to each other takes the links.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

sys.path += [str(Path(__file__).parents[1] / name) for name in ("tests", "tests/ray")]
from apart import started_apart
from ray_nodes import Nodes

PIECE = 1 << 20
IMPORT = ["--nodes", "nodes.parquet", "--features", "f*"]


class Cluster:
    """Nodes of Ray's, on the hosts of a sandbox."""

    def __init__(self, box, folder, cpus):
        self.box, self.folder = box, folder
        self.nodes = Nodes(lambda command, host, more: self.start(command, host, more, None))
        for host in range(box.hosts):
            self.head = self.nodes.add(f"10.77.0.{host + 1}", 6379, cpus)
        self.nodes.wait(self.head)

    def start(self, command, host, environment, output):
        """A process on a host."""
        with open(output or os.devnull, "wb") as out:
            return started_apart(self.box, command, host, environment, out)

    def weft(self, words, launcher=()):
        """What a command on the first host says."""
        file = self.folder / "said"
        command = ["env", f"--chdir={self.folder}", sys.executable, *launcher, "-m", "weft.cli", *words]
        code = self.start(command, 0, self.nodes.environment(self.head), file).wait()
        said = file.read_text(errors="replace")
        if code:
            sys.exit(said)
        return said


@contextmanager
def cluster(hosts, folder, cpus, link):
    with Sandbox(hosts=hosts, link=link) as box:
        made = Cluster(box, folder, cpus)
        try:
            yield made
        finally:
            made.nodes.close()


def write_tables(folder, edges, vertices, width):
    """Edges between vertices that are called by words, and a table of these with features."""
    random = np.random.default_rng(0)
    names = pa.array([f"vertex-{name:x}" for name in random.permutation(vertices)])
    with pq.ParquetWriter(folder / "edges.parquet", pa.schema({"src": pa.string(), "dst": pa.string()})) as writer:
        for first in range(0, edges, PIECE):
            count = min(PIECE, edges - first)
            ends = [names.take(pa.array(random.integers(0, vertices, count))) for _ in range(2)]
            writer.write_table(pa.table({"src": ends[0], "dst": ends[1]}))
    rows = {"id": names} | {f"f{column}": random.random(vertices, dtype=np.float32) for column in range(width)}
    pq.write_table(pa.table(rows), folder / "nodes.parquet", row_group_size=PIECE)


def time_imports(args, folder):
    """Imports on so many nodes, in turn; and what one machine does alone."""
    write_tables(folder, args.edges, args.vertices or args.edges // 20, 16)
    for number in range(args.rounds):
        for hosts in args.hosts:
            with cluster(hosts, folder, args.cpus, args.link) as made:
                start = time.perf_counter()
                words = [*IMPORT, "--on", "ray", "--parts", "4", "--memory", args.memory, "--overwrite"]
                said = made.weft(["import", "edges.parquet", "graph", *words])
                seconds = time.perf_counter() - start
            (peak,) = re.findall(r"largest process\W+([\d.]+ \w+)", said)
            print(
                f"round {number}: {hosts} nodes, {args.cpus} tasks each: {seconds:.1f} s, largest process {peak}",
                flush=True,
            )
        start = time.perf_counter()
        for words in (
            ["import", "edges.parquet", "one", *IMPORT],
            ["partition", "one", "parts", "--parts", "4", "--method", "range"],
        ):
            pid = os.posix_spawn(
                "/usr/bin/env",
                ["env", f"--chdir={folder}", sys.executable, "-m", "weft.cli", *words, "--overwrite"],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
            )
            _, status, used = os.wait4(pid, 0)
            assert status == 0
            print(f"round {number}: weft {words[0]} alone: peak {used.ru_maxrss / 1024:.1f} MiB", flush=True)
        print(f"round {number}: both: {time.perf_counter() - start:.1f} s", flush=True)
    same = all(
        file.read_bytes() == (folder / "graph" / file.name).read_bytes() for file in (folder / "parts").iterdir()
    )
    print("the same bytes" if same else "OTHER BYTES")


def time_training(args, folder):
    """Epochs on Ray and under torchrun, in turn, on the same hosts."""
    graph = communities(folder / "g", vertices=60_000, edges=1_200_000, width=64, classes=8)
    hosts = args.hosts[0]
    write_partitioned(graph, allocate(graph, hosts, "random"), hosts, folder / "parts")
    train = [
        "train",
        "parts",
        "--hidden",
        "32",
        "--fanouts",
        "10,5",
        "--batch-size",
        "512",
        "--threads",
        "1",
        "--plan",
        "split",
    ]
    train += ["--epochs", "3", "--evaluate-every", "0", "--log", "json"]
    ratios = []
    with cluster(hosts, folder, 1, args.link) as made:
        for number in range(args.rounds):
            ray = epoch_of(made.weft([*train, "--on", "ray", "--workers", str(hosts), "--out", "by-ray"]))
            torchrun = epoch_of(by_torchrun(made, hosts, [*train, "--out", "by-torchrun"]))
            ratios.append(ray / torchrun)
            print(
                f"round {number}: an epoch takes {ray:.2f} s on Ray, {torchrun:.2f} s under torchrun: {ratios[-1]:.3f}",
                flush=True,
            )
    models = {(folder / name / "state.safetensors").read_bytes() for name in ("by-ray", "by-torchrun")}
    print(
        f"median of the ratios {statistics.median(ratios):.3f}; {'the same' if len(models) == 1 else 'ANOTHER'} model"
    )


def by_torchrun(made, hosts, words):
    """What the first of torchrun's hosts says."""
    running = []
    for host in range(hosts):
        launcher = ["torch.distributed.run", f"--nnodes={hosts}", f"--node-rank={host}", "--nproc-per-node=1"]
        launcher += ["--master-addr=10.77.0.1", "--master-port=29511", "-m", "weft.cli"]
        command = ["env", f"--chdir={made.folder}", sys.executable, "-m", *launcher, *words]
        running.append(made.start(command, host, {"OMP_NUM_THREADS": "1"}, made.folder / f"said-{host}"))
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit((made.folder / "said-0").read_text(errors="replace"))
    return (made.folder / "said-0").read_text(errors="replace")


def epoch_of(said):
    """The median of the epochs' seconds but for the first."""
    lines = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    seconds = [
        line["seconds"]
        for line in lines
        if "epoch" in line and "loss" in line and "seconds" in line and "step" not in line
    ]
    return statistics.median(seconds[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("import", "train"))
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--vertices", type=int, help="default: a twentieth of the edges")
    parser.add_argument("--memory", default="256MiB", help="of a process of the import")
    parser.add_argument("--cpus", type=int, default=1, help="of a node, for the import: tasks at a time")
    parser.add_argument("--hosts", type=lambda text: list(map(int, text.split(","))), default=[4, 1])
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (time_imports if args.what == "import" else time_training)(args, Path(folder))


if __name__ == "__main__":
    main()
