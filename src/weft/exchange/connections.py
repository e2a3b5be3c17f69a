"""Sockets between all pairs of workers. They find each other through the run's store."""

import ipaddress
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence

import torch.distributed as dist

from weft.errors import ClusterError, ConfigError
from weft.exchange.communicator import SocketTransport
from weft.place import WorkerPlace

_HELLO = struct.Struct("!16sII")  # the run's secret, the number of the call of `connect`, the rank
_HELLO_TIMEOUT = 5.0  # seconds in which whoever connects must say who it is
_CONGESTION_CONTROL = "cubic"  # TCP's congestion control; see _set_congestion_control


class SocketConnections:
    """This worker's listening socket and its connections. All workers connect the same groups in the same order."""

    def __init__(self, place: WorkerPlace, store: dist.Store, timeout: float) -> None:
        self._rank, self._store, self._timeout = place.rank, store, timeout
        if place.rank == 0:
            store.set("weft/secret", secrets.token_hex(16))
        self._secret = bytes.fromhex(store.get("weft/secret").decode())
        bound, advertised = _addresses(place)
        self._listener = socket.create_server((bound, 0), backlog=1024, family=_family(bound))
        _set_congestion_control(self._listener)  # accepted sockets inherit it
        store.set(f"weft/address/{place.rank}", json.dumps([advertised, self._listener.getsockname()[1]]))
        self._created = 0
        self._waiting: dict[
            tuple[int, int], socket.socket
        ] = {}  # connected before this worker called `connect` for them
        self._open: dict[int, socket.socket] = {}  # by file descriptor

    def transport(self, ranks: Sequence[int]) -> SocketTransport:
        """New connections among some workers, this one too."""
        return SocketTransport(self.connect(ranks), self._timeout, ranks, self.disconnect)

    def connect(self, ranks: Sequence[int]) -> list[int]:
        """New connections among some workers, this one too: the sockets by member, -1 for this worker itself."""
        self._created += 1
        found = []
        for rank in ranks:
            if rank == self._rank:
                found.append(-1)
                continue
            one = self._connect_to(rank) if rank < self._rank else self._accept_from(rank)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self._open[one.fileno()] = one
            found.append(one.fileno())
        return found

    def disconnect(self, sockets: Sequence[int]) -> None:
        """End the connections that one `connect` made."""
        for number in sockets:
            if number >= 0:
                self._open.pop(number).close()

    def close(self) -> None:
        """Close all connections, and stop listening."""
        for one in [self._listener, *self._open.values(), *self._waiting.values()]:
            one.close()

    def _connect_to(self, rank: int) -> socket.socket:
        address, port = json.loads(self._store.get(f"weft/address/{rank}"))
        try:
            one = socket.create_connection((address, port), self._timeout)
        except OSError as error:
            raise ClusterError(
                f"worker {self._rank} could not connect to worker {rank} at {address}:{port} ({error}): let the hosts "
                f"reach each other on all ports, or name each host's address in WEFT_ADDRESS"
            ) from error
        _set_congestion_control(one)
        one.sendall(_HELLO.pack(self._secret, self._created, self._rank))
        return one

    def _accept_from(self, rank: int) -> socket.socket:
        end = time.monotonic() + self._timeout
        while (self._created, rank) not in self._waiting:
            left = end - time.monotonic()
            if left <= 0:
                raise ClusterError(f"worker {rank} did not connect to worker {self._rank} within {self._timeout:g} s")
            self._listener.settimeout(min(left, _HELLO_TIMEOUT))
            try:
                one, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._check_hello(one)
        return self._waiting.pop((self._created, rank))

    def _check_hello(self, one: socket.socket) -> None:
        """Keep a connection whose other end knows the run's secret; close any other."""
        one.settimeout(_HELLO_TIMEOUT)
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


def _addresses(place: WorkerPlace) -> tuple[str, str]:
    """Where this worker listens, and the address that the others use: the one that it reaches the first worker from."""
    if advertised := os.environ.get("WEFT_ADDRESS"):
        return advertised, advertised
    master = place.master
    family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # of a datagram socket: only looks up the way
        own = probe.getsockname()[0]
    if place.local_size < place.size and ipaddress.ip_address(own).is_loopback and not _is_loopback(master):
        return "", master  # a host that knows its own name as loopback: the others know it by its real address
    return own, own


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _set_congestion_control(one: socket.socket) -> None:
    """Use a congestion control that goes by losses (CUBIC), whatever this system is set to.

    A connection between workers is idle, shares the link for a while, and is idle again. BBR takes its share for the
    link's rate, and keeps to it when the others are done. WEFT_CONGESTION names another one, or `system`.
    """
    chosen = os.environ.get("WEFT_CONGESTION")
    if chosen == "system":
        return
    try:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (chosen or _CONGESTION_CONTROL).encode())
    except (AttributeError, OSError) as error:  # not Linux, or a Linux without it
        if chosen:
            one.close()
            raise ConfigError(
                f"WEFT_CONGESTION={chosen} is not available ({error}): choose one of those that "
                f"`sysctl net.ipv4.tcp_allowed_congestion_control` lists, or system"
            ) from error


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
