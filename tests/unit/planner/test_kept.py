"""What is kept of a cluster: used again, checked, too old, changed, damaged, turned off, and the same for all workers."""

import errno
import os
import time
from dataclasses import replace

import pytest

from weft.planner import KINDS, Cluster, Host, KeptCluster, kept, read_cluster
from weft.planner.cluster import UNCHANGED
from weft.planner.kept import DAYS, cache_folder

WORK = dict.fromkeys(KINDS, 0.5)
DAY = 86_400


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    return tmp_path / "weft"


@pytest.fixture
def found(monkeypatch):
    """What the short probe is to find: a change of the cluster that it is given. It's the same on all workers."""
    changes = []

    def probe_cluster_again(world, cluster):
        return changes[0](cluster) if changes else cluster

    monkeypatch.setattr(kept, "probe_cluster_again", probe_cluster_again)
    return changes


def measured(workers=(1, 1), days=0):
    hosts = tuple(Host(f"h{n}", 125e6, 1e9, of, cores=float(of)) for n, of in enumerate(workers, 1))
    at = float(int(time.time()) - days * DAY)
    return Cluster(hosts, 0.001, 1e-5, 1e9, WORK, measured=at)


def read(ranks, hosts, write=None):
    """What each worker reads, and what the first one's user is told; `write`: is kept first."""
    told = []

    def work(world):
        file = KeptCluster(world, told.append)
        said = None if write is None else file.write(write)
        world.communicator("all").barrier()
        return file.read(), said, file.path

    return ranks(len(hosts), work, hosts=hosts), told


def test_nothing_is_there_at_first(ranks, cache, found):
    results, told = read(ranks, [0, 1])
    assert [cluster for cluster, _, _ in results] == [None, None] and told == [] and not cache.exists()


def test_what_is_kept_is_read_by_all_workers_alike(ranks, cache, found):
    cluster = measured((2, 1))
    ((first, said, path), *others), told = read(ranks, [0, 0, 1], cluster)
    assert [one for one, _, _ in others] == [first, first]
    assert first == replace(cluster, hosts=first.hosts) and first.hosts[0].memory != 1e9  # memory is of now
    assert said == f"kept for later runs in {path}; `weft probe` measures it anew" and [*cache.iterdir()] == [path]
    assert read_cluster(path) == cluster and [one for _, one, _ in others] == ["", ""]
    (line,) = told
    assert line.startswith(f"the cluster as measured less than a minute ago ({path}), checked in 0.")
    assert line.endswith("s; `weft probe` measures it anew")


def test_a_cache_that_may_not_be_looked_into_is_no_cache(ranks, cache, found, monkeypatch):
    """HOME of another user, as in containers. (root may look everywhere, so it is pretended.)"""

    def forbidden(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for name in ("stat", "mkdir"):
        monkeypatch.setattr(kept.Path, name, forbidden)
    monkeypatch.setattr(os, "stat", forbidden)
    ((first, said, path), (other, _, _)), told = read(ranks, [0, 1], measured())
    assert first is other is None and not told
    assert said == f"not kept for later runs in {path} (Permission denied): name another folder in WEFT_CACHE, or `off`"


def test_the_first_workers_file_decides(ranks, tmp_path, found, monkeypatch):
    folders = {"first": tmp_path / "a", "second": tmp_path / "b"}
    own = iter([folders["first"], folders["second"]])
    monkeypatch.setattr(kept, "cache_folder", lambda: next(own))
    results, _ = read(ranks, [0, 1], measured())
    assert results[0][0] == results[1][0] is not None
    assert len([folder for folder in folders.values() if folder.exists()]) == 1


def test_links_and_processors_are_those_of_now(ranks, cache, found):
    cluster = measured(days=3)
    slow = tuple(replace(host, bandwidth=12.5e6) for host in cluster.hosts[:1]) + cluster.hosts[1:]
    found.append(lambda before: replace(before, hosts=slow))
    ((first, _, path), (other, _, _)), (line,) = read(ranks, [0, 1], cluster)
    assert first == other and [host.bandwidth for host in first.hosts] == [12.5e6, 125e6]
    assert read_cluster(path) == replace(cluster, hosts=slow)  # work, and its date, are as before
    assert f"as measured 3 days ago ({path}), but for what " in line
    assert "found: h1's link 1 Gbit/s -> 0.1 Gbit/s; `weft probe` measures it anew" in line


def test_what_is_too_old_to_count_is_removed(ranks, cache, found):
    old, named = cache / "cluster-9-workers-0123456789ab.toml", cache / "cluster-9.toml"
    for file in (old, named):
        cache.mkdir(exist_ok=True)
        file.write_text("")
        os.utime(file, (0, 0))
    ((_, _, path), _), _ = read(ranks, [0, 1], measured())
    assert {*cache.iterdir()} == {path, named}  # of which the latter is a user's


def test_a_file_that_is_removed_while_it_is_read_is_ignored_with_a_line(ranks, cache, found, monkeypatch):
    ((_, _, path), _), _ = read(ranks, [0, 1], measured())
    whole = kept.read_cluster

    def read_and_removed(path):
        cluster = whole(path)
        path.unlink()
        return cluster

    monkeypatch.setattr(kept, "read_cluster", read_and_removed)
    ((first, _, _), (other, _, _)), (line,) = read(ranks, [0, 1])
    assert first is other is None and f"{path} can't be read (No such file or directory)" in line


def test_small_changes_are_chance(ranks, cache, found):
    cluster = measured()
    found.append(lambda before: replace(before, latency=1.2 * before.latency))
    ((first, _, path), _), (line,) = read(ranks, [0, 1], cluster)
    assert first.latency == 0.001 and "checked in" in line and read_cluster(path) == cluster
    assert cluster.changes_to(replace(cluster, latency=0.0012)) == UNCHANGED


@pytest.mark.parametrize("days", [DAYS, 400, -2])
def test_old_files_do_not_count(ranks, cache, found, days):
    ((first, _, path), (other, _, _)), (line,) = read(ranks, [0, 1], measured(days=days))
    assert first is other is None
    assert line.startswith(f"what was kept of this cluster is ignored, and it is looked at anew: {path} is of 20")
    assert line.endswith("and counts for 30 days")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "version is missing"),
        ("vers", "is not valid TOML"),
        (b"\xff\x00", "is not text"),
        ("version = 1\n[[host]]\nmemory = 5\n", "is not what `weft probe` keeps there"),
        ("half", "is not valid TOML"),
        ("other", "is not what `weft probe` keeps there"),
        ("undated", "is not what `weft probe` keeps there"),
        ("flipped", "is damaged, or was edited: its checksum differs"),
    ],
)
def test_a_damaged_file_is_ignored_with_a_line_and_written_anew(ranks, cache, found, text, why):
    ((_, _, path), _), _ = read(ranks, [0, 1], measured())
    whole = path.read_text()
    of = {"half": whole[: whole.index("\nhop") + 3], "other": whole.replace("workers = 1", "workers = 2")}
    of["other"] = of["other"].replace("[exchange]", "[exchange]\n")
    of["flipped"] = whole.replace("125_000_000", "125_000_001", 1)
    of["undated"] = "\n".join(line for line in whole.splitlines() if not line.startswith("measured"))
    path.write_bytes(text if isinstance(text, bytes) else of.get(text, text).encode())
    ((first, _, _), (other, _, _)), (line,) = read(ranks, [0, 1])
    assert first is other is None and why in line and line.count("\n") == 0
    ((first, _, _), _), _ = read(ranks, [0, 1], measured())
    assert first is not None and [*cache.iterdir()] == [path]


def test_off(ranks, cache, found, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "off")
    ((first, said, path), (other, _, _)), told = read(ranks, [0, 1], measured())
    assert first is other is path is None and told == [] and not cache.exists()
    assert said.startswith("not kept for later runs (WEFT_CACHE is off): `weft probe --out cluster.toml`")


def test_where_it_is_kept(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "weft"
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.setenv("WEFT_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / "home" / ".cache" / "weft"
    monkeypatch.setenv("HOME", "")  # which is no folder, and not the root
    assert cache_folder() is None


def test_a_folder_that_can_not_be_written(ranks, tmp_path, found, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
    ((first, said, path), _), _ = read(ranks, [0, 1], measured())
    assert first is None
    assert said == f"not kept for later runs in {path} (File exists): name another folder in WEFT_CACHE, or `off`"


def test_each_set_of_machines_has_a_file(ranks, found, monkeypatch):
    def path(hosts):
        return ranks(len(hosts), lambda world: KeptCluster(world, print).path, hosts=hosts)[0]

    usual = path([0, 1])
    assert usual == path([0, 1]) and usual.name.startswith("cluster-2-workers-")
    others = {path([0, 0]), path([0, 1, 2]), path([0, 0, 1]), path([0, 1, 1])}
    for thing, value in (("__version__", "9"), ("KINDS", {"other": ""})):
        with monkeypatch.context() as patch:
            patch.setattr(kept, thing, value)
            others.add(path([0, 1]))
    for module, thing, value in ((kept.socket, "gethostname", lambda: "x"), (kept, "cores", lambda: 0b111)):
        with monkeypatch.context() as patch:
            patch.setattr(module, thing, value)
            others.add(path([0, 1]))
    assert len(others) == 8 and usual not in others
