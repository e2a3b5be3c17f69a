"""Features of edges, PyG's edge_attr of several columns: as PyG has them, on any number of workers."""

from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some
from torch import nn
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GENConv,
    GINEConv,
    GMMConv,
    MessagePassing,
    NNConv,
    PDNConv,
    TransformerConv,
)
from torch_geometric.nn.models import GAT

import weft
from weft.errors import ModelError
from weft.graph import Graph
from weft.keys import seeded
from weft.partition import write_partitioned
from weft.placements.cooperation import _apart, _in_one
from weft.plan import Plan, Settings
from weft.planner import KINDS, Cluster, Host
from weft.training import Trainer, planner_for, unused_by

WIDTH, COLUMNS, CLASSES, VERTICES, EDGES = 6, 5, 4, 300, 1500
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A graph with some loops, for one worker, two and three."""
    folder, random = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    ends = random.integers(0, VERTICES, (2, EDGES))
    ends[1, :40] = ends[0, :40]
    graph = Graph.from_arrays(
        ends,
        num_vertices=VERTICES,
        features=random.standard_normal((VERTICES, WIDTH), dtype=np.float32),
        labels=random.integers(0, CLASSES, VERTICES),
        split=np.repeat([0, 1, 2], [200, 50, 50]).astype(np.uint8),
        edge_features=random.standard_normal((EDGES, COLUMNS), dtype=np.float32),
    )
    graph.save(folder / "1")
    for parts in (2, 3):
        write_partitioned(graph, np.arange(VERTICES) * parts // VERTICES, parts, folder / str(parts))
    return folder


class Own(MessagePassing):
    """Messages of rows, features of edges and what is dropped of them."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.rows, self.edges = nn.Linear(width, out), nn.Linear(COLUMNS, out)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=self.rows(x), edges=F.dropout(self.edges(edge_attr), 0.3, self.training))

    def message(self, x_j, edges):
        return (x_j + edges).tanh()


class Two(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(WIDTH, 8), make(8, CLASSES)

    def forward(self, x, edge_index, edge_attr):
        x = F.dropout(self.first(x, edge_index, edge_attr).relu(), 0.3, self.training)
        return self.second(x, edge_index, edge_attr=edge_attr)


class Optional(Two):
    def forward(self, x, edge_index, edge_attr=None):
        return super().forward(x, edge_index, edge_attr)


MODELS = {
    "own": lambda: Two(Own),
    "gine": lambda: Two(lambda width, out: GINEConv(nn.Linear(width, out), edge_dim=COLUMNS)),
    "gat": lambda: Two(lambda width, out: GATConv(width, out, edge_dim=COLUMNS, dropout=0.3)),
    "gatv2": lambda: Two(lambda width, out: GATv2Conv(width, out, edge_dim=COLUMNS)),
    "transformer": lambda: Two(lambda width, out: TransformerConv(width, out, edge_dim=COLUMNS)),
    "nn": lambda: Two(lambda width, out: NNConv(width, out, nn.Linear(COLUMNS, width * out), aggr="mean")),
    "gen": lambda: Two(lambda width, out: GENConv(width, out, edge_dim=COLUMNS, norm=None)),
    "gmm": lambda: Two(lambda width, out: GMMConv(width, out, COLUMNS, 2)),
    "pdn": lambda: Two(lambda width, out: PDNConv(width, out, COLUMNS, 7)),  # which looks at degrees, too
    "pyg's model": lambda: GAT(WIDTH, 8, 2, CLASSES, edge_dim=COLUMNS),
}


def losses(world, folder, make, plan, **options):
    """The mean loss of each of two epochs, of two batches."""
    if "full_graph" not in options:
        options = {"fanouts": (-1, 2), "batch_size": 102 // world.size} | options
    if isinstance(plan, str):
        options, plan = (options | {"plan": plan} if world.size > 1 else options), None
    told = Settings.of(seed=5, dtype="float64", threads=1, epochs=2, **options)
    with seeded(3):
        model = make().double()
    chosen = None if world.size == 1 else plan
    trainer = Trainer(open_graph(folder / str(world.size)), model, told, world=world, plan=chosen)
    found = [trainer.train_epoch(epoch)[1] for epoch in range(2)]
    trainer.close()
    return found


PLANS = ["gdp", "leap", Plan(("pull", "local")), Plan(("pull", "pull"), seeds="home")]
PLANS += [
    Plan(("local", "local"), topology="partitioned"),
    Plan(("pull", "pull"), seeds="home", topology="partitioned"),
]


@pytest.mark.parametrize("name", some(MODELS, "own", "gine", "pdn"))
def test_several_workers_train_the_same_model(ranks, graphs, name):
    fanouts = {"fanouts": (-1, -1)} if name == "pdn" else {}
    for plans, options in ((PLANS, fanouts), (["halo"], {"full_graph": True})):
        run = partial(losses, folder=graphs, make=MODELS[name], **options)
        alone = ranks(1, partial(run, plan=None))[0]
        for plan, size in product(plans, (2, 3)):
            assert ranks(size, partial(run, plan=plan))[0] == pytest.approx(alone, abs=1e-10)


def test_rows_of_them_travel_as_one_also_where_there_are_none():
    for rows in (np.arange(10, dtype=np.float32).reshape(5, 2), np.empty((0, 3), np.float32), np.ones(4, np.float32)):
        np.testing.assert_array_equal(_apart(_in_one(rows)), rows)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_pyg_makes_of_them(graphs, name):
    graph = open_graph(graphs / "1")
    with seeded(3):
        model = MODELS[name]().double().eval()
    dst = np.repeat(np.arange(VERTICES), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices, dst]).astype(np.int64))
    expected = model(
        torch.tensor(graph.features[:]).double(), edges, edge_attr=torch.tensor(graph.edge_features[:]).double()
    )
    torch.testing.assert_close(torch.from_numpy(weft.infer(model, graph).outputs), expected.detach())
    loader = weft.Loader(graph, fanouts=(-1, -1), batch_size=50, dtype="float64")
    run, batch = weft.parallel(model, loader), next(iter(loader))
    wanted = torch.autograd.grad(expected[batch.seeds].square().sum(), model.parameters(), materialize_grads=True)
    rows = run(batch)
    torch.testing.assert_close(rows, expected[batch.seeds])
    rows.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


def test_the_planner_chooses_for_them_and_tells_what_lists_take(ranks, graphs):
    def planned(world):
        graph, told = open_graph(graphs / "2"), Settings.of(threads=1, fanouts=(5, 5), batch_size=40)
        cluster = Cluster((Host("a", 1e8, 1e10), Host("b", 1e8, 1e10)), 1e-4, 1e-4, 1e9, WORK)
        with seeded(3):
            model = MODELS["gine"]()
        trainer = Trainer(graph, model, told, world=world)
        planner = planner_for(told, graph, trainer.model, world)
        best = planner.answer(cluster).best.plan
        assert not {"push", "cover", "columns"} & {*best.layers}
        plan = Plan(("local", "local"), topology="partitioned", prefetch=0)
        predicted = planner.predict(plan, cluster).sent["sample"]
        trainer.use(plan)
        before = sum(world.traffic.sent().get("sample", [0]))
        trainer.train_epoch(0)
        mine = torch.tensor(float(sum(world.traffic.sent()["sample"]) - before), dtype=torch.float64)
        sent = float(torch.stack(trainer.run.comm.gather(mine)).sum())
        trainer.close()
        return predicted, sent

    for predicted, sent in ranks(2, planned):
        assert sent == pytest.approx(predicted, rel=0.1) and sent > 0


WORK = dict.fromkeys(KINDS, 1e-6) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}


def test_who_gives_them_to_no_convolution_or_is_built_for_others_is_told(graphs):
    graph = open_graph(graphs / "1")
    plain = GAT(WIDTH, 8, 2, CLASSES)
    assert unused_by(plain, graph) == [
        "the graph's edge features are not used: GAT gives its convolutions no edge_attr"
    ]
    assert unused_by(MODELS["own"](), graph) == []
    narrow = Two(lambda width, out: GINEConv(nn.Linear(width, out), edge_dim=3))
    narrow = [narrow, Optional(lambda width, out: GINEConv(nn.Linear(width, out), edge_dim=3))]
    narrow += [Optional(lambda width, out: GATConv(width, out, edge_dim=3))]
    for model in narrow:
        with pytest.raises(ModelError, match=r"edge_attr, .* does not run on 5 of each edge: build .* edge_dim=5"):
            weft.train(graph, model, fanouts=(3, 3), epochs=1)
    weighted = replace(graph, edge_features=None, edge_weight=np.ones(EDGES, np.float32))
    with pytest.raises(ModelError, match=r"edge_attr, .* does not run on 1 of each edge: build .* edge_dim=1"):
        weft.train(weighted, MODELS["own"](), fanouts=(3, 3), epochs=1)


def test_graphs_with_others_come_and_go(graphs):
    graph = open_graph(graphs / "1")
    with seeded(3):
        model = MODELS["pyg's model"]().eval()
    first = weft.infer(model, graph).outputs
    narrow, bare = replace(graph, edge_features=graph.edge_features[:, :3]), replace(graph, edge_features=None)
    weighted = replace(bare, edge_weight=np.ones(EDGES, np.float32))
    without = weft.infer(model, bare).outputs
    with pytest.raises(ModelError, match=r"does not run on 3 of each edge: build its convolutions with edge_dim=3"):
        weft.infer(model, narrow)
    for other in (bare, weighted):
        np.testing.assert_allclose(weft.infer(model, other).outputs, without, atol=1e-5)
        np.testing.assert_allclose(weft.infer(model, graph).outputs, first, atol=1e-5)
    assert np.abs(first - without).max() > 1e-3


class Computes(Two):
    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index, edge_attr * 2)


def test_computing_with_them_outside_of_convolutions_is_refused(graphs):
    assert_told = pytest.raises(ModelError, match="computes with the graph's edges outside of a convolution")
    with assert_told:
        weft.train(open_graph(graphs / "1"), Computes(Own), fanouts=(3, 3), epochs=1)
