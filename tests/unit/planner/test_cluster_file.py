"""The cluster file: what is written is read back; every mistake in one is a sentence that names its place and remedy."""

from dataclasses import replace

import pytest

from weft.errors import ConfigError, StorageError
from weft.planner import KINDS, NEVER, Cluster, Host, read_cluster, write_cluster
from weft.planner.cluster import TIMED, Device, Link
from weft.planner.cluster_file import cluster_of, cluster_text

HOST = """
[[host]]
name = "{name}"
bandwidth = "1gbit"
memory = "16GiB"
"""
TWO = "version = 1\n" + HOST.format(name="a") + HOST.format(name="b") + "[exchange]\nlatency = 0.001\n"

MEASURED = Cluster(
    hosts=(
        Host("h1", 123_456_789.25, 2.0**33, workers=2, cores=1.87, busy_cores=0.5, speed=0.93),
        Host('a "quoted" one', 1.25e7, 5e9, cores=0.5),
        Host("h3", 1.25e10, 1.5),
    ),
    latency=0.0021,
    near_latency=1.7e-05,
    near_bandwidth=2.3e9,
    work=dict.fromkeys(KINDS, 0.0) | {"draw": 3.1e-08, "pace": 0.0005, "busy": 0.9, "overlap": 3.5},
    links=(Link(("h1", "h3"), 1e6), Link(("h3", 'a "quoted" one'), 2.5e6, 0.04)),
    together=0.87,
    rounds=3,
    error=0.125,
    measured=1_790_000_000.0,
)

WORK = "\n".join([*(f"{kind} = 0.5" for kind in KINDS), f"timed = {TIMED}"])


FAST = Host("h1", 1e12, 1e10, 2), Host("h2", 1e12, 1e10, 2)


@pytest.mark.parametrize(
    "cluster",
    [MEASURED, Cluster((Host("h1", NEVER, 1e10),), 0.0, 0.0, NEVER), Cluster(FAST, 1e-5, 1e-6, 1e12)],
    ids=["several hosts", "one worker", "terabytes a second"],
)
def test_what_is_written_is_read_back(tmp_path, cluster):
    write_cluster(tmp_path / "c.toml", cluster)
    assert read_cluster(tmp_path / "c.toml") == cluster
    assert [file.name for file in tmp_path.iterdir()] == ["c.toml"]


def test_paths_may_be_words(tmp_path):
    path = str(tmp_path / "c.toml")
    write_cluster(path, MEASURED)
    assert read_cluster(path) == MEASURED
    with pytest.raises(ConfigError, match="is an address"):
        read_cluster("s3://bucket/c.toml")


def test_the_units_are_in_comments():
    text = cluster_text(MEASURED)
    assert "bandwidth = 12_500_000  # to other hosts, each way: 100 mbit a second" in text
    assert "memory = 8_589_934_592  # for all its workers: 8 GiB" in text
    assert "draw = 3.1e-08  # seconds an edge drawn" in text
    assert "\n[work]" not in cluster_text(Cluster(MEASURED.hosts, 0.1, 0.1, 1e9))


def test_work_is_the_mean_of_all_rounds():
    now = replace(MEASURED, work=dict.fromkeys(KINDS, 1.0), rounds=1, latency=0.5)
    both = now.with_work_of(MEASURED)
    assert both.work == {kind: pytest.approx((1.0 + 3 * rate) / 4) for kind, rate in MEASURED.work.items()}
    assert replace(both, work=now.work, rounds=1) == now and both.rounds == 4
    assert now.with_work_of(replace(MEASURED, work={})) == now
    assert replace(now, work={}).with_work_of(MEASURED).work == {}


def test_a_file_by_hand():
    text = TWO + '[[link]]\nbetween = ["b", "a"]\nbandwidth = "2.5 Mbit"\n'
    cluster = cluster_of(text.replace('"16GiB"', "7", 1).replace('"1gbit"', "5e6", 1), "c.toml")
    assert [host.name for host in cluster.hosts] == ["a", "b"]
    assert [host.bandwidth for host in cluster.hosts] == [5e6, 125e6]
    assert [host.memory for host in cluster.hosts] == [7.0, 16 * 2**30]
    assert [(host.workers, host.cores, host.busy_cores) for host in cluster.hosts] == [(1, 1.0, None)] * 2
    assert cluster.links == (Link(("b", "a"), 2.5e6 / 8),)
    assert cluster.work == {}
    unnamed = cluster_of('version = 1\n[[host]]\nmemory = "1GB"\n', "c.toml").hosts[0]
    assert (unnamed.name, unnamed.memory, unnamed.bandwidth) == ("h1", 1e9, NEVER)


def link(text):
    return f'{TWO}[[link]]\nbandwidth = "1gbit"\n{text}\n'


def of_b(old, new):
    """The file, something of its second host changed."""
    first, second = TWO.rsplit("[[host]]", 1)
    assert old in second
    return f"{first}[[host]]{second.replace(old, new)}"


BANDWIDTH = 'give bytes a second, or bits a second as text such as "1gbit"'
WRONG = {
    "": "c.toml: version is missing; begin the file with version = 1",
    "version = 2": "c.toml: version = 2 is not possible; this Weft reads version 1: write the file anew with `weft probe "
    "--out`",
    "version = 1": "c.toml: there are no hosts; describe each in a [[host]] table with its bandwidth and memory",
    "version = 1\nhost = 3": "c.toml: host must be a list of tables; begin each with [[host]]",
    "version = 1\nhost = [3]": "c.toml: host h1 must be a table; its keys are name, workers, cores, busy_cores, speed, "
    "bandwidth, burst, memory",
    f"{TWO}\n[wrok]": "c.toml: there is no key 'wrok'; did you mean 'work'?",
    f"{TWO}\n[zzz]": "c.toml: there is no key 'zzz'; known ones are version, measured, host, link, exchange, device, work",
    f"work = 3\n{TWO}": f"c.toml: work must be a table; its keys are {', '.join(KINDS)}, rounds, timed, error, workers",
    f"{TWO}\n[work]\nrounds = 2": "c.toml: work: hop is missing; have it measured by `weft probe --out`, as all of [work]",
    f"{TWO}\n[work]\nrounds = -1\n{WORK}": "c.toml: work: rounds = -1 is not possible; it must be 0 or more: give a whole "
    "number, such as 3",
    f"{TWO}\n[work]\ndrwa = 1": "c.toml: work: there is no key 'drwa'; did you mean 'draw'?",
    f"{TWO}\n[work]\ndraw = 1": "c.toml: work: hop is missing; have it measured by `weft probe --out`, as all of [work]",
    of_b(
        "latency = 0.001", "latency = 0.001\ntogether = 1.5"
    ): "c.toml: exchange: together = 1.5 is not possible; it must "
    "be at most 1: give a share of the hosts' bandwidths, such as 0.9",
    f"{TWO}\n[work]\nbusy = 0": "c.toml: work: busy = 0 is not possible; it must be above 0: give a share of time, "
    "such as 0.9",
    f"{TWO}\n[work]\nbusy = 2": "c.toml: work: busy = 2 is not possible; it must be at most 1: give a share of time, "
    "such as 0.9",
    f"{TWO}\n[work]\ndraw = -1": "c.toml: work: draw = -1 is not possible; it must be 0 or more: give processor seconds a "
    "unit, such as 1e-8",
    of_b("bandwidth", "bandwith"): "c.toml: host b: there is no key 'bandwith'; did you mean 'bandwidth'?",
    of_b('bandwidth = "1gbit"', ""): f"c.toml: host b: bandwidth is missing; {BANDWIDTH}",
    of_b('"1gbit"', '"fast"'): f"c.toml: host b: bandwidth = 'fast' is not possible; {BANDWIDTH}",
    of_b('"1gbit"', "true"): f"c.toml: host b: bandwidth = True is not possible; {BANDWIDTH}",
    of_b('"1gbit"', "0"): f"c.toml: host b: bandwidth = 0 is not possible; it must be above 0: {BANDWIDTH}",
    of_b('"1gbit"', '"0mbit"'): f"c.toml: host b: bandwidth = '0mbit' is not possible; it must be above 0: {BANDWIDTH}",
    of_b('"1gbit"', "-2.5"): f"c.toml: host b: bandwidth = -2.5 is not possible; it must be above 0: {BANDWIDTH}",
    of_b('"1gbit"', "inf"): f"c.toml: host b: bandwidth = inf is not possible; it must be finite: {BANDWIDTH}",
    of_b('"1gbit"', "nan"): f"c.toml: host b: bandwidth = nan is not possible; it must be finite: {BANDWIDTH}",
    of_b('memory = "16GiB"', ""): 'c.toml: host b: memory is missing; give bytes, or text such as "16GiB"',
    of_b(
        '"16GiB"', '"16gbit"'
    ): "c.toml: host b: memory = '16gbit' is not possible; give bytes, or text such as \"16GiB\"",
    of_b(
        "memory", "workers = 1.5\nmemory"
    ): "c.toml: host b: workers = 1.5 is not possible; give a whole number, such as 4",
    of_b(
        "memory", "cores = 0\nmemory"
    ): "c.toml: host b: cores = 0 is not possible; it must be above 0: give a number of processors, such as 2 or 0.5",
    of_b(
        "memory", "busy_cores = 2\nmemory"
    ): "c.toml: host b: busy_cores = 2 is not possible; while all hosts work it can't have more than its cores, 1",
    of_b(
        '"1gbit"', "1e16"
    ): f"c.toml: host b: bandwidth = 1e+16 is not possible; it must be at most 1e+15: {BANDWIDTH}",
    f"measured = 0999-01-31T00:00:00Z\n{TWO}": "c.toml: measured = datetime.datetime(999, 1, 31, 0, 0, "
    "tzinfo=datetime.timezone.utc) is not possible; give a date and time, such as 2026-01-31T12:00:00Z, or leave it out",
    of_b(
        "latency = 0.001", "latency = 1e308"
    ): "c.toml: exchange: latency = 1e+308 is not possible; it must be at most 1e+06: give seconds, such as 0.0005",
    f"{TWO}\n[work]\n{WORK.replace('overlap = 0.5', 'overlap = 1e-308')}": "c.toml: work: overlap = 1e-308 is not "
    "possible; it must be at least 0.1: give an exponent, such as 4",
    of_b('"b"', '"a"'): "c.toml: 2 hosts are called 'a'; give each a name of its own",
    of_b('"b"', "3"): 'c.toml: host 2: name = 3 is not possible; give a word, such as "h1"',
    of_b("latency = 0.001", ""): "c.toml: exchange: latency is missing; give seconds, such as 0.0005",
    of_b(
        "latency = 0.001", "latency = -1"
    ): "c.toml: exchange: latency = -1 is not possible; it must be 0 or more: give seconds, such as 0.0005",
    of_b("memory", "workers = 2\nmemory"): "c.toml: exchange: near_latency is missing; give seconds, such as 0.0005",
    f"measured = 2026-01-31\n{TWO}": "c.toml: measured = datetime.date(2026, 1, 31) is not possible; give a date and time, "
    "such as 2026-01-31T12:00:00Z, or leave it out",
    link(""): 'c.toml: link 1: between must name two hosts, such as between = ["h1", "h2"]',
    link('between = ["a"]'): 'c.toml: link 1: between must name two hosts, such as between = ["h1", "h2"]',
    link('between = ["a", "c"]'): "c.toml: link a-c: there is no host 'c'; the hosts are a, b",
    link('between = ["a", "a"]'): "c.toml: link a-a: a link joins two different hosts; name two of a, b",
    link(
        'between = ["a", "b"]\nlatency = "1"'
    ): "c.toml: link a-b: latency = '1' is not possible; give seconds, such as 0.0005",
    link('between = ["a", "b"]')
    + '[[link]]\nbetween = ["b", "a"]\nbandwidth = 1': "c.toml: link b-a is there twice; keep one of the two",
    "version = ": "c.toml is not valid TOML (Invalid value (at end of document)): correct it there, or write it anew with "
    "`weft probe --out`",
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.items(), ids=range(len(WRONG)))
def test_mistakes_are_named(text, sentence):
    with pytest.raises(ConfigError) as error:
        cluster_of(text, "c.toml")
    assert str(error.value) == sentence


def test_paths_that_can_not_be_read_or_written(tmp_path):
    path = tmp_path / "none" / "c.toml"
    with pytest.raises(ConfigError) as error:
        read_cluster(path)
    assert str(error.value) == (
        f"the cluster file {path} can't be read (No such file or directory): check the path, or measure a cluster with "
        f"`weft probe --out {path}`"
    )
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text: write it anew"):
        read_cluster(tmp_path / "bytes")
    with pytest.raises(StorageError, match=r"writing .*bytes/c.toml failed: (File exists|Not a directory)"):
        write_cluster(tmp_path / "bytes" / "c.toml", MEASURED)


def test_the_workers_of_hosts():
    assert MEASURED.workers == 4
    assert MEASURED.host_of.tolist() == [0, 0, 1, 2]


def test_more_hosts_and_fewer():
    five = MEASURED.scaled_to(5)
    assert [host.name for host in five.hosts] == ["h1", "h2", "h3", "h4", "h5"]
    assert [host.cores for host in five.hosts] == [1.87, 0.5, 1.0, 1.87, 0.5]
    assert [link.between for link in five.links] == [("h1", "h3"), ("h3", "h2")]
    assert MEASURED.scaled_to(2).links == ()
    assert MEASURED.scaled_to(2).work == MEASURED.work
    assert [MEASURED.scaled_to(hosts).exchanging for hosts in (2, 3, 5)] == [4, 0, 4]  # as 4 workers were measured
    assert five.scaled_to(3).exchanging == 0 and cluster_of(cluster_text(five), "file") == five
    alone = Cluster((Host("h1", NEVER, 1e10),), 0.0, 0.0, NEVER)
    assert alone.scaled_to(1) == alone
    with pytest.raises(ConfigError, match="the cluster has one host, so it is not known how fast"):
        alone.scaled_to(2)
    linked = Cluster((Host("h1", 1e9, 1e10),), 0.0, 0.0, NEVER)
    with pytest.raises(ConfigError, match=r"would reach others: write latency of \[exchange\] into the cluster file"):
        linked.scaled_to(2)
    assert replace(linked, latency=1e-4).scaled_to(2).hosts[1] == Host("h2", 1e9, 1e10)


def test_faster_links():
    faster = MEASURED.with_links(10)
    assert [host.bandwidth for host in faster.hosts] == [10 * host.bandwidth for host in MEASURED.hosts]
    assert [link.bandwidth for link in faster.links] == [1e7, 2.5e7]
    assert faster.near_bandwidth == MEASURED.near_bandwidth
    device = Device("D", 1e10, 1e12, 1e10, 1e-6, far_bandwidth=1e9)
    assert replace(MEASURED, device=device).with_links(0.1).device.far_bandwidth == 1e8
    assert replace(MEASURED, device=replace(device, far_bandwidth=NEVER)).with_links(0.1).device.far_bandwidth == NEVER


def test_work_that_was_timed_in_another_way_is_refused():
    text = cluster_text(MEASURED)
    assert cluster_of(text, "it") == MEASURED
    for older in (text.replace(f"timed = {TIMED}", f"timed = {TIMED - 1}"), text.replace(f"timed = {TIMED}", "# none")):
        with pytest.raises(
            ConfigError, match=r"timed = 3 is missing, so that layers were timed in another way, .*`weft probe --out`"
        ):
            cluster_of(older, "it")
