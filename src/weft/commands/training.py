"""What `weft train` does; apart from its arguments, as it waits for PyTorch."""

import argparse
import os
import sys

from weft.cluster import launch
from weft.commands.flags import settings_given
from weft.errors import ClusterError
from weft.exchange import World
from weft.graph import Graph
from weft.plan import Settings
from weft.report import listener_for
from weft.training import Interrupted, check_plan, described, make_model, save_model, trainer_for


def train(args: argparse.Namespace) -> int:
    """Train, tell how it goes, and save the model."""
    settings = settings_given(args, "weft train")
    graph = Graph.open(args.graph)
    if settings.parallel.workers > 1 and "RANK" not in os.environ:
        check_plan(settings, graph, make_model(settings, graph))
        if settings.parallel.cluster is not None and settings.plan.name == "auto":
            described(settings.parallel.cluster, [settings.parallel.workers])
        return launch(args.argv, settings.parallel.workers)
    world = World.join(settings.parallel.timeout, settings.parallel.transport)
    try:
        return _train(args, settings, graph, world)
    except Interrupted as stop:
        if world.rank == 0:
            print(f"weft: {stop}", file=sys.stderr)
        return 128 + stop.signum
    except ClusterError as error:
        print(f"weft: {world.explain(error)}", file=sys.stderr, flush=True)
        os._exit(2)  # other threads may wait in the midst of an exchange until its timeout
    finally:
        world.leave()


def _train(args: argparse.Namespace, settings: Settings, graph: Graph, world: World) -> int:
    model = make_model(settings, graph)
    with listener_for(settings, quiet=world.rank > 0) as listen:
        trainer_for(graph, model, settings, listen, world).fit()
    if args.out and world.rank == 0:
        save_model(args.out, model, settings, graph)
        if settings.report.log == "human":
            print(
                f"saved to {args.out}; write embeddings or predictions with `weft embed {args.graph} --model {args.out}`"
            )
    return 0
