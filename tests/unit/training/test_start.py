"""How a run starts: which cluster it plans for, where no file is given, and what it says of that and of its settings."""

import time
from dataclasses import replace

import pytest

from weft.graph import communities
from weft.keys import seeded
from weft.plan import Settings
from weft.planner import KINDS, Cluster, Host, Prior, kept, write_cluster
from weft.training import Notice, Trainer, make_model, start
from weft.training.modes import MiniBatchMode

MEASURED = Cluster(
    (Host("h1", 125e6, 1e9), Host("h2", 125e6, 1e9)), 0.001, 1e-5, 1e9, dict.fromkeys(KINDS, 0.5), measured=0.0
)


@pytest.fixture
def clusters(ranks, tmp_path, monkeypatch):
    """What a run's workers plan for, and what its user is told. Nothing is timed: looks at the cluster are counted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    looks = []

    def probe_briefly(world):
        if world.rank == 0:
            looks.append(1)
        return replace(MEASURED, work={}, measured=float(int(time.time())))

    monkeypatch.setattr(start, "probe_briefly", probe_briefly)
    monkeypatch.setattr(start, "prior", lambda world: Prior(dict.fromkeys(KINDS, 0.5), 1.2, 0.9, "a machine"))
    monkeypatch.setattr(kept, "probe_cluster_again", lambda world, cluster: cluster)

    def run(**options):
        told = []

        def work(world):
            return start._cluster(Settings.of(**options), world, told.append if world.rank == 0 else lambda text: None)

        found = [cluster for cluster, _ in ranks(2, work, hosts=[0, 1])]
        return found, told, len(looks)

    return run


def test_the_first_run_takes_what_work_costs_from_elsewhere_and_the_second_one_what_was_kept(clusters, tmp_path):
    (first, other), (before, line), looks = clusters()
    assert first == other and looks == 1 and first.rounds == 0 and first.work == dict.fromkeys(KINDS, 0.5)
    assert before == (
        "what work takes is not known here yet: taken from a machine, 1.20 times as long (0.90 where it waits for memory), "
        "and refined while training; `weft probe` measures it"
    )
    (path,) = (tmp_path / "weft").iterdir()
    assert line.startswith("looked at links and processors, in all for 0.")
    assert line.endswith(f" s: kept for later runs in {path}; `weft probe` measures it anew")
    (again, other), (line,), looks = clusters()
    assert again == other and (again.work, again.rounds) == (first.work, 0) and looks == 1
    assert line.startswith("the cluster as measured less than a minute ago")
    assert line.endswith("; training refines what work takes, `weft probe` measures it")


def test_without_a_watch_nothing_is_refined(clusters):
    assert "and left at that, as --no-watch says; `weft probe` measures it" in clusters(watch=False)[1][0]


def test_a_damaged_file_is_not_used(clusters, tmp_path):
    clusters()
    (path,) = (tmp_path / "weft").iterdir()
    path.write_text("version = 1\n[[host")
    (first, other), (ignored, _, looked), looks = clusters()
    assert first == other and looks == 2 and "is not valid TOML" in ignored and "looked at links" in looked
    assert clusters()[2] == 2


def test_nothing_is_kept_where_it_is_off(clusters, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "off")
    assert [clusters()[2], clusters()[2]] == [1, 2] and not (tmp_path / "weft").exists()
    assert "not kept for later runs (WEFT_CACHE is off)" in clusters()[1][1]


@pytest.mark.parametrize(("work", "rounds"), [({}, 0), (dict.fromkeys(KINDS, 0.25), 1)])
def test_a_file_that_does_not_say_what_work_takes(clusters, tmp_path, work, rounds):
    """The user's own file is read, and left as it is."""
    file = tmp_path / "cluster.toml"
    write_cluster(file, replace(MEASURED, work=work))
    before = file.read_text()
    (first, other), told, looks = clusters(cluster=str(file))
    assert first == other and first.rounds == rounds and looks == 0 and len(told) == 1 - rounds
    assert first.work == (work or dict.fromkeys(KINDS, 0.5))
    assert file.read_text() == before and not (tmp_path / "weft").exists()


IDLE = "all rows are in the memory of this one host, so that {} has no effect: drop it"


@pytest.mark.parametrize(
    ("given", "hosts", "idle"),
    [
        ({"plan": "gdp", "cache": 0.5}, [0, 0], ["cache"]),
        ({"plan": "gdp", "cache": 0.5}, [0, 1], []),
        ({"plan": "gdp", "wire": "float16"}, [0, 0], ["wire"]),
        ({"plan": "gdp", "wire": "float16"}, [0, 1], []),
        ({"plan": "split", "wire": "float16", "cache": 0.5}, [0, 0], ["cache"]),
        ({"plan": "gdp", "wire": "float16", "task": "link"}, [0, 0], []),  # the loss of links exchanges rows
        ({"plan": "gdp"}, [0, 0], []),
    ],
)
def test_what_several_hosts_alone_have_a_use_for_is_told_of_and_not_counted_for(
    ranks, tmp_path, monkeypatch, given, hosts, idle
):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=4, classes=3, block=50)
    settings = Settings.of(fanouts=[2, 2], batch_size=50, epochs=1, threads=1, hidden=4, device="cpu", **given)
    told, counted, count = [], [], MiniBatchMode._reads
    monkeypatch.setattr(MiniBatchMode, "_reads", lambda *mine: counted.append(1) or count(*mine))

    def work(world):
        with seeded(1):
            model = make_model(settings, graph)
        Trainer(graph, model, settings, told.append, world=world).fit()

    ranks(2, work, hosts=hosts)
    texts = [event.text for event in told if isinstance(event, Notice)]
    assert [text for text in texts if "has no effect" in text] == [IDLE.format(key) for key in idle]
    assert len(counted) == (2 if "cache" in given and "cache" not in idle else 0)
