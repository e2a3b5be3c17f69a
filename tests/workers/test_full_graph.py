"""The full graph on many workers equals plain PyG on it: losses, accuracies and parameters, in float64 to 1e-10."""

import itertools
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from full_steps import EPOCHS, full_model, train_full
from quick import some
from safetensors.torch import load_file
from steps import run
from test_exact import compare, kind_of
from test_many_workers import far
from torch_geometric.nn import RGATConv
from torch_geometric.nn.models import GraphSAGE

from weft.graph import Graph, HeteroFeatures, communities
from weft.keys import seeded
from weft.nn import Decoupled
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer

ROUTES = ("pull", "push", "cover")


def plan(*layers, **options):
    return {"layers": list(layers), "scope": "graph", "seeds": "home", **options}


PLANS = {"+".join(layers): plan(*layers) for layers in itertools.product(ROUTES, ROUTES)}
PLANS |= {
    "halo": {"plan": "halo"},
    "no name": {"plan": "auto"},
    "replicas": {"plan": "halo", "replicate": True},
    "replicas, pull": plan("pull", "pull", replicate=True),
    "partitioned": {"plan": "halo", "topology": "partitioned"},
    "tp": {"plan": "tp"},
    "tp, chunks": {"plan": "tp", "chunks": 3},
}
DEEP = {
    "tp": PLANS["tp"],
    "halo": PLANS["halo"],
    "pull": plan("pull", "pull", "pull", "pull"),
    "push": plan("push", "push", "push", "push"),
    "replicas": plan("pull", "pull", "pull", "pull", replicate=True),
    "replicas, mixed": plan("pull", "push", "cover", "pull", replicate=True),
    "pull, partitioned": plan("pull", "pull", "cover", "cover", topology="partitioned"),
}
SOME = ["halo", "pull+pull", "push+push", "cover+pull", "replicas", "tp"]

# Models, and the plans that each is run under.
CASES = {
    "sage-mean": list(PLANS),
    "sage-max": SOME,
    "gcn": list(PLANS),
    "gcn-weights": SOME,
    "gin": [*SOME, "partitioned"],
    "gat": [*SOME, "pull+push", "partitioned"],
    "gatv2": ["halo", "replicas", "tp"],
    "film": ["halo", "push+push", "tp"],
    "jk": SOME,
    "own": ["no name", "pull+pull", "replicas, pull"],
    "declared": SOME,
    "rgcn": [*SOME, "pull+push", "partitioned"],
    "rgcn-bases": ["halo"],
    "rgcn-types": ["halo", "pull+pull", "push+push", "replicas", "tp"],
    "rgat": [*SOME, "partitioned"],
    "rgat-types": ["halo"],
    "deep": list(DEEP),
    "graph-weights": [*SOME, "pull+push", "partitioned"],
}


METHODS = {1: "random", 2: "metis", 3: "random", 4: "kaminpar"}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """`graphs(kind, workers)`: where a graph of some kind is for so many, or uneven ones, made when it is first asked for.

    It has self-loops, repeated edges, vertices without edges, and edge weights, relations or types.
    """
    folder, made = tmp_path_factory.mktemp("graphs"), {}

    @cache
    def placed(kind, workers):
        graph, parts, path = made[kind], 3 if workers == "uneven" else workers, folder / f"{kind}-{workers}"
        if workers == "uneven":  # one owner holds nothing, another no seeds
            owners = np.zeros(300, dtype=np.int32)
            owners[np.flatnonzero(made["plain"].split != 0)[:20]] = 2
        else:
            owners = allocate(graph, parts, METHODS[parts], seed=3)
        write_partitioned(graph, owners, parts, path)
        return str(path)

    plain = communities(folder / "plain", vertices=300, edges=2400, width=7, classes=4, train=0.3)
    rng = np.random.default_rng(1)
    dst = np.repeat(np.arange(300), np.diff(plain.indptr))
    edges = np.stack([plain.indices, dst])
    edges = edges[:, (dst % 7 != 0) & (edges % 50 != 0).all(0)]
    edges = np.concatenate([edges, edges[:, :100], np.tile(np.arange(1, 300, 9), (2, 1))], axis=1)
    values = {"features": plain.features, "labels": plain.labels, "split": plain.split, "num_vertices": 300}
    weights = rng.random(edges.shape[1]).astype(np.float32) + np.float32(0.1)
    made |= {
        "plain": Graph.from_arrays(edges, **values),
        "weights": Graph.from_arrays(edges, edge_weight=weights, **values),
        "relations": Graph.from_arrays(edges, edge_type=rng.choice(4, edges.shape[1], p=(0.6, 0.3, 0.1, 0)), **values),
    }
    kinds = rng.integers(0, 3, 300)  # of vertices, with features of three widths
    tables = tuple(plain.features[kinds == kind, :width] for kind, width in enumerate((7, 2, 0)))
    typed = values | {"features": HeteroFeatures(kinds.astype(np.uint8), tables), "vertex_type": kinds}
    made["types"] = Graph.from_arrays(edges, edge_type=rng.integers(0, 3, edges.shape[1]), **typed)
    return placed


def case(graphs, model, name, workers, dropout=0.0):
    kind = kind_of(model)
    chosen = (DEEP if model == "deep" else PLANS)[name]
    placed = {"plan": chosen} if "layers" in chosen else {"plan": {}, "settings": chosen}
    return {"model": model, "graph": graphs(kind, workers), "dropout": dropout, **placed}


def by_pyg(graph, model):
    """The slow, obvious version: the module itself on the whole graph."""
    x = torch.from_numpy(np.array(graph.features[:])).double()
    labels = torch.from_numpy(graph.labels.astype(np.int64))
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    given = {} if graph.edge_weight is None else {"edge_weight": torch.from_numpy(graph.edge_weight).double()}
    if graph.edge_type is not None:
        given["edge_type"] = torch.from_numpy(graph.edge_type).long()
    if graph.vertex_type is not None:
        given["node_type"] = torch.from_numpy(graph.vertex_type).long()
    seeds, held_out = (torch.from_numpy(graph.seeds(split).astype(np.int64)) for split in ("train", "validation"))
    optimizer, seen = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(EPOCHS):
        model.train()
        loss = torch.nn.functional.cross_entropy(model(x, edge_index, **given)[seeds], labels[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(x, edge_index, **given)[held_out].argmax(1) == labels[held_out]
        seen += [float(loss), float(right.double().mean())]
    return {
        "losses": np.array(seen),
        "parameters": torch.cat([p.detach().flatten() for p in model.parameters()]).numpy(),
    }


@pytest.fixture(scope="module")
def pyg(graphs):
    """What plain PyG makes of each model."""
    found = {}
    for model in CASES:
        graph = Graph.open(graphs(kind_of(model), 1))
        widths = graph.feature_widths
        found[model] = by_pyg(graph, full_model(model, graph.num_features, graph.num_classes, 0.0, widths))
    return found


DECOUPLED = ("sage-mean", "gcn", "gcn-weights", "gin", "gat", "deep", "rgcn", "rgcn-types")


@pytest.fixture(scope="module")
def pyg_decoupled(graphs):
    """What a plain module makes of each model's decoupled variant."""
    found = {}
    for model in DECOUPLED:
        graph = Graph.open(graphs(kind_of(model), 1))
        plain = full_model(model, graph.num_features, graph.num_classes, 0.0, graph.feature_widths)
        found[model] = by_pyg(graph, Decoupled(plain))
    return found


@pytest.mark.parametrize("workers", ["uneven", *(pytest.param(workers, marks=pytest.mark.slow) for workers in (1, 4))])
def test_tp_decoupled_is_the_decoupled_model_in_one_process(ranks, graphs, pyg_decoupled, workers):
    ways = ({}, {"overlap": False}, {"chunks": 3})
    names = [(model, way) for model in DECOUPLED for way in (ways if model in ("gcn", "gat") else ways[:1])]
    cases = []
    for model, way in names:
        settings = {"plan": "tp-decoupled", **way}
        cases.append(case(graphs, model, "halo", workers) | {"settings": settings})
    got = run(ranks, cases, 3 if workers == "uneven" else workers, train_full)
    compare([pyg_decoupled[model] for model, _ in names], got, [(model, str(way)) for model, way in names])


@pytest.fixture(scope="module")
def with_dropout(ranks, graphs):
    """What one worker makes of each model with dropout, which plain PyG draws otherwise."""
    cases = [case(graphs, model, "halo" if model != "own" else "no name", 1, 0.3) for model in CASES]
    return dict(zip(CASES, run(ranks, cases, 1, train_full), strict=True))


def test_one_worker_is_pyg(ranks, graphs, pyg):
    names = [(model, "no name" if model != "deep" else "halo") for model in CASES]
    compare(
        [pyg[model] for model in CASES], run(ranks, [case(graphs, *name, 1) for name in names], 1, train_full), names
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3, 4, "uneven"])
def test_every_plan_is_pyg(ranks, graphs, pyg, with_dropout, workers):
    names = [(model, name) for model, names in CASES.items() for name in names]
    check(ranks, graphs, pyg, with_dropout, workers, names, names)


@pytest.mark.parametrize("workers", some([2, 3, 4, "uneven"], 2, "uneven"))
def test_plans_are_pyg(ranks, graphs, pyg, with_dropout, workers):
    """Some models and plans with each number of workers; the slow suite has all of them."""
    turn = (2, 3, 4, "uneven").index(workers)
    every = [(model, name) for model, names in CASES.items() for name in names]
    always = [("sage-mean", "halo"), ("sage-mean", "replicas"), ("gcn", "tp"), ("gat", "halo"), ("deep", "replicas")]
    names = always + [name for name in every[turn::8] if name not in always]
    some = [name for name in names if name[1] in ("halo", "no name", "replicas")]
    check(ranks, graphs, pyg, with_dropout, workers, names, some[::2])


def check(ranks, graphs, pyg, with_dropout, workers, names, dropping):
    """Without dropout the same as plain PyG, with it the same as one worker."""
    cases = [case(graphs, *name, workers) for name in names]
    cases += [case(graphs, *name, workers, 0.3) for name in dropping]
    wanted = [pyg[model] for model, _ in names]
    wanted += [with_dropout[model] for model, _ in dropping]
    labels = [(one["model"], str(one["plan"] or one["settings"]), one["dropout"]) for one in cases]
    compare(wanted, run(ranks, cases, 3 if workers == "uneven" else workers, train_full), labels)


def test_by_the_command_resumed_by_another_plan(weft, tmp_path):
    graph = communities(tmp_path / "whole", vertices=800, edges=8000, width=9, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, tmp_path / "parts")
    usual = ["--full-graph", "--hidden", 8, "--layers", 3, "--epochs", 4, "--dtype", "float64", "--dropout", 0.2]
    usual += ["--threads", 1]
    many, kept = ["--workers", 2, "--checkpoint", tmp_path / "kept", "--keep", 9], tmp_path / "kept"
    for arguments in (
        [tmp_path / "whole", *usual, "--out", tmp_path / "one"],
        [tmp_path / "parts", *usual, *many, "--plan", "halo", "--replicate"],
        [tmp_path / "parts", *usual, *many, "--plan", "tp", "--chunks", 2, "--resume", "--out", tmp_path / "two"],
    ):
        done = weft("train", *arguments, check=True)
        for step in (3, 4):
            shutil.rmtree(kept / f"step-{step:09d}", ignore_errors=True)
    assert "epoch 3, batch 1" in done.stdout
    one, two = (load_file(tmp_path / name / "state.safetensors") for name in ("one", "two"))
    assert far(one, two) < 1e-10


def test_a_run_that_computes_halos_again_is_trained_longer_to_the_same_bits(ranks, tmp_path):
    """Inputs that are worth fetching are the same of a short run: sums have the same parts."""
    whole = communities(tmp_path / "whole", vertices=400, edges=1600, width=60, classes=4, train=0.5)
    write_partitioned(whole, allocate(whole, 2, "metis"), 2, tmp_path / "parts")

    def losses(world, graph, folder, epochs, resume=False):
        with seeded(1):
            model = GraphSAGE(60, 8, 3, 4)
        usual = {"full_graph": True, "plan": "halo", "replicate": True, "lr": 0.01, "threads": 1, "evaluate_every": 0}
        chosen = Settings.of(**usual, checkpoint=folder, epochs=epochs, resume=resume)
        return [epoch["loss"] for epoch in Trainer(graph, model, chosen, world=world).fit().history]

    graph = Graph.open(tmp_path / "parts")
    at_once = ranks(2, losses, graph, tmp_path / "at-once", 40)
    ranks(2, losses, graph, tmp_path / "longer", 4)
    assert ranks(2, losses, graph, tmp_path / "longer", 40, True) == at_once


class OfRelations(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = RGATConv(3, 4, num_relations=2, heads=2)
        self.last = RGATConv(8, 3, num_relations=2, heads=1, concat=False)

    def forward(self, x, edge_index, edge_type):
        return self.last(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


@pytest.mark.parametrize("plan", ["tp", "tp chunks=5", "halo"])
def test_a_graph_without_edges(ranks, tmp_path, plan):
    features = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    given = {"features": features, "labels": np.arange(10) % 3, "split": np.arange(10) % 2, "num_vertices": 10}
    whole = Graph.from_arrays(np.empty((2, 0), dtype=np.int64), edge_type=np.empty(0, dtype=np.int64), **given)
    write_partitioned(whole, np.arange(10, dtype=np.int32) % 3, 3, tmp_path / "parts")

    def losses(world, graph):
        with seeded(1):
            model = OfRelations().double()
        settings = Settings.of(full_graph=True, dtype="float64", epochs=3, threads=1, plan=plan)
        return [epoch["loss"] for epoch in Trainer(graph, model, settings, world=world).fit().history]

    (alone,) = ranks(1, losses, whole)
    assert ranks(3, losses, Graph.open(tmp_path / "parts"))[0] == pytest.approx(alone, abs=1e-12)
