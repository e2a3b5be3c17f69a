"""Sockets between all pairs of workers. They find each other through the run's store."""

import ipaddress
import json
import os
import socket
from collections.abc import Sequence
from functools import partial

import torch.distributed as dist

from weft import _kernels
from weft.errors import ClusterError, ConfigError
from weft.exchange.communicator import SocketLinks, SocketTransport, named_loss
from weft.exchange.encrypted_links import EncryptedLinks
from weft.exchange.encryption import Encryption
from weft.exchange.listener import PeerListener, connect, listening_at
from weft.place import WorkerPlace, is_loopback

_CONGESTION_CONTROL = "cubic"  # TCP's congestion control; see _set_congestion_control
_MTU, _MTU6 = 14, 24  # Linux's names for the largest packet of a connection's way (IP_MTU, IPV6_MTU)
_TRIED = 0  # the number of a call that only tries; those of `connect` count from 1


class SocketConnections:
    """This worker's listening socket and its connections. All workers connect the same groups in the same order."""

    def __init__(
        self,
        place: WorkerPlace,
        store: dist.Store,
        timeout: float,
        secret: bytes,
        ports: str | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        """`secret`: of the run. `ports`: one of them is listened at; None: any. `encryption`: None: there is none."""
        self._rank, self._store, self._timeout, self._secret = place.rank, store, timeout, secret
        self._encryption, self.name = encryption, "sockets" if encryption is None else "encrypted sockets"
        given = os.environ.get("WEFT_ADDRESS")
        bound, advertised = (given, given) if given else addresses(place)
        try:
            listening = listening_at(bound, ports)
        except OSError as error:
            if not given:
                raise
            raise ClusterError(
                f"WEFT_ADDRESS = {given!r} is no address of this machine ({error.strerror}): set another, or unset it"
            ) from None
        if given:
            _check_reachable(given, listening, place)
        _set_congestion_control(listening)  # accepted sockets inherit it
        address = json.dumps([advertised, listening.getsockname()[1]])
        self._listener = PeerListener(place.rank, secret, listening, address.encode(), encryption)
        store.set(f"weft/address/{place.rank}", address)
        self._created, self._addresses = 0, dict[int, bytes]()
        self._open: dict[int, socket.socket] = {}  # by file descriptor

    def transport(self, ranks: Sequence[int]) -> SocketTransport:
        """New connections among some workers, this one too."""
        sockets = self.connect(ranks)
        if self._encryption is None:
            links: SocketLinks = _kernels.Links(sockets, self._timeout)
        else:
            links = EncryptedLinks([self._open.get(number) for number in sockets], self._timeout)
        return SocketTransport(links, ranks, partial(self.disconnect, sockets))

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

    def reach(self, rank: int, timeout: float) -> int:
        """Connect to another worker as training may, and hang up: bytes of the largest packet on the way (0: not known)."""
        with self._connected(rank, _TRIED, timeout) as one:
            is_6 = one.family == socket.AF_INET6
            try:
                return one.getsockopt(socket.IPPROTO_IPV6 if is_6 else socket.IPPROTO_IP, _MTU6 if is_6 else _MTU)
            except OSError:  # not Linux
                return 0

    def disconnect(self, sockets: Sequence[int]) -> None:
        """End the connections that one `connect` made."""
        for number in sockets:
            if number >= 0:
                self._open.pop(number).close()

    def close(self) -> None:
        """Close all connections, and stop listening."""
        self._listener.close()
        for one in self._open.values():
            one.close()

    def _connect_to(self, rank: int) -> socket.socket:
        one = self._connected(rank, self._created, self._timeout)
        _set_congestion_control(one)
        return one

    def _connected(self, rank: int, call: int, timeout: float) -> socket.socket:
        if rank not in self._addresses:
            with named_loss("worker 0, who holds the run's store,"):
                try:
                    self._addresses[rank] = self._store.get(f"weft/address/{rank}")
                except dist.DistStoreError as error:  # the store is there, and that worker has not said it
                    raise ClusterError(f"worker {rank} stopped answering before it said where it listens") from error
        address = self._addresses[rank]
        host, port = json.loads(address)
        return connect(self._rank, rank, call, self._secret, address, (host, port), timeout, self._encryption)

    def _accept_from(self, rank: int) -> socket.socket:
        one = self._listener.take(self._created, rank, self._timeout)
        if one is None:
            raise ClusterError(f"worker {rank} did not connect to worker {self._rank} within {self._timeout:g} s")
        return one


def addresses(place: WorkerPlace) -> tuple[str, str]:
    """Where this worker listens, and the address that the others use: the one that it reaches the first worker from."""
    master = place.master
    family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # of a datagram socket: only looks up the way
        own = probe.getsockname()[0]
    if place.local_size < place.size and ipaddress.ip_address(own).is_loopback and not is_loopback(master):
        return "", master  # a host that knows its own name as loopback: the others know it by its real address
    return own, own


def _check_reachable(given: str, listening: socket.socket, place: WorkerPlace) -> None:
    """Refuse an address that means the hosts themselves to those that are told it."""
    found = ipaddress.ip_address(listening.getsockname()[0])
    elsewhere = place.local_size < place.size and not is_loopback(place.master)
    if found.is_unspecified or (found.is_loopback and elsewhere):
        listening.close()
        raise ClusterError(
            f"WEFT_ADDRESS = {given!r} means to each of the others their own host: set the one address at which they reach "
            f"this host, or unset it"
        )


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
