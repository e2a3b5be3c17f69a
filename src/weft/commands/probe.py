"""weft probe: what the workers' machines and the links between them can do."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

import weft.cluster
import weft.exchange
import weft.planner
import weft.report
import weft.training
from weft.commands.flags import add_number
from weft.commands.joining import add_meeting, joined, started, tell
from weft.config import file_to_write
from weft.errors import ConfigError

_QUIET = 5.0  # seconds between lines of progress where there is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft probe`."""
    parser.add_argument(
        "--out", type=file_to_write, metavar="FILE", help="write the cluster file (TOML) that the planner reads"
    )
    add_meeting(parser)
    add_number(parser, "--rounds", 1, "how often to rehearse: more rounds depend less on what else the machines do")
    parser.add_argument(
        "--add",
        action="store_true",
        help="if the --out file is there already, let work take the mean of its rounds and these: from several hours, say",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what workers will compute on: CUDA's devices are timed too; auto (default): where each worker has its own",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure together with the other workers; the first one shows and writes what was found."""
    if min(args.workers, args.rounds) < 1 or not args.timeout > 0:
        raise ConfigError("weft probe needs --workers and --rounds of at least 1 and a --timeout above 0")
    if args.add and not args.out:
        raise ConfigError("--add needs the file that it adds to: name it with --out")
    if weft.cluster.starts_workers(args.on, args.workers):
        return started(args, args)
    with joined(args) as world:
        return _probe(args, world)


def _probe(args: argparse.Namespace, world: weft.exchange.World) -> int:
    before = weft.training.described(args.out, world.workers, "--add") if args.add and args.out.exists() else None
    device = weft.training.device_of(args.device, world)
    if world.rank > 0:
        cluster = weft.training.measured_cluster(world, rounds=args.rounds, device=device)
    else:
        screen = sys.stderr if args.json else sys.stdout  # local workers' errors go through the launcher
        with weft.report.StageProgress(_QUIET, screen) as progress:
            cluster = weft.training.measured_cluster(world, tell, args.rounds, progress, device)
    kept = weft.planner.KeptCluster(world, tell)
    if world.rank > 0:
        return 0
    if before is not None:
        cluster = cluster.with_work_of(before)
    try:
        if args.out:
            weft.planner.write_cluster(args.out, cluster)
    finally:  # what was measured is shown and kept, though its file can't be written
        print(json.dumps(asdict(cluster, dict_factory=_told))) if args.json else weft.report.print_cluster(cluster)
        if cluster.work:
            tell(kept.write(cluster))
    if args.out and not args.json:
        print(f"written to {args.out}")
    return 0


def _told(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Figures for JSON; null for the bandwidth of a way that no worker takes."""
    return {name: None if value == weft.planner.NEVER else value for name, value in fields}
