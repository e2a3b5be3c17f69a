"""The probe on hosts whose links and processors are known: it finds what they were given.

Needs root and iproute2; skipped elsewhere.
"""

import json
import os
import shutil
import sys

import pytest

from weft.cluster.sandbox import Sandbox, bits_a_second

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
    reason="needs root, iproute2 and nsenter",
)
COMMAND = [sys.executable, "-m", "weft.cli", "probe", "--json", "--timeout", "20"]


def probed(tmp_path, **options):
    file = tmp_path / "told.json"
    with Sandbox(**options) as box, open(file, "w") as out:
        assert box.run(COMMAND, output=out, timeout=60) == 0
    return json.loads(file.read_text())


def wrong(figures, rates):
    """How far the bandwidths are from the rates of the hosts' links, at most."""
    found = [host["bandwidth"] * 8 for host in figures["hosts"]]
    return max(abs(bits / bits_a_second(rate) - 1) for bits, rate in zip(found, rates, strict=True))


def test_links_and_processors_are_what_the_hosts_were_given(tmp_path):
    rates = ["1gbit", "1gbit", "100mbit", "1gbit"]
    for attempt in range(3):  # the machine may have other things to do
        figures = probed(tmp_path, hosts=4, link="1gbit", links={"h3": "100mbit"}, shares={"h2": 0.5})
        cores = [host["cores"] for host in figures["hosts"]]
        busy = [host["busy_cores"] for host in figures["hosts"]]
        if (wrong(figures, rates) < 0.15 and 0.4 < cores[1] < 0.6 < cores[0]) or attempt == 2:
            break
    assert wrong(figures, rates) < 0.15
    assert 0.4 < cores[1] < 0.6 < cores[0]
    assert all(b <= c for b, c in zip(busy, cores, strict=True))
    assert sum(busy) < 1.2 * os.cpu_count()  # hosts of one machine share its processors
    assert [host["name"] for host in figures["hosts"]] == ["h1", "h2", "h3", "h4"]
    assert 1e-5 < figures["latency"] < 0.1
    assert figures["hosts"][0]["memory"] == pytest.approx(figures["hosts"][3]["memory"], rel=0.2)


def test_hosts_of_two_workers(tmp_path):
    rates = ["200mbit", "50mbit"]
    for attempt in range(3):
        links = dict(zip(("h1", "h2"), rates, strict=True))
        figures = probed(tmp_path, hosts=2, workers_per_host=2, links=links)
        if wrong(figures, ["50mbit"] * 2) < 0.15 or attempt == 2:
            break
    assert wrong(figures, ["50mbit"] * 2) < 0.15  # of two hosts neither shows more than both have
    assert [host["workers"] for host in figures["hosts"]] == [2, 2]
    assert figures["near_bandwidth"] > 4 * figures["hosts"][0]["bandwidth"]
    assert figures["near_latency"] < figures["latency"] + 0.01
