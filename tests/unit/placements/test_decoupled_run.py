"""The decoupled model on many workers: losses and parameters of a one-process one, its bytes, any rounds, and pipelining."""

import copy
import re
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some, some_rows
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, RGCNConv
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from weft.errors import ConfigError, ModelError
from weft.exchange import Communicator, Owners
from weft.nn import Decoupled, DecoupledModel, activations, build, decoupled_model
from weft.nn.budget import Fit
from weft.placements import Cooperation
from weft.plan import tp_decoupled
from weft.quantities import size_of

sys.path.insert(0, str(Path(__file__).parent))
from test_tensor import (
    BOUNDS,
    CLASSES,
    EVEN,
    RELATIONS,
    VERTICES,
    WIDTH,
    Relational,
    Weighted,
    made,
    of,
    on_workers,
    parameters,
)


class GatThenGcn(nn.Module):
    """Attention of a convolution that is not the last one: there is no head to mix apart."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, 6), GATConv(6, 3, heads=2), GCNConv(6, CLASSES)])

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class OtherHeads(nn.Module):
    """The last rows have other heads than the attention before."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GATConv(WIDTH, 2, heads=4), GATConv(8, CLASSES, heads=2, concat=False)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class HeadBehind(nn.Module):
    """The last convolution's heads are averaged, and the model goes on behind it."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = GATConv(WIDTH, 4, heads=3, concat=False), nn.Linear(4, CLASSES)

    def forward(self, x, edge_index):
        return self.head(self.conv(x, edge_index).relu())


class OfRelationsAlone(nn.Module):
    """It has no matrix but those of its relations, which are in one parameter."""

    def __init__(self):
        super().__init__()
        self.conv = RGCNConv(WIDTH, CLASSES, RELATIONS, root_weight=False)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


class Dropping(nn.Module):
    """It drops of its inputs, and converts them to the type that they have."""

    def __init__(self, p=0.0):
        super().__init__()
        self.convs, self.p = nn.ModuleList([GCNConv(WIDTH, 6), GCNConv(6, CLASSES)]), p

    def forward(self, x, edge_index):
        x = F.dropout(x, self.p, self.training).double()
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class OfAttributes(nn.Module):
    """What edges weigh is edge_attr to it, as PyG has it, and the edges come first."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, 6), GCNConv(6, CLASSES)])

    def forward(self, edge_index, x, edge_attr):
        return self.convs[1](self.convs[0](x, edge_index, edge_attr).relu(), edge_index, edge_attr)


MODELS = {
    "gcn": of(GCN, 9, 3),
    "gcn weights": Weighted,
    "gcn improved": lambda: Weighted(improved=True),
    "gcn plain": lambda: Weighted(normalize=False),
    "sage": of(GraphSAGE, 10, 3),
    "sage without own": of(GraphSAGE, 10, root_weight=False),
    "sage project": of(GraphSAGE, 10, project=True, normalize=True),
    "sage jk": of(GraphSAGE, 6, jk="cat", norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "gin": of(GIN, 9, train_eps=True),
    "gcn dropping nothing": Dropping,
    "gcn of attributes": OfAttributes,
    "gat": of(GAT, 12, 3, heads=4),
    "gat one head": of(GAT, 7, heads=1, add_self_loops=False),
    "gat residual": of(GAT, 15, heads=3, residual=True),
    "gat then gcn": GatThenGcn,
    "gat other heads": OtherHeads,
    "gat averaged, and a head": HeadBehind,
    "rgcn alone": OfRelationsAlone,
    "rgcn": lambda: Relational(6),
    "rgcn bases": lambda: Relational(6, num_bases=2, root_weight=False),
    "rgcn vertex types": lambda: build("rgcn", WIDTH, 6, CLASSES, 3, relations=RELATIONS, widths=(WIDTH, 4, 0)),
}


@pytest.fixture(scope="module")
def graph():
    """With hubs, repeated edges, self-loops, isolated vertices, edge weights and types of both."""
    return replace(made("edge_weight", "edge_type"), vertex_type=np.arange(VERTICES) % 3)


def model_for(name):
    torch.manual_seed(3)
    return MODELS[name]().double()


def of_all(graph):
    """What a model takes of the whole graph, in one process."""
    dst = np.repeat(np.arange(VERTICES), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    weight = torch.from_numpy(graph.edge_weight).double()
    types = [torch.from_numpy(of.astype(np.int64)) for of in (graph.edge_type, graph.vertex_type)]
    return torch.from_numpy(np.array(graph.features)).double(), edge_index, weight, *types


def by_one_process(graph, name, steps=2):
    """The oracle: the decoupled module, on the whole graph, by torch alone."""
    model, given = Decoupled(model_for(name)), of_all(graph)
    labels = torch.from_numpy(graph.labels.astype(np.int64))
    seeds = torch.from_numpy(graph.seeds("train").astype(np.int64))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(*given)[seeds], labels[seeds], reduction="sum") / len(seeds)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses), parameters(model)


class Worker:
    """One worker of a run."""

    def __init__(self, graph, model, bounds, comm, ahead=None, chunks=1, budget=None):
        self.graph, self.model, self.comms = graph, copy.deepcopy(model), [comm] + ([ahead] if ahead else [])
        plan = tp_decoupled(self.model.depth, chunks=chunks)
        fanouts = [-1] * self.model.depth
        self.program = Cooperation(graph, plan, fanouts, Owners(np.array(bounds)), comm).whole_graph()
        self.rows = torch.from_numpy(np.array(graph.features[self.program.vertices[0].numpy()])).double()
        self.run = DecoupledModel(self.model)
        self.run.use(ahead, None, budget)

    def gradients(self, key=0):
        """The loss and all parameters' gradients, summed over the workers; and the numbers that this worker sent for it."""
        before = self.sent()
        held = self.program.vertices[-1].long()
        seeds = torch.from_numpy(self.graph.seeds("train").astype(np.int64))
        at, labels = torch.isin(held, seeds), torch.from_numpy(self.graph.labels.astype(np.int64))
        out = self.run(self.rows, self.program, (key,))
        loss = F.cross_entropy(out[at], labels[held[at]], reduction="sum") / len(seeds)
        self.model.zero_grad()
        loss.backward()
        sent = self.sent() - before
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.comms[0].sum(parameter.grad)
        return float(self.comms[0].sum(loss.detach().clone())), out.detach(), sent

    def sent(self):
        return sum(sum(comm.traffic.sent().get("exchange", [0])) for comm in self.comms) // 8

    def flat(self):
        return torch.cat([p.grad.flatten() for p in self.model.parameters()])


def trained(graph, name, bounds, chunks, overlap, steps=2, **options):
    model = Decoupled(model_for(name))

    def work(rank, comm, ahead):
        worker = Worker(graph, model, bounds, comm, ahead if overlap else None, chunks, **options)
        optimizer, losses = torch.optim.Adam(worker.model.parameters(), lr=0.01), []
        for _ in range(steps):
            losses.append(worker.gradients()[0])
            optimizer.step()
        worker.run.close()
        return np.array(losses), parameters(worker.model)

    return on_workers(work, bounds)


# These on three workers, of which one has no vertices; and two of them on any number.
_QUICK = [
    "gcn weights",
    "gcn dropping nothing",
    "gcn of attributes",
    "sage jk",
    "gin",
    "gat residual",
    "gat one head",
    "rgcn vertex types",
    "gat averaged, and a head",
    "rgcn alone",
]
_ON_ANY = product(("sage jk", "gat one head"), BOUNDS)


@pytest.mark.parametrize(("name", "size"), some_rows(product(MODELS, BOUNDS), *product(_QUICK, [3]), *_ON_ANY))
def test_equals_one_process(graph, name, size):
    wanted_losses, wanted = by_one_process(graph, name)
    for chunks, overlap in ((1, False), (size + 1, False), (3, True)):
        for losses, got in trained(graph, name, BOUNDS[size], chunks, overlap):
            assert np.abs(losses - wanted_losses).max() < 1e-10
            assert (got - wanted).abs().max() < 1e-10


FITS = {
    "gcn weights": Fit("again", 7, False, 1),
    "gcn": Fit("again", 5, True, 3),
    "gin": Fit("files", 0, True, 5),
    "sage jk": Fit("files", 0, False, 2),
    "gat": Fit("again", 11, True, 4),
    "gat residual": Fit("files", 0, True, 1),
    "gat averaged, and a head": Fit("files", 0, True, 2),
    "rgcn vertex types": Fit("again", 6, True, 3),
}


# Computed again, and in files, each with slices that are mapped and ones that are not; and each kind of convolution.
@pytest.mark.parametrize("name", some(FITS, "gcn weights", "gin", "sage jk", "gat", "rgcn vertex types"))
def test_what_is_computed_again_or_in_files_changes_nothing(graph, name, monkeypatch):
    monkeypatch.setattr(activations, "_SMALL", 0)  # so that everything that is kept goes to the file
    monkeypatch.setattr("weft.nn.decoupled_model.memory.fit", lambda *_: FITS[name])
    wanted_losses, wanted = by_one_process(graph, name)
    for overlap, size in ((False, 1), (True, 3)):
        for losses, got in trained(graph, name, BOUNDS[size], 1, overlap):
            assert np.abs(losses - wanted_losses).max() < 1e-10
            assert (got - wanted).abs().max() < 1e-10


@pytest.mark.parametrize("how", [Fit("again", 7), Fit("files")])
def test_a_forward_leaves_what_an_earlier_one_keeps(graph, how, monkeypatch):
    """Two forwards, each with a dropout of its own, go backward together; and nothing of them stays."""
    monkeypatch.setattr(activations, "_SMALL", 0)
    model = model_for("gcn")
    model.dropout.p = 0.5

    def found(how):
        monkeypatch.setattr("weft.nn.decoupled_model.memory.fit", lambda *_: how)
        worker = Worker(graph, Decoupled(model), BOUNDS[1], Communicator())
        outs = [worker.run(worker.rows, worker.program, (key,)) for key in (0, 1)]
        sum(out.sin().sum() for out in outs).backward()
        return worker

    wanted, got = found(Fit()), found(how)
    assert (got.flat() - wanted.flat()).abs().max() < 1e-10
    if spilled := got.run._spilled:
        first = spilled._end
        assert got.gradients()[1].isfinite().all() and spilled._end < first


def test_what_attention_weighs_edges_by_is_in_files(graph, monkeypatch):
    """Where all is that there is an edge of."""
    made, in_file = [], decoupled_model.zeros_in_file

    def noted(shape, dtype):
        made.append((shape, dtype))
        return in_file(shape, dtype)

    monkeypatch.setattr(decoupled_model, "zeros_in_file", noted)
    monkeypatch.setattr("weft.nn.decoupled_model.memory.fit", lambda *_: Fit("again", 11, True, 4))
    worker = Worker(graph, Decoupled(model_for("gat")), BOUNDS[1], Communicator())
    with torch.no_grad():
        worker.run(worker.rows, worker.program, (0,))
    assert made.count(((len(graph.indices),), torch.float64)) == 3 * 4  # layers, and heads that are mixed apart


class Stepping(nn.Module):
    """It counts its forwards, and draws numbers in the shape of a parameter; or `for_rows`."""

    def __init__(self, for_rows=False):
        super().__init__()
        self.convs, self.calls, self.for_rows = nn.ModuleList([GCNConv(WIDTH, 6), GCNConv(6, CLASSES)]), 0, for_rows
        self.mean = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        self.calls += 1
        x = F.linear(x, self.mean.weight * (torch.rand_like(self.mean.weight) > 0.3)) * (1 + 0.1 * self.calls)
        x = x + torch.randn_like(x) if self.for_rows else x
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("how", [Fit("again", 7), Fit("again", 100), Fit("files")])
def test_what_is_computed_again_draws_the_same_and_steps_once(graph, how, monkeypatch):
    def found(how):
        monkeypatch.setattr("weft.nn.decoupled_model.memory.fit", lambda *_: how)
        torch.manual_seed(3)
        worker = Worker(graph, Decoupled(Stepping().double()), BOUNDS[1], Communicator())
        torch.manual_seed(4)
        losses = [worker.gradients()[0] for _ in range(2)]
        return losses, worker.flat(), worker.model.model.calls, torch.rand(1)

    (wanted_losses, wanted, *rest), (losses, got, *others) = found(Fit()), found(how)
    assert losses == pytest.approx(wanted_losses, rel=1e-12)
    assert (got - wanted).abs().max() < 1e-12
    assert rest == others and rest[0] == 2


def test_what_follows_the_mixing_is_not_computed_again(graph):
    """A model that goes on behind its last convolution keeps its activations in a file, where memory is short."""
    for name, kept in (("gcn", "again"), ("sage jk", "files")):
        worker = Worker(graph, Decoupled(model_for(name)), BOUNDS[1], Communicator(), budget=1e9)
        worker.gradients()
        budget = (sum(worker.run.needs.values()) - 8) / 0.93
        tight = Worker(graph, Decoupled(model_for(name)), BOUNDS[1], Communicator(), budget=budget)
        tight.gradients()
        assert worker.run.fit.activations == "kept"
        assert tight.run.fit.activations == kept


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (Stepping, "again"),
        (partial(Stepping, for_rows=True), "files"),
        (of(GCN, 9, 3, norm="PairNorm"), "files"),
        (of(GCN, 9, 3, norm="LayerNorm"), "files"),
        (of(GCN, 9, 3, norm="LayerNorm", norm_kwargs={"mode": "node"}), "again"),
    ],
)
def test_rows_that_hang_together_are_not_computed_some_at_a_time(graph, make, kept):
    """All of them are one mean, or one draw of random numbers."""
    roomy = Worker(graph, Decoupled(make().double()), BOUNDS[1], Communicator(), budget=1e9)
    roomy.gradients()
    budget = (sum(roomy.run.needs.values()) - 8) / 0.93
    tight = Worker(graph, Decoupled(make().double()), BOUNDS[1], Communicator(), budget=budget)
    tight.gradients()
    assert (roomy.run.fit.activations, tight.run.fit.activations) == ("kept", kept)


def test_too_little_memory_is_refused_by_all_with_what_is_enough(graph):
    """In one sentence, that of the worker that needs most, also where others would have had enough."""

    def work(rank, comm, ahead, budget):
        worker = Worker(graph, Decoupled(model_for("gcn")), BOUNDS[4], comm, budget=budget)
        try:
            worker.gradients()
        except ConfigError as error:
            return str(error)

    told = on_workers(partial(work, budget=100.0), BOUNDS[4])
    named = re.search(r"set memory = '(\w+)' or more", told[0])[1]
    assert told == [told[0]] * 4
    short = on_workers(partial(work, budget=0.99 * size_of(named)), BOUNDS[4])
    assert short == [short[0]] * 4 and f"set memory = '{named}' or more" in short[0]
    assert on_workers(partial(work, budget=size_of(named)), BOUNDS[4]) == [None] * 4


def test_the_comparison_can_fail(graph):
    one, other = (by_one_process(graph, name)[1] for name in ("gcn weights", "gcn improved"))
    assert (one - other).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "gat one head", "rgcn vertex types"])
def test_dropout_is_the_same_on_any_number_of_workers(graph, name):
    model = Decoupled(model_for(name))
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float | nn.Dropout):
            module.dropout = nn.Dropout(0.4) if isinstance(module.dropout, nn.Dropout) else 0.4

    def work(rank, comm, ahead):
        worker = Worker(graph, model, BOUNDS[comm.size], comm, chunks=comm.size)
        loss, flat = worker.gradients(key=7)[0], worker.flat()
        worker.gradients(key=8)
        return loss, flat, worker.flat()

    ((wanted_loss, wanted, other),) = on_workers(work, BOUNDS[1])
    assert (wanted - other).abs().max() > 1e-6
    for size in (2, 3, 4):
        for loss, got, _ in on_workers(work, BOUNDS[size]):
            assert abs(loss - wanted_loss) < 1e-10
            assert (got - wanted).abs().max() < 1e-10


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_rounds_change_no_bit(graph, name):
    model = Decoupled(model_for(name))

    def work(rank, comm, ahead):
        found = []
        for chunks, thread in ((1, None), (1, ahead), (2, None), (7, ahead), (60, ahead)):
            worker = Worker(graph, model, BOUNDS[3], comm, thread, chunks)
            found.append((worker.gradients()[1], worker.flat()))
            worker.run.close()
        return found

    for (wanted, gradient), *others in on_workers(work, BOUNDS[3]):
        assert all(torch.equal(rows, wanted) and torch.equal(other, gradient) for rows, other in others)


@pytest.mark.parametrize("size", EVEN)
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GIN])
@pytest.mark.parametrize("layers", [1, 3])
def test_bytes_are_the_formulas(graph, kind, size, layers):
    """4 V d_L (N-1)/N, for any number of layers but one, in one piece or in rounds; the inputs once; as even as can be."""
    model = Decoupled(kind(WIDTH, 11, layers, 12).double())

    def work(rank, comm, ahead):
        alone, rounds = (Worker(graph, model, EVEN[size], comm, thread) for thread in (None, ahead))
        sent = [worker.gradients()[2] for worker in (alone, alone, rounds, rounds)]
        rounds.run.close()
        return sent

    first, later, *rounds = (sent := np.array(on_workers(work, EVEN[size]))).sum(0)
    each = VERTICES * (size - 1) / size
    assert later == (each * 4 * 12 if layers > 1 else 0)
    assert first - later == each * 2 * WIDTH
    assert rounds == [first, later]
    assert (sent.max(0) <= 1.02 * sent.mean(0))[[1, 3]].all()


def test_bytes_of_attention(graph):
    """Two numbers a vertex, layer and head go to all others, once, and their gradients back; and each head's rows."""
    model = Decoupled(GAT(WIDTH, 8, 3, 8, heads=2).double())
    sent = on_workers(lambda rank, comm, ahead: Worker(graph, model, EVEN[4], comm).gradients()[2], EVEN[4])
    assert sum(sent) == VERTICES * 3 / 4 * 4 * 8 * 2 + 2 * 3 * 2 * 2 * VERTICES * 3


def test_bytes_of_relations(graph):
    """Four exchanges, as without types."""
    model = Decoupled(Relational(8, 8).double())
    sent = on_workers(lambda rank, comm, ahead: Worker(graph, model, EVEN[4], comm).gradients()[2], EVEN[4])
    assert sum(sent) == VERTICES * 3 / 4 * 4 * 8


def test_features_of_edges_are_no_weights(graph):
    """They would be left out, and nobody told."""
    of_edges = replace(graph, edge_weight=None, edge_features=np.ones((len(graph.indices), 1), dtype=np.float32))
    worker = Worker(of_edges, Decoupled(OfAttributes().double()), BOUNDS[1], Communicator())
    with pytest.raises(ModelError, match="features of edges as their weights"):
        worker.gradients()


def test_in_eval_mode_it_is_the_variant_that_was_trained(graph):
    """A model that drops of its inputs gets them as they are there, and does not in training."""
    x, edge_index, *_ = of_all(graph)
    model = Decoupled(Dropping(0.5).double()).eval()
    with torch.no_grad():
        worker = Worker(graph, model, BOUNDS[1], Communicator())
        rows = worker.run(worker.rows, worker.program)
        assert (rows - model(x, edge_index)).abs().max() < 1e-10


def test_results_alone_need_no_gradient(graph):
    model = Decoupled(model_for("gat")).eval()
    with torch.no_grad():
        worker = Worker(graph, model, BOUNDS[1], Communicator())
        rows = worker.run(worker.rows, worker.program)
    assert rows.shape == (VERTICES, CLASSES)
    assert not rows.requires_grad
