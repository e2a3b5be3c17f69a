"""Keeps peers alive as processes and runs their rounds in turn."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = Path(os.environ.get("WEFT_PEERS", HERE / "envs"))


class Peer:
    """One side of a comparison, in a process of its own."""

    def __init__(self, name, adapter, job, threads):
        self.name, self.rounds = name, []
        python = sys.executable if adapter == "weft" else str(ENVIRONMENTS / adapter / "bin" / "python")
        if not Path(python).exists():
            raise SystemExit(f"{python} is missing: run benchmarks/peers/build.sh first")
        env = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [python, str(HERE / adapter / "adapter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self._send(json.dumps(job | {"threads": threads}))
        self._receive()

    def round(self, number):
        """Run one round and keep its figures."""
        self._send(str(number))
        self.rounds.append(self._receive())

    def median(self, key):
        """The median of a figure over all rounds but the first, which warms up."""
        return statistics.median(figures[key] for figures in self.rounds[1:])

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _send(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _receive(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self._process.wait()}; its errors are above")
        return json.loads(line)


def interleave(peers, rounds):
    """A warm-up round of each, then `rounds` rounds in turn."""
    for number in range(rounds + 1):
        for peer in peers:
            peer.round(number)
    for peer in peers:
        peer.close()
