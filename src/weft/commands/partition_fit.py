"""weft partition fit: what it costs workers to get rows of each other, measured by a short run."""

from __future__ import annotations

import argparse
import json

import weft.cluster
import weft.lab
import weft.partition
import weft.report
from weft.commands.flags import add_graph, add_number, whole_numbers
from weft.commands.joining import add_meeting, joined, started
from weft.config import file_to_write
from weft.errors import ConfigError

_ALIKE = ("fanouts", "batch_size", "batches", "allocations", "seed")  # of all workers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft partition fit`."""
    add_graph(parser, "a graph directory with a part for each worker")
    parser.add_argument(
        "--out",
        type=file_to_write,
        required=True,
        help="the file of links to write: `weft partition --method adagl --option links=FILE` searches by it",
    )
    add_meeting(parser)
    parser.add_argument(
        "--fanouts", metavar="LIST", default="10,10,10", help="neighbours drawn, from the seeds outwards (10,10,10)"
    )
    add_number(parser, "--batch-size", 1024, "seeds in a batch, for each worker")
    add_number(parser, "--batches", 4, "batches whose rows are fetched")
    add_number(parser, "--allocations", 4, "allocations under which they are, ever more uneven")
    add_number(parser, "--seed", 0, "the seed of the batches")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure together with the other workers; the first one writes what was found."""
    if min(args.workers, args.batch_size, args.batches, args.allocations) < 1 or not args.timeout > 0:
        raise ConfigError(
            "weft partition fit needs --workers, --batch-size, --batches and --allocations of at least 1 and a --timeout "
            "above 0"
        )
    if weft.cluster.starts_workers(args.on, args.workers):
        return started(args, args)
    graph = weft.Graph.open(args.graph)
    with joined(args) as world:
        world.compare({"graph": graph.checksum, **{flag: getattr(args, flag) for flag in _ALIKE}})
        fanouts = whole_numbers("fanouts", args.fanouts)
        task = weft.partition.TrainingTask(fanouts, args.batch_size * world.size, args.seed)
        found = weft.lab.measure_links(world, graph, task, args.batches, args.allocations)
        if world.rank > 0:
            return 0
    weft.lab.write_links(args.out, found.links)
    if args.json:
        figures = {"alpha": found.links.alpha.tolist(), "beta": found.links.beta.tolist()}
        print(json.dumps(figures | {"error": found.error, "transfers": found.transfers}))
    else:
        weft.report.print_links(found)
        print(f"written to {args.out}")
    return 0
