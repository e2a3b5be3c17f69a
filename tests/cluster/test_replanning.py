"""A link slows down tenfold in the middle of a run, or a host loses processors: noticed, planned for, and the same model."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
        reason="needs root, iproute2 and nsenter",
    ),
]

HOSTS, EPOCHS, SLOWED = 4, 12, 5  # it happens once so many epochs are done
TRAIN = ["--hidden", "64", "--fanouts", "10,10", "--batch-size", "128", "--threads", "1", "--dtype", "float64"]
TRAIN += ["--cache", "0"]  # all that is remote would fit into one, and hardly anything travel
TRAIN += ["--epochs", str(EPOCHS), "--evaluate-every", "0", "--log", "json", "--timeout", "60"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replanning")
    graph = communities(folder / "g", vertices=12_000, edges=240_000, width=256, classes=8, train=0.2, block=100)
    write_partitioned(graph, allocate(graph, HOSTS, "metis"), HOSTS, folder / "parts")
    return folder / "parts"


def trained(sandbox, parts, cluster, disturb=lambda: None):
    """A run's records; `disturb` is called when so many epochs are done."""
    command = [sys.executable, "-m", "weft.cli", "train", str(parts), *TRAIN, "--cluster", str(cluster)]
    first = sandbox.start(command, 0, output=subprocess.PIPE)
    others = [sandbox.start(command, host) for host in range(1, HOSTS)]
    records = []
    for line in first.stdout:
        records.append(json.loads(line))
        if records[-1]["record"] == "EpochEnded" and records[-1]["epoch"] + 1 == SLOWED:
            disturb()
    assert [process.wait(60) for process in (first, *others)] == [0] * HOSTS
    return records


def losses(records):
    return [record["loss"] for record in records if record["record"] == "EpochEnded"]


def test_a_slow_link_is_noticed_and_the_run_goes_on_by_another_plan(parts, tmp_path):
    cluster = tmp_path / "cluster.toml"
    with Sandbox(hosts=HOSTS, link="1gbit") as sandbox:
        assert sandbox.run([sys.executable, "-m", "weft.cli", "probe", "--out", str(cluster)], timeout=120) == 0
        usual = trained(sandbox, parts, cluster)
    with Sandbox(hosts=HOSTS, link="1gbit") as sandbox:
        slowed = trained(sandbox, parts, cluster, lambda: sandbox.reshape(1, "100mbit"))
    order = [record["record"] for record in slowed]
    changed = [number for number, r in enumerate(slowed) if r["record"] == "Notice" and "from now on plan" in r["text"]]
    told = [record["text"] for record in slowed if record["record"] == "Notice"]
    assert changed, told
    switch = next(number for number in changed if order[:number].count("EpochEnded") > SLOWED)
    assert order[:switch].count("EpochEnded") <= SLOWED + 2, told
    assert "h2's link" in slowed[switch]["text"], told
    assert losses(slowed) == pytest.approx(losses(usual), rel=1e-10)


def test_a_host_that_loses_processors_is_noticed_and_planned_for(parts, tmp_path):
    cluster = tmp_path / "cluster.toml"
    with Sandbox(hosts=HOSTS, link="1gbit", shares={"h2": 1.0}) as sandbox:
        assert sandbox.run([sys.executable, "-m", "weft.cli", "probe", "--out", str(cluster)], timeout=120) == 0
        usual = trained(sandbox, parts, cluster)
        slowed = trained(sandbox, parts, cluster, lambda: sandbox.share_out(1, 0.2))
    order = [record["record"] for record in slowed]
    told = [
        (order[:number].count("EpochEnded"), r["text"]) for number, r in enumerate(slowed) if r["record"] == "Notice"
    ]
    found = [done for done, text in told if "h2's processors" in text]
    assert found and SLOWED < found[0] <= SLOWED + 3, told
    assert losses(slowed) == pytest.approx(losses(usual), rel=1e-10)
