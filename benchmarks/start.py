"""How long a start of many workers takes: seconds to the first batch, and of processors until the end.

python benchmarks/start.py 3 --times 5
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.graph import communities

SETTINGS = ["--plan", "leap", "--epochs", "1", "--evaluate-every", "0", "--hidden", "16", "--fanouts", "5,5"]


def main() -> None:
    """Print each start, and medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workers", type=int)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    first, processors = [], []
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder, "graph")
        communities(graph, vertices=20_000, edges=200_000, width=32, classes=8, train=0.2)
        command = [sys.executable, "-m", "weft.cli", "train", str(graph), "--workers", str(args.workers), *SETTINGS]
        for _ in range(args.times):
            seconds, used = start([*command, "--log", "json"])
            first.append(seconds)
            processors.append(used)
            print(f"first batch after {seconds:.2f} s; {used:.2f} s of processors until the end", flush=True)
    print(
        f"medians: {statistics.median(first):.2f} s, {statistics.median(processors):.2f} s of processors; "
        f"load of the machine {os.getloadavg()[0]:.1f}"
    )


def start(command: list[str]) -> tuple[float, float]:
    """Seconds until a first batch is done, and processor seconds of all processes until the end."""
    before, begin = used(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        next(line for line in run.stdout if '"Stepped"' in line)
        seconds = time.perf_counter() - begin
        run.stdout.read()
    return seconds, used() - before


def used() -> float:
    """Processor seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
