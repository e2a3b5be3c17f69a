"""Encrypted connections to the other workers of a group: what kernels/links.cpp does, on sockets that Python encrypts."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

_HEADER = struct.Struct("=QQ")  # the number of the exchange, the bytes of the message
_RECORD = 1 << 14  # bytes that are encrypted in one piece
_POLL = 0.5  # seconds, at most, that one look at the sockets waits
_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NOTHING = memoryview(b"")


class EncryptedLinks:
    """Each worker sends all others some bytes and gets some, in one call.

    A wait without progress ends after `timeout` seconds in which this process ran, as kernels/links.cpp's does.
    """

    def __init__(self, sockets: Sequence[socket.socket | None], timeout: float) -> None:
        """`sockets`: one a worker, non-blocking, None for this worker itself."""
        self._peers = {member: _Peer(one) for member, one in enumerate(sockets) if one is not None}
        self._members = {peer.socket.fileno(): member for member, peer in self._peers.items()}
        self._size, self._timeout, self._number, self._open = len(sockets), timeout, 0, False

    def begin(self, data: np.ndarray, counts: list[int]) -> None:
        """Start to send: counts[0] bytes to the first worker, the next counts[1] to the second, ...; `data` must stay."""
        if self._open:
            raise RuntimeError("links: an exchange is still under way")
        pieces = self._pieces(data, counts)
        self._open, self._number = True, self._number + 1
        for member, piece in pieces:
            self._peers[member].put(self._number, piece)
            self._peers[member].move_out()

    def finish_into(self, out: np.ndarray, expected: list[int]) -> list[int]:
        """Wait until all is sent and expected[p] bytes have come of each worker; the workers that are lost."""
        for member, piece in self._pieces(out, expected):
            self._peers[member].expect(self._number, piece)
        return self._finish()

    def finish_any(self) -> tuple[list[int], list[np.ndarray]]:
        """The same for messages of unknown length: the workers that are lost, and each one's message."""
        for peer in self._peers.values():
            peer.expect(self._number, None)
        lost, nothing = self._finish(), np.empty(0, np.uint8)
        return lost, [self._peers[m].body if m in self._peers and not lost else nothing for m in range(self._size)]

    def _pieces(self, data: np.ndarray, counts: Sequence[int]) -> list[tuple[int, np.ndarray]]:
        if len(counts) != self._size or sum(counts) != len(data):
            raise ValueError("links: the counts do not fit the bytes")
        pieces = np.split(data, np.cumsum(counts)[:-1])
        return [(member, pieces[member]) for member in self._peers]

    def _finish(self) -> list[int]:
        if not self._open:
            raise RuntimeError("links: nothing is under way")
        self._open, poll = False, select.poll()
        silent, most, looked = 0.0, 0.0, time.monotonic()  # seconds without progress; of the last look, at most
        waiting, ready = set[int](), self._peers  # at first all: for some nothing is to be waited
        while True:
            moved = [peer.move_out() | peer.move_in() for peer in ready.values()]
            lost = [member for member, peer in ready.items() if peer.lost]
            for member, peer in ready.items():
                if peer.waits_for:
                    poll.register(peer.socket, peer.waits_for)
                    waiting.add(member)
                elif member in waiting:
                    poll.unregister(peer.socket)
                    waiting.remove(member)
            if lost or not waiting:
                return lost
            now = time.monotonic()
            silent = 0.0 if any(moved) else silent + min(most, now - looked)
            if silent >= self._timeout:
                return sorted(waiting)
            looked, most = now, min(_POLL, self._timeout - silent)
            named = (self._members[number] for number, _ in poll.poll(1000 * most))
            ready = {member: self._peers[member] for member in named}


class _Flow:
    """One direction of a connection: pieces of memory, one after the other."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces, self.left = pieces, next(pieces, _NOTHING)

    def moved(self, count: int) -> None:
        """So many bytes of what is left have gone, or come."""
        self.left = self.left[count:] or next(self._pieces, _NOTHING)


class _Peer:
    """A connection to one worker."""

    def __init__(self, one: socket.socket) -> None:
        self.socket, self.lost, self.body = one, False, np.empty(0, np.uint8)
        self._out = self._in = _Flow(iter(()))

    def put(self, number: int, data: np.ndarray) -> None:
        """Have a message sent; the header goes with its first bytes, in one piece."""
        start, rest = np.split(data, [_RECORD - _HEADER.size])
        first = _HEADER.pack(number, len(data)) + start.tobytes()
        self._out = _Flow(iter([memoryview(first), *([rest.data] if len(rest) else [])]))

    def expect(self, number: int, into: np.ndarray | None) -> None:
        """Have a message received; None: memory for it is made once its length has come."""
        self._in = _Flow(self._message(number, into))

    def _message(self, number: int, into: np.ndarray | None) -> Iterator[memoryview]:
        head = bytearray(_HEADER.size)
        yield memoryview(head)
        theirs, count = _HEADER.unpack(head)
        if theirs != number or (into is not None and count != len(into)):
            raise ValueError("the workers are not at the same step of the same program")
        self.body = np.empty(count, np.uint8) if into is None else into
        if count:
            yield self.body.data

    @property
    def waits_for(self) -> int:
        """What is to be waited for: that bytes come, or that some can go; 0: nothing."""
        return (select.POLLIN if self._in.left else 0) | (select.POLLOUT if self._out.left else 0)

    def move_out(self) -> bool:
        """Send what goes at once. Was it anything?"""
        return self._move(self._out, self.socket.send)

    def move_in(self) -> bool:
        """Receive what has come. Was it anything?"""
        return self._move(self._in, self.socket.recv_into)

    def _move(self, flow: _Flow, call: Callable[[memoryview], int]) -> bool:
        before = flow.left
        try:
            while flow.left and not self.lost:
                count = call(flow.left)  # of the same bytes as before, where TLS has some of them half sent
                self.lost = not count
                flow.moved(count)
        except _NOT_NOW:
            pass
        except OSError:
            self.lost = True
        return flow.left is not before
