"""Nodes of a Ray cluster as processes, and a small training on them."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from apart import ended

# As on a cluster of strangers: whoever has no token is not let in.
_RAY = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4, "RAY_USAGE_STATS_ENABLED": "0"}
_RAY |= {"RAY_worker_niceness": "0"}  # Ray's 15 would have them wait for all else that this machine does


class Nodes:
    """Nodes of a Ray cluster. `start(command, host, environment)` starts a process there."""

    def __init__(self, start):
        self._start, self.started, self._starts = start, [], []
        self._folder = Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp"))  # short, as names of sockets must be

    def add(self, address, port, cpus, **environment):
        """Start a node; the first is the head. `port`: of the head."""
        host, head = len(self.started), f"{getattr(self, 'address', address)}:{port}"
        how = (
            [f"--address={head}"]
            if host
            else ["--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false"]
        )
        self.address = getattr(self, "address", address)
        if host:
            self.wait(head)  # several that start at once on few processors take longer than Ray waits for a node
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            *how,
            f"--node-ip-address={address}",
            "--block",
        ]
        command += [f"--num-cpus={cpus}", "--object-store-memory=80000000"]
        self._starts.append(lambda: self._start(command, host, self.environment(head) | environment))
        self.started.append(self._starts[-1]())
        return head

    def environment(self, head):
        """What a driver needs as well."""
        return _RAY | {"RAY_ADDRESS": head}

    def wait(self, head, seconds=240):
        """Until all nodes are there; those that Ray gave up, as it does within 30 s, are started again."""
        lines = "import ray; ray.init(log_to_driver=False, logging_level=50)\n"
        lines += f"assert len([node for node in ray.nodes() if node['Alive']]) == {len(self.started)}"
        end = time.monotonic() + seconds
        while self._start([sys.executable, "-c", lines], 0, self.environment(head)).wait():
            assert time.monotonic() < end, "the nodes did not start"
            for host, node in enumerate(self.started):
                if node.poll() is not None:
                    self.started[host] = self._starts[host]()

    def close(self):
        """End all nodes, the head last."""
        for node in reversed(self.started):
            ended(node)
        shutil.rmtree(self._folder, ignore_errors=True)


def train(graph, *more):
    """The words of a small training."""
    words = ["train", graph, "--hidden", 8, "--fanouts", "3,3", "--batch-size", 100, "--threads", 1, "--plan", "leap"]
    return [str(word) for word in (*words, "--epochs", 2, *more)]
