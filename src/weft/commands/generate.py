"""weft generate: a made-up graph."""

import argparse
from pathlib import Path

import weft.graph
import weft.report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft generate`."""
    parser.add_argument("kind", choices=("rmat", "communities"), help="rmat, or communities")
    parser.add_argument("out", type=Path, help="the graph directory to write")
    parser.add_argument("--vertices", type=int, default=100_000, help="how many vertices (default 100000)")
    parser.add_argument("--edges", type=int, default=2_000_000, help="how many directed edges (default 2000000)")
    parser.add_argument("--width", type=int, default=100, help="features a vertex (default 100)")
    parser.add_argument("--classes", type=int, default=47, help="classes (default 47)")
    parser.add_argument("--train", type=float, default=0.08, help="share of vertices to train on (default 0.08)")
    parser.add_argument("--signal", type=float, default=0.2, help="communities: how much features tell (default 0.2)")
    parser.add_argument("--seed", type=int, default=0, help="the seed (default 0)")
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
