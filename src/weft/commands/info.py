"""weft info: what a graph directory holds."""

import argparse
import json
from pathlib import Path

from weft.graph import Graph, graph_statistics
from weft.report import StageProgress, print_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft info`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("--verify", action="store_true", help="read everything and compare checksums")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Show the figures."""
    graph = Graph.open(args.graph)
    if args.verify:
        with StageProgress() as progress:
            graph.verify(progress)
    figures = graph_statistics(graph)
    if args.json:
        print(json.dumps(figures | {"verified": args.verify}))
    else:
        print_graph(str(args.graph), figures)
        if args.verify:
            print("verified: checksums, ids, features and labels are sound")
    return 0
