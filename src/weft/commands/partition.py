"""weft partition: a graph renumbered by owner."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import textwrap
import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import weft.graph
import weft.partition
import weft.planner
import weft.report
from weft.commands.flags import add_graph, add_number, numbers, options_given
from weft.commands.task_flags import USUAL, add_task_flags, allocated, cluster_given, parts_given, task_given
from weft.config import path_here
from weft.errors import ConfigError
from weft.plugins import PARTITION_METHODS
from weft.threads import usual_threads

_NO_MATTER = ("run", "argv", "graph", "out", "json", "overwrite", "threads", "minutes")  # to who owns what
_BALANCED = {
    "vertices": "equal numbers of vertices",
    "training": "equal training vertices",
    "edges": "equal numbers of in-edges",
    "work": "equally many edges that batches are expected to draw: keeps batches even under split",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft partition`."""
    add_graph(parser)
    parser.add_argument("out", type=path_here, help="the partitioned graph directory to write")
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
    add_number(parser, "--minutes", weft.partition.USUAL_MINUTES, "how long auto's method may be expected to take")
    parser.add_argument(
        "--by-draws", action="store_true", help="weigh edges by what training is expected to draw over them"
    )
    add_number(parser, "--seed", 0, "the seed, of the training too")
    parser.add_argument(
        "--threads",
        type=int,
        default=usual_threads(),
        help="threads (default: one for each core that it may use; kaminpar repeats on 1 only)",
    )
    parser.add_argument(
        "--shares",
        metavar="LIST",
        help="what each owner shall have, such as 2,2,1,1, in any unit (default: by the cluster's processors, or equal)",
    )
    usual = weft.partition.BalanceWeights()
    for name, what in _BALANCED.items():
        parser.add_argument(f"--balance-{name}", type=float, default=getattr(usual, name), help=f"weight of {what}")
    add_number(parser, "--imbalance", usual.imbalance, "how far a part may exceed the mean")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")
    add_task_flags(parser, plan=True)
    parser.formatter_class = _TableHelp
    parser.epilog = "methods:\n" + "\n".join(f"  {name:20}  {text}" for name, text in PARTITION_METHODS.help().items())


class _TableHelp(argparse.HelpFormatter):
    """Help whose text may have lines of names and what they are, each wrapped by itself as options are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        hanging = ((line, " " * 24 if line.startswith(" ") else indent) for line in text.splitlines())
        return "\n".join(textwrap.fill(line, width, subsequent_indent=further) for line, further in hanging)


def run(args: argparse.Namespace) -> int:
    """Allocate, write, and show how good the allocation is."""
    weft.graph.DirectoryWriter(args.out, overwrite=args.overwrite).check()
    graph = weft.Graph.open(args.graph)
    weft.partition.check_disk(graph, args.out)
    parts = parts_given(args)
    cluster = cluster_given(args, parts)
    choice = _chosen(args, graph, _at_a_time(cluster))
    steps = weft.partition.CheckpointedSteps(args.out, _identity(args, graph, choice))
    task = task_given(args, graph, parts)
    shares = cluster.shares() if args.shares is None else numbers("shares", args.shares)
    with weft.report.StageProgress() as progress:
        start = time.perf_counter()
        owners = allocated(
            args,
            graph,
            choice.method,
            cluster,
            task,
            options=_options(args.option),
            balance=weft.partition.BalanceWeights(
                imbalance=args.imbalance, **{name: getattr(args, f"balance_{name}") for name in _BALANCED}
            ),
            shares=shares,
            **_expected(args, graph, task, choice.weighted),
            progress=progress,
            steps=steps,
        )
        if steps.resumed:
            print(f"taken over from a command that was stopped: {', '.join(steps.resumed)}", file=sys.stderr)
        seconds = time.perf_counter() - start
        more = {"overwrite": args.overwrite, "threads": args.threads}
        weft.partition.write_partitioned(graph, owners, parts, args.out, shares=shares, **more, progress=progress)
    steps.forget()
    figures = weft.partition.measure(graph, owners, parts, shares=shares, threads=args.threads)
    if args.json:
        print(json.dumps({**figures, "method": choice.method, "seconds": seconds}))
    else:
        weft.report.print_partition(str(args.out), figures, choice.method, seconds)
    return 0


def _expected(
    args: argparse.Namespace, graph: weft.Graph, task: weft.partition.TrainingTask, weighted: bool
) -> dict[str, np.ndarray]:
    """What an average batch is expected to draw, where it counts: over each edge of a vertex, and of all of them."""
    if not (weighted or args.balance_work):
        return {}
    draws = weft.partition.expected_draws(graph, task, args.threads)
    work = {"work": draws * np.diff(graph.indptr)} if args.balance_work else {}
    return {"draws": draws, **work} if weighted else work


def _at_a_time(cluster: weft.planner.Cluster) -> int:
    """How many parts a method makes at a time: a host's or, before these, hosts'."""
    workers = cluster.workers_by_host
    return max(len(workers), *workers) if len(workers) > 1 else cluster.workers


def _chosen(args: argparse.Namespace, graph: weft.Graph, parts: int) -> weft.partition.MethodChoice:
    """The method; where it was left open, a line says which one and why, and where memory may not do for it, another."""
    if args.method != "auto":
        _check_read(args)
        short = weft.partition.too_large(args.method, graph, parts=parts)
        if short:
            print(f"method {args.method}: {short}", file=sys.stderr)
        return weft.partition.MethodChoice(args.method, "", args.by_draws)
    if args.option:
        raise ConfigError("--option is of one method: name it with --method")
    if not args.minutes > 0:
        raise ConfigError(f"--minutes {args.minutes:g} is out of range: it must be above 0")
    choice = weft.partition.choose_method(graph, args.minutes, parts=parts)
    print(f"method {choice.method}: {choice.why}", file=sys.stderr)
    by_draws = args.by_draws and "draws" in PARTITION_METHODS.get(choice.method).reads
    return replace(choice, weighted=choice.weighted or by_draws)


def _check_read(args: argparse.Namespace) -> None:
    """Refuse a method that is not known, or what says nothing to it: options, what it does not read, how to choose one."""
    method = weft.partition.make_method(args.method, _options(args.option))
    if args.minutes != weft.partition.USUAL_MINUTES:
        raise ConfigError(f"--minutes means nothing to method {args.method!r}: drop it, or leave the choice to auto")
    read = method.reads | ({"sampling"} if args.by_draws or args.balance_work else set())
    read |= {"balance"} if method.balances else set()
    drawn, usual = {"task", "sampling"}, weft.partition.BalanceWeights()
    for flag, given, uses in (
        *((f"--balance-{of}", getattr(args, f"balance_{of}") != getattr(usual, of), {"balance"}) for of in _BALANCED),
        ("--imbalance", args.imbalance != usual.imbalance, {"balance"}),
        ("--by-draws", args.by_draws, {"draws"}),
        ("--cache", args.cache != USUAL["cache"], {"cache"}),
        ("--bandwidths", args.bandwidths, {"bandwidths"}),
        ("--fanouts", args.fanouts != USUAL["fanouts"], drawn),
        ("--batch-size", args.batch_size != USUAL["batch_size"], drawn),
        ("--sampler", args.sampler != USUAL["sampler"], drawn),
        ("--hidden", args.hidden != USUAL["hidden"], {"task"}),
        ("--plan", args.plan != USUAL["plan"], drawn if args.plan == "halo" else {"task"}),  # all edges are drawn
    ):
        if given and read.isdisjoint(uses):
            by_draws = "add --by-draws, " if "sampling" in uses and "draws" in method.reads else ""
            raise ConfigError(
                f"{flag} means nothing to method {args.method!r}: drop it, {by_draws}or choose another method"
            )


def _identity(args: argparse.Namespace, graph: weft.Graph, choice: weft.partition.MethodChoice) -> dict[str, Any]:
    """All that the owners hang on: of a command that was stopped, what the next one may take over."""
    flags = {name: value for name, value in vars(args).items() if name not in _NO_MATTER}
    cluster = None if args.cluster is None else asdict(weft.planner.read_cluster(args.cluster))
    assert graph.path is not None
    files = {name: weft.graph.sum_of(value) for name, value in _options(args.option).items() if os.path.isfile(value)}
    of = {"weft": weft.__version__, "graph": weft.graph.read_manifest(graph.path), "flags": flags, "cluster": cluster}
    code = weft.graph.sum_of(inspect.getfile(PARTITION_METHODS.get(choice.method)))  # a stranger's may have been edited
    return of | {"files": files, "method": choice.method, "code": code, "weighted": choice.weighted}


def _options(given: list[str]) -> dict[str, str]:
    """The method's own options, by name."""
    if wrong := [text for text in given if not text.partition("=")[2]]:
        raise ConfigError(f"--option {wrong[0]} is not possible: write NAME=VALUE")
    return options_given(given)
