"""A mesh: every worker connected to every other by sockets, met through the run's store."""

import ipaddress
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from weft.errors import ClusterError, ConfigError
from weft.exchange.transport import SocketTransport

_HELLO = struct.Struct("!16sII")  # the run's secret, the mesh's number, the rank
_PATIENCE = 5.0  # seconds that a stranger at the door has for its first words
_PACE = "cubic"  # TCP's way to find its rate; see _pace


class SocketConnections:
    """This worker's door, and its connections. All workers make the same meshes in the same order."""

    def __init__(self, rank: int, master: str, store: Any, timeout: float) -> None:
        self._rank, self._store, self._timeout = rank, store, timeout
        if rank == 0:
            store.set("weft/secret", secrets.token_hex(16))
        self._secret = bytes.fromhex(store.get("weft/secret").decode())
        bound, told = _addresses(master)
        self._door = socket.create_server((bound, 0), backlog=1024, family=_family(bound))
        _pace(self._door)  # who is let in gets it from the door
        store.set(f"weft/door/{rank}", json.dumps([told, self._door.getsockname()[1]]))
        self._made = 0
        self._waiting: dict[tuple[int, int], socket.socket] = {}  # came before they were asked for
        self._open: dict[int, socket.socket] = {}  # by file descriptor

    def transport(self, ranks: Sequence[int]) -> SocketTransport:
        """New connections among some workers, this one too."""
        return SocketTransport(self.connect(ranks), self._timeout, ranks, self.hang_up)

    def connect(self, ranks: Sequence[int]) -> list[int]:
        """New connections among some workers, this one too: the sockets by member, -1 for this worker itself."""
        self._made += 1
        found = []
        for rank in ranks:
            if rank == self._rank:
                found.append(-1)
                continue
            one = self._call(rank) if rank < self._rank else self._receive(rank)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self._open[one.fileno()] = one
            found.append(one.fileno())
        return found

    def hang_up(self, sockets: Sequence[int]) -> None:
        """End the connections that one `connect` made."""
        for number in sockets:
            if number >= 0:
                self._open.pop(number).close()

    def close(self) -> None:
        """Hang up on everyone, and close the door."""
        for one in [self._door, *self._open.values(), *self._waiting.values()]:
            one.close()

    def _call(self, rank: int) -> socket.socket:
        address, port = json.loads(self._store.get(f"weft/door/{rank}"))
        try:
            one = socket.create_connection((address, port), self._timeout)
        except OSError as error:
            raise ClusterError(
                f"worker {self._rank} could not connect to worker {rank} at {address}:{port} ({error}): let the hosts "
                f"reach each other on all ports, or name each host's address in WEFT_ADDRESS"
            ) from error
        _pace(one)
        one.sendall(_HELLO.pack(self._secret, self._made, self._rank))
        return one

    def _receive(self, rank: int) -> socket.socket:
        end = time.monotonic() + self._timeout
        while (self._made, rank) not in self._waiting:
            left = end - time.monotonic()
            if left <= 0:
                raise ClusterError(f"worker {rank} did not connect to worker {self._rank} within {self._timeout:g} s")
            self._door.settimeout(min(left, _PATIENCE))
            try:
                one, _ = self._door.accept()
            except TimeoutError:
                continue
            self._admit(one)
        return self._waiting.pop((self._made, rank))

    def _admit(self, one: socket.socket) -> None:
        """Who knows the run's secret comes in."""
        one.settimeout(_PATIENCE)
        try:
            said = one.recv(_HELLO.size, socket.MSG_WAITALL)
        except OSError:
            said = b""
        if len(said) == _HELLO.size:
            secret, number, rank = _HELLO.unpack(said)
            if secrets.compare_digest(secret, self._secret):
                self._waiting[number, rank] = one
                return
        one.close()


def _addresses(master: str) -> tuple[str, str]:
    """Where this worker listens, and what it tells the others: the address that it reaches the first worker from."""
    if told := os.environ.get("WEFT_ADDRESS"):
        return told, told
    family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # of a datagram socket: only looks up the way
        own = probe.getsockname()[0]
    several = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])) < int(os.environ["WORLD_SIZE"])
    if several and ipaddress.ip_address(own).is_loopback and not _is_loopback(master):
        return "", master  # a host that knows its own name as loopback: the others know it by its real address
    return own, own


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _pace(one: socket.socket) -> None:
    """Have a connection find its rate by losses, as most systems do, whatever this one is set to.

    Between workers a connection rests, has a part of the link for a while, and rests again. BBR takes that part for the
    link's rate, and keeps to it when the others are done. WEFT_CONGESTION names another way, or `system`.
    """
    told = os.environ.get("WEFT_CONGESTION")
    if told == "system":
        return
    try:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (told or _PACE).encode())
    except (AttributeError, OSError) as error:  # not Linux, or a Linux without it
        if told:
            one.close()
            raise ConfigError(
                f"WEFT_CONGESTION={told} can't be had ({error}): choose one of those that "
                f"`sysctl net.ipv4.tcp_allowed_congestion_control` lists, or system"
            ) from error


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
