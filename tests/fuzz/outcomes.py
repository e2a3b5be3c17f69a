"""What becomes of a command on damaged data, each run in a process of its own that may crash, hang or be refused.

`Commands` starts one process that has everything imported and forks it for each command: a case takes tens of milliseconds.
Run as a script, this file is that process.
"""

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

SECONDS = 60  # a command may take; more is a hang
# Bytes of address space: what reserves more because of a damaged number fails as it would on a small machine.
_MEMORY = 16 << 30


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int  # its exit code; minus the signal that ended it
    out: str
    err: str
    seconds: float

    @property
    def kind(self) -> str:
        """done, refused (one sentence), damaged (exit code 1 of `weft verify`), traceback, crash, hang or babble."""
        if self.code == -signal.SIGALRM:
            return "hang"
        if self.code < 0:
            return "crash"
        if "Traceback" in self.err or "Traceback" in self.out or self.code not in (0, 1, 2):
            return "traceback"
        if self.code == 2:
            told = [line for line in self.err.strip().splitlines() if line.startswith("weft: ")]
            return "refused" if len(told) == 1 and self.err.strip().splitlines()[-1] == told[0] else "babble"
        return "done" if self.code == 0 else "damaged"


class Commands:
    """Runs `weft` commands, one after another, each in a fork of a process that has everything imported."""

    def __enter__(self) -> "Commands":
        self._folder = tempfile.TemporaryDirectory(prefix="weft-fuzz-")
        self._server = subprocess.Popen(
            [sys.executable, __file__, self._folder.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._folder.cleanup()

    def run(self, *argv: object, file_size: int | None = None) -> Outcome:
        """Run `weft ARGV`; with `file_size`, as on a disk on which no file can grow beyond so many bytes."""
        started = time.monotonic()
        self._server.stdin.write(json.dumps({"argv": [str(word) for word in argv], "file_size": file_size}) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        out, err = ((Path(self._folder.name) / name).read_text(errors="replace") for name in ("out", "err"))
        return Outcome(code, out, err, time.monotonic() - started)


class Here:
    """Runs commands in this process: faster, for data that is known to be refused before it could crash anything."""

    def run(self, *argv: object) -> Outcome:
        """Run `weft ARGV`."""
        from weft.cli import main

        out, err, started, code = io.StringIO(), io.StringIO(), time.monotonic(), 70
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(word) for word in argv])
            except Exception:
                traceback.print_exc()
        return Outcome(code, out.getvalue(), err.getvalue(), time.monotonic() - started)


def _serve(folder: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch_geometric.data  # noqa: F401  # seconds of a busy machine, that are no command's own

    import weft.commands.embed
    import weft.commands.import_
    import weft.commands.info
    import weft.commands.partition
    import weft.commands.train
    import weft.training  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line), folder)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever it started
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(case: dict, folder: Path) -> None:
    """Be the command: never returns."""
    os.setpgid(0, 0)
    for name, descriptor in (("out", 1), ("err", 2)):
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if case["file_size"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (case["file_size"], case["file_size"]))
    signal.alarm(SECONDS)
    code = 70
    try:
        from weft.cli import main

        code = main(case["argv"])
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
