"""The far end of a run on Ray: what runs on each node. It travels as code, and says when Weft is missing or another."""

import importlib
import json
import os
import selectors
import socket
import subprocess
import sys
import zlib
from importlib.metadata import version
from typing import Any

_PIPE = 1 << 20  # bytes that a pipe holds at most, unless the system was told otherwise


def facts(folder: str, manifest: str) -> dict[str, str]:
    """What must be the same on all nodes. It runs where Weft may be missing."""
    try:
        weft = str(importlib.import_module("weft").__version__)
    except Exception:  # whatever is wrong with it
        weft = "missing"
    try:
        torch = version("torch").partition("+")[0]
    except ImportError:
        torch = "missing"
    found = {"Weft": weft, "PyTorch": torch, "folder": "there" if os.path.isdir(folder) else "missing", "graph": "none"}
    if manifest:
        try:
            with open(manifest, "rb") as file:
                found["graph"] = f"{zlib.crc32(file.read()):08x}"
        except OSError as error:
            found["graph"] = f"missing ({error.strerror})"
    return found


class HostActor:
    """An actor on a node. It needs nothing of Weft's until that is known to fit."""

    _store: socket.socket | None = None  # on the first host: where the workers meet

    def look_around(self, folder: str, manifest: str) -> tuple[str, dict[str, str]]:
        """The node's address, and what is there."""
        from ray.util import get_node_ip_address

        return get_node_ip_address(), facts(folder, manifest)

    def free_port(self, address: str, ports: str | None) -> int:
        """Where the workers meet: the first one is given this socket, so that nobody else can take its port."""
        from weft.exchange import listening_at

        self._store = listening_at(address, ports)
        return int(self._store.getsockname()[1])

    def start(self, folder: str, job: dict[str, Any], called: bytes) -> None:
        """Start the workers: of a command, or of what is called. They end with this process, however that ends."""
        called_and_result = [_file(called), _file(b"")] if called else []
        self._results = called_and_result[1:]
        store = None if self._store is None else self._store.detach()
        job = job | {
            "arguments": [*map(str, called_and_result), *job["arguments"]],
            "launcher": os.getpid(),
            "store": store,
        }
        told = _file(json.dumps(job).encode())
        self._agent = subprocess.Popen(
            [sys.executable, "-m", "weft.cluster.agent", str(told)],
            cwd=folder,
            pass_fds=[told, *called_and_result, *([] if store is None else [store])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if store is not None:
            os.close(store)
        self._open = selectors.DefaultSelector()
        for stream in ("stdout", "stderr"):
            self._open.register(getattr(self._agent, stream), selectors.EVENT_READ, stream)

    def look(self, seconds: float) -> tuple[list[tuple[str, bytes]], int | None]:
        """What the workers have said since, by stream, and how they ended; None: they run.

        Once they have, what there is to read is all: a process that one has left behind may hold a stream open for ever.
        """
        ended, said = self._agent.poll() is not None, list[tuple[str, bytes]]()
        for key, _ in self._open.select(0 if ended else seconds):
            said.append((key.data, os.read(key.fd, _PIPE)))
            if not said[-1][1]:
                self._open.unregister(key.fileobj)
        if ended:
            said += [(key.data, b"") for key in self._open.get_map().values()]  # so that a line without an end is told
        return said, self._agent.wait() if ended or not self._open.get_map() else None

    def result(self) -> bytes:
        """What the first worker's call has given."""
        (file,) = self._results
        with open(f"/proc/self/fd/{file}", "rb") as said:  # by as many reads as it takes: one gives 2 GiB at most
            return said.read()

    def send(self, signum: int) -> None:
        """Pass a signal on to the workers."""
        if self._agent.poll() is None:
            self._agent.send_signal(signum)


def _file(data: bytes) -> int:
    """A file without a name that holds this, for processes that this one starts."""
    file = os.memfd_create("weft")
    with os.fdopen(file, "wb", closefd=False) as out:
        out.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    return file
