"""weft train: a model on a graph."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import weft.cluster
import weft.exchange
import weft.graph
import weft.report
import weft.training
from weft.commands.flags import add_graph, add_settings, settings_given
from weft.commands.joining import joined, started
from weft.config import path_here, typed
from weft.errors import ConfigError
from weft.plan import check_workers
from weft.stopping import Interrupted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft train`."""
    add_graph(parser)
    parser.add_argument("--out", type=path_here, help="where to save the trained model, in place of one that is there")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Train, tell how it goes, and save the model."""
    settings = settings_given(args, "weft train")
    graph = args.graph if weft.graph.is_address(args.graph) else weft.Graph.open(args.graph)
    check_workers(settings)
    parallel = settings.parallel
    if weft.cluster.starts_workers(parallel.on, parallel.workers, parallel.max_restarts):
        _check_out(args, settings)
        return started(
            args,
            parallel,
            recovery=weft.cluster.Recovery.of(settings),
            check=partial(check, settings, args.graph, [parallel.workers] if parallel.on == "local" else None),
            graph=weft.graph.directory_of(args.graph),
        )
    with joined(parallel) as world:
        try:
            return _train(args, settings, graph, world)
        except Interrupted as stop:
            if world.rank == 0:
                raise
            return 128 + stop.signum  # the first worker tells it


def check(settings: weft.Settings, place: Path | str, hosts: list[int] | None) -> None:
    """Refuse what workers would refuse, before they are started. `hosts`: the workers of each, if that is known."""
    weft.training.check_new(settings.checkpoint)  # a job of a queue's goes on from checkpoints, by itself
    graph = weft.training.as_graph(place, weft.exchange.World(), settings.parallel.timeout)
    weft.training.check_plan(settings, graph, weft.training.make_model(settings, graph))
    if settings.parallel.cluster is not None and settings.plan.name == "auto":
        if hosts is not None:
            weft.training.described(settings.parallel.cluster, hosts)
        if settings.parallel.min_workers is not None:
            raise ConfigError("a cluster file is of as many workers as there are: drop --min-workers, or --cluster")


def _check_out(args: argparse.Namespace, settings: weft.Settings) -> None:
    if args.out:
        weft.training.check_place(args.out, settings.checkpoint.folder)


def _train(
    args: argparse.Namespace, settings: weft.Settings, place: weft.Graph | str, world: weft.exchange.World
) -> int:
    from weft.nn import KEEP_NUMBERS, Unlisted  # here, as help need not wait for it

    if world.rank == 0:  # who writes it: others may not see that disk
        _check_out(args, settings)
    graph = weft.training.as_graph(place, world, settings.parallel.timeout)
    model = weft.training.make_model(settings, graph)
    besides = Unlisted(model, {})  # what it keeps besides its state_dict
    if args.out and world.rank == 0:
        weft.training.check_room(args.out, model)
    with weft.report.listener_for(settings, quiet=world.rank > 0) as listen:
        weft.training.trainer_for(graph, model, settings, listen, world).fit()
    if args.out and world.rank == 0:
        if left_out := besides.left_out():
            print(
                f"weft: {', '.join(left_out)}: training has changed it, and {args.out} is without it: where its rows "
                f"hang on it, they are not those that were measured; {KEEP_NUMBERS}",
                file=sys.stderr,
            )
        weft.training.save_model(args.out, model, settings, graph, besides.changed(), besides.built())
        if settings.report.log == "human":
            command = f"weft embed {typed(args.graph)} --model {typed(args.out)}"
            print(f"saved to {args.out}; write embeddings or predictions with `{command}`")
    return 0
