"""The probe on hosts whose links and processors are known: it finds what they were given.

Needs root and iproute2; skipped elsewhere.
"""

import json
import os
import shutil
import sys

import pytest

from weft.lab import Sandbox, bits_a_second

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
    reason="needs root, iproute2 and nsenter",
)
# What `weft probe` does before it rehearses, some times: all workers find the same, so that all know when it is enough.
PROBE = """
import json, sys
from dataclasses import asdict
from weft.exchange import World
from weft.planner.probe import probe_cluster
world, rates = World.join(20), [float(rate) for rate in sys.argv[1:]]
best = [0.0] * len(rates)
for _ in range(4):
    cluster = probe_cluster(world)
    best = [max(bits, 8 * host.bandwidth) for bits, host in zip(best, cluster.hosts, strict=True)]
    off = [bits / rate - 1 for bits, rate in zip(best, rates, strict=True)]
    if max(map(abs, off)) < 0.15:
        break
if world.rank == 0:
    print(json.dumps([asdict(cluster), off]))
world.leave()
"""


def measured(tmp_path, rates, **options):
    """Figures of some tries, each host's best bandwidth among them: other programs only ever make it less."""
    file = tmp_path / "told.json"
    command = [sys.executable, "-c", PROBE, *(str(bits_a_second(rate)) for rate in rates)]
    with Sandbox(**options) as box, open(file, "w") as out:
        assert box.run(command, output=out, timeout=120) == 0
    figures, off = json.loads(file.read_text())
    if max(map(abs, off)) >= 0.15:
        skip_where_it_is_busy(figures)
    return figures, off


def skip_where_it_is_busy(figures):
    free = max(host["cores"] for host in figures["hosts"])
    if free < 0.85 * min(os.cpu_count(), 3):
        pytest.skip(
            f"the machine is busy with other things: a host by itself got {free} processors, too few to time by"
        )


def test_links_and_processors_are_what_the_hosts_were_given(tmp_path):
    options = {"hosts": 4, "link": "1gbit", "links": {"h3": "100mbit"}, "shares": {"h2": 0.5}}
    figures, off = measured(tmp_path, ["1gbit", "1gbit", "100mbit", "1gbit"], **options)
    assert off == pytest.approx([0.0] * 4, abs=0.15)
    cores = [host["cores"] for host in figures["hosts"]]
    busy = [host["busy_cores"] for host in figures["hosts"]]
    if abs(cores[1] - 0.5) > 0.08 or busy[1] < 0.35:
        skip_where_it_is_busy(figures)
    assert cores[1] == pytest.approx(0.5, abs=0.08)
    assert busy[1] > 0.35  # the others' processes take nothing of it
    assert all(b <= c for b, c in zip(busy, cores, strict=True))
    assert sum(busy) < 1.2 * os.cpu_count()  # hosts of one machine share its processors
    assert [host["name"] for host in figures["hosts"]] == ["h1", "h2", "h3", "h4"]
    assert 1e-5 < figures["latency"] < 0.1
    assert figures["hosts"][0]["memory"] == pytest.approx(figures["hosts"][3]["memory"], rel=0.2)


def test_hosts_of_two_workers(tmp_path):
    options = {"hosts": 2, "workers_per_host": 2, "links": {"h1": "200mbit", "h2": "50mbit"}}
    figures, off = measured(tmp_path, ["50mbit", "50mbit"], **options)  # neither shows more than both have
    assert off == pytest.approx([0.0] * 2, abs=0.15)
    assert [host["workers"] for host in figures["hosts"]] == [2, 2]
    assert figures["near_bandwidth"] > 4 * figures["hosts"][0]["bandwidth"]
    assert figures["near_latency"] < figures["latency"] + 0.01
