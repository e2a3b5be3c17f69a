"""Plans are chosen for models and graphs as people bring them, and what is tried for it leaves nothing in the model."""

from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some_rows
from test_options import WORK
from torch import nn
from torch_geometric.nn import APPNP, GATv2Conv, GCNConv, GENConv, GINConv, GraphConv, SAGEConv

from weft.errors import ModelError
from weft.exchange import Owners
from weft.graph import Graph, communities
from weft.nn import build
from weft.plan import Settings
from weft.planner import Cluster, Host, Planner, Workers, model_cost
from weft.training.objectives import objective_for
from weft.training.planning import task_of

FEATURES, CLASSES, WORKERS = 6, 3, 3


class Stack(nn.Module):
    """Two layers; the first may be asked to weigh edges."""

    def __init__(self, first, last, weighs=False):
        super().__init__()
        self.first, self.last, self.weighs = first, last, weighs

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight) if self.weighs else self.first(x, edge_index)
        return self.last(x.relu(), edge_index)


def normed_gin():
    inner = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))
    return Stack(GINConv(inner, train_eps=True), GINConv(nn.Linear(8, CLASSES)))


MODELS = {
    "a norm within a convolution": normed_gin,
    "a norm within one that Weft runs as it is": lambda: Stack(GENConv(FEATURES, 8), GENConv(8, CLASSES)),
    "weighed edges": lambda: Stack(GCNConv(FEATURES, 8), SAGEConv(8, CLASSES), weighs=True),
    "edges weighed by another convolution": lambda: Stack(GraphConv(FEATURES, 8), SAGEConv(8, CLASSES), weighs=True),
    "shared parameters": lambda: Stack(GATv2Conv(FEATURES, 8, share_weights=True), SAGEConv(8, CLASSES)),
    "medians": lambda: Stack(SAGEConv(FEATURES, 8, aggr="median"), SAGEConv(8, CLASSES, aggr="min")),
    "several aggregations": lambda: Stack(SAGEConv(FEATURES, 8, aggr=["mean", "std"]), SAGEConv(8, CLASSES)),
} | {
    name: lambda name=name: build(name, FEATURES, 8, CLASSES, 2, heads=2) for name in ("gcn", "deepgcn", "gat", "film")
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A graph, and the same with weights of its edges."""
    plain = communities(tmp_path_factory.mktemp("models") / "g", vertices=300, edges=2000, width=FEATURES)
    edges = np.stack([plain.indices, np.repeat(np.arange(300), np.diff(plain.indptr))])
    values = {"features": plain.features, "labels": plain.labels, "split": plain.split, "num_vertices": 300}
    weights = np.random.default_rng(0).random(edges.shape[1]).astype(np.float32)
    return plain, Graph.from_arrays(edges, edge_weight=weights, **values)


def planned(graph, model, full_graph=False):
    """What a planner answers for three hosts."""
    batches = {} if full_graph else {"fanouts": (4, 3), "batch_size": 20}
    settings = Settings.of(hidden=8, threads=1, full_graph=full_graph, **batches)
    owners = Owners(np.linspace(0, 300, WORKERS + 1).astype(int))
    task = task_of(settings, 2, 60, objective_for(graph, settings), workers=WORKERS)
    hosts = tuple(Host(f"h{number}", 1e7, 1e12, 1, 1.0) for number in range(WORKERS))
    return Planner(graph, model, task, Workers(owners, list(range(WORKERS)))).answer(
        Cluster(hosts, 1e-4, 2e-5, 1e9, WORK)
    )


class Dropped(Stack):
    def forward(self, x, edge_index):
        return super().forward(F.dropout(x, 0.5, self.training), edge_index)


class DroppedByModule(Stack):
    def __init__(self, first, last):
        super().__init__(first, last)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, edge_index):
        return super().forward(self.dropout(x), edge_index)


class Mapped(Stack):
    def __init__(self, first, last):
        super().__init__(first, last)
        self.own = nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.BatchNorm1d(CLASSES))

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + self.own(x[: len(x)])


@pytest.mark.parametrize(
    ("kind", "columns"), [(Stack, True), (Dropped, False), (DroppedByModule, False), (Mapped, False)]
)
def test_plans_for_models_that_compute_with_their_inputs_have_no_slices_of_these(graphs, kind, columns):
    """Training refuses them: the first layer's rows are not whole."""
    answer = planned(graphs[0], kind(SAGEConv(FEATURES, 8), SAGEConv(8, CLASSES)))
    (nfp,) = (one for one in answer.predictions if one.name == "nfp")
    assert (nfp.excluded is None) == columns
    if not columns:
        assert "layer 1 can't be columns: the model computes with inputs outside of its first" in nfp.excluded


@pytest.mark.parametrize("full_graph", [False, True], ids=["batches", "the full graph"])
@pytest.mark.parametrize(("kind", "maps"), [(Stack, False), (Dropped, True)])
def test_what_models_compute_with_their_inputs_is_timed(graphs, kind, maps, full_graph, tmp_path, monkeypatch):
    told = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nothing of other runs is kept
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr("weft.planner.space.model_cost", lambda *of: told.append(of[-2]) or model_cost.model_cost(*of))
    planned(graphs[0], kind(SAGEConv(FEATURES, 8), SAGEConv(8, CLASSES)), full_graph)
    assert told == [maps]


# Each model in one way, in turns; those that may take weights in all ways that there are.
_WAYS = [(False, False), (True, True), (True, False), (False, True)]
_QUICK = [(name, *_WAYS[number % 4]) for number, name in enumerate(MODELS)]
_QUICK += [(name, *way) for name in ("weighed edges", "gcn") for way in _WAYS]


@pytest.mark.parametrize(
    ("name", "weights", "full_graph"), some_rows(product(MODELS, [False, True], [False, True]), *_QUICK)
)
def test_a_plan_is_chosen_and_the_model_is_as_before(graphs, name, weights, full_graph):
    model = MODELS[name]().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert planned(graphs[weights], model, full_graph).best.seconds > 0
    after = model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_looks_too_far_is_refused_with_its_name(graphs):
    with pytest.raises(ModelError, match="SAGEConv"):
        planned(graphs[0], Stack(SAGEConv(FEATURES, 8, aggr="lstm"), SAGEConv(8, CLASSES)))


def refusal(world, graph):
    """How a worker ends that is to plan for such a model."""
    settings = Settings.of(hidden=8, threads=1, fanouts=(4, 3), batch_size=20)
    comm, owners = world.communicator(), Owners(np.linspace(0, 300, WORKERS + 1).astype(int))
    model = Stack(GCNConv(FEATURES, CLASSES), APPNP(3, 0.1, dropout=0.5))
    with pytest.raises(ModelError) as caught:
        Planner(
            graph,
            model,
            task_of(settings, 2, 60, objective_for(graph, settings), workers=WORKERS),
            Workers(owners, world.hosts, comm),
        )
    return str(caught.value)


def test_all_workers_are_refused_alike_whichever_tried_the_convolution(graphs, ranks):
    first, *others = ranks(WORKERS, refusal, graphs[0])
    assert "APPNP" in first and others == [first] * 2
