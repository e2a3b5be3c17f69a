"""weft launch: a command of Weft's as the workers of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import weft.cluster
import weft.graph
from weft.commands import CommandParser, train
from weft.commands.flags import add_settings, options_given, settings_given, values_given
from weft.config import joined_lists
from weft.errors import ConfigError
from weft.plugins import LAUNCHERS

_LAUNCHED = ("train", "probe", "doctor", "plan")  # the commands that many workers run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft launch`."""
    launchers = parser.add_subparsers(dest="launcher", metavar="LAUNCHER", required=True)
    for name, text in LAUNCHERS.help().items():
        one = launchers.add_parser(name, help=text, description=f"Start workers by {name}: {text}.")
        one.add_argument("--hosts", type=int, default=1, help="how many hosts (default 1)")
        one.add_argument("--workers-per-host", type=int, default=1, help="workers on each host (default 1)")
        one.add_argument(
            "--option",
            metavar="NAME[=VALUE]",
            action="append",
            default=[],
            help="an option of the launcher; may be repeated, with other names",
        )
        one.add_argument("--dry-run", action="store_true", help="print what would be started, and start nothing")
        one.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what each worker runs: train ..."
        )


def run(args: argparse.Namespace) -> int:
    """Show the launch, or submit it."""
    request = _request(args)
    if not args.dry_run:
        return weft.cluster.launch(args.launcher, request)
    launcher = LAUNCHERS.get(args.launcher)()
    launcher.check(request)
    print(launcher.shown(request))
    return 0


def _request(args: argparse.Namespace) -> weft.cluster.Request:
    words = tuple(joined_lists(args.words[1:] if args.words[:1] == ["--"] else args.words))
    if not words or words[0] not in _LAUNCHED:
        raise ConfigError(
            f"weft launch needs a command of many workers ({', '.join(_LAUNCHED)}): weft launch {args.launcher} --hosts 4 "
            f"-- train GRAPH"
        )
    if min(args.hosts, args.workers_per_host) < 1:
        raise ConfigError("--hosts and --workers-per-host must be at least 1")
    request = partial(
        weft.cluster.Request, words, args.workers_per_host, args.hosts, options=options_given(args.option)
    )
    if words[0] != "train":
        said = _settings_said(words)
        ports = said.get("ports")
        return request(
            ports=None if ports is None else str(ports),
            device=str(said.get("device", "auto")),
            written=_paths(said.get("checkpoint"), said["out"], said.get("tensorboard")),
        )
    parser = CommandParser(prog="weft train")
    train.add_arguments(parser)
    given = parser.parse_args(words[1:])  # so that mistakes are told here, not by a job that has waited in a queue
    settings = settings_given(given, "weft train")
    if settings.parallel.workers > 1 or settings.parallel.on != "local":
        raise ConfigError("--workers and --on are the launcher's to say: give --workers-per-host, before the --")
    many = settings.changed(workers=args.hosts * args.workers_per_host)
    if settings.parallel.max_restarts and not LAUNCHERS.get(args.launcher).restarts:
        raise ConfigError(weft.cluster.NOT_RESTARTED)
    return request(
        resumable=settings.checkpoint.folder is not None,
        recovery=weft.cluster.Recovery.of(many),
        check=partial(train.check, many, given.graph, [args.workers_per_host] * args.hosts),
        ports=settings.parallel.ports,
        graph=weft.graph.directory_of(given.graph),
        device=settings.parallel.device,
        written=_paths(settings.checkpoint.folder, given.out, settings.report.tensorboard),
    )


def _settings_said(words: Sequence[str]) -> dict[str, object]:
    """The settings among a command's words, which its workers judge; and `out`, where it writes."""
    parser = argparse.ArgumentParser(prog=f"weft {words[0]}", add_help=False, allow_abbrev=False)
    parser.add_argument("--out")
    add_settings(parser)
    given, _ = parser.parse_known_args(words[1:])
    return values_given(given, parser.prog) | {"out": given.out}


def _paths(*said: object) -> tuple[Path, ...]:
    """Those that are named."""
    return tuple(Path(str(one)) for one in said if str(one).lower() != "none")
