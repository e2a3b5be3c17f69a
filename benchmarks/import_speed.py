"""How fast and in how much memory graphs are imported.

    python benchmarks/import_speed.py                              10M edges from .npy and from Parquet
    python benchmarks/import_speed.py --edges 500000000 --memory 6 --sources npy

The import runs in a process of its own, whose peak resident memory is printed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

IMPORT = """
import json, sys, time
from pathlib import Path
from weft.graph.importing import import_graph
from weft.graph.edges_to_csr import EdgeOptions
from weft.graph.folders import from_folder
from weft.graph.tables import TableColumns, source_from_tables
kind, path, out, memory, undirected = sys.argv[1:]
start = time.perf_counter()
source = from_folder(Path(path)) if kind == "npy" else source_from_tables(Path(path), None, TableColumns(), None, None)
import_graph(source, Path(out), EdgeOptions(undirected=undirected == "1"), memory=int(memory) << 30)
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024  # ru_maxrss has the parent's
print(json.dumps({"seconds": time.perf_counter() - start, "peak_mib": peak}))
"""


def write(kind, folder, edges, vertices):
    """Random edges on disk, a piece at a time."""
    random, piece = np.random.default_rng(0), 1 << 24
    if kind == "npy":
        path = folder / "npy"
        path.mkdir()
        array = np.lib.format.open_memmap(path / "edge_index.npy", "w+", np.int32, (2, edges))
        for first in range(0, edges, piece):
            some = min(piece, edges - first)
            array[:, first : first + some] = random.integers(0, vertices, (2, some), dtype=np.int32)
        array.flush()
        return path
    path = folder / "edges.parquet"
    with pq.ParquetWriter(path, pa.schema({"src": pa.int64(), "dst": pa.int64()})) as writer:
        for first in range(0, edges, piece):
            src, dst = random.integers(0, vertices, (2, min(piece, edges - first)))
            writer.write_table(pa.table({"src": src, "dst": dst}))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--vertices", type=int, help="default: a twentieth of the edges")
    parser.add_argument("--memory", type=int, default=6, help="GiB")
    parser.add_argument("--sources", default="npy,parquet")
    parser.add_argument("--undirected", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    vertices = args.vertices or max(1, args.edges // 20)
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        for kind in args.sources.split(","):
            path = write(kind, Path(scratch), args.edges, vertices)
            for number in range(args.rounds):
                out = Path(scratch) / f"{kind}-{number}"
                command = [
                    sys.executable,
                    "-c",
                    IMPORT,
                    kind,
                    str(path),
                    str(out),
                    str(args.memory),
                    str(int(args.undirected)),
                ]
                start = time.perf_counter()
                figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
                rate = args.edges / figures["seconds"] / 1e6
                whole = time.perf_counter() - start
                print(
                    f"{kind}: {args.edges:,} edges in {figures['seconds']:.2f} s ({whole:.2f} s with the process): "
                    f"{rate:.1f} million edges a second, peak {figures['peak_mib']:,.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
