"""A graph as large as wanted, from raw files to a plan: made, imported, allocated, dry-run; what each step takes.

    python benchmarks/scale.py --edges 1e9
    python benchmarks/scale.py --edges 5e6,60e6,300e6 --methods metis,kaminpar,fennel,traffic

Edges are directed ones as they are stored; each is there both ways. The first command ends with a dry run for as many hosts
as parts; the second holds methods against each other on each graph (benchmarks/partitioners.py). Steps run in processes of
their own, and those that are finished are not run again, so that what was stopped goes on.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import partitioners
import watch

from weft.graph import communities_source
from weft.memory import available_memory
from weft.planner import read_cluster, write_cluster
from weft.quantities import bandwidth_of

DEGREE, WIDTH, TRAIN = 25, 8, 0.01  # edges a vertex, float16 features, share of training vertices: as of papers100M's
LINK, LATENCY = "1gbit", 0.0005
WEFT = [sys.executable, "-m", "weft.cli"]
ROW = "{:<12}{:>10}{:>12}{:>14}{:>12}{:>11}"


def make_raw(folder, edges, threads):
    """The files that a user would have, written a piece at a time."""
    source = communities_source(vertices=edges // DEGREE, edges=edges, width=WIDTH, train=TRAIN, threads=threads)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "label.npy", source.labels)
    np.save(folder / "split.npy", source.split)
    with open(folder / "feat.npy", "wb") as out:
        start(out, np.float16, (source.num_vertices, WIDTH))
        for rows in source.features[0].rows():
            out.write(np.ascontiguousarray(rows, dtype=np.float16).data)
    with open(folder / "edge_index.npy", "wb") as out:
        begin, first = start(out, np.int32, (2, source.num_edges)), 0
        for chunk in source.edges():
            for row, ids in enumerate((chunk.src, chunk.dst)):
                out.seek(begin + 4 * (row * source.num_edges + first))
                out.write(np.ascontiguousarray(ids, dtype=np.int32).data)
            first += len(chunk.src)


def start(out, dtype, shape):
    """Write the header of an .npy file; where its data begin."""
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.tell()


def write_hosts(probed, out, hosts):
    """As many hosts as parts, each like this machine while one worker in two works on it, by links of 1 gbit."""
    cluster = read_cluster(probed)
    host = cluster.hosts[0]
    one = replace(host, workers=1, cores=host.cores / host.workers, busy_cores=None, bandwidth=bandwidth_of(LINK))
    write_cluster(out, replace(cluster, hosts=(one,), latency=LATENCY).scaled_to(hosts))


class Steps:
    """Steps of one graph, each run once; what they took is kept in a file."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "steps.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.done = json.loads(self.file.read_text()) if self.file.exists() else {}

    def run(self, name, command, made):
        """Run a command, if it was not run to its end before; `made`: what it writes."""
        if name in self.done:
            return
        print(f"  {name} ...", file=sys.stderr, flush=True)
        seen = watch.run(command)
        if seen.code:
            sys.exit(f"{name} failed: {(seen.err.strip().splitlines() or [seen.out])[-1]}")
        size = sum(file.stat().st_size for file in made.rglob("*")) if made.is_dir() else made.stat().st_size
        figures = {"seconds": seen.seconds, "own": seen.own(), "resident": seen.resident, "disk": size, "out": seen.out}
        self.done[name] = figures
        self.file.write_text(json.dumps(self.done))

    def table(self, edges, vertices):
        """What all steps took."""
        print(f"\n{vertices:,} vertices, {edges:,} edges; {available_memory() / 1e9:.0f} GB of memory are free")
        print(ROW.format("", "seconds", "memory GB", "bytes an edge", "mapped GB", "disk GB"))
        for name, took in self.done.items():
            mapped = max(0, took["resident"] - took["own"])
            cells = f"{took['own'] / 1e9:.2f}", f"{took['own'] / edges:.1f}", f"{mapped / 1e9:.2f}"
            print(ROW.format(name, f"{took['seconds']:.0f}", *cells, f"{took['disk'] / 1e9:.2f}"))
        allowed = 24 * edges + 40 * vertices
        print(f"24 bytes an edge and 40 a vertex are {allowed / 1e9:.2f} GB, {allowed / edges:.1f} bytes an edge")


def graph_of(steps, edges, threads):
    """The imported graph."""
    raw, graph = steps.folder / "raw", steps.folder / "graph"
    steps.run(
        "make", [sys.executable, __file__, "--raw", str(raw), "--edges", str(edges), "--threads", str(threads)], raw
    )
    steps.run("import", [*WEFT, "import", str(raw), str(graph), "--feature-dtype", "float16", "--overwrite"], graph)
    return graph


def whole_way(steps, graph, parts, threads, method):
    """From an imported graph to a plan; what was chosen, in words."""
    out, probed, hosts = (steps.folder / name for name in ("parts", "probed.toml", "hosts.toml"))
    options = ["--parts", str(parts), "--threads", str(threads), "--method", method, "--json", "--overwrite"]
    steps.run("partition", [*WEFT, "partition", str(graph), str(out), *options], out)
    steps.run("probe", [*WEFT, "probe", "--workers", "2", "--out", str(probed)], probed)
    write_hosts(probed, hosts, parts)
    steps.run("plan", [*WEFT, "plan", str(out), "--cluster", str(hosts), "--threads", str(threads)], hosts)
    found = json.loads(steps.done["partition"]["out"].splitlines()[-1])
    steps.table(sum(found["edges"]), sum(found["vertices"]))
    print(
        f"{found['method']}: {found['seconds']:.0f} s of the partition step; cut {found['cut']:.1%}, "
        f"halo {found['halo_share']:.2f}, balance of vertices {found['balance']['vertices'] - 1:.1%}"
    )
    print(steps.done["plan"]["out"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--edges", default="1e9", help="directed edges of the graphs, such as 5e6,60e6 (default 1e9)")
    parser.add_argument("--methods", help="hold these against each other, and stop there")
    parser.add_argument("--method", default="auto", help="how to allocate (default auto)")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--raw", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    for edges in (int(float(text)) for text in args.edges.split(",")):
        if args.raw:
            return make_raw(args.raw, edges, args.threads)
        steps = Steps(args.data / f"scale-{edges}")
        graph = graph_of(steps, edges, args.threads)
        if args.methods:
            partitioners.compare(graph, args.methods.split(","), args.parts, args.threads)
        else:
            whole_way(steps, graph, args.parts, args.threads, args.method)


if __name__ == "__main__":
    main()
