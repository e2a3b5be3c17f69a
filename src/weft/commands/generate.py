"""weft generate: a made-up graph."""

import argparse

import weft.graph
import weft.report
from weft.commands.flags import add_number
from weft.config import path_here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft generate`."""
    parser.add_argument("kind", choices=("rmat", "communities"), help="rmat, or communities")
    parser.add_argument("out", type=path_here, help="the graph directory to write")
    add_number(parser, "--vertices", 100_000, "how many vertices")
    add_number(parser, "--edges", 2_000_000, "how many directed edges")
    add_number(parser, "--width", 100, "features a vertex")
    add_number(parser, "--classes", 47, "classes")
    add_number(parser, "--train", 0.08, "share of vertices to train on")
    add_number(parser, "--signal", 0.2, "communities: how much features tell")
    add_number(parser, "--seed", 0, "the seed")
    parser.add_argument("--threads", type=int, default=1, help="threads to use (the graph is the same)")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")


def run(args: argparse.Namespace) -> int:
    """Generate, then show what was made."""
    options = {
        name: getattr(args, name) for name in ("vertices", "edges", "width", "classes", "train", "seed", "threads")
    }
    with weft.report.StageProgress() as progress:
        if args.kind == "rmat":
            graph = weft.graph.rmat(args.out, **options, overwrite=args.overwrite, progress=progress)
        else:
            graph = weft.graph.communities(
                args.out, **options, signal=args.signal, overwrite=args.overwrite, progress=progress
            )
    weft.report.print_graph(str(args.out), weft.graph.graph_statistics(graph))
    return 0
