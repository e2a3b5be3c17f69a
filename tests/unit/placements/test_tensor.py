"""Coupled tensor parallelism over the full graph: plain PyG's losses and parameters, whatever the chunks."""

import copy
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some_rows
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing, RGATConv, RGCNConv
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from weft import Split
from weft.errors import ConfigError, ModelError
from weft.exchange import Background, Communicator, Owners
from weft.graph import Graph
from weft.nn import BlockModel, build
from weft.nn.propagate import Course
from weft.placements import Cooperation, Team, ranges_of
from weft.placements.columns import build_slices, whole_block
from weft.plan import tp
from weft.sampling import Block

sys.path.insert(0, str(Path(__file__).parents[1] / "exchange"))
from test_communicator import comms
from test_connections import meshed, together

VERTICES, WIDTH, CLASSES, RELATIONS = 60, 7, 5, 4
# Whose vertices are whose: uneven, one worker without any; the last fifteen are not for training.
BOUNDS = {1: (0, 60), 2: (0, 23, 60), 3: (0, 35, 35, 60), 4: (0, 9, 30, 45, 60)}
EVEN = {2: (0, 30, 60), 3: (0, 20, 40, 60), 4: (0, 15, 30, 45, 60)}


@pytest.fixture(scope="module")
def graph():
    """With hubs, repeated edges, self-loops and isolated vertices."""
    return made()


@pytest.fixture(scope="module")
def graph_of(graph):
    """From a model's name to the graph that it is trained on: with weights or types of edges, if it takes them."""
    others = {Weighted: made("edge_weight"), Relational: made("edge_type")}
    return lambda name: others.get(type(model_for(name)), graph)


def made(*values):
    rng = np.random.default_rng(0)
    dst = (VERTICES * 0.9 * rng.random(400) ** 1.5).astype(np.int64)
    src = rng.integers(0, VERTICES, 400)
    src[:20] = dst[:20]
    edges = np.concatenate([np.stack([src, dst]), np.stack([src, dst])[:, 30:60]], axis=1)
    split = np.where(np.arange(VERTICES) < 45, 0, 1).astype(np.int8)
    of_edges = {
        "edge_weight": rng.random(edges.shape[1]).astype(np.float32) + 0.1,
        "edge_type": rng.choice(RELATIONS, edges.shape[1], p=[0.7, 0.2, 0.1, 0.0]).astype(np.int32),
    }
    return Graph.from_arrays(
        edges,
        num_vertices=VERTICES,
        features=rng.standard_normal((VERTICES, WIDTH)),
        labels=rng.integers(0, CLASSES, VERTICES),
        split=split,
        **{name: of_edges[name] for name in values},
    )


class Squash(MessagePassing):
    """A user's convolution: the mean of neighbours' tanh beside the own row."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * width, out)

    def forward(self, x, edge_index):
        return self.lin(torch.cat([x, self.propagate(edge_index, x=x)], 1))

    def message(self, x_j):
        return x_j.tanh()


class Declared(Squash):
    """The same, said as a split."""

    def weft_split(self):
        return Split(lambda merged, own: self.lin(torch.cat([own, merged], 1)), torch.tanh, "mean")


class Two(nn.Module):
    """Two convolutions of one's own."""

    def __init__(self, kind):
        super().__init__()
        self.convs = nn.ModuleList([kind(WIDTH, 9), kind(9, CLASSES)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class Weighted(nn.Module):
    """A GCN whose edges have weights."""

    def __init__(self, **options):
        super().__init__()
        self.gcn = GCN(WIDTH, 9, 2, CLASSES, **options)

    def forward(self, x, edge_index, edge_weight=None):
        return self.gcn(x, edge_index, edge_weight=edge_weight)


class Relational(nn.Module):
    """Two R-GCN layers; of the relations one has no edge."""

    def __init__(self, hidden, out=CLASSES, kind=RGCNConv, last=None, **options):
        super().__init__()
        first = kind(WIDTH, hidden, RELATIONS, **options)
        wide = hidden * (options.get("heads", 1) if options.get("concat", True) else 1)
        self.convs = nn.ModuleList([first, kind(wide, out, RELATIONS, **options | (last or {}))])
        for parameter in self.parameters():  # some of R-GAT's, which it does not use, are left as they are found
            nn.init.normal_(parameter, std=0.4)

    def forward(self, x, edge_index, edge_type):
        return self.convs[1](self.convs[0](x, edge_index, edge_type).relu(), edge_index, edge_type)


def of(kind, hidden, layers=2, **options):
    return lambda: kind(WIDTH, hidden, layers, CLASSES, **options)


MODELS = {
    "gcn": of(GCN, 9, 3),
    "gcn wide": of(GCN, 3),  # narrower than the inputs, and than the classes
    "gcn weights": Weighted,
    "gcn improved": lambda: Weighted(improved=True),
    "gcn plain": lambda: Weighted(normalize=False),
    "sage": of(GraphSAGE, 10, 3),
    "sage max": of(GraphSAGE, 10, aggr="max"),
    "sage sum": of(GraphSAGE, 4, aggr="sum"),
    "sage project": of(GraphSAGE, 10, project=True),
    "sage jk": of(GraphSAGE, 6, jk="cat", norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "gin": of(GIN, 9),
    "gat": of(GAT, 12, 3, heads=4),
    "gat one head": of(GAT, 7, heads=1),
    "gat cut heads": of(GAT, 15, heads=3),
    "gat two heads": of(GAT, 8, heads=2, add_self_loops=False, residual=True),
    "gatv2": of(GAT, 12, 3, heads=4, v2=True),
    "gatv2 one head": of(GAT, 7, heads=1, v2=True),
    "gatv2 cut heads": of(GAT, 15, heads=3, v2=True, share_weights=True),
    "film": lambda: build("film", WIDTH, 6, CLASSES, 2),
    "deepgcn": lambda: build("deepgcn", WIDTH, 6, CLASSES, 3),
    "declared": lambda: Two(Declared),
    "rgcn": lambda: Relational(9),
    "rgcn narrow": lambda: Relational(14),  # its second layer multiplies first
    "rgcn wide": lambda: Relational(2, num_bases=2, aggr="add"),
    "rgcn narrow sum": lambda: Relational(14, num_bases=3, aggr="add", root_weight=False),
    "rgcn blocks": lambda: Relational(10, last={"num_blocks": 5}),
    "rgat": lambda: Relational(8, kind=RGATConv),
    "rgat heads": lambda: Relational(4, kind=RGATConv, heads=3, num_bases=2, last={"concat": False}),
}


def model_for(name):
    torch.manual_seed(3)
    return MODELS[name]().double()


def plain_pyg(graph, name, steps=2):
    """The oracle: losses and parameters of plain training on the whole graph, by PyG alone."""
    model = model_for(name)
    dst = np.repeat(np.arange(VERTICES), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    options = {} if graph.edge_weight is None else {"edge_weight": torch.from_numpy(graph.edge_weight).double()}
    options |= {} if graph.edge_type is None else {"edge_type": torch.from_numpy(graph.edge_type)}
    x, labels = torch.from_numpy(np.array(graph.features)).double(), torch.from_numpy(graph.labels.astype(np.int64))
    seeds = torch.from_numpy(graph.seeds("train").astype(np.int64))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index, **options)[seeds], labels[seeds], reduction="sum") / len(seeds)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses), parameters(model)


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def on_workers(work, bounds):
    """work(rank, communicator, another communicator) on all workers."""
    size = len(bounds) - 1
    with meshed(size) as (ends, _), meshed(size) as (others, _):
        lines = [comms(some) if size > 1 else [Communicator()] for some in (ends, others)]
        return together(lambda rank: work(rank, lines[0][rank], lines[1][rank]), size)


class Worker:
    """One worker of a run under `tp`."""

    def __init__(self, graph, model, bounds, comm, chunks=1, background=None):
        self.graph, self.model, self.comm = graph, copy.deepcopy(model), comm
        depth = BlockModel(self.model, graph.num_features).depth
        cooperation = Cooperation(graph, tp(depth, chunks=chunks), [-1] * depth, Owners(np.array(bounds)), comm)
        self.program = cooperation.whole_graph(background=background)
        self.rows = torch.from_numpy(graph.features[self.program.vertices[0].numpy()]).double()
        self.program.fetched(self.rows)

    def forward(self, key=0):
        return BlockModel(self.model)(self.rows, self.program, (key,))

    def gradients(self, key=0):
        """The loss and all parameters' gradients, summed over the workers; and what this worker sent for it."""
        before = self.sent()
        seeds = torch.from_numpy(self.graph.seeds("train").astype(np.int64))
        held = self.program.vertices[-1].long()
        at = torch.isin(held, seeds)
        labels = torch.from_numpy(self.graph.labels.astype(np.int64))
        out = self.forward(key)
        loss = F.cross_entropy(out[at], labels[held[at]], reduction="sum") / len(seeds)
        for parameter in self.model.parameters():
            parameter.grad = None
        loss.backward()
        sent = self.sent() - before
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.comm.sum(parameter.grad)
        return float(self.comm.sum(loss.detach().clone())), out.detach(), sent

    def sent(self):
        return sum(self.comm.traffic.sent().get("exchange", [0]))

    def flat(self):
        return torch.cat([p.grad.flatten() for p in self.model.parameters()])


def trained(graph, name, bounds, chunks, steps=2):
    """Losses and parameters under `tp`."""
    model = model_for(name)

    def work(rank, comm, ahead):
        worker = Worker(graph, model, bounds, comm, chunks)
        optimizer, losses = torch.optim.Adam(worker.model.parameters(), lr=0.01), []
        for _ in range(steps):
            losses.append(worker.gradients()[0])
            optimizer.step()
        return np.array(losses), parameters(worker.model)

    return on_workers(work, bounds)


# Each model on three workers, of which one has no vertices; on any other number some of each kind.
_ON_ANY = "gcn weights", "sage jk", "gat cut heads", "rgcn narrow"
_QUICK = [(name, size) for name in MODELS for size in BOUNDS if size == 3 or name in _ON_ANY]


@pytest.mark.parametrize(("name", "size"), some_rows(product(MODELS, BOUNDS), *_QUICK))
def test_equals_plain_pyg(graph_of, name, size):
    graph = graph_of(name)
    wanted_losses, wanted = plain_pyg(graph, name)
    for losses, got in trained(graph, name, BOUNDS[size], chunks=size):  # in one piece, and in several
        assert np.abs(losses - wanted_losses).max() < 1e-10
        assert (got - wanted).abs().max() < 1e-10


def test_the_comparison_can_fail(graph_of):
    one, other = (plain_pyg(graph_of(name), name)[1] for name in ("gcn weights", "gcn improved"))
    assert (one - other).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["gat", "gat cut heads", "gatv2 one head", "sage", "gcn"])
def test_dropout_is_the_same_on_any_number_of_workers(graph, name):
    model = model_for(name)
    for module in model.modules():
        if hasattr(module, "dropout"):
            module.dropout = nn.Dropout(0.4) if isinstance(module.dropout, nn.Dropout) else 0.4

    def work(rank, comm, ahead):
        worker = Worker(graph, model, BOUNDS[comm.size], comm, chunks=comm.size)
        loss = worker.gradients(key=7)[0]
        return loss, worker.flat(), worker.gradients(key=8)[0]

    ((wanted_loss, wanted, other),) = on_workers(work, BOUNDS[1])
    assert abs(wanted_loss - other) > 1e-4
    for size in (2, 3, 4):
        for loss, got, _ in on_workers(work, BOUNDS[size]):
            assert abs(loss - wanted_loss) < 1e-10
            assert (got - wanted).abs().max() < 1e-10


@pytest.mark.parametrize(
    "name", ["gcn", "sage", "sage max", "film", "gat", "gat one head", "gatv2 cut heads", "rgcn narrow", "rgat"]
)
def test_chunks_change_no_bit(graph_of, name):
    """Of any row; and of no gradient but attention's, which are added up range by range."""
    model, graph = model_for(name), graph_of(name)

    def work(rank, comm, ahead):
        found = []
        for chunks in (1, 2, 7, 60):
            worker = Worker(graph, model, BOUNDS[3], comm, chunks)
            assert len(worker.program.layers[0].span.chunks) == chunks + 1 or chunks == 60
            found.append((worker.gradients()[1], worker.flat()))
        return found

    for (wanted, gradient), *others in on_workers(work, BOUNDS[3]):
        for rows, other in others:
            assert torch.equal(rows, wanted)
            assert torch.equal(other, gradient) or "gat" in name
            assert (other - gradient).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["gat", "gatv2", "rgcn narrow"])
def test_of_several_ranges_none_keeps_lists_by_source(graph_of, name, monkeypatch):
    """These have an entry for each vertex of the whole graph, however short the range."""
    pieces, make = [], Block.ranges

    def noted(block, bounds):
        pieces.extend(made := make(block, bounds))
        return made

    monkeypatch.setattr(Block, "ranges", noted)
    worker = Worker(graph_of(name), model_for(name), (0, VERTICES), Communicator(), chunks=7)
    found = [(worker.gradients()[0], worker.flat()) for _ in range(2)]
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])
    short = [piece.block for piece in pieces if piece.block.num_dst < VERTICES]
    assert len(short) >= 7 and not any("transposed" in block._cache for block in short)


@pytest.mark.parametrize("name", ["gcn", "sage", "sage jk"])
def test_overlapping_changes_no_bit(graph, name):
    model = model_for(name)

    def work(rank, comm, ahead):
        plain = Worker(graph, model, BOUNDS[3], comm)
        found = [(plain.gradients()[1], plain.flat())]
        background = Background(comm, ahead)
        worker = Worker(graph, model, BOUNDS[3], comm, background=background)
        found += [(worker.gradients()[1], worker.flat()) for _ in range(2)]
        background.close()
        assert sum(ahead.traffic.sent()["exchange"])
        return found

    for (wanted, gradient), *others in on_workers(work, BOUNDS[3]):
        for rows, other in others:
            assert torch.equal(rows, wanted)
            assert torch.equal(other, gradient)


class Narrowing(nn.Module):
    """Of its inputs 7 columns are merged, then 4, and then 5."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, 4), GCNConv(4, 6), GCNConv(6, CLASSES)])

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


def test_slices_of_all_widths_share_their_room(graph):
    """Which is as wide as the widest; that of inputs, which are merged once, is given up."""
    model = Narrowing().double()

    def work(rank, comm, ahead):
        worker = Worker(graph, model, BOUNDS[comm.size], comm)
        for _ in range(2):
            worker.gradients()
        course = worker.program.layers[0].here.block.remembered("course", lambda: None)
        return [len(room) for room in course._rooms.values()]

    for size, width in ((1, 5), (2, 3)):
        assert on_workers(work, BOUNDS[size]) == [[VERTICES * width] * 2] * size


def test_padding_is_zero_in_a_room_that_slices_share():
    """Written once, not in each call: that is a pass over all rows."""
    course = Course(SimpleNamespace(bounds=(0, 3, 5), rank=1), lambda: None, None)
    wide, narrow, like = course.spread(7), course.spread(3), torch.ones(1)
    assert not course.room(0, like, wide).any()
    course.room(0, like, wide).fill_(2)
    assert course.room(0, like, wide)[:, 3].tolist() == [2] * 5
    assert course.room(0, like, narrow).tolist() == [[2, 0]] * 5
    assert course.room(0, like, wide)[:, 3].tolist() == [0] * 5


def test_ranges_are_even_and_whole():
    indptr = np.concatenate([[0], np.cumsum([0, 0, 100, 1, 1, 1, 1, 1])])
    assert ranges_of(indptr, 1) == (0, 8)
    assert ranges_of(indptr, 2) == (0, 3, 8)
    assert ranges_of(indptr, 100) == (0, 2, 3, 4, 5, 6, 7, 8)


def test_black_boxes_are_refused(graph):
    worker = Worker(graph, Two(Squash).double(), BOUNDS[1], Communicator())
    with pytest.raises(ModelError, match=r"can't be computed on slices of them \(plan tp\).*declare its split"):
        worker.forward()


def test_too_many_vertices_are_refused():
    class Large:
        indptr, indices = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32)

    with pytest.raises(ConfigError, match=r"2,147,483,648 vertices.*plan = 'halo'"):
        build_slices(Team(Large(), Owners(np.array([0, 2**31])), Communicator(), Communicator(), []))


def test_too_many_vertices_for_one_block_are_refused():
    class Long:
        def __len__(self):
            return 2**31 + 1

    class Large:
        indptr, indices = Long(), np.zeros(0, dtype=np.int64)

    with pytest.raises(
        ConfigError, match=r"2,147,483,648 vertices.*use batches, or several workers with plan = 'halo'"
    ):
        whole_block(Large())
