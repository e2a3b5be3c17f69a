"""AdaGL as its authors wrote it, step by step against slow twins; and links of servers from files."""

import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from launcher import Running, free_port

from weft import cli
from weft.errors import ConfigError, InputError
from weft.graph import Graph, communities
from weft.lab import measure_links
from weft.lab.adagl import AdaglMethod, EvolutionMethod, SearchOptions, search
from weft.lab.adagl.coarsen import prune_by_average
from weft.lab.adagl.evolve import imbalance
from weft.lab.adagl.links import read_links, write_links
from weft.lab.adagl.measured_links import moved_bounds
from weft.lab.adagl.refine import limits, refine_in_window
from weft.partition import (
    BalanceWeights,
    PartitionGoal,
    ServerLinks,
    Traces,
    TrainingTask,
    allocate,
    make_method,
    write_partitioned,
)

sys.path.insert(0, str(Path(__file__).parent))
import adagl_twins as twins


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(
        tmp_path_factory.mktemp("graphs") / "g", vertices=3000, edges=40_000, width=0, classes=6, train=0.2
    )


def kept_by_hand(undirected, times):
    """Edges that a node keeps: the heaviest, until they sum to so many times the average; ties by the neighbour's number."""
    kept = set()
    for v in range(undirected.num_vertices):
        edges = sorted(twins.edges_of(undirected, v), key=lambda edge: (-edge[1], edge[0]))
        total, wanted = 0, times * sum(weight for _, weight in edges) / max(1, len(edges))
        for u, weight in edges:
            if total >= wanted:
                break
            kept |= {(u, v), (v, u)}
            total += weight
    return kept


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("times", [0.5, 1.1, 3.0, 1e9])
def test_heavy_edges_up_to_the_average_stay(seed, times):
    undirected = twins.random_undirected(seed, nodes=40, edges=150)
    offsets, neighbours, edges = (
        np.array(values) for values in (undirected.offsets, undirected.neighbours, undirected.edges)
    )
    dropped = prune_by_average(offsets, neighbours, edges, times)
    found = defaultdict(int)
    for v in range(40):
        for place in range(offsets[v], offsets[v + 1]):
            found[v, int(neighbours[place])] = int(edges[place])
    every = {(v, u): weight for v in range(40) for u, weight in twins.edges_of(undirected, v)}
    kept = kept_by_hand(undirected, times)
    assert found == {pair: weight for pair, weight in every.items() if pair in kept}
    assert dropped == sum(every.values()) - sum(found.values())


@pytest.mark.parametrize("seed", range(4))
def test_only_nodes_in_the_window_move_and_where_most_edges_lead(seed):
    undirected = twins.random_undirected(seed, nodes=120, edges=500)
    owners = np.random.default_rng(seed).integers(0, 2, 120).astype(np.int32)
    goal = PartitionGoal(2, BalanceWeights(imbalance=0.2))
    share = undirected.vertices / np.bincount(owners, undirected.vertices, 2)[owners]
    found = refine_in_window(undirected, owners, goal, 1)
    assert (found != owners).any()
    assert not (found != owners)[(share < 0.01) | (share > 0.05)].any()
    assert twins.cut(undirected, found) < twins.cut(undirected, owners)
    for weights in (undirected.vertices, undirected.training):
        before, after = (np.bincount(one, weights, 2) for one in (owners, found))
        assert (after <= np.maximum(before, limits(weights, goal))).all()


def test_light_nodes_stay():
    undirected = twins.random_undirected(1, nodes=2000, edges=8000)
    owners = np.random.default_rng(1).integers(0, 2, 2000).astype(np.int32)
    assert (refine_in_window(undirected, owners, PartitionGoal(2, BalanceWeights(imbalance=0.2)), 3) == owners).all()


def test_the_published_method_is_one_cycle_without_what_weft_adds():
    paper, ours = AdaglMethod(), EvolutionMethod()
    assert (paper.cycles, paper.polish, paper.aligned, paper.elite, paper.beside) == (1, 0, False, 0, 0.0)
    assert (paper.refining, paper.rounds, paper.hops, paper.coefficients) == ("window", 10, 3, (0.3, 0.3, 0.4))
    assert vars(ours) == vars(SearchOptions())
    assert make_method("adagl", {"cycles": "3", "aligned": "true"}) == AdaglMethod(cycles=3, aligned=True)


def test_both_methods_beat_random_and_repeat(graph):
    task = TrainingTask((5, 5), 200)
    traces, links = Traces(graph, task), ServerLinks.of(PartitionGoal(3))
    fewer = {"nodes": 60, "population": 8, "iterations": 10, "batches": 2}
    found = {}
    for name in ("adagl", "evolution"):
        owners = allocate(graph, 3, name, task=task, options=fewer)
        assert (allocate(graph, 3, name, task=task, options=fewer, threads=3) == owners).all()
        found[name] = traces.seconds(owners, links)
    assert found["evolution"] < found["adagl"] < traces.seconds(np.arange(3000) % 3, links)


def test_links_come_back_from_their_file(graph, tmp_path):
    links = ServerLinks(np.array([[0.0, 1e-3], [2e-3, 0.0]]), np.array([[0.0, 1e-6], [3.5e-6, 0.0]]))
    write_links(tmp_path / "links.toml", links)
    found = read_links(tmp_path / "links.toml")
    assert (found.alpha == links.alpha).all()
    assert (found.beta == links.beta).all()
    options = {"nodes": 60, "population": 4, "iterations": 2, "batches": 1}
    by_file = allocate(graph, 2, "evolution", options=options | {"links": str(tmp_path / "links.toml")})
    assert (
        by_file.tolist()
        == search(graph, PartitionGoal(2), SearchOptions(links=str(tmp_path / "links.toml"), **options)).tolist()
    )
    with pytest.raises(ConfigError, match="has links of 2 servers, for 3 parts"):
        search(graph, PartitionGoal(3), SearchOptions(links=str(tmp_path / "links.toml")))


def test_links_of_workers_are_searched_by_whatever_their_hosts_are(graph, tmp_path):
    slow = np.where(np.equal.outer([0, 0, 1, 1], [0, 0, 1, 1]), 1e-7, 1e-5) * (1 - np.eye(4))
    write_links(tmp_path / "links.toml", ServerLinks(np.zeros((4, 4)), slow))
    options = {"nodes": 60, "population": 4, "iterations": 2, "batches": 1, "links": str(tmp_path / "links.toml")}
    found = allocate(graph, 4, "evolution", hosts=(2, 2), options=options)
    assert (found == allocate(graph, 4, "evolution", options=options)).all() and set(found) == {0, 1, 2, 3}


def test_files_that_are_no_links_are_refused(graph, tmp_path):
    for text in ("alpha = [[1.0]]", f"alpha = {'[' * 5000}{']' * 5000}"):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(InputError, match="is no file of links"):
            read_links(tmp_path / "bad.toml")
    with pytest.raises(InputError, match=r"can't be read .*weft partition fit"):
        search(graph, PartitionGoal(2), SearchOptions(links=str(tmp_path / "none.toml")))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pruning": "magic"}, "choose share or average"),
        ({"refining": "magic"}, "choose boundary or window"),
        ({"heaviest": 0.0}, "above 0"),
        ({"beside": 2.0}, "from 0 to 1"),
    ],
)
def test_choices_that_make_no_sense(options, text):
    with pytest.raises(ConfigError, match=text):
        SearchOptions(**options)


def test_links_are_fitted_from_measured_transfers(ranks, tmp_path):
    graph = communities(tmp_path / "g", vertices=2000, edges=20_000, width=8, classes=6, train=0.5)
    write_partitioned(graph, allocate(graph, 2, "random"), 2, tmp_path / "parts")
    parts = Graph.open(tmp_path / "parts")
    found = ranks(2, lambda world: measure_links(world, parts, TrainingTask((5, 5), 400), 2, 3))
    assert found[0].transfers == 2 * 3 * 2 * 3  # workers, allocations, batches, sizes
    for one in found:  # all workers fit the same
        assert (one.links.beta == found[0].links.beta).all()
        assert (one.links.alpha.diagonal() == 0).all()
        assert one.links.alpha.sum() + one.links.beta.sum() > 0
        assert np.isfinite(one.error)


def test_bounds_move_to_be_uneven_as_asked():
    assert moved_bounds(np.array([0, 900, 2000, 3100, 4000]), 0.0).tolist() == [0, 900, 2000, 3100, 4000]
    for uneven in (0.1, 0.3):
        owners = np.repeat(np.arange(4), np.diff(moved_bounds(np.array([0, 1000, 2000, 3000, 4000]), uneven)))
        assert imbalance(owners, np.ones(4000), np.full(4, 0.25)) == pytest.approx(uneven, abs=0.01)


@pytest.mark.parametrize(("parts", "width", "text"), [(3, 8, "3 parts for 2 workers"), (2, 0, "has no features")])
def test_graphs_that_no_links_can_be_measured_on(ranks, tmp_path, parts, width, text):
    graph = communities(tmp_path / "g", vertices=300, edges=3000, width=width, classes=6, train=0.5)
    write_partitioned(graph, allocate(graph, parts, "random"), parts, tmp_path / "parts")
    with pytest.raises(ConfigError, match=text):
        ranks(2, lambda world: measure_links(world, Graph.open(tmp_path / "parts"), TrainingTask((5,), 100), 1, 2))


def test_the_command_writes_what_a_search_reads(graph, weft, tmp_path, capsys):
    assert cli.main(["partition", "fit", str(tmp_path), "--out", str(tmp_path / "no" / "links.toml")]) == 2
    assert "is in a folder that is not there" in capsys.readouterr().err
    graph = communities(tmp_path / "g", vertices=2000, edges=20_000, width=8, classes=6, train=0.5)
    write_partitioned(graph, allocate(graph, 2, "random"), 2, tmp_path / "parts")
    links = str(tmp_path / "links.toml")
    command = ["partition", "fit", str(tmp_path / "parts"), "--out", links, "--workers", "2", "--batches", "2"]
    weft(*command, "--batch-size", 100, "--fanouts", "5,5", check=True)
    assert read_links(Path(links)).beta.shape == (2, 2)
    words = ["--parts", "2", "--method", "adagl", "--option", f"links={links}", "--option", "iterations=2"]
    assert cli.main(["partition", str(tmp_path / "g"), str(tmp_path / "out"), *words, "--batch-size", "100"]) == 0


def test_workers_that_measure_links_of_different_graphs_are_told(tmp_path):
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    runs = []
    for rank in range(2):
        folder = tmp_path / str(rank)
        graph = communities(folder / "g", vertices=300 + rank, edges=3000, width=8, classes=6, train=0.5)
        write_partitioned(graph, allocate(graph, 2, "random"), 2, folder / "parts")
        words = ["weft", "partition", "fit", folder / "parts", "--out", folder / "links.toml", "--timeout", 20]
        runs.append(Running(words, os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
    for run in runs:
        told = run.communicate(100)[1]
        assert run.returncode == 2 and "worker 1 and worker 0 do not fit together" in told and "graph = " in told


@pytest.mark.parametrize("method", ["evolution", "adagl"])
def test_coefficients_are_given_as_a_list(method):
    assert make_method(method, {"coefficients": "0.5,0.3, 0.2"}).coefficients == (0.5, 0.3, 0.2)
    for wrong in ("1", "0.5,0.5", "(0.3,0.3,0.4)", "a,b,c", ""):
        with pytest.raises(ConfigError, match=r"is not possible: give a value of its kind, such as 0\.3,0\.3,0\.4$"):
            make_method(method, {"coefficients": wrong})
    with pytest.raises(ConfigError, match="give three positive numbers"):
        make_method(method, {"coefficients": "nan,1,1"})
