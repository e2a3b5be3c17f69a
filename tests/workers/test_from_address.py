"""Training from an address gives the bits of training from the folder, and each host fetches only its own shards."""

import os
import shutil

import numpy as np
import pytest
import torch
from served import served

import weft
from weft.errors import WeftError
from weft.exchange import World
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer, as_graph, make_model

PARTS, ROW = 2, 12 * 4
FLAGS = ["--hidden", "8", "--fanouts", "4,4", "--epochs", "2", "--dtype", "float64", "--batch-size", "50"]
FLAGS += ["--threads", "1"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "whole", vertices=900, edges=9000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, PARTS, "metis"), PARTS, folder / "parts")
    return folder


@pytest.fixture
def there(graphs):
    with served(graphs / "parts") as state:
        yield state


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def trained(world, where, plan="split", how="sampled"):
    """A run's parameters, and which rows of features are no zeros here."""
    given = {"fanouts": [4, 4], "hidden": 8, "batch_size": 50, "epochs": 1, "dtype": "float64", "threads": 1}
    settings = Settings.read(given | {"plan": plan, "evaluation": {"how": how}}, "train")
    graph = as_graph(where, world, 60.0)
    with seeded(0, 7):
        model = make_model(settings, graph)
    trainer = Trainer(graph, model, settings, None, world)
    trainer.fit()
    here = np.flatnonzero(np.asarray(graph.features).any(1))
    return {name: value.clone() for name, value in model.state_dict().items()}, here


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("plan", ["split", "gdp", "snp", "nfp"])
def test_ranks_train_the_same_model_from_an_address(ranks, graphs, there, plan):
    (local, _), _ = ranks(2, trained, graphs / "parts", plan, hosts=[0, 1])
    (remote, here), _ = ranks(2, trained, there.url, plan, hosts=[0, 1])
    assert equal(local, remote)
    vertices = Graph.open(graphs / "parts").num_vertices
    assert len(here) == vertices  # the hosts are threads here, with one cache
    assert there.bytes_of("features.npy") == vertices * ROW  # each shard once, whoever reads it
    assert there.bytes_of("indices.npy") == Graph.open(graphs / "parts").indices.nbytes


def test_one_worker_trains_from_an_address(graphs, there):
    (local, _), (remote, here) = trained(World(), graphs / "parts"), trained(World(), there.url)
    assert equal(local, remote) and len(here) == 900


def test_exact_evaluation_has_the_first_worker_fetch_the_rest(ranks, graphs, there):
    (local, _), _ = ranks(2, trained, graphs / "parts", "split", "exact", hosts=[0, 1])
    (remote, _), _ = ranks(2, trained, there.url, "split", "exact", hosts=[0, 1])
    assert equal(local, remote)


def on_its_host(world, where, caches):
    """What a worker trains that is a process, and whose host has a cache of its own; or what it says if it can't."""
    os.environ["WEFT_CACHE"] = f"{caches}-{world.hosts[world.rank]}"
    try:
        return trained(world, where)
    except WeftError as error:
        return str(error)


def parameters(folder):
    return (folder / "state.safetensors").read_bytes()


def test_each_host_fetches_its_own_shards_once(processes, there, tmp_path):
    """Four workers on two hosts."""
    graph = communities(tmp_path / "g", vertices=800, edges=8000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 4, "metis"), 4, tmp_path / "four")
    there.folder, graph = tmp_path / "four", Graph.open(tmp_path / "four")
    hosts, caches = [0, 0, 1, 1], tmp_path / "cache"
    local = processes(4, on_its_host, tmp_path / "four", caches, hosts=hosts)
    remote = processes(4, on_its_host, there.url, caches, hosts=hosts)
    for (parameters_here, _), (parameters_there, rows), host in zip(local, remote, hosts, strict=True):
        assert equal(parameters_here, parameters_there)
        assert rows.tolist() == list(range(*graph.bounds[[2 * host, 2 * host + 2]]))
    assert there.bytes_of("features.npy") == graph.features.nbytes  # each byte once, by the host that needs it
    assert there.bytes_of("indices.npy") == 2 * graph.indices.nbytes  # lists once a host
    for host in range(2):
        (marks,) = tmp_path.glob(f"cache-{host}/graphs/*/shards")
        assert sorted(mark.name for mark in marks.iterdir()) == [f"features-{2 * host}", f"features-{2 * host + 1}"]
    there.asked.clear()
    again = processes(4, on_its_host, there.url, caches, hosts=hosts)
    assert there.names() == {"manifest.json"} and equal(again[0][0], local[0][0])


def test_a_host_that_can_not_fetch_ends_the_run_and_says_why(processes, graphs, there, tmp_path):
    there.folder = shutil.copytree(graphs / "parts", tmp_path / "bad")
    with open(there.folder / "features.npy", "r+b") as file:
        file.seek(-8, os.SEEK_END)  # of the second owner
        file.write(bytes(8))
    said = processes(2, on_its_host, there.url, tmp_path / "cache", hosts=[0, 1])
    assert said[0] == "worker 1 could not get what its host needs of the graph: see what it says"
    assert "features.npy is damaged, or was on the way" in said[1]


def test_the_launcher_trains_from_an_address(weft, graphs, there, tmp_path):
    weft("train", graphs / "parts", *FLAGS, "--workers", 2, "--plan", "gdp", "--out", tmp_path / "local", check=True)
    weft("train", there.url, *FLAGS, "--workers", 2, "--plan", "gdp", "--out", tmp_path / "remote", check=True)
    assert parameters(tmp_path / "local") == parameters(tmp_path / "remote")
    done = weft("train", "quux://a/b", *FLAGS, "--workers", 2)
    assert done.returncode == 2 and "can't be read (Protocol not known: quux)" in done.stderr


def test_a_script_trains_from_an_address(graphs, there):
    given = {"model": "sage", "hidden": 8, "fanouts": [4, 4], "batch_size": 50, "epochs": 1, "threads": 1}
    local = weft.train(graphs / "parts", **given)
    remote = weft.train(there.url, **given)
    assert equal(local.model.state_dict(), remote.model.state_dict())
