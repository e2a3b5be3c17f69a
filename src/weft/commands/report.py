"""weft report: what was made or trained, side by side, in a table and a page."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import weft.graph
import weft.planner
import weft.report
from weft.commands.flags import add_graph, add_number
from weft.commands.task_flags import add_task_flags, allocated, cluster_given, parts_given, task_given
from weft.config import file_to_write, path_here
from weft.errors import ConfigError
from weft.plan import Plan
from weft.plugins import PARTITION_METHODS
from weft.threads import usual_threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft report`."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    about = "what each stage of a run took, and what was predicted"
    of_run = kinds.add_parser("run", help=about, description=f"{about[0].upper()}{about[1:]}.")
    of_run.add_argument("log", type=path_here, help="what `weft train --log json` wrote")
    of_run.add_argument("--json", action="store_true", help="print the figures as JSON")
    about = "allocations of one graph"
    _add_partition(kinds.add_parser("partition", help=about, description=f"{about[0].upper()}{about[1:]}."))


def _add_partition(parser: argparse.ArgumentParser) -> None:
    add_graph(parser)
    parser.add_argument(
        "allocations", nargs="+", metavar="allocation", help="a partitioned directory of it, or a method to compute now"
    )
    parser.add_argument("--parts", type=int, help="how many parts methods make (default: as the directories have)")
    add_number(parser, "--batches", 4, "batches to look at")
    add_number(parser, "--slack", Plan.slack, "leap: how far above its share a worker's seeds may be, as in weft train")
    parser.add_argument(
        "--measured", type=path_here, help="measured seconds: a JSON object of allocation, plan, seconds a line"
    )
    add_number(parser, "--seed", 0, "the seed, of the training too")
    parser.add_argument(
        "--threads", type=int, default=usual_threads(), help="threads (default: one for each core that it may use)"
    )
    parser.add_argument("--html", type=file_to_write, help="write a page with all figures")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_task_flags(parser, plan=False)


def run(args: argparse.Namespace) -> int:
    """Count or read, and show."""
    return {"run": _run, "partition": _partition}[args.kind](args)


def _run(args: argparse.Namespace) -> int:
    plans = weft.report.read_run(args.log)
    print(json.dumps([asdict(one) for one in plans])) if args.json else weft.report.print_run(plans)
    return 0


def _partition(args: argparse.Namespace) -> int:
    if args.batches < 1:
        raise ConfigError(f"--batches {args.batches} is out of range: look at 1 or more")
    if not 0 <= args.slack < float("inf"):
        raise ConfigError(f"--slack {args.slack:g} is out of range: it is a part of a worker's share, 0 or more")
    graph = weft.Graph.open_lists(args.graph)
    measured = weft.planner.read_measured(args.measured) if args.measured else {}
    made = {name: weft.Graph.open(name) for name in args.allocations if (Path(name) / weft.graph.MANIFEST).exists()}
    parts = parts_given(args, next(iter(made.values())).num_owners if made else None)
    cluster, task = cluster_given(args, parts), task_given(args, graph, parts)
    names, allocations, shares = _names(args.allocations), {}, {}
    for given in names.values():  # before the first method takes its time
        _check_parts(made[given], parts) if given in made else _check_method(given)
    if args.measured and not measured.keys() & names.keys():
        raise ConfigError(
            f"{args.measured} measures {', '.join(measured) or 'nothing'}, and {', '.join(names)} "
            f"{'are' if len(names) > 1 else 'is'} compared: name one of these in it, or drop --measured"
        )
    with weft.report.StageProgress() as progress:
        for name, given in names.items():
            if given in made:
                allocations[name] = weft.planner.owners_in(graph, made[given])
                shares[name] = made[given].shares
            else:
                allocations[name] = allocated(args, graph, given, cluster, task, progress=progress)
        comparer = weft.planner.Comparer(
            graph, task, cluster, slack=args.slack, batches=args.batches, threads=args.threads
        )
        comparison = comparer.compare(allocations, measured, progress, shares)
    compared = {(one.name, plan) for one in comparison.allocations for plan in one.flows}
    others = [
        f"{plan} with {name}" for name, plans in measured.items() for plan in plans if (name, plan) not in compared
    ]
    if others:
        print(f"note  not compared here, so left out of {args.measured}: {', '.join(others)}", file=sys.stderr)
    if args.html:
        weft.report.write_allocations(args.html, comparison)
    print(json.dumps(asdict(comparison))) if args.json else weft.report.print_allocations(comparison)
    return 0


def _check_parts(partitioned: weft.Graph, parts: int) -> None:
    if partitioned.num_owners != parts:
        raise ConfigError(
            f"{partitioned.path} has {partitioned.num_owners} parts, not {parts}: compare allocations to as many parts"
        )


def _check_method(given: str) -> None:
    if PARTITION_METHODS.find(given) is None:
        known = ", ".join(PARTITION_METHODS.names())
        raise ConfigError(
            f"{given} is neither a partitioned graph directory nor a method: give a path, or one of {known}"
        )


def _names(given: Sequence[str]) -> dict[str, str]:
    """What each allocation is called: directories without their folders, where that tells them apart."""
    short = [os.path.basename(os.path.abspath(name)) for name in given]  # `.` has a name, too
    return {(name if short.count(name) == 1 else path): path for name, path in zip(short, given, strict=True)}
