"""weft doctor: is this cluster fit for a long run?"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import weft.cluster
import weft.report
from weft.commands.flags import add_graph, add_settings, settings_given
from weft.commands.joining import joined, started, tell
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
        return started(args, parallel)
    with joined(parallel) as world:
        said = tell if world.rank == 0 else lambda text: None
        findings = weft.cluster.checkup(world, settings, args.graph, args.out, said)
        if world.rank == 0:
            if args.json:
                print(json.dumps([asdict(finding) for finding in findings]))
            else:
                weft.report.print_findings(findings)
        return int(any(finding.verdict == "bad" for finding in findings))
