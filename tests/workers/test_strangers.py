"""Whole runs among strangers: they disturb nothing, and workers that differ never train together."""

import contextlib
import os
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from launcher import command, free_port

from weft.exchange.encryption import certificate_of
from weft.graph import communities

RUN = ["--hidden", 8, "--fanouts", "4,4", "--epochs", 2, "--dtype", "float64", "--plan", "split", "--batch-size", 50]
RUN += ["--threads", 1]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "graph"
    communities(folder, vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    return folder


def knock(ports, ended):
    """Strangers at all of some ports, until the run has ended: silent ones, and ones that send garbage."""
    silent = []
    while not ended.is_set():
        for port in ports:
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), 0.2)
                if random.random() < 0.5:
                    one.sendall(os.urandom(random.choice([3, 100, 5000])))
                silent.append(one)
        for one in silent[:-100]:
            one.close()
        del silent[:-100]
        ended.wait(0.005)
    for one in silent:
        one.close()


def test_strangers_do_not_disturb_a_run(weft, graph, tmp_path):
    first = free_port()
    ports = range(first, first + 8)
    alone = weft("train", graph, *RUN, "--workers", 3, "--out", tmp_path / "alone", check=True)
    ended = threading.Event()
    with ThreadPoolExecutor() as pool:
        pool.submit(knock, ports, ended)
        try:
            range_given = ["--ports", f"{ports[0]}-{ports[-1]}"]
            run = weft("train", graph, *RUN, "--workers", 3, *range_given, "--out", tmp_path / "knocked", check=True)
        finally:
            ended.set()
    one, other = ((tmp_path / name / "state.safetensors").read_bytes() for name in ("alone", "knocked"))
    assert one == other and not alone.stderr
    told = [line for line in run.stderr.splitlines() if line.startswith("weft: ")]  # torch's store has its own words
    assert 1 <= len(told) < 20
    assert all("turned away a connection from 127.0.0.1: " in line for line in told)


def by_hand(graph, *different, each=lambda rank: []):
    """Two workers that were started by hand, the second with other words or variables; what they said."""
    port = str(free_port())

    def worker(rank):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = [word for word in different if rank and not isinstance(word, dict)]
        more = next((word for word in different if isinstance(word, dict)), {})
        place |= {name: values[rank] for name, values in more.items()}
        return command("train", graph, *RUN, *words, *each(rank), "--timeout", 8, **place)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(worker, range(2)))


def test_workers_with_other_settings_never_train_together(graph):
    for run in by_hand(graph, "--plan", "auto", "--seed", 3):
        assert run.returncode == 2 and "Traceback" not in run.stderr
        assert "worker 1 and worker 0 do not fit together" in run.stderr
        assert "seed = 3 (worker 0: 0)" in run.stderr and "plan = auto (worker 0: split)" in run.stderr


def test_workers_with_other_secrets_never_train_together(graph):
    secrets = {"WEFT_SECRET": ["the secret of one run", "the secret of another run"]}
    first, second = by_hand(graph, secrets)
    assert first.returncode == second.returncode == 2
    assert (
        "are of another run, with another secret than worker 1's: start all with the same WEFT_SECRET" in second.stderr
    )
    assert "(worker 1 did not come, but one that has another secret did): start all 2" in first.stderr


@pytest.mark.parametrize("plan", [["--plan", "split"], ["--plan", "halo", "--full-graph", "--layers", 2]])
def test_encryption_changes_no_bit(weft, graph, tmp_path, plan):
    run = ["train", graph, "--hidden", 8, "--epochs", 2, "--dtype", "float64", "--threads", 1, "--workers", 3, *plan]
    file = tmp_path / "run.pem"
    file.write_bytes(certificate_of(b"a secret of these tests"))
    models = []
    for name, given in {"open": [], "secret": ["--tls", "secret"], "file": ["--tls", file]}.items():
        done = weft(*run, *given, "--out", tmp_path / name, check=True)
        assert not done.stderr
        models.append((tmp_path / name / "state.safetensors").read_bytes())
    assert models[0] == models[1] == models[2]


def test_workers_that_encrypt_otherwise_never_train_together(graph, tmp_path):
    secrets = {"WEFT_SECRET": ["the secret of one run"] * 2}
    for run in by_hand(graph, "--tls", "secret", secrets):
        assert run.returncode == 2 and "Traceback" not in run.stderr
        assert "worker 1 and worker 0 do not fit together" in run.stderr
        assert "tls = secret (worker 0: None)" in run.stderr
    files = {}
    for rank in range(2):
        files[rank] = tmp_path / str(rank)
        files[rank].write_bytes(certificate_of(f"a secret of rank {rank}".encode()))
    first, second = by_hand(graph, secrets, each=lambda rank: ["--tls", files[rank]])
    assert first.returncode == second.returncode == 2
    assert "could not agree on encryption (" in second.stderr and "give all workers the same tls" in second.stderr
    assert "worker 0 turned away a connection from 127.0.0.1: no encryption was agreed on" in first.stderr


def test_no_port_of_the_range_is_free(weft, graph):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = weft("train", graph, *RUN, "--workers", 2, "--ports", f"{port}-{port}")
    assert run.returncode == 2 and f"no port of {port}-{port} is free at 127.0.0.1" in run.stderr
    run = weft("train", graph, *RUN, "--workers", 2, "--ports", "29600-29500")
    assert run.returncode == 2 and "ports = '29600-29500' is no range of ports: give one such as" in run.stderr
