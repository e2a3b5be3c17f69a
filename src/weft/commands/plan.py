"""weft plan: what every plan would take, on this cluster or another, and which is the fastest and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import weft.cluster
import weft.exchange
import weft.planner
import weft.report
import weft.training
from weft.commands.flags import add_graph, add_settings, values_given
from weft.commands.joining import joined, started
from weft.config import file_to_write
from weft.errors import ConfigError
from weft.plan import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft plan`."""
    add_graph(parser, "a graph directory, partitioned or not")
    parser.add_argument(
        "--hosts",
        help="numbers of hosts to predict for, such as 1..64 (powers of two) or 2,3,4: with the same batch over all, "
        "and with as many seeds a worker",
    )
    parser.add_argument(
        "--method",
        help="how to partition for other numbers of hosts (default metis; fennel where memory is too small for it)",
    )
    parser.add_argument(
        "--html", type=file_to_write, help="write a page with all figures, and how they change with links and width"
    )
    parser.add_argument(
        "--measure",
        type=int,
        default=0,
        metavar="EPOCHS",
        help="train so many epochs by each plan that is shown (of a model that is thrown away), and show them beside: on "
        "--workers of this machine, or as torchrun starts them",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Dry-run, predict, and show."""
    values = values_given(args, "weft plan")
    file = values.pop("cluster", None)  # needed here, whichever plan is named
    if not isinstance(file, Path):
        raise ConfigError(
            "weft plan needs to know the cluster: measure it with `weft probe --out cluster.toml` on its hosts, or write "
            "the file by hand (docs/planner.md), and give it with --cluster"
        )
    if args.measure < 0:
        raise ConfigError(f"--measure {args.measure}: give how many epochs are trained by each plan, at least 1")
    settings = Settings.read(values, "weft plan")
    cluster = weft.planner.read_cluster(file)
    if not cluster.work:
        raise ConfigError(
            f"{file} does not say what work takes: copy the table [work] from a file that `weft probe --out` "
            f"wrote, on machines like those if there are any"
        )
    graph = weft.Graph.open_lists(args.graph)
    parallel = settings.parallel
    _check_effects(args, settings, cluster, graph, file)
    if args.measure and weft.cluster.starts_workers(parallel.on, parallel.workers):
        if parallel.on == "local":  # refused by those who measure, who needn't be started for that
            weft.training.described(file, [parallel.workers])
        return started(args, parallel, graph=weft.graph.directory_of(args.graph))
    with weft.report.StageProgress() as progress:
        what_if = weft.training.WhatIf(graph, settings, args.method, progress)
        if args.measure:
            answer = _measured(graph, settings, file, args.measure, what_if)
            if answer is None:
                return 0
        else:
            answer = what_if.answer(cluster)
        sweeps = []
        if args.hosts is not None:
            sweeps += what_if.scaling(cluster, host_counts(args.hosts))
        if args.html or args.json:
            sweeps += what_if.sensitivity(cluster)
    answer = replace(answer, sweeps=sweeps)
    if args.html:
        weft.report.write_page(args.html, answer)
    if args.json:
        print(json.dumps(weft.report.answer_as_dict(answer)))
    else:
        weft.report.print_answer(answer)
    return 0


def _check_effects(
    args: argparse.Namespace, settings: Settings, cluster: weft.planner.Cluster, graph: weft.Graph, file: Path
) -> None:
    """Refuse what would have no effect on this cluster."""
    parallel = settings.parallel
    if not args.measure and "workers" in settings.given and parallel.workers != cluster.workers:
        raise ConfigError(
            f"workers = {parallel.workers} would have no effect: {file} has {cluster.workers}, so change it there, or drop "
            f"it"
        )
    if settings.strategy != "auto" and cluster.workers == 1 and not args.measure:
        raise ConfigError(
            f"plan = {settings.plan.name} would have no effect: {file} has one worker, which has nothing to share; drop it, "
            f"or describe a cluster of several"
        )
    if args.method and not args.hosts and not weft.training.partitioned_anew(graph, cluster.workers, scaled=False):
        raise ConfigError(
            f"--method {args.method} would have no effect: the graph is partitioned for --hosts, or where it has other "
            f"parts than there are workers ({cluster.workers})"
        )


def _measured(
    graph: weft.Graph, settings: Settings, file: Path, epochs: int, what_if: weft.training.WhatIf
) -> weft.planner.Answer | None:
    """The answer with measured epochs, by the first worker's cluster file; the others only take part."""
    with joined(settings.parallel) as world:
        if world.size == 1:
            raise ConfigError("--measure needs workers: give --workers 2 (or more), or start them with torchrun")
        weft.training.check_alike(world, graph, settings, measure=str(epochs))
        comm, mine = world.communicator(), weft.training.described(file, world.workers)
        cluster = weft.planner.shared(comm, mine) or mine
        model = weft.training.make_model(settings, graph)
        planner = weft.training.planner_for(settings, graph, model, world, cluster=cluster)
        answer = weft.training.answer_for_all(planner, cluster, comm, what_if.named(cluster))
        trainer = weft.training.Trainer(graph, model, settings, world=world, plan=answer.best.plan)
        trainer.prepare()
        answer = weft.training.measured(trainer, comm, answer, epochs)
        trainer.close()
        return answer if world.rank == 0 else None


def host_counts(text: str) -> list[int]:
    """`1..64` as powers of two between the two, or a list."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            counts = [first, last, *(1 << power for power in range(20) if first < 1 << power < last)]
        else:
            counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--hosts {text} is not a range such as 1..64, or a list such as 2,3,4") from None
    if max(counts) > weft.planner.MOST_WORKERS:
        raise ConfigError(f"--hosts {text}: {weft.planner.MOST_WORKERS:,} hosts are the most")
    if min(counts) < 1 or (".." in text and counts[0] > counts[1]):
        raise ConfigError(f"--hosts {text}: numbers of hosts start at 1, and a range goes upwards")
    return sorted(set(counts))
