"""The command line: one file a command in weft/commands, imported only when it is called."""

import argparse
import errno
import os
import platform
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from weft import __version__
from weft.commands import CommandParser
from weft.config import joined_lists
from weft.errors import WeftError
from weft.graph import without_passwords
from weft.memory import MORE_PROCESSES, is_shortage, lacks_threads
from weft.own_process import set_up_own_process
from weft.stopping import Interrupted, stopping

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Each command in the order of a user's day, with its help. Its module has add_arguments(parser) and run(args).
COMMANDS = {
    "import": "Import a graph: .npy folder, CSV/TSV/Parquet tables, PyG data, an OGB data set, or a built-in one.",
    "generate": "Generate a graph by a seed: rmat (skewed degrees) or communities (classes that neighbours tell).",
    "info": "Show what a graph holds: sizes, degree skew, homophily, splits; verify it with --verify.",
    "verify": "Check a graph, its parts, a trained model or checkpoints against their checksums, and say what is damaged.",
    "partition": "Allocate a graph's vertices to owners, and renumber it so that each owner's are contiguous.",
    "partition fit": "Measure what it costs workers to get rows of each other, for allocations that are searched by that.",
    "locality": "Say before training how much of what workers read would be their own, under several allocations.",
    "probe": "Measure the cluster: processors, memory and links, and what work takes. Run it as training will run.",
    "doctor": "Look at the cluster before a long run: connections, links, clocks, disks, memory, limits; with remedies.",
    "plan": "Predict what an epoch takes by every plan, on this cluster or another, and say which is fastest and why.",
    "report": "Show what a run's stages took beside what was predicted; or compare allocations of a graph.",
    "train": "Train a model on a graph.",
    "launch": "Start a command's workers on a cluster: by Ray, Slurm, Kubernetes, torchrun, MPI; or show what would start.",
    "embed": "Write embeddings, predictions or probabilities of all vertices (exact, over all neighbours).",
    "sandbox": "Run a command as every worker of a cluster in a box: hosts with shaped links on this machine (needs root).",
}


class Command(Protocol):
    """What a module in weft/commands offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one sentence on stderr and exit code 2."""
    set_up_own_process()
    _open_closed_streams()
    if os.environ.get("COLUMNS") == "0":  # of a terminal of unknown width; rich would print nothing
        del os.environ["COLUMNS"]
    with _dropping_what_nobody_reads(), stopping():
        return _ran(list(sys.argv[1:] if argv is None else argv))


def _ran(argv: list[str]) -> int:
    words = 2 if " ".join(argv[:2]) in COMMANDS else 1
    command = " ".join(argv[:words])
    try:
        args = _parser(command).parse_args([command, *joined_lists(argv[words:])] if argv else argv)
        args.argv = argv  # for workers, who run the same command
        code = int(args.run(args))
        sys.stdout.flush()  # what can't be written is found out here, not when Python ends
        return code
    except WeftError as error:
        told = without_passwords(str(error))
    except ImportError as error:  # kernels that are not for this machine, or not as WEFT_KERNELS wants them
        if error.name != "weft._kernels" and "WEFT_KERNELS" not in str(error):
            raise
        told = str(error)
    except OSError as error:
        told = _why_not(error)
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        remedy = MORE_PROCESSES if lacks_threads(error) else "give it more, or look at what else runs here"
        told = f"{command} ran out of memory ({error or 'no more is said'}): {remedy}"
    except Interrupted as stop:
        print(f"weft: {stop}", file=sys.stderr)
        return 128 + stop.signum
    except KeyboardInterrupt:
        print("weft: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    print(f"weft: {told}", file=sys.stderr)
    return 2


_ERRORS = 2  # the standard error
_NOT_TEMPORARY = "No usable temporary directory"  # as Python says it, to PyTorch when that is imported too


class _Unwritten(OSError):
    """Standard output can't be written."""


class _Unread(FileIO):
    """A stream whose reader may end before the command does (`| head`, a terminal): what is told then is dropped.

    So are words on the standard error that can't be written: there is nowhere else to say so.
    """

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write what is read, or say that it was written."""
        try:
            return super().write(data)
        except OSError as error:
            closed = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)  # a terminal that was
            if not isinstance(error, BrokenPipeError) and not closed and self.fileno() != _ERRORS:
                raise _Unwritten(error.errno, error.strerror) from error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


@contextmanager
def _dropping_what_nobody_reads() -> Iterator[None]:
    """Within it a command's work goes on whoever reads what it tells: its files count, and so does its exit code."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_lasting, before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: TextIO) -> TextIO:
    """The same stream, which lasts; a terminal that has no character for a line or a name gets a question mark."""
    if not isinstance(stream, TextIOWrapper):
        return stream
    stream.reconfigure(errors="replace")
    try:
        raw = _Unread(stream.fileno(), "w", closefd=False)
    except OSError:  # it is kept in memory
        return stream
    buffer = raw if isinstance(stream.buffer, FileIO) else BufferedWriter(raw)
    return TextIOWrapper(
        buffer, stream.encoding, "replace", line_buffering=stream.line_buffering, write_through=stream.write_through
    )


def _why_not(error: OSError) -> str:
    """What is told where standard output is lost, a disk full, or a path no good; another error stays what it is."""
    if isinstance(error, _Unwritten):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"standard output can't be written ({error.strerror}): write it to another place"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        who, limit = ("process", "ulimit -n") if error.errno == errno.EMFILE else ("machine", "sysctl fs.file-max")
        return f"this {who} has as many open files and connections as it may: raise {limit}"
    if error.filename is None and _NOT_TEMPORARY in str(error):
        return "no folder for temporary files (/tmp, /var/tmp, or this one): mount one there, or set TMPDIR to another"
    if error.filename is not None and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"{error.strerror}: {error.filename}"
    if error.filename is not None and isinstance(error, PermissionError):
        return f"no permission for {error.filename}: check the owner and mode of it, and of the folders that it is in"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on {error.filename or 'a disk'}: free some where results go, and in TMPDIR"
    raise error


def _open_closed_streams() -> None:
    """Where this process was started with closed streams, nobody reads: that is no mistake, and no file is to be them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _parser(called: str) -> argparse.ArgumentParser:
    """The parser; only the called command's module is imported."""
    parser = CommandParser(prog="weft", description="Train graph neural networks on many workers.")
    parser.add_argument("--version", action=_Version, nargs=0, help="say what this is, and what it was built with")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [called] if called in COMMANDS else COMMANDS:
        sub = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if name == called:
            command = cast(
                Command, import_module(f"weft.commands.{'import_' if name == 'import' else name.replace(' ', '_')}")
            )
            command.add_arguments(sub)
            sub.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """`--version`: what the kernels were compiled by and for, what devices have in their place, and what they run with."""

    def __call__(self, *_: object) -> None:
        from weft import _kernels as kernels

        levels = (
            "for this machine alone" if kernels.NATIVE else f"for {kernels.LEVELS.replace(' ', ', ') or kernels.LEVEL}"
        )
        beside = ", ".join(f"{package} {version(package)}" for package in ("numpy", "torch", "torch_geometric"))
        print(f"weft {__version__}, commit {kernels.COMMIT or 'unknown'}")
        print(f"kernels: compiled by {kernels.COMPILER} {levels}; {kernels.LEVEL} in use")
        print(f"devices: {_triton()}")
        print(f"Python {platform.python_version()}, {beside}")
        sys.exit(0)


def _triton() -> str:
    """What computes on devices."""
    if find_spec("triton") is None:
        return "torch alone, for there is no Triton: pip install 'weft-gnn[cuda]' brings its kernels"
    import torch
    import triton

    from weft.operations import why_no_kernels

    why = why_no_kernels() if torch.cuda.is_available() else ""
    return f"kernels in Triton {triton.__version__}" + (why and f", which can't start here: {why}")


if __name__ == "__main__":
    sys.exit(main())
