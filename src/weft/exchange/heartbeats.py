"""Signs of life in the run's store, by which workers find out which of them is missing when one stops answering."""

import json
import threading
import time

from weft.exchange.store import Store

_HEARTBEAT = 1.0  # seconds between heartbeats
_LINGER = 10.0  # seconds that the first worker waits for the others to find out who is missing
_ALIVE, _MISSING, _INFORMED = "weft/alive", "weft/missing", "weft/informed"


class Heartbeats:
    """A thread that shows in the store that this worker lives, until `stop`."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True, name="weft-alive")
        store.set(f"{_ALIVE}/{rank}", "0")  # reading a key that is not set would wait for it
        self._thread.start()

    def stop(self) -> None:
        """End the thread: one that uses the store when Python ends would crash the process."""
        self._ended.set()
        self._thread.join(_HEARTBEAT)

    def missing(self) -> list[int]:
        """The workers whose heartbeats have stopped; the first one, who holds the store, if it is out of reach."""
        found: list[list[int]] = []
        # In a thread, as a read over a link that was cut never returns.
        search = threading.Thread(target=lambda: found.append(self._find_missing()), daemon=True)
        search.start()
        search.join(_LINGER + 5 * _HEARTBEAT)
        return found[0] if found else [0]

    def _find_missing(self) -> list[int]:
        try:
            missing = self._agree_on_missing()
            self._store.set(f"{_INFORMED}/{self._rank}", "1")
            if self._rank == 0:
                self._wait_for_others(missing)
            return missing
        except RuntimeError:
            return [0]

    def _agree_on_missing(self) -> list[int]:
        """Workers whose heartbeat has stopped; the first to find out tells the others through the store."""
        if not self._store.check([_MISSING]):
            before = self._read()
            time.sleep(2.5 * _HEARTBEAT)
            after = self._read()
            dead = [rank for rank in range(self._size) if rank != self._rank and before[rank] == after[rank]]
            if not self._store.check([_MISSING]):
                self._store.set(_MISSING, json.dumps(dead))
        return json.loads(self._store.get(_MISSING))

    def _wait_for_others(self, missing: list[int]) -> None:
        """The first worker holds the store that the others read, so it ends last."""
        others = [f"{_INFORMED}/{rank}" for rank in range(self._size) if rank not in missing]
        end = time.monotonic() + _LINGER
        while time.monotonic() < end and not self._store.check(others):
            time.sleep(0.1)
        time.sleep(0.5)

    def _read(self) -> list[bytes]:
        keys = [f"{_ALIVE}/{rank}" for rank in range(self._size)]
        return [self._store.get(key) if self._store.check([key]) else b"" for key in keys]

    def _send(self) -> None:
        beat = 0
        while not self._ended.wait(_HEARTBEAT):
            beat += 1
            try:
                self._store.set(f"{_ALIVE}/{self._rank}", str(beat))
            except RuntimeError:  # the store is gone, and with it the run
                return
