"""A sampler from outside: exact under every plan, planned, in tables, known to the command line."""

import json

import numpy as np
import pytest
import torch
from exactness import HOME, check_exact, make_parts, sage, trained
from torch_geometric.nn import GCN

from weft import cli
from weft.errors import ConfigError, InputError, ModelError
from weft.graph import Graph
from weft.plugins import SAMPLERS
from weft.sampling import ListSampler, counted, make_sampler

PLANS = {
    "gdp": {"layers": ["local", "local"]},
    "leap, partitioned": {"layers": ["local", "local"], "topology": "partitioned", **HOME},
    "nfp": {"layers": ["columns", "local"]},
    "split": {"layers": ["cover", "cover"], **HOME},
    "pull, partitioned": {"layers": ["pull", "pull"], "topology": "partitioned", **HOME},
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("graphs"))


def test_it_is_known_by_its_name():
    assert SAMPLERS.names() == ("neighbor", "labor", "layer", "window")
    assert SAMPLERS.help()["window"] == "each vertex takes neighbours that stand in a row in its list"


def test_it_draws_rows_of_neighbours(parts):
    graph = Graph.open(parts[1])
    sample = make_sampler("window", graph, [4], seed=1).sample(np.arange(500), 0, 0)
    block, starts = sample.blocks[0], set()
    sources = np.split(sample.vertices.numpy()[block.src.numpy()], block.indptr.numpy()[1:-1])
    for vertex, drawn in enumerate(sources):
        neighbours = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
        assert len(drawn) == min(4, len(neighbours))
        rows = [np.resize(np.roll(neighbours, -at), len(drawn)).tolist() for at in range(len(neighbours))]
        assert not len(drawn) or drawn.tolist() in rows
        starts.add(rows.index(drawn.tolist()) / len(neighbours) if len(neighbours) > 8 else 0)
    assert len(starts) > 20  # places are random


def test_every_plan_trains_what_one_worker_trains(ranks, parts):
    losses, parameters = check_exact(ranks, parts, sage, PLANS, sampler="window")
    other_losses, other = check_exact(ranks, parts, sage, {})
    assert np.abs(losses - other_losses).max() > 1e-4 and not torch.equal(parameters, other)  # another sample, though


class OldestSampler(ListSampler):
    """Neighbours of the lowest ids at import."""

    name, help = "oldest", "neighbours of the lowest ids at import"

    def draw(self, vertices, hop, key):
        degrees = self.degrees(vertices)
        lengths, owners = np.minimum(degrees, self.fanouts[hop]), np.repeat(np.arange(len(vertices)), degrees)
        order = np.lexsort((self.original(self.neighbours(vertices)), owners))
        return lengths, counted(degrees)[order][counted(degrees) < np.repeat(lengths, degrees)]


class CarelessSampler(ListSampler):
    """Draws from a generator of its own, one vertex after the other."""

    name, help = "careless", "neighbours in a row, by a generator of its own"

    def draw(self, vertices, hop, key):
        degrees = self.degrees(vertices)
        lengths = np.minimum(degrees, self.fanouts[hop])
        start = (np.random.default_rng(key).random(len(vertices)) * degrees).astype(np.int64)
        return lengths, (np.repeat(start, lengths) + counted(lengths)) % np.repeat(degrees, lengths)


def test_draws_that_hang_on_other_vertices_are_refused_where_a_batch_is_shared(ranks, parts):
    SAMPLERS.register(CarelessSampler)
    words = "sampler 'careless' draws otherwise for a vertex if it draws for others beside it"
    with pytest.raises(InputError, match=words):
        check_exact(ranks, parts, sage, {"gdp": PLANS["gdp"]}, sampler="careless")
    with pytest.raises(InputError, match=words):
        ranks(1, trained, parts[1], sage, None, {"sampler": "careless", "micro_batches": 2})
    assert ranks(1, trained, parts[1], sage, None, {"sampler": "careless"})


def test_ids_of_import_stay(ranks, parts):
    SAMPLERS.register(OldestSampler)
    check_exact(ranks, parts, sage, {"leap, partitioned": PLANS["leap, partitioned"]}, sampler="oldest")


class UnevenSampler(OldestSampler):
    """Says that not all neighbours have the same chance."""

    name, weighted = "uneven", True


class OptionalSampler(OldestSampler):
    """Does so where that is asked for."""

    name, options = "optional", frozenset({"weighted"})

    def __init__(self, graph, fanouts, *, weighted=False, **common):
        super().__init__(graph, fanouts, **common)


def test_a_constructor_that_does_not_take_what_samplers_are_given_is_refused():
    class NarrowSampler(OldestSampler):
        def __init__(self, graph, fanouts, seed=0):
            super().__init__(graph, fanouts, seed=seed)

    class OptionlessSampler(OldestSampler):
        options = frozenset({"replace"})

    for kind, name in ((NarrowSampler, "threads"), (OptionlessSampler, "replace")):
        words = rf"{kind.__name__}: its constructor got an unexpected .* '{name}': let it be __init__\(self, graph"
        with pytest.raises(ConfigError, match=words):
            SAMPLERS.register(kind)


def gcn(width, classes):
    return GCN(width, 8, 2, classes)


def test_neighbours_of_other_chances_are_told(ranks, parts):
    SAMPLERS.register(UnevenSampler)
    SAMPLERS.register(OptionalSampler)
    for workers, plan in ((1, None), (2, PLANS["gdp"])):
        with pytest.raises(ModelError, match=r"needs uniform sampling .*: drop weighted, or choose another sampler"):
            ranks(workers, trained, parts[workers], gcn, plan, {"sampler": "uneven"})
    graph = Graph.open(parts[1])
    assert [make_sampler("optional", graph, [3], weighted=weighted).weighted for weighted in (True, False)] == [
        True,
        False,
    ]


def test_commands_take_it(parts, tmp_path, capsys):
    run = ["--sampler", "window", "--fanouts", "4,3", "--batch-size", "60", "--hidden", "8", "--threads", "1"]
    assert cli.main(["train", str(parts[1]), *run, "--epochs", "1", "--out", str(tmp_path / "out")]) == 0
    assert "window sampling" in capsys.readouterr().out
    study = ["--methods", "random", "--parts", "2", "--layers", "2", "--roots", "20", "--batches", "1", "--json"]
    assert cli.main(["locality", str(parts[1]), "--samplers", "neighbor,window", *study]) == 0
    rows = json.loads(capsys.readouterr().out)["micrographs"]
    assert [row["sampler"] for row in rows] == ["neighbor", "window"]
    assert cli.main(["train", str(parts[1]), *run[2:], "--sampler", "windows", "--epochs", "1"]) == 2
    assert "sampler 'windows' is not known: did you mean 'window'?" in capsys.readouterr().err
    assert cli.main(["train", str(parts[1]), *run, "--replace", "--epochs", "1"]) == 2
    assert "replace means nothing to sampler = 'window'" in capsys.readouterr().err
