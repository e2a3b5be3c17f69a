"""`weft doctor` as several workers: all are looked at, links are measured, and the plan's memory is held against theirs."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from launcher import brief_probe, ran

from weft.cluster.checks import _opened
from weft.graph import Graph, communities
from weft.lab import Sandbox


def opened_slowly(world, folder, seconds):
    usual = Graph.open_lists
    Graph.open_lists = lambda graph: (time.sleep(seconds * world.rank), usual(graph))[1]
    graph, wrong = _opened(world, folder)
    world.compare({"sum": graph.checksum})
    return wrong


def test_a_host_may_take_longer_to_open_the_graph_than_workers_wait(processes, tmp_path):
    communities(tmp_path / "g", vertices=60, edges=400, width=8, classes=3)
    assert processes(2, opened_slowly, tmp_path / "g", 5.0, hosts=[0, 1], timeout=3.0) == ["", ""]


def test_workers_of_one_machine(probed, tmp_path):
    kept = os.environ | {"WEFT_CACHE": probed[2]}
    communities(tmp_path / "g", vertices=600, edges=4000, width=8, classes=3, train=0.5)
    words = ["weft", "doctor", tmp_path / "g", "--workers", 2, "--fanouts", "3,3", "--hidden", 8]
    words += ["--threads", 1, "--json"]
    done = ran(words, kept, prepare=brief_probe)
    assert done.returncode == 0, done.stderr
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert found["connections"]["found"] == "each worker reaches each other"
    assert found["links"]["where"] == "within the host"
    assert found["secret"]["found"] == "given"
    assert found["plan"]["found"].startswith("plan ") and ": needs " in found["plan"]["found"]
    limited = ran([*words, "--memory", "1kB"], kept, prepare=brief_probe)
    assert limited.returncode == 1
    (plan,) = [one for one in json.loads(limited.stdout) if one["what"] == "plan"]
    assert plan["verdict"] == "bad" and "lacking" in plan["found"]


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
    reason="needs root, iproute2 and nsenter",
)
def test_hosts_of_a_sandbox(tmp_path):
    """Few files may be open, and a link is slow."""
    command = [sys.executable, "-m", "weft.cli", "doctor", "--json", "--timeout", "20"]
    few = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh"]
    with Sandbox(hosts=2, links={"h1": "500mbit", "h2": "500mbit"}) as box:
        box.reshape(1, "50mbit")
        with open(tmp_path / "out", "w") as out:
            workers = [box.start([*few, *command], host, output=out, errors=subprocess.PIPE) for host in range(2)]
            errors = [worker.communicate(timeout=60)[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [1, 1], errors
    found = {(one["what"], one["where"]): one for one in json.loads((tmp_path / "out").read_text())}
    assert found["open files", "all hosts"]["verdict"] == "bad"
    assert found["packets (MTU)", "between hosts"]["found"] == "1,500 bytes"
    assert "mbit a second" in found["links", "host 1"]["found"]
