"""What a peer and the driver say to each other: JSON lines over stdin and stdout, a round at a time.

The first line that a peer reads is its job; it prints {"ready": true} when it has loaded. Each further line is a request
for one round, answered by one line of figures. So rounds of several peers can be interleaved in one run.
"""

import json
import re
import sys
import time
from pathlib import Path


def serve(setup):
    """`setup(job)` gives a function from a round's number to its figures."""
    job = json.loads(sys.stdin.readline())
    out, sys.stdout = sys.stdout, sys.stderr  # libraries print; only answers may go to the driver
    run = setup(job)
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        figures = run(int(line))
        figures.setdefault("seconds", time.perf_counter() - start)
        figures["cpu_seconds"] = time.process_time() - cpu
        figures["peak_mib"] = peak_mib()
        print(json.dumps(figures), file=out, flush=True)


def peak_mib():
    """The most memory that this program had; `ru_maxrss` begins with the driver's."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
