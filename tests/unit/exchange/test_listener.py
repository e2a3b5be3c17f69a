"""Workers know each other by the run's secret; whoever else connects is dropped, named once, and disturbs nobody."""

import contextlib
import errno
import io
import os
import socket
import sys
import threading
import time

import pytest

from weft.errors import ClusterError, ConfigError
from weft.exchange import listener
from weft.exchange.listener import PeerListener, connect, given_secret, listening_at

SECRET, ADDRESS = b"a secret of these tests", b"where worker 0 is"


@contextlib.contextmanager
def listening(host="127.0.0.1"):
    """A worker 0 that listens, and where."""
    door = listening_at(host)
    one = PeerListener(0, SECRET, door, ADDRESS)
    try:
        yield one, door.getsockname()
    finally:
        one.close()


def arrive(place, call=1, rank=1, secret=SECRET, address=ADDRESS, timeout=5.0):
    return connect(rank, 0, call, secret, address, place, timeout)


def is_dropped(one):
    one.settimeout(5)
    try:
        while one.recv(1 << 10):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_listens_at_all_addresses_is_found_by_both_kinds(capfd, host):
    with listening("") as (one, (_, port, *_)):
        with arrive((host, port)) as theirs, one.take(1, 1, 5.0) as mine:
            theirs.sendall(b"rows")
            mine.settimeout(5)
            assert mine.recv(4) == b"rows"
        with socket.create_connection((host, port)) as stranger:
            stranger.sendall(bytes(4000))
            assert is_dropped(stranger)
    assert f"from {host}: " in capfd.readouterr().err


def test_workers_with_the_secret_find_each_other():
    with listening() as (one, place), arrive(place) as theirs, one.take(1, 1, 5.0) as mine:
        theirs.sendall(b"rows")
        mine.settimeout(5)
        assert mine.recv(4) == b"rows"
        assert one.take(1, 2, 0.01) is None


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(listener._HELLO.size), os.urandom(4000)])
def test_garbage_is_turned_away_and_named_once(capfd, said):
    with listening() as (one, place):
        for _ in range(3):
            with socket.create_connection(place) as stranger:
                stranger.sendall(said)
                assert is_dropped(stranger)
        with arrive(place), one.take(1, 1, 5.0):
            pass
    told = "weft: worker 0 turned away a connection from 127.0.0.1: it does not know the secret of this run\n"
    assert capfd.readouterr().err == told


class Full(io.StringIO):
    def write(self, text):
        raise OSError("No space left on device")


@pytest.mark.parametrize("log", [Full(), io.StringIO(), None])
def test_where_the_log_cant_be_written_workers_are_let_in_all_the_same(monkeypatch, log):
    monkeypatch.setattr(sys, "stderr", log)
    if type(log) is io.StringIO:
        log.close()
    with listening() as (one, place):
        with socket.create_connection(place) as stranger:
            stranger.sendall(bytes(listener._HELLO.size))
            assert is_dropped(stranger)
        with arrive(place), one.take(1, 1, 5.0):
            pass


def test_another_secret_is_refused_in_a_sentence(capfd):
    with listening() as (one, place):
        with pytest.raises(ClusterError, match=r"could not prove to each other .* WEFT_SECRET"):
            arrive(place, secret=b"another secret of some run")
        assert one.take(1, 1, 0.01) is None
    assert "does not know the secret" in capfd.readouterr().err


def test_a_worker_finds_out_that_a_stranger_listens():
    """One that took another's address passes on what is said; it is not the address that the proof is for."""
    with listening() as (one, place):
        with pytest.raises(ClusterError, match="worker 1 and what listens at"):
            arrive(place, address=b"where a stranger is")
        assert one.take(1, 1, 0.01) is None
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ClusterError, match="could not prove"):
        arrive(silent.getsockname(), timeout=0.2)


def test_too_many_open_files_are_told_with_their_remedy(monkeypatch):
    def full(*given):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "create_connection", full)
    with pytest.raises(ClusterError, match=r"Too many open files\): raise the limit of open files \(ulimit -n\)"):
        arrive(("127.0.0.1", 9))


def test_what_was_recorded_proves_nothing():
    recorded = []

    def pass_on(door, place):
        with door.accept()[0] as theirs, socket.create_connection(place) as ours:
            theirs.sendall(ours.recv(100))
            recorded.append(theirs.recv(1000))
            ours.sendall(recorded[0])
            theirs.sendall(ours.recv(100))

    with listening() as (one, place):
        with socket.create_server(("127.0.0.1", 0)) as door:
            between = threading.Thread(target=pass_on, args=(door, place))
            between.start()
            arrive(door.getsockname()).close()
            between.join()
        one.take(1, 1, 5.0).close()  # who is between the two may pass on all
        with socket.create_connection(place) as stranger:
            stranger.sendall(recorded[0])
            assert is_dropped(stranger)
        assert one.take(1, 1, 0.01) is None


def test_many_silent_strangers_hold_up_nobody(monkeypatch, capfd):
    monkeypatch.setattr(listener, "_PATIENCE", 0.3)
    monkeypatch.setattr(listener, "_MOST_UNPROVEN", 50)
    with listening() as (one, place), contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(socket.create_connection(place)) for _ in range(200)]
        strangers[-1].sendall(b"half")
        start = time.monotonic()
        for rank in (1, 2, 3):
            arrive(place, rank=rank).close()
        for rank in (3, 2, 1):
            one.take(1, rank, 5.0).close()
        assert time.monotonic() - start < 2
        assert all(map(is_dropped, strangers))
        assert not one._unproven
    told = capfd.readouterr().err.splitlines()
    assert sorted(line.rpartition(": ")[2] for line in told) == [
        "it did not say all",
        "it said nothing for 0.3 s",
        "others came",
    ]


def test_one_that_hangs_up_is_dropped(capfd):
    with listening() as (one, place):
        socket.create_connection(place).close()
        arrive(place).close()
        one.take(1, 1, 5.0).close()
    assert capfd.readouterr().err.endswith("127.0.0.1: it hung up\n")


def test_the_secret_is_of_a_file_or_of_the_launcher(monkeypatch, tmp_path):
    monkeypatch.delenv("WEFT_SECRET", raising=False)
    monkeypatch.delenv("WEFT_SECRET_FILE", raising=False)
    assert given_secret() is None
    monkeypatch.setenv("WEFT_SECRET", "of the launcher, long enough")
    assert given_secret() == b"of the launcher, long enough"
    file = tmp_path / "secret"
    file.write_text("of a file, long enough\n")
    monkeypatch.setenv("WEFT_SECRET_FILE", str(file))
    assert given_secret() == b"of a file, long enough"
    file.write_text("short")
    with pytest.raises(ConfigError, match=r"secret has 5 characters, at least 16 are needed: `openssl rand"):
        given_secret()
    file.unlink()
    with pytest.raises(ConfigError, match=r"WEFT_SECRET_FILE=.* can't be read .* give each host a copy"):
        given_secret()


def test_ports_are_of_the_range():
    with listening_at("127.0.0.1") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"no port of {port}-{port} is free at 127.0.0.1 .* with --ports"):
            listening_at("127.0.0.1", f"{port}-{port}")
        with listening_at("127.0.0.1", f"{port}-{port + 20}") as free:
            assert port < free.getsockname()[1] < port + 20
