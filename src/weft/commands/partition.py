"""weft partition: a graph renumbered by owner."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from weft import __version__
from weft.commands.lists import numbers
from weft.commands.task_flags import add_task_flags, cluster_given, parts_given, task_given
from weft.errors import ConfigError
from weft.graph import DirectoryWriter, Graph, ProgressCallback, read_manifest
from weft.partition import (
    USUAL_MINUTES,
    BalanceWeights,
    CheckpointedSteps,
    MethodChoice,
    allocate,
    choose_method,
    expected_draws,
    make_method,
    measure,
    too_large,
    write_partitioned,
)
from weft.planner import read_cluster
from weft.plugins import PARTITION_METHODS
from weft.report import StageProgress, print_partition

_NO_MATTER = ("run", "argv", "graph", "out", "json", "overwrite", "threads", "minutes")  # to who owns what


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft partition`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("out", type=Path, help="the partitioned graph directory to write")
    parser.add_argument(
        "--parts", type=int, help="how many owners: one for each worker that will train (default: the cluster's)"
    )
    parser.add_argument(
        "--method",
        default="auto",
        help="how to allocate: one of those below (default auto: by size and --minutes)",
    )
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the method; may be repeated"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=USUAL_MINUTES,
        help=f"how long auto's method may be expected to take (default {USUAL_MINUTES:g})",
    )
    parser.add_argument(
        "--by-draws", action="store_true", help="weigh edges by what training is expected to draw over them"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed, of the training too (default 0)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="threads (default: all; kaminpar repeats on 1 only)"
    )
    parser.add_argument(
        "--shares",
        metavar="LIST",
        help="what each owner shall have, such as 2,2,1,1, in any unit (default: by the cluster's processors, or equal)",
    )
    parser.add_argument("--balance-vertices", type=float, default=1.0, help="weight of equal numbers of vertices")
    parser.add_argument("--balance-training", type=float, default=1.0, help="weight of equal training vertices")
    parser.add_argument("--balance-edges", type=float, default=0.0, help="weight of equal numbers of in-edges")
    parser.add_argument(
        "--imbalance", type=float, default=0.03, help="how far a part may exceed the mean (default 0.03)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")
    add_task_flags(parser, plan=True)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "methods:\n" + "\n".join(f"  {name:20}  {text}" for name, text in PARTITION_METHODS.help().items())


def run(args: argparse.Namespace) -> int:
    """Allocate, write, and show how good the allocation is."""
    graph = Graph.open(args.graph)
    DirectoryWriter(args.out, overwrite=args.overwrite).check()
    parts = parts_given(args)
    choice = _chosen(args, graph)
    steps = CheckpointedSteps(args.out, _identity(args, choice))
    with StageProgress() as progress:
        start = time.perf_counter()
        owners, shares = _allocated(args, graph, parts, choice, steps, progress)
        seconds = time.perf_counter() - start
        more = {"overwrite": args.overwrite, "threads": args.threads}
        write_partitioned(graph, owners, parts, args.out, shares=shares, **more, progress=progress)
    steps.forget()
    figures = measure(graph, owners, parts, shares=shares, threads=args.threads)
    if args.json:
        print(json.dumps({**figures, "method": choice.method, "seconds": seconds}))
    else:
        print_partition(str(args.out), figures, choice.method, seconds)
    return 0


def _chosen(args: argparse.Namespace, graph: Graph) -> MethodChoice:
    """The method; where it was left open, a line says which one and why, and where memory may not do for it, another."""
    if args.method != "auto":
        _check_read(args)
        short = too_large(args.method, graph)
        if short:
            print(f"method {args.method}: {short}", file=sys.stderr)
        return MethodChoice(args.method, "", args.by_draws)
    if args.option:
        raise ConfigError("--option is of one method: name it with --method")
    if not args.minutes > 0:
        raise ConfigError(f"--minutes {args.minutes:g} is out of range: it must be above 0")
    choice = choose_method(graph, args.minutes)
    print(f"method {choice.method}: {choice.why}", file=sys.stderr)
    return choice


def _check_read(args: argparse.Namespace) -> None:
    """Refuse a method that is not known, or options that it has or reads nothing of."""
    method = make_method(args.method, _options(args.option))
    for flag, given, what in (
        ("--by-draws", args.by_draws, "draws"),
        ("--cache", args.cache, "cache"),
        ("--bandwidths", args.bandwidths, "bandwidths"),
    ):
        if given and what not in method.reads:
            raise ConfigError(f"{flag} means nothing to method {args.method!r}: drop it, or choose another method")


def _options(given: list[str]) -> dict[str, str]:
    """The method's own options, by name."""
    if wrong := [text for text in given if not text.partition("=")[2]]:
        raise ConfigError(f"--option {wrong[0]} is not possible: write NAME=VALUE")
    return dict(text.split("=", 1) for text in given)


def _identity(args: argparse.Namespace, choice: MethodChoice) -> dict[str, Any]:
    """All that the owners hang on: of a command that was stopped, what the next one may take over."""
    flags = {name: value for name, value in vars(args).items() if name not in _NO_MATTER}
    cluster = None if args.cluster is None else asdict(read_cluster(args.cluster))
    return {"weft": __version__, "graph": read_manifest(args.graph), "flags": flags, "cluster": cluster} | asdict(
        choice
    )


def _allocated(
    args: argparse.Namespace,
    graph: Graph,
    parts: int,
    choice: MethodChoice,
    steps: CheckpointedSteps,
    progress: ProgressCallback,
) -> tuple[np.ndarray, tuple[float, ...] | None]:
    """The owners, and what was asked for as their shares."""
    if parts < 1:
        raise ConfigError(f"{parts} parts are not possible: give at least 1")
    task, cluster = task_given(args, graph, parts, args.plan), cluster_given(args, parts)
    shares = cluster.shares() if args.shares is None else numbers("shares", args.shares)
    owners = allocate(
        graph,
        parts,
        choice.method,
        options=_options(args.option),
        balance=BalanceWeights(args.balance_vertices, args.balance_training, args.balance_edges, args.imbalance),
        seed=args.seed,
        threads=args.threads,
        shares=shares,
        draws=expected_draws(graph, task, args.threads) if choice.weighted else None,
        task=task,
        bandwidths=cluster.shares_of_links(),
        pairs=cluster.own_links(),
        hosts=cluster.workers_by_host,
        progress=progress,
        steps=steps,
    )
    if steps.resumed:
        print(f"taken over from a command that was stopped: {', '.join(steps.resumed)}", file=sys.stderr)
    return owners, shares
