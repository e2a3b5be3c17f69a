"""A Ray cluster of nodes in namespaces of this machine (root): imports on several nodes and one, training beside torchrun.

    python benchmarks/on_ray.py import --edges 100000000      time, and the peak memory of the largest process
    python benchmarks/on_ray.py train --rounds 5              an epoch on Ray and under torchrun, in turn
    python benchmarks/on_ray.py lose                          a node is killed within an epoch, and the others go on

Nodes share this machine's processors and disk; only what they say to each other takes the links. Under Slurm: on_slurm.py.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import watch
from launched import add_training, compare, make_graph, model_of, training

from weft.lab import Sandbox

sys.path += [str(Path(__file__).parents[1] / name) for name in ("tests", "tests/ray")]
from apart import lose, started_apart
from ray_nodes import Nodes

PIECE = 1 << 20
IMPORT = ["--nodes", "nodes.parquet", "--features", "f*"]


class Cluster:
    """Nodes of Ray's, on the hosts of a sandbox."""

    def __init__(self, box, folder, cpus):
        self.box, self.folder = box, folder
        self.nodes = Nodes(lambda command, host, more: self.start(command, host, more, None))
        try:
            for host in range(box.hosts):
                self.head = self.nodes.add(f"10.77.0.{host + 1}", 6379, cpus)
            self.nodes.wait(self.head)
        except BaseException:
            self.nodes.close()
            raise

    def start(self, command, host, environment, output):
        """A process on a host."""
        with open(output or os.devnull, "wb") as out:
            return started_apart(self.box, command, host, environment, out)

    def begin(self, words):
        """A command on the first host."""
        command = ["env", f"--chdir={self.folder}", sys.executable, "-m", "weft.cli", *words]
        return self.start(command, 0, self.nodes.environment(self.head), self.folder / "said")

    def said(self):
        """What the last command has said so far."""
        return (self.folder / "said").read_text(errors="replace")

    def weft(self, words):
        """What a command on the first host says."""
        code = self.begin(words).wait()
        return sys.exit(self.said()) if code else self.said()


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
            done = watch.run(["env", f"--chdir={folder}", sys.executable, "-m", "weft.cli", *words, "--overwrite"])
            assert done.code == 0, done.err
            print(f"round {number}: weft {words[0]} alone: peak {done.resident / (1 << 20):.1f} MiB", flush=True)
        print(f"round {number}: both: {time.perf_counter() - start:.1f} s", flush=True)
    same = all(
        file.read_bytes() == (folder / "graph" / file.name).read_bytes() for file in (folder / "parts").iterdir()
    )
    print("the same bytes" if same else "OTHER BYTES")


def time_training(args, folder):
    """Epochs on Ray and under torchrun, in turn, on the same hosts."""
    hosts = args.hosts[0]
    make_graph(folder, hosts, args.vertices or 60_000)
    on_ray = ["--on", "ray", "--workers", str(hosts)]
    with cluster(hosts, folder, 1, args.link) as made:
        compare("Ray", lambda words: made.weft([*words, *on_ray]), made.box, args, folder)


def lose_a_node(args, folder):
    """A node is killed in the middle of an epoch: the others go on from the last checkpoint, to the same model."""
    hosts = args.hosts[0]
    make_graph(folder, hosts, args.vertices or 60_000)
    words = [*training(args.epochs), "--on", "ray", "--workers", str(hosts)]
    with cluster(hosts, folder, 2, args.link) as made:  # the others have room for all workers
        start = time.perf_counter()
        made.weft([*words, "--out", "undisturbed"])
        print(f"undisturbed: {time.perf_counter() - start:.1f} s", flush=True)
        start = time.perf_counter()
        kept = ["--checkpoint", "kept", "--checkpoint-every", "3", "--max-restarts", "1"]
        run = made.begin([*words, *kept, "--out", "lost"])
        while '"epoch": 2' not in made.said() or not any((folder / "kept").glob("step-*")):
            if run.poll() is not None:
                sys.exit(made.said())
            time.sleep(0.02)
        lose(made.box, hosts - 1)
        if run.wait():
            sys.exit(made.said())
        print(f"a node was lost: {time.perf_counter() - start:.1f} s", flush=True)
        print(*(line for line in made.said().splitlines() if line.startswith("weft: ")), sep="\n")
    same = model_of(folder / "undisturbed") == model_of(folder / "lost")
    print(f"{'the same' if same else 'ANOTHER'} model")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = {"import": time_imports, "train": time_training, "lose": lose_a_node}
    parser.add_argument("what", choices=tuple(does))
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--memory", default="256MiB", help="of a process of the import")
    parser.add_argument("--cpus", type=int, default=1, help="of a node, for the import: tasks at a time")
    parser.add_argument("--hosts", type=lambda text: list(map(int, text.split(","))), default=[4, 1])
    add_training(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        does[args.what](args, Path(folder))


if __name__ == "__main__":
    main()
