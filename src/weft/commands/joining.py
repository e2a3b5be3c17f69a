"""The workers that a command runs as, from where they meet to where they part."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import weft.cluster
import weft.exchange
from weft.commands.flags import add_number
from weft.errors import ClusterError
from weft.memory import is_shortage
from weft.place import place_here
from weft.plan import ParallelSettings
from weft.stopping import killable


def add_meeting(parser: argparse.ArgumentParser) -> None:
    """How many workers a command has, and how they find each other: flags of commands that have no settings."""
    parser.set_defaults(transport=ParallelSettings.transport, device="cpu")  # unless a flag says another one
    add_number(parser, "--workers", 1, "workers, where --on says; under torchrun, as many as it starts")
    parser.add_argument("--on", default="local", help="where they are started: local, or ray (default local)")
    add_number(
        parser, "--timeout", ParallelSettings.timeout, "seconds to wait for other workers, as `weft train` waits"
    )
    parser.add_argument("--ports", help="ports that workers may listen at, such as 29500-29600 (default any)")
    parser.add_argument(
        "--tls", metavar="secret|FILE", help="encrypt what is sent, as `weft train --tls` (default not)"
    )


def started(args: argparse.Namespace, way: ParallelSettings | argparse.Namespace, **more: Any) -> int:
    """Start a command's workers, as settings or its flags say where and how many, and wait for them; the exit code."""
    words = tuple(args.argv)
    request = weft.cluster.Request(words, way.workers, anywhere=True, ports=way.ports, device=way.device, **more)
    return weft.cluster.launch(way.on, request)


@contextmanager
def joined(way: ParallelSettings | argparse.Namespace) -> Iterator[weft.exchange.World]:
    """This command's workers, as settings or its flags say how they meet.

    Where one is lost, the others name it and end; one without memory names itself.
    """
    if place_here() is not None:
        killable()
    world = weft.exchange.World.join(way.timeout, way.transport, way.ports, way.device != "cpu", way.tls)
    try:
        with world.during("the start"):
            yield world
    except Exception as error:
        if not (isinstance(error, ClusterError) or is_shortage(error)):
            raise
        told = world.explain(error)
        print(f"weft: {told}", file=sys.stderr, flush=True)
        again = "WEFT_LAUNCHER" in os.environ and isinstance(told, weft.exchange.SilentWorkersError)
        os._exit(weft.cluster.LOST_OTHERS if again else 2)  # other threads may wait in an exchange until its timeout
    finally:
        world.leave()


def tell(text: str) -> None:
    """Say something while standard output is for what a command finds."""
    print(text, file=sys.stderr, flush=True)
