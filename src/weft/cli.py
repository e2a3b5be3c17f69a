"""The command line: one file a command in weft/commands, imported only when it is called."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from weft import __version__
from weft.errors import WeftError

# The module of each command, in the order of a user's day. A module has HELP, add_arguments(parser) and run(args).
COMMANDS = {
    "import": "weft.commands.import_",
    "generate": "weft.commands.generate",
    "info": "weft.commands.info",
    "partition": "weft.commands.partition",
    "locality": "weft.commands.locality",
    "probe": "weft.commands.probe",
    "plan": "weft.commands.plan",
    "report": "weft.commands.report",
    "train": "weft.commands.train",
    "embed": "weft.commands.embed",
    "sandbox": "weft.commands.sandbox",
}


class Command(Protocol):
    """What a module in weft/commands offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one sentence on stderr and exit code 2."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost worker is told in one sentence, not in C++ frames
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parser(argv[0] if argv else None).parse_args(argv)
        args.argv = argv  # for workers, who run the same command
        return int(args.run(args))
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `weft info | head`: nobody reads on, and that is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("weft: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _parser(called: str | None) -> argparse.ArgumentParser:
    """The parser; only the called command's module is imported, unless help is asked for."""
    parser = argparse.ArgumentParser(prog="weft", description="Train graph neural networks on many workers.")
    parser.add_argument("--version", action="version", version=f"weft {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [called] if called in COMMANDS else COMMANDS:
        command = cast(Command, import_module(COMMANDS[name]))
        sub = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
