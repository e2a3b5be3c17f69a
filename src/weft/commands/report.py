"""weft report: what was made, side by side, in a table and a page."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from weft.commands.task_flags import add_task_flags, cluster_given, parts_given, task_given
from weft.errors import ConfigError
from weft.graph import MANIFEST, Graph, ProgressCallback
from weft.partition import TrainingTask, allocate
from weft.plan import Plan
from weft.planner import Cluster, Comparer, owners_in, read_measured
from weft.plugins import PARTITION_METHODS
from weft.report import StageProgress, print_allocations, write_allocations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft report`."""
    parser.add_argument("kind", choices=("partition",), help="partition: allocations of one graph")
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument(
        "allocations", nargs="+", metavar="allocation", help="a partitioned directory of it, or a method to compute now"
    )
    parser.add_argument("--parts", type=int, help="how many parts methods make (default: as the directories have)")
    parser.add_argument("--batches", type=int, default=4, help="batches to look at (default 4)")
    parser.add_argument(
        "--slack",
        type=float,
        default=Plan.slack,
        help=f"leap: how far above its share a worker's seeds may be, as in weft train (default {Plan.slack})",
    )
    parser.add_argument(
        "--measured", type=Path, help="measured seconds: a JSON object of allocation, plan, seconds a line"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed, of the training too (default 0)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads (default: all)")
    parser.add_argument("--html", type=Path, help="write a page with all figures")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_task_flags(parser, plan=False)


def run(args: argparse.Namespace) -> int:
    """Count, and show."""
    if args.batches < 1:
        raise ConfigError(f"--batches {args.batches} is out of range: look at 1 or more")
    if not 0 <= args.slack < float("inf"):
        raise ConfigError(f"--slack {args.slack:g} is out of range: it is a part of a worker's share, 0 or more")
    graph, measured = Graph.open(args.graph), read_measured(args.measured) if args.measured else {}
    made = {name: Graph.open(name) for name in args.allocations if (Path(name) / MANIFEST).exists()}
    parts = parts_given(args, next(iter(made.values())).num_owners if made else None)
    cluster, task = cluster_given(args, parts), task_given(args, graph, parts)
    with StageProgress() as progress:
        allocations = {
            name: _read(graph, made[given], parts)
            if given in made
            else _computed(args, graph, given, cluster, task, progress)
            for name, given in _names(args.allocations).items()
        }
        comparer = Comparer(graph, task, cluster, slack=args.slack, batches=args.batches, threads=args.threads)
        shares = {name: made[given].shares for name, given in _names(args.allocations).items() if given in made}
        comparison = comparer.compare(allocations, measured, progress, shares)
    if args.html:
        write_allocations(args.html, comparison)
    print(json.dumps(asdict(comparison))) if args.json else print_allocations(comparison)
    return 0


def _read(graph: Graph, partitioned: Graph, parts: int) -> np.ndarray:
    if partitioned.num_owners != parts:
        raise ConfigError(
            f"{partitioned.path} has {partitioned.num_owners} parts, not {parts}: compare allocations to as many parts"
        )
    return owners_in(graph, partitioned)


def _computed(
    args: argparse.Namespace,
    graph: Graph,
    method: str,
    cluster: Cluster,
    task: TrainingTask,
    progress: ProgressCallback,
) -> np.ndarray:
    if PARTITION_METHODS.find(method) is None:
        known = ", ".join(PARTITION_METHODS.names())
        raise ConfigError(
            f"{method} is neither a partitioned graph directory nor a method: give a path, or one of {known}"
        )
    return allocate(
        graph,
        cluster.workers,
        method,
        seed=args.seed,
        threads=args.threads,
        shares=cluster.shares(),
        task=task,
        bandwidths=cluster.shares_of_links(),
        pairs=cluster.own_links(),
        hosts=cluster.workers_by_host,
        progress=progress,
    )


def _names(given: Sequence[str]) -> dict[str, str]:
    """What each allocation is called: directories without their folders, where that tells them apart."""
    short = [Path(name).name for name in given]
    return {(name if short.count(name) == 1 else path): path for name, path in zip(short, given, strict=True)}
