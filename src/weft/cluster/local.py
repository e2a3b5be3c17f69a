"""Workers on this machine: each a process that runs the same command, in torchrun's environment variables."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO

_GRACE = 15.0  # seconds that the others get to end by themselves once one has failed


def launch(arguments: Sequence[str], workers: int) -> int:
    """Run `weft ARGUMENTS` as so many workers; returns 0, or the first failure's exit code. No process is left behind."""
    port = _free_port()
    seen: set[str] = set()
    processes = [_start(arguments, rank, workers, port) for rank in range(workers)]
    readers = [threading.Thread(target=_relay, args=(p.stderr, seen), daemon=True) for p in processes]
    for reader in readers:
        reader.start()

    def forward(signum: int, frame: FrameType | None) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signum)

    before = {signum: signal.signal(signum, forward) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _wait(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for reader in readers:
            reader.join()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _start(arguments: Sequence[str], rank: int, workers: int, port: int) -> "subprocess.Popen[str]":
    environment = os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WEFT_PARENT": str(os.getpid()),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )


def _wait(processes: "list[subprocess.Popen[str]]") -> int:
    """Wait until all have ended; once one has failed, the others get some time to find out and report it."""
    failed: tuple[int, float] | None = None
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code and failed is None:
                failed = code, time.monotonic()
                if code < 0:
                    print(
                        f"weft: worker {rank} was killed by {signal.Signals(-code).name}", file=sys.stderr, flush=True
                    )
        if all(code is not None for code in codes):
            break
        if failed and time.monotonic() > failed[1] + _GRACE:
            break
        time.sleep(0.05)
    if failed is None:
        return 0
    return failed[0] if failed[0] > 0 else 1


def _relay(stream: IO[str], seen: set[str]) -> None:
    """Print a worker's errors; those that several workers print alike only once."""
    for line in stream:
        if not (line.startswith("weft: ") and line in seen):
            sys.stderr.write(line)
            sys.stderr.flush()
        seen.add(line)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
