"""weft partition: a graph renumbered by owner."""

import argparse
import json
import os
import time
from pathlib import Path

from weft.errors import ConfigError
from weft.graph import Graph
from weft.partition import METHODS, Weighing, allocate, measure, write_partitioned
from weft.report.partition_table import print_partition
from weft.report.progress import StageProgress

HELP = "Allocate a graph's vertices to owners, and renumber it so that each owner's are contiguous."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft partition`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("out", type=Path, help="the partitioned graph directory to write")
    parser.add_argument("--parts", type=int, required=True, help="how many owners: one for each worker that will train")
    parser.add_argument("--method", choices=tuple(METHODS), default="metis", help="how to allocate (default metis)")
    parser.add_argument("--seed", type=int, default=0, help="the seed (default 0)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="threads (default: all; kaminpar repeats on 1 only)"
    )
    parser.add_argument(
        "--shares", metavar="LIST", help="what each owner shall have, such as 2,2,1,1, in any unit (default: equal)"
    )
    parser.add_argument("--balance-vertices", type=float, default=1.0, help="weight of equal numbers of vertices")
    parser.add_argument("--balance-training", type=float, default=1.0, help="weight of equal training vertices")
    parser.add_argument("--balance-edges", type=float, default=0.0, help="weight of equal numbers of in-edges")
    parser.add_argument(
        "--imbalance", type=float, default=0.03, help="how far a part may exceed the mean (default 0.03)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")


def run(args: argparse.Namespace) -> int:
    """Allocate, write, and show how good the allocation is."""
    graph = Graph.open(args.graph)
    weighing = Weighing(args.balance_vertices, args.balance_training, args.balance_edges, args.imbalance)
    shares, threads = _shares(args.shares), args.threads
    with StageProgress() as progress:
        start = time.perf_counter()
        owners = allocate(
            graph,
            args.parts,
            args.method,
            weighing=weighing,
            seed=args.seed,
            threads=threads,
            shares=shares,
            progress=progress,
        )
        seconds = time.perf_counter() - start
        write_partitioned(graph, owners, args.parts, args.out, overwrite=args.overwrite, progress=progress)
    figures = measure(graph, owners, args.parts, shares=shares, threads=threads)
    figures |= {"method": args.method, "seconds": seconds}
    print(json.dumps(figures)) if args.json else print_partition(str(args.out), figures)
    return 0


def _shares(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"--shares {text} is not a list of numbers, such as 2,2,1,1") from None
