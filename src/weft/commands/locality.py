"""weft locality: how much of what workers read would be their own, before anything is trained."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

import weft.lab
import weft.report
from weft.commands.flags import add_graph, whole_numbers, words
from weft.plugins import SAMPLERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft locality`."""
    usual = weft.lab.LocalityStudy()
    add_graph(parser, "a graph directory; it need not be partitioned")
    for flag, default, text in (
        ("--methods", usual.methods, "allocations to look at"),
        ("--parts", usual.parts, "numbers of owners"),
        ("--samplers", ("neighbor",), f"samplers, from {', '.join(SAMPLERS.names())}"),
        ("--layers", usual.layers, "depths of micrographs and subgraphs"),
        ("--fanouts", None, "neighbours drawn in every layer, one number for each depth or one for all"),
        (
            "--miss-fanouts",
            usual.miss_fanouts,
            "fanouts of the batches whose misses are counted, from the seeds outwards",
        ),
    ):
        shown = "10 up to three layers, 2 beyond" if default is None else _joined(default)
        parser.add_argument(flag, metavar="LIST", default=_joined(default or ()), help=f"{text} (default {shown})")
    for flag, number, text in (
        ("--roots", usual.roots, "micrographs to sample"),
        ("--batches", usual.batches, "batches to sample"),
        ("--batch-size", usual.batch_size, "seeds in a batch, for each worker"),
        ("--seed", usual.seed, "the seed"),
    ):
        parser.add_argument(flag, type=int, default=number, help=f"{text} (default {number})")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Sample, count, and show the figures."""
    study = weft.lab.LocalityStudy(
        parts=whole_numbers("parts", args.parts),
        methods=words(args.methods),
        layers=whole_numbers("layers", args.layers),
        fanouts=whole_numbers("fanouts", args.fanouts) or None,
        miss_fanouts=whole_numbers("miss-fanouts", args.miss_fanouts),
        roots=args.roots,
        batches=args.batches,
        batch_size=args.batch_size,
        seed=args.seed,
    )
    samplers = words(args.samplers)
    for name in samplers:
        SAMPLERS.check(name)
    graph = weft.Graph.open_lists(args.graph)
    with weft.report.StageProgress() as progress:
        figures = weft.lab.locality(graph, study, samplers, progress)
    print(json.dumps(asdict(figures))) if args.json else weft.report.print_locality(str(args.graph), figures)
    return 0


def _joined(values: Sequence[str | int]) -> str:
    return ",".join(map(str, values))
