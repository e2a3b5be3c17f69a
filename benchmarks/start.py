"""How long a start of many workers takes: seconds to the first batch, by a plan that is given and by the planner's.

python benchmarks/start.py 3 --times 5                      # workers of this machine
python benchmarks/start.py 4 --link 1gbit --times 5         # hosts of a sandbox (root), a larger graph

In turn: with a plan given; with nothing given, and nothing kept of the cluster; and with what that run kept. Processor
seconds are those of all processes until the end.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

SETTINGS = ["--epochs", "1", "--evaluate-every", "0", "--log", "json"]
SMALL = ["--hidden", "16", "--fanouts", "5,5"]
LARGE = ["--hidden", "16", "--fanouts", "10,10,10", "--batch-size", "1024", "--threads", "1"]
SIDES = {"plan given": ["--plan", "split"], "nothing given, nothing kept": [], "nothing given, that kept": []}


def main() -> None:
    """Print each start, and medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workers", type=int)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--link", help="of hosts in a sandbox, such as 1gbit; without it workers are on this machine")
    args = parser.parse_args()
    found = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(hosts=args.workers, link=args.link)) if args.link else None
        graph = graph_of(Path(folder), args.workers, large=args.link is not None)
        command = [sys.executable, "-m", "weft.cli", "train", str(graph), *SETTINGS]
        command += LARGE if sandbox else [*SMALL, "--workers", str(args.workers)]
        for number in range(args.times):
            os.environ["WEFT_CACHE"] = f"{folder}/cache-{number}"  # empty at the second side, full at the third
            for side, given in SIDES.items():
                seconds, used = start([*command, *given], sandbox)
                found[side].append((seconds, used))
                print(
                    f"{side}: first batch after {seconds:.2f} s; {used:.2f} s of processors until the end", flush=True
                )
    for side, starts in found.items():
        seconds, used = (statistics.median(of) for of in zip(*starts, strict=True))
        print(f"medians, {side}: {seconds:.2f} s, {used:.2f} s of processors")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")


def graph_of(folder: Path, workers: int, large: bool) -> Path:
    """A small graph; or a large one, in parts."""
    if not large:
        communities(folder / "graph", vertices=20_000, edges=200_000, width=32, classes=8, train=0.2)
        return folder / "graph"
    graph = communities(folder / "graph", vertices=240_000, edges=5_000_000, width=100, train=0.08)
    write_partitioned(graph, allocate(graph, workers, "metis"), workers, folder / "parts")
    return folder / "parts"


def start(command: list[str], sandbox: Sandbox | None) -> tuple[float, float]:
    """Seconds until a first batch is done, and processor seconds of all processes until the end."""
    before, begin = used(), time.perf_counter()
    if sandbox is None:
        run, *others = [subprocess.Popen(command, stdout=subprocess.PIPE)]
    else:
        outputs = [subprocess.PIPE] + [subprocess.DEVNULL] * (sandbox.hosts - 1)
        run, *others = [sandbox.start(command, host, output=output) for host, output in enumerate(outputs)]
    assert run.stdout is not None
    next(line for line in run.stdout if b'"Stepped"' in line)
    seconds = time.perf_counter() - begin
    run.stdout.read()
    for process in (run, *others):
        process.wait()
    return seconds, used() - before


def used() -> float:
    """Processor seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
