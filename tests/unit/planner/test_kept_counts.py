"""What a dry run counted is kept, for runs that would count the same; whatever else is in the way is counted anew."""

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.planner import kept
from weft.planner.dry_run import DryRun
from weft.planner.space import MiniBatches
from weft.training import make_model
from weft.training.planning import planner_for

HOSTS = [0, 0, 1, 1]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    for name, seed in (("parts", 0), ("others", 1)):
        whole = communities(
            folder / f"{name}-whole", vertices=900, edges=9000, width=8, classes=3, train=0.4, seed=seed
        )
        write_partitioned(whole, allocate(whole, 4, "random", seed=0), 4, folder / name)
    write_partitioned(whole, allocate(whole, 4, "random", seed=1), 4, folder / "otherwise")
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_costs():
    """What layers cost is not looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            MiniBatches, "learn", lambda self, model: setattr(self, "counted", next(iter(self.counts.values())))
        )
        yield


@pytest.fixture(scope="module")
def counting(parts, ranks):
    """What a planner for a run counts and reads; and how many dry runs there were."""
    runs, run = [], DryRun.run

    def counting(name="parts", **given):
        runs.clear()
        settings = Settings.of(**{"hidden": 8, "fanouts": (3, 2), "batch_size": 40, "threads": 1} | given)
        found = ranks(4, partial(work, parts / name, settings), hosts=HOSTS)
        return found, len(runs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DryRun, "run", lambda self, *args, **more: runs.append(self) or run(self, *args, **more))
        yield counting


@pytest.fixture(scope="module")
def earlier(counting, tmp_path_factory):
    """What a first run counted, its number of dry runs, and the folder in which it kept that."""
    folder = tmp_path_factory.mktemp("earlier")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE", str(folder))
        return *counting(), folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counted(counting, folder):
    """The same, with what is kept in `folder`."""
    return counting


@pytest.fixture
def first(earlier, folder):
    """What a first run counted, which is kept in `folder`."""
    shutil.copytree(earlier[-1], folder)
    return earlier[0]


def work(path, settings, world):
    graph = Graph.open(path)
    with seeded(0):
        model = make_model(settings, graph)
    space = planner_for(settings, graph, model, world).space
    figures = {group: [of.figures, of.weights, *of.batch.arrays()] for group, of in space.counts.items()}
    keys = {group: [*of.batch.drawn, *of.batch.moves] for group, of in space.counts.items()}
    reads = [run.reads(state) for run in space._runs.values() for state in run.read]
    return figures, keys, reads


def same(one, other):
    """Are they the same to the bit?"""
    for (figures, keys, reads), (figures_there, keys_there, reads_there) in zip(one, other, strict=True):
        assert keys == keys_there and figures.keys() == figures_there.keys()
        for group, of in figures.items():
            for a, b in zip([*of, *reads], [*figures_there[group], *reads_there], strict=True):
                assert np.array_equal(a, b) and a.dtype == b.dtype


def test_the_next_run_has_the_same_counts_without_a_dry_run(counted, earlier, first, folder):
    assert earlier[1] == 2 * 4 and len([*folder.glob("counts-*.npz")]) == 4
    again, runs = counted(lr=0.1, hidden=16, epochs=7)
    assert not runs
    same(first, again)


OTHERS = [{"seed": 1}, {"batch_size": 60}, {"fanouts": (3, 3)}, {"sampler": "labor"}, {"slack": 0.3}, {"cache": 0.3}]
OTHERS += [{"cache_by": "degree"}, {"micro_batches": 2}, {"group": "host"}, {"name": "others"}, {"name": "otherwise"}]


@pytest.mark.parametrize("given", OTHERS, ids=str)
@pytest.mark.usefixtures("first")
def test_what_counts_otherwise_is_counted(counted, given):
    _, runs = counted(**given)
    assert runs
    assert not counted()[1]  # they are kept beside each other


HARMS = [*((0, harm) for harm in ("cut", "bit", "version", "nothing", "another's")), (3, "text"), (3, "gone")]


@pytest.mark.parametrize(("of", "harm"), HARMS)
def test_a_file_that_is_damaged_or_foreign_is_made_anew(counted, first, folder, of, harm):
    (file,) = folder.glob(f"counts-*-of-{of}.npz")
    data = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        middle = data.find(b"figures") + 2000 if of == 0 else len(data) // 2
        version = data.find(b"PK\x01\x02") + 6  # of ZIP, that a reader needs

        def flipped(at):
            return data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :]

        (other,) = folder.glob("counts-*-of-1.npz")
        harmed = {
            "cut": data[: len(data) // 2],
            "bit": flipped(middle),
            "version": flipped(version),
            "nothing": b"",
            "text": b"{}",
            "another's": other.read_bytes(),
        }
        file.write_bytes(harmed[harm])
    again, runs = counted()
    assert runs == 2 * 4 and file.read_bytes() == data
    same(first, again)


def test_it_can_be_off_and_is_where_links_are_learned(counted, folder, monkeypatch):
    for _ in range(2):
        assert counted(task="link", fanouts=(3,), batch_size=40)[1]
    assert not [*folder.glob("counts-*")]
    monkeypatch.setenv("WEFT_CACHE", "off")
    for _ in range(2):
        assert counted()[1]


def test_files_are_few_and_small(counted, folder, monkeypatch):
    monkeypatch.setattr(kept, "_MOST", 2)
    for seed in range(3):
        counted(seed=seed)
    assert len([*folder.glob("counts-*-of-1.npz")]) == 2 and not counted(seed=2)[1]
    monkeypatch.setattr(kept, "_LARGEST", 1000)
    assert counted(seed=9)[1] and counted(seed=9)[1]


def test_a_graph_in_memory_may_have_been_changed(parts, ranks, folder):
    def work(world):
        graph = Graph.open(parts / "parts")
        graph = replace(graph, indices=np.array(graph.indices))
        settings = Settings.of(hidden=8, fanouts=(3, 2), batch_size=20, threads=1)
        planner_for(settings, graph, make_model(settings, graph), world)

    ranks(4, work, hosts=HOSTS)
    assert not [*folder.glob("counts-*")]
