"""weft doctor: is this cluster fit for a long run?"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

import weft.cluster
import weft.report
from weft.commands.flags import add_settings, settings_given
from weft.commands.graphs import add_graph
from weft.commands.joining import joined_as
from weft.config import path_here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft doctor`: those of the run that it is for."""
    add_graph(parser, "the graph directory that will be trained on, if it is there", nargs="?")
    parser.add_argument("--out", type=path_here, help="where the trained model will be saved")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything together with the other workers; 0, or 1 where something would end the run."""
    settings = settings_given(args, "weft doctor")
    parallel = settings.parallel
    if weft.cluster.starts_workers(parallel.on, parallel.workers):
        request = weft.cluster.Request(tuple(args.argv), parallel.workers, anywhere=True, ports=parallel.ports)
        return weft.cluster.launch(parallel.on, request)
    with joined_as(parallel) as world:
        tell = _tell if world.rank == 0 else lambda text: None
        findings = weft.cluster.checkup(world, settings, args.graph, args.out, tell)
        if world.rank == 0:
            if args.json:
                print(json.dumps([asdict(finding) for finding in findings]))
            else:
                weft.report.print_findings(findings)
        return int(any(finding.verdict == "bad" for finding in findings))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
