"""Processes on a sandbox's hosts that are no workers of its own: other systems' daemons, and commands to these."""

import os
import subprocess
from pathlib import Path

_PLACE = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WEFT_SECRET",
)


def started_apart(box, command, host, environment, out, errors=None):
    """A process on a host; what it says goes into an open file, and so does what it warns of, or into another."""
    given = [*(f"-u{name}" for name in _PLACE), *(f"{name}={value}" for name, value in environment.items())]
    return box.start(["env", *given, *map(str, command)], host, output=out, errors=out if errors is None else errors)


def ended(process):
    """Have a process end, one way or the other."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lose(box, host, what=""):
    """All that runs on a host (counted from 0) is gone at once; `what`: commands that contain this."""
    pids = subprocess.run(["ip", "netns", "pids", f"{box._name}-h{host + 1}"], capture_output=True, text=True).stdout
    for pid in pids.split():
        command = Path(f"/proc/{pid}/cmdline").read_text()
        if what in command and "sleep" not in command:  # which holds the host itself
            os.kill(int(pid), 9)
