"""weft train: a model on a graph."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import weft.cluster
import weft.exchange
import weft.report
import weft.training
from weft.commands.flags import add_settings, settings_given
from weft.commands.joining import joined
from weft.errors import ConfigError
from weft.place import place_here
from weft.plan import check_workers

NOT_RESTARTED = (
    "max_restarts is for workers that Weft starts by itself: give torchrun its own --max-restarts (and Weft --resume); a "
    "job of Slurm's goes back into the queue, and one of Kubernetes' has --option restarts=N"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft train`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("--out", type=Path, help="where to save the trained model")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Train, tell how it goes, and save the model."""
    settings = settings_given(args, "weft train")
    graph = weft.Graph.open(args.graph)
    check_workers(settings)
    place = place_here()
    if place is None and (settings.parallel.workers > 1 or settings.parallel.max_restarts):
        checks = partial(check, settings, args.graph)
        request = weft.cluster.Request(
            tuple(args.argv),
            settings.parallel.workers,
            recovery=recovery_of(settings),
            check=checks,
            ports=settings.parallel.ports,
        )
        return weft.cluster.LocalProcesses().submit(request)
    if settings.parallel.max_restarts and os.environ.get("WEFT_LAUNCHER") != "local":
        raise ConfigError(NOT_RESTARTED)
    with joined(settings.parallel.timeout, settings.parallel.transport, settings.parallel.ports) as world:
        try:
            return _train(args, settings, graph, world)
        except weft.training.Interrupted as stop:
            if world.rank == 0:
                print(f"weft: {stop}", file=sys.stderr)
            return 128 + stop.signum


def recovery_of(settings: weft.Settings) -> weft.cluster.Recovery | None:
    """What is done when workers are lost, if the settings ask for it."""
    if not settings.parallel.max_restarts or settings.checkpoint.folder is None:
        return None
    batch_size = None if settings.sampling.full_graph else settings.sampling.batch_size * settings.parallel.workers
    return weft.cluster.Recovery(
        settings.parallel.max_restarts, settings.checkpoint.folder, settings.parallel.min_workers, batch_size
    )


def check(settings: weft.Settings, folder: Path) -> None:
    """Refuse what workers would refuse, before they are started."""
    graph = weft.Graph.open(folder)
    weft.training.check_plan(settings, graph, weft.training.make_model(settings, graph))
    if settings.parallel.cluster is not None and settings.plan.name == "auto":
        weft.training.described(settings.parallel.cluster, [settings.parallel.workers])
        if settings.parallel.min_workers is not None:
            raise ConfigError("a cluster file is of as many workers as there are: drop --min-workers, or --cluster")
    if (settings.parallel.min_workers or 1) > settings.parallel.workers:
        raise ConfigError(
            f"min_workers = {settings.parallel.min_workers} is more than workers = {settings.parallel.workers}: lower it"
        )


def _train(args: argparse.Namespace, settings: weft.Settings, graph: weft.Graph, world: weft.exchange.World) -> int:
    model = weft.training.make_model(settings, graph)
    with weft.report.listener_for(settings, quiet=world.rank > 0) as listen:
        weft.training.trainer_for(graph, model, settings, listen, world).fit()
    if args.out and world.rank == 0:
        weft.training.save_model(args.out, model, settings, graph)
        if settings.report.log == "human":
            print(
                f"saved to {args.out}; write embeddings or predictions with `weft embed {args.graph} --model {args.out}`"
            )
    return 0
