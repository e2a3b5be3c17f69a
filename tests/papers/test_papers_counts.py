"""What sheets count: misses and gathering of micrographs, what plans would send, what full-graph workers send."""

from itertools import pairwise

import numpy as np
import pytest
from papers.adagl.task import busiest
from papers.apt import figure11
from papers.bench import Bench, Size, Unequal
from papers.draws import Draws
from papers.foreseen import foreseen, hosts, megabytes
from papers.gsplit import table4, table5
from papers.leapgnn import figure14, figure16, table3
from papers.leapgnn.task import micrographs
from papers.neutrontp import figure5, figure10
from papers.neutrontp import table4 as epoch_parts
from papers.neutrontp.task import WORKERS, sent

from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.partition import allocate, write_partitioned
from weft.plan import NAMED, Settings

SETTINGS = {"model": "sage", "hidden": 8, "fanouts": (3, 3), "batch_size": 16, "threads": 1}


@pytest.fixture
def small(tmp_path):
    """Sheets on graphs of 2,000 vertices."""
    return Bench(Size("quick", 2000, 20000), tmp_path, tmp_path / "nothing is shared")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(tmp_path_factory.mktemp("g") / "g", vertices=800, edges=8000, width=12, classes=8, train=0.4)


@pytest.fixture(scope="module")
def parts(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("p") / "parts"
    write_partitioned(graph, allocate(graph, 4, "metis"), 4, folder)
    return folder


def test_micrographs_are_all_seeds_at_home_model_by_model(graph):
    owners, drawn = np.arange(800) % 4, Draws(graph, (3,), 64, most=1)
    ((batch,), (seeds,)) = [*micrographs(drawn, owners)], drawn.seeds()
    for server, models in enumerate(batch):
        for model, rows in enumerate(models):
            own = [seed for place, seed in enumerate(seeds) if place % 4 == model and owners[seed] == server]
            assert rows[: len(own)].tolist() == own


def test_gathering_once_is_never_more(small, monkeypatch):
    for figure in (figure14, figure16):
        monkeypatch.setattr(figure, "GRAPHS", ("communities",))
    misses, gathered = (next(iter(sheet.cases(small).values()))() for sheet in (figure14.SHEET, figure16.SHEET))
    assert misses[figure14.MICROGRAPHS] < misses[figure14.DGL] < 100
    for what in (figure16.REQUESTS, figure16.ROWS):
        assert 0 < gathered[f"{what}, {figure16.ONCE}"] < gathered[f"{what}, {figure16.STEP}"]
    assert gathered[f"{figure16.REQUESTS}, {figure16.ONCE}"] <= 4 * 3


def test_what_is_foreseen_is_of_each_model(parts):
    plans, four = {name: NAMED[name](2) for name in ("gdp", "leap", "dnp")}, hosts(4, "1gbit")
    narrow, wide = (foreseen(parts, SETTINGS | {"hidden": width}, plans, four) for width in (8, 64))
    assert megabytes(narrow["leap"]) < megabytes(narrow["gdp"]) == megabytes(wide["gdp"])
    assert megabytes(narrow["dnp"]) < megabytes(wide["dnp"])
    gat = foreseen(parts, SETTINGS | {"model": "gat", "heads": 2}, plans, four)
    assert megabytes(gat["gdp"]) == megabytes(narrow["gdp"])


def test_plans_that_can_not_be_and_links_that_are_none_are_refused(parts):
    with pytest.raises(ConfigError, match="plan cached has a cache of a size that is not looked at"):
        foreseen(parts, SETTINGS | {"cache": 0.1}, {"cached": NAMED["gdp"](2, cache=0.2)}, hosts(4, "1gbit"))
    with pytest.raises(ConfigError, match="link 'fast' is not a rate"):
        hosts(4, "fast")


def test_a_random_partition_is_no_worse_for_data_parallelism(small):
    found = {case: run() for case, run in figure11.SHEET.cases(small).items()}
    assert found["random"]["gdp"] == pytest.approx(found["metis"]["gdp"], rel=0.05)
    assert found["random"]["snp"] > found["metis"]["snp"]
    assert len([*figure11.SHEET.compare(found)]) == 1


@pytest.mark.parametrize("layers", [2, 3])
def test_dependences_are_counted_vertex_by_vertex(small, layers):
    """Vertices of others that a worker needs, and the edges of those that it would compute itself."""
    counted = figure5._counted(small, 2, layers)
    graph = Graph.open(small.parts(figure5.GRAPH, 2))

    def beyond(known):
        return known | {int(u) for v in known for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}

    again = rows = 0
    for first, end in pairwise(graph.bounds.tolist()):
        own = set(range(first, end))
        known = beyond(own)
        rows += layers * (len(known) - len(own))
        for _ in range(layers - 1):
            again += sum(int(graph.indptr[v + 1] - graph.indptr[v]) for v in known - own)
            known = beyond(known)
    assert counted[figure5.CACHED] * 1e6 == pytest.approx(again)
    assert counted[figure5.COMMUNICATED] * 1e6 == pytest.approx(rows)


def test_splits_of_a_sample_are_its_destinations_by_owner(graph):
    (sample,), owners = [*Draws(graph, (3, 3), 64, most=1).whole()], np.arange(800) % 4
    for block, parts in zip(sample.blocks, table4._split(sample, owners), strict=True):
        ids = sample.vertices.numpy()
        assert sorted(np.concatenate(parts)) == list(range(block.num_dst))
        assert all((owners[ids[part]] == number).all() for number, part in enumerate(parts))


def test_the_busiest_server_is_who_gets_most_by_its_link():
    rows = np.array([[[9, 4, 0], [1, 9, 2], [3, 0, 9]], [[9, 0, 0], [2, 9, 2], [1, 0, 9]]])
    assert busiest(rows) == (3 + 4) / 2
    assert busiest(rows, np.array([1, 1, 0.2])) == (3 + 1) / 0.2 / 2


def test_local_batches_have_as_many_seeds_of_each_server(graph):
    owners, told = np.minimum(np.arange(800) // 100, 3), Settings.of(model="gcn", fanouts=(3, 3), batch_size=40)
    batches = table3._LocalSeeds(owners).setup(graph, told).batches(40)
    own = [seeds[owners[seeds] == 3] for seeds in batches.of(0)]
    assert {len(seeds) for seeds in own[: len(own) - 1]} == {10}  # the largest server's, each once
    assert sorted(np.concatenate(own)) == sorted(graph.seeds("train")[owners[graph.seeds("train")] == 3])
    first = [seeds[owners[seeds] == 0] for seeds in batches.of(0)]
    assert len(np.concatenate(first)) > len(np.unique(np.concatenate(first)))  # a small one begins again


def test_an_epoch_of_links_is_taken_apart(small, monkeypatch):
    monkeypatch.setattr(epoch_parts, "GRAPH", "communities")
    found = {task: epoch_parts._measured(small, task, "DTP") for task in epoch_parts.TASKS}
    for one in found.values():
        assert min(one.values()) > 0
    assert found["links"][epoch_parts.TOTAL] > found["classes"][epoch_parts.TOTAL]


@pytest.mark.parametrize("layers", [2, 3])
def test_decoupled_slices_are_exchanged_four_times_whatever_the_depth(parts, layers):
    opened = Graph.open(parts)
    between = sent(opened, {"model": "gcn", "plan": "tp-decoupled", "overlap": False, "layers": layers, "hidden": 8})
    once = (
        4 * opened.num_vertices * opened.num_classes * (WORKERS - 1) / WORKERS
    )  # all rows' columns of others, float32
    assert between.sum() == pytest.approx(4 * once, rel=0.01)  # split and gathered, forward and backward
    assert between.diagonal().sum() == 0


def test_what_is_between_owners_evens_a_batch_along_chains_and_no_further():
    edges = np.diag([10.0, 2.0, 2.0, 6.0])
    edges[0, 1], edges[1, 2] = 4.0, 1.0  # loads of 14, 3, 2 and 6
    assert table5._evened(edges) == pytest.approx(10 - 3)  # four go to the second, of whose one goes on to the third
    assert table5._evened(np.diag([5.0, 1.0, 1.0, 1.0])) == pytest.approx(4)
    assert table5._evened(np.full((4, 4), 3.0)) == pytest.approx(0)


def test_a_vertex_cut_sends_rows_to_where_their_edges_are_and_sums_home(small, monkeypatch):
    monkeypatch.setattr(figure10, "GRAPH", "communities")
    graph, owners = small.graph("communities"), small.owners("communities", WORKERS, "random")
    degrees, sent, own = np.diff(graph.indptr), np.zeros((WORKERS, WORKERS)), np.zeros(WORKERS)
    rows, sums = set(), set()
    for to in range(graph.num_vertices):
        for source in graph.indices[graph.indptr[to] : graph.indptr[to + 1]].tolist():
            at = owners[to if degrees[to] < degrees[source] else source]
            own[at] += 1
            rows.add((source, at))
            sums.add((to, at))
    for vertex, at in [*rows, *sums]:  # forward one way, backward the other
        if owners[vertex] != at:
            sent[owners[vertex], at] += 1
            sent[at, owners[vertex]] += 1
    told = figure10._cut(small, "random")
    columns = min(figure10.HIDDEN, graph.num_classes)
    each = (sent.sum(axis=0) + sent.sum(axis=1)) * 4 * columns * (figure10.LAYERS - 1) / 1e6
    assert [told[f"{figure10.SENT} {worker}"] for worker in range(WORKERS)] == pytest.approx(each.tolist())
    edges = [told[f"{figure10.EDGES} {worker}"] * 1e6 / figure10.LAYERS for worker in range(WORKERS)]
    assert edges == pytest.approx(own.tolist())


def test_unequal_servers_are_hosts_of_a_sandbox():
    servers = Unequal((2, 2, 1, 1), (1, 1, 1, 0.2))
    assert servers.links("200mbit") == {"h4": "40mbit"}
    shares = servers.processors()
    assert shares["h1"] == 2 * shares["h4"]
    assert 0 < sum(shares.values()) < max(2, len(shares))
