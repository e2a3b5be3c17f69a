"""Figures of locality: by hand, against a slow oracle, in the shape of LeapGNN's, and bad input in one sentence."""

import json

import numpy as np
import pytest

import weft
from weft import cli
from weft.errors import ConfigError, InputError
from weft.graph import Graph, communities
from weft.lab import LocalityStudy, locality
from weft.lab.locality_figures import Allocations, at_home, dealt_out, micro_locality, miss_rate, sub_locality
from weft.partition import allocate, libraries, write_partitioned
from weft.plugins import SAMPLERS
from weft.sampling import Batches, LayerSampler, NeighborSampler


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Enough vertices that a batch does not reach all of them."""
    folder = tmp_path_factory.mktemp("graphs") / "g"
    return communities(
        folder, vertices=20_000, edges=200_000, width=4, classes=8, train=0.1, block=250, in_block=0.9, in_class=0.05
    )


def small_graph(seed, vertices=60, edges=150):
    rng = np.random.default_rng(seed)
    labels, split = rng.integers(0, 3, vertices), rng.integers(0, 3, vertices)
    return Graph.from_arrays(rng.integers(0, vertices, (2, edges)), num_vertices=vertices, labels=labels, split=split)


class TestByHand:
    """Two roots, 6 at owner 0 with the sources 5, 7 (owner 0) and 1; 3 at owner 1 with 2, 0 (owner 1), 5 and 7."""

    edges = np.array([[5, 7, 1, 2, 0, 5, 7], [6, 6, 6, 3, 3, 3, 3]])
    owners = np.array([1, 1, 1, 1, 0, 0, 0, 0], dtype=np.uint8)
    batch = np.array([6, 3])

    @pytest.fixture
    def sampler(self):
        return NeighborSampler(Graph.from_arrays(self.edges, num_vertices=8), [-1, -1])

    @pytest.fixture
    def allocations(self):
        """The owners above, and all vertices at one."""
        return Allocations([("some", 2), ("one", 1)], np.stack([self.owners, np.zeros(8, dtype=np.uint8)], axis=1))

    def test_micrographs(self, sampler, allocations):
        found = micro_locality(sampler, [self.batch], allocations)
        assert found == pytest.approx([(2 / 4 + 2 / 5) / 2, (3 / 4 + 4 / 5) / 2])

    def test_subgraph(self, sampler, allocations):
        found = sub_locality(sampler, [self.batch], allocations)  # 6, 3, and 5, 7 at owner 0, and 1, 2, 0 at owner 1
        assert found == pytest.approx([(2 / 7 + 3 / 7) / 2, 5 / 7])

    def test_misses(self, sampler):
        def rate(*shares):
            return miss_rate(sampler, [list(shares)], self.owners)

        assert rate(*dealt_out(self.batch, 2)) == pytest.approx(3 / 9)  # each is at home by chance
        assert rate(*dealt_out(self.batch[::-1], 2)) == pytest.approx(6 / 9)  # neither is
        assert rate(*at_home(self.batch[::-1], self.owners, 2)) == pytest.approx(3 / 9)
        assert rate(*at_home(self.batch[:1], self.owners, 2)) == pytest.approx(1 / 4)  # owner 1 has nothing to read


def reached(graph, seeds, hops):
    """Whoever a walk against the edges comes to: what sampling all neighbours gives."""
    found = set(seeds)
    for _ in range(hops):
        found |= {int(u) for v in found for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    return found


def slow_micro(graph, roots, hops, owners):
    shares = []
    for root in roots:
        vertices = reached(graph, [root], hops)
        shares.append(sum(v != root and owners[v] == owners[root] for v in vertices) / len(vertices))
    return sum(shares) / len(shares)


def slow_sub(graph, batches, hops, owners):
    shares = []
    for batch in batches:
        vertices = reached(graph, batch, hops)
        for root in batch:
            here = [v for v in vertices if v not in batch and owners[v] == owners[root]]
            shares.append(len(here) / len(vertices))
    return sum(shares) / len(shares)


def slow_misses(graph, batches, hops, owners, workers, worker_of):
    rates = []
    for batch in batches:
        read = missed = 0
        for worker in range(workers):
            rows = reached(graph, [seed for place, seed in enumerate(batch) if worker_of(place, seed) == worker], hops)
            read += len(rows)
            missed += sum(owners[row] != worker for row in rows)
        rates.append(missed / read)
    return sum(rates) / len(rates)


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_those_of_the_oracle(seed):
    graph = small_graph(seed)
    training = graph.seeds("train")
    study = LocalityStudy(
        (2, 3), ("metis", "random"), (1, 3), (-1,), (-1, -1), roots=7, batches=2, batch_size=5, seed=seed
    )
    found = locality(graph, study)
    assert len(found.micrographs) == 8 and len(found.misses) == 4
    epochs = {workers: [b.tolist() for b in Batches(training, None, 5 * workers, seed).of(0)] for workers in (1, 2, 3)}
    for row in found.micrographs:
        owners, hops = allocate(graph, row.parts, row.method, seed=seed), len(row.fanouts)
        assert row.micro == pytest.approx(
            slow_micro(graph, [root for batch in epochs[1] for root in batch][:7], hops, owners)
        )
        assert row.sub == pytest.approx(slow_sub(graph, epochs[1][:2], hops, owners))
        assert (row.roots, row.batches, row.seeds) == (7, 2, 5)
    for row in found.misses:
        owners, workers = allocate(graph, row.parts, row.method, seed=seed), row.parts
        batches = [batch for batch in epochs[workers] if len(batch) == 5 * workers][:2] or epochs[workers][:1]
        assert (row.batches, row.seeds) == (len(batches), len(batches[0]))
        arguments = graph, batches, 2, owners, workers
        assert row.spread == pytest.approx(slow_misses(*arguments, lambda place, seed, w=workers: place % w))
        assert row.home == pytest.approx(slow_misses(*arguments, lambda place, seed, o=owners: o[seed]))


def test_structure_keeps_micrographs_together_and_seeds_at_home_miss_less(graph):
    found = locality(graph, LocalityStudy(layers=(2, 6), batch_size=64, roots=300))
    for row in found.micrographs:
        if row.method == "metis":
            assert row.micro > 1.15 * row.sub
        else:
            assert row.micro == pytest.approx(row.sub, abs=0.03)
        assert row.sub == pytest.approx(1 / row.parts, abs=0.06)
    for row in found.misses:
        assert row.spread == pytest.approx(1 - 1 / row.parts, abs=0.05)
        if row.method == "metis":
            assert row.home < 0.75 * row.spread
        else:
            assert row.home == pytest.approx(row.spread, abs=0.03)


def test_deeper_micrographs_are_less_local(graph):
    rows = locality(
        graph, LocalityStudy((4,), ("metis",), (2, 4, 7), (3,), roots=200, batches=1, batch_size=64)
    ).micrographs
    assert rows[0].micro > rows[1].micro > rows[2].micro


def test_one_owner_misses_nothing():
    found = locality(small_graph(0), LocalityStudy((1,), ("random",), (2,), batch_size=8))
    assert found.misses[0].spread == found.misses[0].home == 0


def test_figures_are_the_same_for_the_same_seed_however_vertices_are_numbered(tmp_path):
    graph = small_graph(5, 300, 1500)
    write_partitioned(graph, allocate(graph, 3, "metis"), 3, tmp_path / "parts")
    study = LocalityStudy((2, 5), ("random",), (2, 4), (2,), (3, 2), roots=30, batch_size=8, seed=3)
    assert locality(graph, study) == locality(Graph.open(tmp_path / "parts"), study)
    assert locality(graph, study) != locality(graph, LocalityStudy(**{**vars(study), "seed": 4}))


def test_samplers_are_found_by_name(monkeypatch):
    monkeypatch.setattr(SAMPLERS, "_added", {})

    @weft.register
    class Whole(NeighborSampler):
        name = "whole"

        @classmethod
        def fanouts_like(cls, graph, fanouts):
            return [-1] * len(fanouts)

    @weft.register
    class Nobody(NeighborSampler):
        name = "nobody"

        @classmethod
        def fanouts_like(cls, graph, fanouts):
            return []

    graph, study = small_graph(1), LocalityStudy((2,), ("random",), (2,), batch_size=8)
    found = locality(graph, study, ["whole", "nobody"])
    assert [row.sampler for row in found.micrographs] == [row.sampler for row in found.misses] == ["whole", "nobody"]
    assert found.micrographs[1].micro == found.micrographs[1].sub == found.misses[1].home == 0
    assert found == locality(graph, study, ["whole", "nobody"])


class TestCommand:
    def test_tables(self, graph, capsys):
        arguments = ["locality", str(graph.path), "--parts", "2,4", "--batch-size", "64", "--roots", "50"]
        assert cli.main([*arguments, "--layers", "2,3", "--fanouts", "5,full"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        for piece in (
            "R_micro",
            "2 x 5",
            "3 x full",
            "metis",
            "at home",
            "4 x 256",
            "R_micro: 50 roots",
            "4 batches of 64",
        ):
            assert piece in told

    def test_json(self, graph, capsys):
        arguments = ["locality", str(graph.path), "--parts", "2", "--methods", "random", "--layers", "2"]
        assert cli.main([*arguments, "--roots", "20", "--batch-size", "64", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["micrographs"][0]["fanouts"] == [10, 10] and figures["micrographs"][0]["roots"] == 20
        assert 0 < figures["misses"][0]["home"] < figures["misses"][0]["spread"] + 0.05

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--parts", "2,20001"], "20001 parts are not possible with 20000 vertices"),
            (["--parts", "0"], "parts = 0 is out of range"),
            (["--parts", "two"], "--parts two is not a list of whole numbers"),
            (["--methods", "magic"], "method 'magic' is not known: choose from random, ldg, fennel, blocks, metis"),
            (["--methods", ""], "methods is empty"),
            (["--samplers", "magic"], "sampler 'magic' is not known: choose from neighbor, labor, layer"),
            (["--layers", "2,10", "--fanouts", "3,2,1"], "3 fanouts do not fit 2 numbers of layers"),
            (["--fanouts", "0"], "fanout 0 is not possible"),
            (["--miss-fanouts", "10,-2"], "fanout -2 is not possible"),
            (["--roots", "0"], "roots = 0 is out of range"),
            (["--batches", "0"], "batches = 0 is out of range"),
            (["--batch-size", "0"], "batch_size = 0 is out of range"),
            (["--seed", "-1"], "seed = -1 is out of range"),
        ],
    )
    def test_bad_input_is_one_sentence(self, graph, capsys, arguments, sentence):
        assert cli.main(["locality", str(graph.path), *arguments]) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1


class TestBadGraphs:
    def test_no_training_vertices(self):
        edges, ones = np.array([[0, 1], [1, 0]]), np.ones(2, dtype=np.uint8)
        with pytest.raises(InputError, match="no vertex is both labelled and in the train split"):
            locality(Graph.from_arrays(edges, labels=ones, split=ones), LocalityStudy((2,), ("random",)))
        with pytest.raises(InputError, match="has no labels"):
            locality(Graph.from_arrays(edges), LocalityStudy((2,), ("random",)))

    def test_missing_library(self, monkeypatch):
        monkeypatch.setattr(libraries, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match="METIS is not installed"):
            locality(small_graph(0), LocalityStudy((2,), ("metis",)))


class TestLayerWise:
    """Fanouts of other samplers become budgets that draw as many neighbours, on average over the graph."""

    @pytest.mark.parametrize("fanout", [1, 3, 8])
    def test_budgets_draw_as_many(self, graph, fanout):
        sampler = LayerSampler(graph, LayerSampler.fanouts_like(graph, [fanout]))
        drawn = [sampler.sample(np.arange(graph.num_vertices), 0, batch).blocks[0].num_edges for batch in range(10)]
        assert np.mean(drawn) / graph.num_vertices == pytest.approx(fanout, rel=0.05)

    def test_all_neighbours(self, graph):
        assert LayerSampler.fanouts_like(graph, [-1, 10_000]) == [-1, -1]

    def test_a_row_for_each_sampler(self, graph):
        study = LocalityStudy(
            (2,), ("random",), layers=(2,), fanouts=(2,), miss_fanouts=(2, 2), roots=20, batches=1, batch_size=20
        )
        found = locality(graph, study, ["neighbor", "labor", "layer"])
        assert [row.sampler for row in found.micrographs] == ["neighbor", "labor", "layer"]
        assert [row.sampler for row in found.misses] == ["neighbor", "labor", "layer"]
        assert len({row.micro for row in found.micrographs}) == 3
