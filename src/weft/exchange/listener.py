"""Where other workers connect: whoever does must prove that it knows the run's secret, or is dropped.

    the worker that connects                   the one that listens
                                 <-----------  a challenge, made for this connection
    its own challenge, the call and rank,
    and the proof for all of it  ----------->
                                 <-----------  its own proof

A proof is an HMAC of both challenges and of what both must agree on. So the secret never travels, and what somebody has
recorded proves nothing at another connection; nor does what is passed on from another address.
"""

import contextlib
import errno
import hmac
import os
import secrets
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import ClusterError, ConfigError
from weft.exchange.encryption import Encryption, disagreement
from weft.quantities import port_range

STORE_SOCKET = "WEFT_STORE_SOCKET"  # the descriptor of the store's socket, which a launcher keeps for the first worker
_CHALLENGE = 32  # bytes
_CALL = struct.Struct("!III")  # the number of the call of `connect`, the rank of who connects, and of who listens
_HELLO = struct.Struct(f"!{_CHALLENGE}s{_CALL.size}s32s")  # a challenge, the call, and the proof
_PATIENCE = 5.0  # seconds in which whoever connects must prove itself
_MOST_UNPROVEN = 256  # connections that have not yet; beyond, the one that has taken longest is dropped
_MOST_TOLD = 20  # strangers that the log names
_ATTEMPTS = 3  # of a worker that was dropped: many strangers may have come at the same moment
_SHORTEST = 16  # characters of a secret


def given_secret() -> bytes | None:
    """The secret of the run, if a file or the launcher says it."""
    name, secret = "WEFT_SECRET", os.environ.get("WEFT_SECRET", "")
    if file := os.environ.get("WEFT_SECRET_FILE"):
        name = f"WEFT_SECRET_FILE={file}"
        try:
            secret = Path(file).read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{name} can't be read ({error}): give each host a copy of one file") from None
    elif not secret:
        return None
    if len(secret) < _SHORTEST:
        raise ConfigError(
            f"{name} has {len(secret)} characters, at least {_SHORTEST} are needed: `openssl rand -hex 32`"
        )
    return secret.encode()


def new_secret() -> str:
    """A secret for a run that is about to start."""
    return secrets.token_hex(32)


@dataclass
class _Unproven:
    """A connection whose other end has not yet proved that it is a worker."""

    socket: socket.socket
    host: str
    greeted: bool = False  # has it been sent the challenge?
    challenge: bytes = field(default_factory=lambda: secrets.token_bytes(_CHALLENGE))
    until: float = field(default_factory=lambda: time.monotonic() + _PATIENCE)
    said: bytes = b""


class PeerListener:
    """A listening socket, and a thread that lets workers in. `address`: what the others were told, as they were told it."""

    def __init__(
        self,
        rank: int,
        secret: bytes,
        listening: socket.socket,
        address: bytes,
        encryption: Encryption | None = None,
    ) -> None:
        self._rank, self._secret, self._socket, self._address = rank, secret, listening, address
        self._encryption = encryption
        self._arrived = threading.Condition()
        self._workers: dict[tuple[int, int], socket.socket] = {}  # by number of the call and rank, until they are taken
        self._unproven: dict[socket.socket, _Unproven] = {}  # the oldest first
        self._told: set[tuple[str, str]] = set()
        self._closed = False
        listening.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._listen, daemon=True, name="weft-listener")
        self._thread.start()

    def take(self, call: int, rank: int, timeout: float) -> socket.socket | None:
        """The connection of a worker, once it has come; None: it did not."""
        with self._arrived:
            self._arrived.wait_for(lambda: (call, rank) in self._workers, timeout)
            return self._workers.pop((call, rank), None)

    def close(self) -> None:
        """Listen no more, and close what was not taken."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._selector.close()
        for one in [self._socket, *self._unproven, *self._workers.values()]:
            one.close()

    def _listen(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(_PATIENCE / 10 if self._unproven else None):
                if key.fileobj is self._socket:
                    self._accept()
                elif key.data.socket in self._unproven:
                    self._hear(key.data)
            for late in [one for one in self._unproven.values() if one.until < time.monotonic()]:
                self._drop(late, f"it said nothing for {_PATIENCE:g} s" if not late.said else "it did not say all")

    def _accept(self) -> None:
        try:
            one, (host, *_) = self._socket.accept()
            host = host.removeprefix("::ffff:")  # of a socket that listens to both kinds of addresses
        except OSError:  # it has gone again, or this process has no file descriptor left: the others may soon be done
            time.sleep(0.01)
            return
        if len(self._unproven) >= _MOST_UNPROVEN:
            self._drop(next(iter(self._unproven.values())), "others came")
        one.setblocking(False)
        if self._encryption is not None:
            try:
                one = self._encryption.accept(one)
            except OSError:  # it has gone again
                return
        stranger = self._unproven[one] = _Unproven(one, host)
        self._selector.register(one, selectors.EVENT_READ, stranger)
        if not isinstance(one, ssl.SSLSocket):
            self._greet(stranger)

    def _greet(self, stranger: _Unproven) -> None:
        stranger.greeted = True
        with contextlib.suppress(OSError):  # seen when it is read from
            stranger.socket.send(stranger.challenge)

    def _hear(self, stranger: _Unproven) -> None:
        one = stranger.socket
        try:
            if isinstance(one, ssl.SSLSocket) and not stranger.greeted:
                one.do_handshake()
                self._greet(stranger)
                return
            said = one.recv(_HELLO.size - len(stranger.said))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except ssl.SSLEOFError:
            said = b""
        except ssl.SSLError as error:
            self._drop(stranger, f"no encryption was agreed on: {disagreement(error)}")
            return
        except OSError:
            said = b""
        stranger.said += said
        if not said:
            self._drop(stranger, "it hung up")
        elif len(stranger.said) == _HELLO.size:
            self._judge(stranger)

    def _judge(self, stranger: _Unproven) -> None:
        """Let in who knows the secret."""
        challenge, call, proof = _HELLO.unpack(stranger.said)
        said = stranger.challenge + challenge + call + self._address
        number, rank, of = _CALL.unpack(call)
        if of != self._rank or not hmac.compare_digest(proof, _proof(self._secret, b"connects", said)):
            self._drop(stranger, "it does not know the secret of this run")
            return
        self._forget(stranger)
        with contextlib.suppress(OSError):  # seen by who takes it
            stranger.socket.send(_proof(self._secret, b"listens", said))
        with self._arrived:
            before = self._workers.pop((number, rank), None)
            if before is not None:
                before.close()
            self._workers[number, rank] = stranger.socket
            self._arrived.notify_all()

    def _drop(self, stranger: _Unproven, reason: str) -> None:
        self._forget(stranger)
        stranger.socket.close()
        if (stranger.host, reason) not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add((stranger.host, reason))
            text = f"weft: worker {self._rank} turned away a connection from {stranger.host}: {reason}\n"
            with contextlib.suppress(OSError, ValueError, AttributeError):  # a log that can't be written, or is none
                sys.stderr.write(text)
                sys.stderr.flush()

    def _forget(self, stranger: _Unproven) -> None:
        del self._unproven[stranger.socket]
        self._selector.unregister(stranger.socket)


def connect(
    rank: int,
    to: int,
    call: int,
    secret: bytes,
    address: bytes,
    place: tuple[str, int],
    timeout: float,
    encryption: Encryption | None = None,
) -> socket.socket:
    """A connection of one worker to another, each sure of the other. `address`: its place as it was told."""
    (host, port), end, refused = place, time.monotonic() + timeout, ""
    for _ in range(_ATTEMPTS):
        try:
            one = socket.create_connection(place, timeout)
        except OSError as error:
            remedy = (
                "raise the limit of open files (ulimit -n), or make fewer loaders: each keeps connections of its own"
                if error.errno in (errno.EMFILE, errno.ENFILE)
                else "let the hosts reach each other on all ports (or on those of --ports), or name each host's address in "
                "WEFT_ADDRESS"
            )
            raise ClusterError(
                f"worker {rank} could not connect to worker {to} at {host}:{port} ({error}): {remedy}"
            ) from error
        try:
            one.settimeout(max(0.1, end - time.monotonic()))
            if encryption is not None:
                one = encryption.connect(one)
            challenge, called = secrets.token_bytes(_CHALLENGE), _CALL.pack(call, rank, to)
            said = _received(one, _CHALLENGE) + challenge + called + address
            one.sendall(_HELLO.pack(challenge, called, _proof(secret, b"connects", said)))
            if hmac.compare_digest(_received(one, 32), _proof(secret, b"listens", said)):
                return one
        except OSError as error:  # it was dropped, or what listens there is silent
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                refused = disagreement(error)
        one.close()
    if refused:
        raise ClusterError(
            f"worker {rank} and what listens at {host}:{port}, where worker {to} should be, could not agree on encryption "
            f"({refused}): give all workers the same tls, with certificates that are valid and that all of them trust"
        )
    raise ClusterError(
        f"worker {rank} and what listens at {host}:{port}, where worker {to} should be, could not prove to each other that "
        f"they are of one run: start all workers anew, with the same WEFT_SECRET or WEFT_SECRET_FILE if you set one"
    )


def _received(one: socket.socket, size: int) -> bytes:
    said = b""
    while len(said) < size:
        more = one.recv(size - len(said))
        if not more:
            raise ConnectionError("hung up")
        said += more
    return said


def _proof(secret: bytes, role: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, role + b" " + said, "sha256")


def listening_at(host: str, ports: str | None = None) -> socket.socket:
    """A socket that listens at an address of this machine (empty: at all): at the first of some free ports, or at any."""
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    for port in [0] if ports is None else port_range(ports):
        try:
            return socket.create_server((host, port), backlog=1024, family=family, dualstack_ipv6=both)
        except OSError as error:
            reason = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):  # it is the address then
                raise
    if ports is None:
        raise reason
    raise ConfigError(
        f"no port of {ports} is free at {host or 'this machine'} ({reason.strerror}): name others "
        f"with --ports, one for each worker of this machine and one more"
    )
