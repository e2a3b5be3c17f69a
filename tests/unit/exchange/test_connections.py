"""Connections between workers: every byte arrives where it belongs, whatever the sizes; lost workers are named."""

import contextlib
import os
import signal
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from weft import _kernels
from weft.errors import ClusterError, ConfigError
from weft.exchange import SocketConnections, SocketTransport
from weft.exchange.encrypted_links import EncryptedLinks, _Peer
from weft.exchange.encryption import Encryption
from weft.place import WorkerPlace

SECRET = b"a secret of these tests"
ENCRYPTION = Encryption.of("secret", SECRET)


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as door:
        one = socket.create_connection(door.getsockname())
        return one, door.accept()[0]


def encrypted_pair():
    one, other = tcp_pair()
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(ENCRYPTION.connect, one)
        accepted = ENCRYPTION.accept(other)
        accepted.do_handshake()
        return connecting.result(), accepted


def links_of(row, timeout):
    if any(isinstance(end, ssl.SSLSocket) for end in row):
        return EncryptedLinks(row, timeout)
    return _kernels.Links([-1 if end is None else end.fileno() for end in row], timeout)


@contextlib.contextmanager
def meshed(size, timeout=10.0, pair=socket.socketpair):
    """Links of so many workers, by pairs of sockets."""
    ends = [[None] * size for _ in range(size)]
    for a in range(size):
        for b in range(a + 1, size):
            ends[a][b], ends[b][a] = pair()
    for row in ends:
        for end in row:
            if end is not None:
                end.setblocking(False)
    try:
        yield ends, [links_of(row, timeout) for row in ends]
    finally:
        for row in ends:
            for end in row:
                if end is not None:
                    end.close()


def together(work, size):
    """work(rank) by a thread for each worker; what they gave, or the first error."""
    results, errors = [None] * size, []

    def run(rank):
        try:
            results[rank] = work(rank)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair, encrypted_pair])
def test_every_byte_arrives(size, known, pair):
    rng = np.random.default_rng(size)
    rounds = [rng.integers(0, [5, 100_000, 3_000_000][step % 3], (size, size)) for step in range(7)]
    rounds[3][:] = 0
    for counts in rounds:
        np.fill_diagonal(counts, 0)
    messages = [[[rng.integers(0, 256, n).astype(np.uint8) for n in row] for row in counts] for counts in rounds]

    with meshed(size, pair=pair) as (_, links):

        def work(rank):
            got = []
            for counts, sent in zip(rounds, messages, strict=True):
                links[rank].begin(np.concatenate(sent[rank]), counts[rank].tolist())
                if known:
                    expected = counts[:, rank]
                    out = np.empty(expected.sum(), np.uint8)
                    assert links[rank].finish_into(out, expected.tolist()) == []
                    got.append(np.split(out, np.cumsum(expected)[:-1]))
                else:
                    lost, parts = links[rank].finish_any()
                    assert lost == []
                    got.append(parts)
            return got

        for rank, got in enumerate(together(work, size)):
            for sent, parts in zip(messages, got, strict=True):
                for peer in range(size):
                    assert np.array_equal(parts[peer], sent[peer][rank] if peer != rank else parts[peer][:0])


def test_only_those_whose_bytes_have_come_are_looked_at(monkeypatch):
    looked, move_in, size = [], _Peer.move_in, 6
    monkeypatch.setattr(_Peer, "move_in", lambda peer: looked.append(peer) or move_in(peer))
    with meshed(size, pair=encrypted_pair) as (_, links):

        def work(rank):
            time.sleep(0.05 * rank)
            links[rank].begin(np.zeros(size - 1, np.uint8), [int(peer != rank) for peer in range(size)])
            return links[rank].finish_any()[0]

        assert together(work, size) == [[]] * size
        assert sum(peer in links[0]._peers.values() for peer in looked) < 3 * size


EITHER = pytest.mark.parametrize("pair", [tcp_pair, encrypted_pair])


@EITHER
def test_a_worker_that_hangs_up_is_named(pair):
    with meshed(3, pair=pair) as (ends, links):
        ends[1][0].close()
        ends[1][2].close()
        for rank in (0, 2):
            links[rank].begin(np.zeros(0, np.uint8), [0, 0, 0])
        assert links[0].finish_any()[0] == [1]


@EITHER
def test_a_worker_that_hangs_up_before_it_has_read_is_named_at_once(pair):
    with meshed(2, pair=pair) as (ends, links):
        links[1].begin(np.ones(4, np.uint8), [4, 0])
        links[0].begin(np.zeros(50 << 20, np.uint8), [0, 50 << 20])
        start, found = time.monotonic(), []
        waiter = threading.Thread(target=lambda: found.append(links[0].finish_into(np.empty(4, np.uint8), [0, 4])))
        waiter.start()
        time.sleep(0.2)  # its message has come; this one's cannot go
        ends[1][0].close()
        waiter.join()
        assert found == [[1]] and time.monotonic() - start < 5


def message(number, data):
    return struct.pack("=QQ", number, len(data)) + data


def test_who_waits_for_much_wakes_seldom():
    data = os.urandom(1 << 20)
    with meshed(2, pair=tcp_pair) as (ends, links):
        mine, theirs = ends[0][1], ends[1][0]
        theirs.setblocking(True)
        for number in (1, 2):
            out = np.empty(len(data), np.uint8)
            links[0].begin(out[:0], [0, 0])
            waiter = threading.Thread(target=links[0].finish_into, args=(out, [0, len(data)]))
            waiter.start()
            sent = message(number, data)
            theirs.sendall(sent[:100_000])
            end = time.monotonic() + 5
            while wakes(mine) == 1 and time.monotonic() < end:
                time.sleep(0.001)
            assert wakes(mine) == 1 << 15
            theirs.sendall(sent[100_000:])
            waiter.join()
            assert out.tobytes() == data and wakes(mine) == 1


def wakes(one):
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@EITHER
def test_few_bytes_at_a_time_are_progress(pair):
    data = os.urandom(20_000)
    with meshed(2, timeout=0.8, pair=pair) as (ends, links):
        out, found = np.empty(len(data), np.uint8), []
        links[0].begin(out[:0], [0, 0])
        waiter = threading.Thread(target=lambda: found.append(links[0].finish_into(out, [0, len(data)])))
        waiter.start()
        sent = message(1, data)
        for first in range(0, len(sent), 2000):
            ends[1][0].sendall(sent[first : first + 2000])
            time.sleep(0.2)
        waiter.join()
        assert found == [[]] and out.tobytes() == data


@EITHER
def test_silence_ends_after_the_timeout(pair):
    with meshed(2, timeout=0.3, pair=pair) as (_, links):
        links[0].begin(np.ones(4, np.uint8), [0, 4])
        start = time.monotonic()
        lost, _ = links[0].finish_any()
        assert lost == [1]
        assert 0.2 < time.monotonic() - start < 5


@EITHER
def test_a_process_that_was_stopped_has_not_waited_meanwhile(pair):
    """As a job whose processes are all stopped for a while, by a container's pause or a virtual machine's."""
    with meshed(2, timeout=2.0, pair=pair) as (_, links):
        child = os.fork()
        if not child:
            links[0].begin(np.ones(4, np.uint8), [0, 4])
            os._exit(len(links[0].finish_any()[0]))
        time.sleep(0.5)
        os.kill(child, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(child, signal.SIGCONT)
        time.sleep(0.2)
        links[1].begin(np.ones(4, np.uint8), [4, 0])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_lost_workers_become_one_sentence():
    with meshed(2, timeout=0.2) as (ends, _):
        links = SocketTransport(_kernels.Links([-1, ends[0][1].fileno()], 0.2), [3, 7])
        wait = links.start_any(np.zeros(0, np.uint8), [0, 0])
        with pytest.raises(
            ClusterError, match=r"worker 7 stopped answering: .* or not all take the same steps \(every `run`"
        ):
            wait()


@EITHER
def test_later_exchanges_tell_of_the_same_loss(pair):
    """What one that was cut short has left unread is not taken for the next one's."""
    with meshed(3, timeout=0.2, pair=pair) as (ends, links):
        ends[2][0].close()  # one is lost while another one is late
        carried = SocketTransport(links[0], [3, 5, 7])
        wait = carried.start_any(np.zeros(0, np.uint8), [0, 0, 0])
        with pytest.raises(ClusterError, match=r"^worker 7 stopped answering"):
            wait()
        links[1].begin(np.ones(8, np.uint8), [8, 0, 0])
        with pytest.raises(ClusterError, match=r"^worker 7 stopped answering"):
            carried.start_any(np.zeros(0, np.uint8), [0, 0, 0])()


@EITHER
def test_workers_at_different_steps_are_found_out(pair):
    with meshed(2, pair=pair) as (_, links):
        links[1].begin(np.ones(8, np.uint8), [8, 0])
        carried = SocketTransport(links[0], [3, 5])
        wait = carried.start(torch.ones(8, dtype=torch.uint8), [0, 8], torch.empty(4, dtype=torch.uint8), [0, 4])
        with pytest.raises(
            ClusterError, match=r"not at the same step of the same program: .* no worker may leave a loop"
        ):
            wait()


@EITHER
def test_misuse_is_refused(pair):
    with meshed(2, pair=pair) as (_, links):
        with pytest.raises(ValueError, match="do not fit"):
            links[0].begin(np.ones(3, np.uint8), [0, 4])
        with pytest.raises(RuntimeError, match="nothing is under way"):
            links[0].finish_any()
        links[0].begin(np.ones(4, np.uint8), [0, 4])
        with pytest.raises(RuntimeError, match="still under way"):
            links[0].begin(np.ones(4, np.uint8), [0, 4])


class Store(dict):
    """A run's store, in one process."""

    def set(self, name, value):
        self[name] = value.encode()

    def get(self, name):
        end = time.monotonic() + 10
        while name not in self and time.monotonic() < end:
            time.sleep(0.005)
        return self[name]


def place(rank):
    return WorkerPlace(rank, 3, "0", 3, "127.0.0.1", 0)


def test_workers_meet():
    store, size = Store(), 3

    def work(rank):
        mesh = SocketConnections(place(rank), store, 10.0, SECRET)
        first, second = mesh.connect([0, 1, 2]), mesh.connect([0, 1, 2])
        for sockets, mark in ((first, 1), (second, 2)):
            links = _kernels.Links(sockets, 10.0)
            links.begin(np.full(size - 1, 10 * rank + mark, np.uint8), [int(p != rank) for p in range(size)])
            _, parts = links.finish_any()
            assert [p.tolist() for p in parts] == [[] if p == rank else [10 * p + mark] for p in range(size)]
        return mesh

    for mesh in together(work, size):
        mesh.close()
    assert b"127.0.0.1" in store["weft/address/0"]


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="congestion control is chosen on Linux only")
@pytest.mark.parametrize("told, found", [(None, "cubic"), ("reno", "reno"), ("system", None)])
def test_connections_find_their_rate_in_the_same_way(monkeypatch, told, found):
    monkeypatch.delenv("WEFT_CONGESTION", raising=False)
    if told:
        monkeypatch.setenv("WEFT_CONGESTION", told)
    usual = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    with socket.socket() as own:
        try:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (found or usual).encode())
        except OSError:
            pytest.skip(f"this machine has no {found}, or lets it only root have")
    store = Store()

    def work(rank):
        mesh = SocketConnections(place(rank), store, 10.0, SECRET)
        mesh.connect([0, 1, 2])
        return mesh

    for mesh in together(work, 3):
        for one in mesh._open.values():
            way = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert way.rstrip(b"\0").decode() == (found or usual)
        mesh.close()


def test_an_unknown_way_to_find_rates_is_named(monkeypatch):
    monkeypatch.setenv("WEFT_CONGESTION", "nonsense")
    with pytest.raises(ConfigError, match=r"WEFT_CONGESTION=nonsense is not available .* choose one of"):
        SocketConnections(place(0), Store(), 1.0, SECRET)


@pytest.mark.parametrize("ports", [None, "29500-29600"])
@pytest.mark.parametrize("given", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_named(monkeypatch, given, ports):
    monkeypatch.setenv("WEFT_ADDRESS", given)
    with pytest.raises(ClusterError, match=f"WEFT_ADDRESS = '{given}' is no address of this machine"):
        SocketConnections(place(0), Store(), 1.0, SECRET, ports)


@pytest.mark.parametrize("given, master", [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("127.0.0.1", "10.0.0.1")])
def test_an_address_that_means_everybody_their_own_host_is_refused(monkeypatch, given, master):
    monkeypatch.setenv("WEFT_ADDRESS", given)
    with pytest.raises(ClusterError, match=f"WEFT_ADDRESS = '{given}' means to each of the others their own host: set"):
        SocketConnections(WorkerPlace(0, 2, "0", 1, master, 1), Store(), 1.0, SECRET)


def test_a_door_that_is_shut_is_named():
    store = Store()
    SocketConnections(place(0), store, 1.0, SECRET).close()
    other = SocketConnections(place(1), store, 1.0, SECRET)
    with pytest.raises(ClusterError, match="worker 1 could not connect to worker 0"):
        other.connect([0, 1])
    other.close()


class Gone:
    """A store whose holder is gone after the start."""

    def set(self, key, value):
        pass

    def get(self, key):
        raise RuntimeError("Connection reset by peer")


class Waiting(Gone):
    """A store to which nobody has said what is asked for."""

    def get(self, key):
        raise dist.DistStoreError("wait timeout")


def test_who_says_no_address_is_named():
    connections = SocketConnections(WorkerPlace(2, 3, "0", 3, "127.0.0.1", 1), Waiting(), 5, b"x" * 32)
    with pytest.raises(ClusterError, match="worker 1 stopped answering before it said where it listens"):
        connections.reach(1, 1)
    connections.close()


def test_a_store_that_is_gone_is_a_lost_worker():
    connections = SocketConnections(WorkerPlace(1, 2, "0", 2, "127.0.0.1", 1), Gone(), 5, b"x" * 32)
    for call in (lambda: connections.connect([0, 1]), lambda: connections.reach(0, 1)):
        with pytest.raises(ClusterError, match="worker 0, who holds the run's store, stopped answering"):
            call()
    connections.close()
