"""weft info: what a graph directory holds."""

import argparse
import json

import weft.graph
import weft.report
from weft.commands.flags import add_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft info`."""
    add_graph(parser)
    parser.add_argument("--verify", action="store_true", help="read everything and compare checksums")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Show the figures."""
    graph = weft.Graph.open_lists(args.graph)
    if args.verify:
        with weft.report.StageProgress() as progress:
            graph.verify(progress)
    figures = weft.graph.graph_statistics(graph)
    if args.json:
        print(json.dumps(figures | {"verified": args.verify}))
    else:
        weft.report.print_graph(str(args.graph), figures)
        if args.verify:
            print("verified: checksums, ids, features and labels are sound")
    return 0
