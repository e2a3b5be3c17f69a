"""A process watched from outside: how long it takes, and how much memory it has at most.

Its own memory is what it wrote (RssAnon) and what it put into the memory file system. Pages of files that it maps count
apart, as the system drops them when others want the memory; the peak of all its pages is the kernel's own figure (VmHWM).
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

EVERY = 0.02  # seconds between looks
SHARED = Path("/dev/shm")


@dataclass
class Watched:
    """What was seen of a process that is through."""

    code: int
    out: str
    err: str
    seconds: float
    looks: list = field(default_factory=list)  # (time.monotonic(), bytes of its own)
    resident: int = 0  # bytes: the peak of all pages, mapped files' too

    def own(self, begin=0.0, end=float("inf")):
        """The most bytes of its own between two moments."""
        return max((size for when, size in self.looks if begin <= when <= end), default=0)

    def at(self, moment):
        """The bytes of its own that were seen last before a moment."""
        return next((size for when, size in reversed(self.looks) if when <= moment), 0)


def run(command):
    """Run a command to its end, watched; what it prints comes back, what it says beside is shown as it comes."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        errors = []
        reader = threading.Thread(target=follow, args=(process.stderr, errors))
        reader.start()
        seen = Watched(0, "", "", 0.0)
        while process.poll() is None:
            look(process.pid, seen)
            time.sleep(EVERY)
        reader.join()
        seen.code, seen.seconds, seen.err = process.returncode, time.monotonic() - start, "".join(errors)
        out.seek(0)
        seen.out = out.read()
    return seen


def follow(stream, lines):
    for line in stream:
        lines.append(line)
        print(f"    {line.rstrip()}", file=sys.stderr, flush=True)


def look(pid, seen):
    """Note what a process has at this moment."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return
    sizes = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }
    if "RssAnon" in sizes:  # else it is about to go
        seen.looks.append((time.monotonic(), sizes["RssAnon"] + shared(pid)))
        seen.resident = max(seen.resident, sizes["VmHWM"])


def peak():
    """Bytes of all pages that this program had at most: `ru_maxrss` begins with the most of the process that started it."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def shared(pid):
    """Bytes of the files that a process of Weft keeps in the memory file system."""
    sizes = []
    for file in SHARED.glob(f"weft-{pid}-*/*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            sizes.append(file.stat().st_blocks * 512)
    return sum(sizes)
