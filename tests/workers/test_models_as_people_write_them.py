"""Models as people write them: what one worker trains, several train too; or it is refused in words."""

import random
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_geometric.nn import (
    APPNP,
    GAT,
    MLP,
    ARMAConv,
    EdgeConv,
    EGConv,
    FAConv,
    FeaStConv,
    FiLMConv,
    GATConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GPSConv,
    GraphConv,
    LGConv,
    MessagePassing,
    MixHopConv,
    NNConv,
    SAGEConv,
    Sequential,
    SGConv,
    SSGConv,
    SuperGATConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.utils import add_self_loops, degree, scatter

import weft
from weft.errors import ConfigError, ModelError, TrainingError
from weft.exchange import World
from weft.graph import Graph
from weft.keys import seeded
from weft.nn import BlockModel, check_rows
from weft.nn.conv import blackbox
from weft.nn.conv.hops import DegreeHop
from weft.partition import write_partitioned
from weft.plan import Plan, Settings
from weft.training import Notice, Trainer, make_model, set_up
from weft.training.models import check_model
from weft.training.objectives import links
from weft.training.objectives.vertices import LossObjective

WIDTH, CLASSES = 6, 4
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A graph with some loops, and weights of its edges, for one worker, two and three."""
    folder, random_ = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    ends = random_.integers(0, 300, (2, 1500))
    ends[1, :40] = ends[0, :40]
    graph = Graph.from_arrays(
        ends,
        num_vertices=300,
        features=random_.standard_normal((300, WIDTH), dtype=np.float32),
        labels=random_.integers(0, CLASSES, 300),
        split=np.repeat([0, 1, 2], [200, 50, 50]).astype(np.uint8),
        edge_weight=random_.random(1500).astype(np.float32) + 0.5,
    )
    graph.save(folder / "1")
    for parts in (2, 3):
        write_partitioned(graph, np.arange(300) * parts // 300, parts, folder / str(parts))
    return folder


class Two(nn.Module):
    """Two convolutions; weights of edges go to those that take them."""

    def __init__(self, make, weighted=False):
        super().__init__()
        self.first, self.second, self.weighted = make(WIDTH, 8), make(8, CLASSES), weighted

    def between(self, x):
        return x.relu()

    def forward(self, x, edge_index, edge_weight=None):
        given = (edge_weight,) if self.weighted else ()
        return self.second(self.between(self.first(x, edge_index, *given)), edge_index, *given)


def losses(world, folder, make, epochs=2, plan=None, seeds=102, **options):
    """The mean loss of each epoch, of two batches where `seeds` says no other size."""
    if "full_graph" not in options:
        options = {"fanouts": (3, 2), "batch_size": seeds // world.size} | options
    if isinstance(plan, str):
        options, plan = (options | {"plan": plan} if world.size > 1 else options), None
    told = Settings.of(seed=5, dtype="float64", threads=1, epochs=epochs, **options)
    with seeded(3):
        model = make().double()
    chosen = None if plan is None or world.size == 1 else plan
    trainer = Trainer(open_graph(folder / str(world.size)), model, told, world=world, plan=chosen)
    found = [trainer.train_epoch(epoch)[1] for epoch in range(epochs)]
    trainer.close()
    return found


def agree(ranks, folder, make, *plans, plan=None, **options):
    """Is it the same model on one worker, on two and on three? By `plan`, or by each of several."""
    train = partial(losses, folder=folder, make=make, **options)
    alone = ranks(1, train)[0]  # which has no plan
    for chosen in plans or (plan,):
        for size in (2, 3):
            found = ranks(size, partial(train, plan=chosen))[0]
            assert found == pytest.approx(alone, abs=1e-10), (chosen, size)


class OneNumber(Two):
    """Has a parameter and a buffer of one number each, cut out of rows: their stride is not 1."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.scale = nn.Parameter(torch.ones(1, 5)[:, 2])
        self.register_buffer("shift", torch.arange(5)[None][:, 2])

    def between(self, x):
        return x.relu() * self.scale + self.shift


@pytest.mark.parametrize("plan", ["gdp", "migrate"])
def test_a_parameter_of_one_number_may_have_any_stride(ranks, graphs, plan):
    agree(ranks, graphs, OneNumber, plan=plan)


class OwnRows(MessagePassing):
    """Drops of its rows before it sends them, and after."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=F.dropout(self.linear(x), 0.3, self.training))

    def message(self, x_j):
        return x_j

    def update(self, out):
        return F.dropout(out, 0.2, self.training)


@pytest.mark.parametrize("options", some([{}, {"micro_batches": 2}, {"replace": True}], {"micro_batches": 2}))
def test_dropout_of_rows_in_a_black_box_is_by_vertex_though_there_be_as_many_edges(ranks, graphs, monkeypatch, options):
    as_many, real = [], blackbox._more

    def more(rows, count):
        as_many.extend([count] if len(rows) < count else [])
        return real(rows, count)

    monkeypatch.setattr(blackbox, "_more", more)
    agree(ranks, graphs, lambda: Two(OwnRows), epochs=1, seeds=6, plan=Plan(("local", "local")), **options)
    assert as_many, "no block had as many rows as edges: there is nothing to tell apart"


class CountsBoth(OwnRows):
    def forward(self, x, edge_index):
        assert torch.cat([edge_index.new_tensor([2]), edge_index.new_tensor([3])]).tolist() == [2, 3]
        return super().forward(x, edge_index)


def test_two_numbers_that_are_put_together_are_no_edges(ranks, graphs):
    agree(ranks, graphs, lambda: Two(CountsBoth))


class AddsLoops(MessagePassing):
    """Attention as people write it, with loops beside those that are there."""

    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=self.linear(x))

    def message(self, x_j):
        return F.dropout(torch.tanh(x_j), 0.4, self.training) / 3


LOOPS = {
    "gat": (lambda *widths: GATConv(*widths, edge_dim=1, dropout=0.3), True),
    "gatv2": (lambda *widths: GATv2Conv(*widths, edge_dim=1, dropout=0.3), True),
    "supergat": (lambda *widths: SuperGATConv(*widths, dropout=0.3), False),
    "own": (AddsLoops, False),
}


@pytest.mark.parametrize("full", [False, True], ids=["batches", "the full graph"])
@pytest.mark.parametrize("name", LOOPS)
def test_dropout_of_edges_with_loops_is_by_edge(ranks, graphs, name, full):
    make, weighted = LOOPS[name]
    plan = Plan(("pull", "pull"), seeds="home", **({"scope": "graph"} if full else {}))
    options = {"full_graph": True} if full else {}
    agree(ranks, graphs, lambda: Two(make, weighted), plan=plan, **options)


class InTraining(Two):
    def __init__(self, what):
        super().__init__(SAGEConv)
        self.what = what
        self.register_buffer("mean", torch.zeros(8))

    def between(self, x):
        if not self.training:
            return x
        if self.what == "mean":
            return x - x.mean(0)
        if self.what == "mean, some layers":
            return (x - x.mean(0)) * (1.0 if torch.rand(()) > 0.3 else 0.5)
        if self.what == "mixup":
            return 0.8 * x + 0.2 * x.flip(0)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


@pytest.mark.parametrize("what", ["mean", "mean, some layers", "mixup", "buffer"])
def test_rows_that_are_mixed_in_training_alone_are_refused(graphs, what):
    graph, model = open_graph(graphs / "1"), InTraining(what)
    with pytest.raises(ModelError, match="mixes the rows of different vertices in training"):
        weft.train(graph, model, fanouts=(3, 2), epochs=1)
    assert model.training
    assert not model.mean.any()


class Gated(Two):
    """The mean of all rows behind a gate that is shut at first."""

    def __init__(self, gate):
        super().__init__(SAGEConv)
        self.gate = nn.Parameter(torch.zeros(8)) if gate == "ReZero" else nn.Parameter(torch.full((8,), 1e-5))
        self.through = nn.Linear(8, 8) if gate == "zeroed" else nn.Identity()
        if gate == "zeroed":
            nn.init.zeros_(self.through.weight)
            nn.init.zeros_(self.through.bias)
            nn.init.ones_(self.gate)

    def between(self, x):
        return x + self.gate * self.through(x.mean(0, keepdim=True))


@pytest.mark.parametrize("gate", ["ReZero", "LayerScale", "zeroed"])
def test_rows_that_are_mixed_behind_a_shut_gate_are_refused(graphs, gate):
    model = Gated(gate)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ModelError, match="mixes the rows of different vertices"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Places(Two):
    """Rows from before a convolution are joined with those behind it."""

    def __init__(self, how):
        super().__init__(SAGEConv)
        self.how, self.skip, self.end = how, nn.Linear(WIDTH, 8), nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        h, before = self.first(x, edge_index), self.skip(x)
        count = h.size(0)
        if self.how == "slice":
            h = h + before[:count, :]
        elif self.how == "narrow":
            h = h + before.narrow(0, 0, count)
        elif self.how == "index":
            h = h + before[torch.arange(count)]
        elif self.how == "split":
            h = h + before.split([count, len(before) - count])[0]
        out = self.second(h.relu(), edge_index)
        return out + self.end(x[: len(out)]) if self.how == "slice at the end" else out


@pytest.mark.parametrize("how", ["slice", "narrow", "slice at the end"])
def test_first_rows_from_before_a_convolution_are_those_of_the_same_vertices(ranks, graphs, how):
    alone = ranks(1, losses, graphs, lambda: Places(how))[0]
    home = Plan(("push", "push"), seeds="home")
    for size, plan in (
        (2, Plan(("push", "local"))),
        (3, Plan(("pull", "push"))),
        (3, home),
        (2, Plan(("cover", "local"))),
    ):
        found = ranks(size, lambda world, plan=plan: losses(world, graphs, lambda: Places(how), plan=plan))[0]
        assert found == pytest.approx(alone, abs=1e-10), plan


@pytest.mark.parametrize("how", ["index", "split"])
def test_rows_by_their_places_are_refused_on_several_workers(ranks, graphs, how):
    assert ranks(1, losses, graphs, lambda: Places(how))
    with pytest.raises(
        ModelError, match=r"takes rows .* by their places, .*: join them as they are \(h \+ x\), or take the"
    ):
        ranks(2, losses, graphs, lambda: Places(how))


class Ends(Two):
    """What comes last is done to the rows of all vertices, or to each."""

    def __init__(self, what):
        super().__init__(SAGEConv)
        self.what = what

    def forward(self, x, edge_index):
        return self.what(super().forward(x, edge_index))


def attention(rows):
    """Of each vertex among the four parts of its row, which draws nothing."""
    parts = rows.view(len(rows), 1, CLASSES, 1)
    return F.scaled_dot_product_attention(parts, parts, parts).reshape(len(rows), CLASSES)


MIXED = {
    "log_softmax": lambda h: h.log_softmax(dim=0),
    "logsumexp": lambda h: h - h.logsumexp(0),
    "the largest": lambda h: h / h.abs().max(),
    "nought times": lambda h: h + 0 * h.mean(0),
    "attention": lambda h: F.scaled_dot_product_attention(h[None, None], h[None, None], h[None, None])[0, 0],
}


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_are_mixed_in_the_last_operation_are_refused(graphs, name):
    said = "gave a tensor" if name == "attention" else "mixes the rows"
    with pytest.raises(ModelError, match=said):
        weft.parallel(Ends(MIXED[name]), weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2)))


@pytest.mark.parametrize("what", [attention, lambda h: F.rrelu(h, training=False)], ids=["attention", "rrelu"])
def test_what_draws_nothing_though_it_might_is_no_draw(ranks, graphs, what):
    agree(ranks, graphs, lambda: Ends(what))


class Careful(Two):
    """Rows that are no numbers go another way."""

    def __init__(self, way):
        super().__init__(SAGEConv)
        self.way, self.other = way, nn.Linear(8, 8)

    def between(self, x):
        if not x.isnan().any():
            return x.relu()
        if self.way == "refuses":
            raise ValueError("what is no number came out")
        return self.other(x.nan_to_num())


@pytest.mark.parametrize("way", ["refuses", "goes on"])
def test_models_may_look_for_what_is_no_number(graphs, way):
    weft.parallel(Careful(way), weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()


class ByPairs(nn.Module):
    """Rows of as many numbers as there are rows."""

    def forward(self, x):
        return (x @ x.t()).softmax(1)


class Shows(Two):
    """Leaves rows in a buffer, or looks at how alike they are."""

    def __init__(self, how):
        super().__init__(SAGEConv)
        self.pairs = ByPairs() if how == "pairs" else None
        self.register_buffer("last", torch.zeros(0), persistent=False)

    def between(self, x):
        if self.pairs is not None:
            return self.pairs(x) @ x
        self.last = x.detach().sum(1)
        return x.tanh()


@pytest.mark.parametrize("how", ["pairs", "a buffer"])
def test_rows_as_wide_as_there_are_rows_are_refused(graphs, how):
    with pytest.raises(ModelError, match=r"^(pairs|the buffer last) .*mixes the rows of different vertices"):
        weft.train(open_graph(graphs / "1"), Shows(how), fanouts=(3, 2), epochs=1)


class TwoHops(MessagePassing):
    """A second hop whose weight is nought at first."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.linear, self.hops = nn.Linear(width, out), nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x, edge_index):
        one = self.propagate(edge_index, x=self.linear(x))
        return self.hops[0] * one + self.hops[1] * self.propagate(edge_index, x=one)


def test_a_second_hop_behind_a_shut_gate_is_refused(graphs):
    with pytest.raises(ModelError, match="looks further than at the edges of each vertex"):
        weft.train(open_graph(graphs / "1"), Two(TwoHops), fanouts=(3, 2), epochs=1)


@pytest.mark.parametrize("norm", ["layer_norm", "graph_norm"])
def test_norms_of_all_rows_within_a_convolution_are_refused(graphs, norm):
    """PyG's LayerNorm is over all rows, unless it is told otherwise."""
    model = Two(lambda width, out: GINConv(MLP([width, 8, out], norm=norm)))
    with pytest.raises(ModelError, match=r"GINConv.* mixes the rows of different vertices"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)


def test_norms_of_each_row_within_a_convolution_are_as_outside(ranks, graphs):
    norm = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
    made = lambda width, out: GINConv(MLP([width, 8, out], **norm))  # noqa: E731
    agree(ranks, graphs, lambda: Two(made), plan=Plan(("pull", "push"), seeds="home"))


class MixesWithin(MessagePassing):
    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.linear, self.norm = nn.Linear(width, out), nn.BatchNorm1d(out)

    def forward(self, x, edge_index):
        x = F.dropout(self.norm(self.linear(x)), 0.5, self.training)
        return self.propagate(edge_index, x=x - x.mean(0) if self.training else x)


def test_rows_that_are_mixed_within_a_convolution_in_training_alone_are_refused(graphs):
    model = Two(MixesWithin)
    with pytest.raises(ModelError, match="at all rows or edges at once"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)
    assert int(model.first.norm.num_batches_tracked) == 0


class Normed(Two):
    def __init__(self, make):
        super().__init__(make)
        self.norm, self.steps = nn.BatchNorm1d(8), 0

    def between(self, x):
        return self.norm(x).relu()


class Centring(Two):
    """Keeps something of its rows, and takes it off those of the next batches, or only shows it."""

    def __init__(self, how):
        super().__init__(SAGEConv)
        self.how, self.centre, self.shown, self.seen, self.often = how, torch.zeros(8), 0.0, [], 0

    def between(self, x):
        taken = {"tensor": lambda: self.centre, "number": lambda: self.shown, "list": lambda: sum(self.seen[-2:])}
        taken |= {"how often on many": lambda: self.often}
        out = x - taken.get(self.how, lambda: 0)()
        if self.how == "how often on many":
            self.often += self.training and len(x) > 8
        elif self.training and self.how == "made once":
            self._made = getattr(self, "_made", 1)
        elif self.training:
            self.centre = 0.5 * self.centre + 0.5 * x.mean(0).detach()
            self.shown = float(x.mean())
            self.seen.append(float(x.mean()))
        return out


class Codes(Two):
    """Keeps something of its rows in a parameter that is not learned, or in a buffer or an attribute that is made late."""

    def __init__(self, how):
        super().__init__(SAGEConv)
        self.how = how
        self.codes = nn.Parameter(torch.rand(8), requires_grad=False) if how == "parameter" else None
        self.register_buffer("begun", None)

    def between(self, x):
        if self.how == "attribute":
            self._begun = getattr(self, "_begun", x.detach().mean(0))
            return x - self._begun
        if self.codes is None:
            self.begun = x.detach().mean(0) if self.begun is None else self.begun
            return x - self.begun
        if self.training:
            self.codes.data.lerp_(x.detach().mean(0), 0.1)
        return (x - self.codes).tanh()


class Taught(Two):
    """Has a teacher that follows it, step by step."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.more = nn.Linear(8, 8)
        self.teacher = AveragedModel(self.more, multi_avg_fn=get_ema_multi_avg_fn(0.9)).requires_grad_(False)
        nn.init.ones_(self.teacher.module.weight)

    def between(self, x):
        if self.training:
            self.teacher.update_parameters(self.more)
        return (self.more(x) + self.teacher(x)).tanh()


@pytest.mark.parametrize("options", [{}, {"plan": "migrate"}])
def test_a_teacher_that_follows_in_each_forward_follows_once_a_batch(ranks, graphs, options):
    """Trials leave no trace in it, and it is no mixing of rows."""
    model = Taught()
    weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()
    assert (model.teacher.module.weight == 1).all() and not model.teacher.n_averaged
    agree(ranks, graphs, Taught, **options)
    alone, in_parts = (losses(World(), graphs, Taught, **how) for how in ({}, {"micro_batches": 3}))
    assert in_parts == pytest.approx(alone, abs=1e-10)


@pytest.mark.parametrize("how", ["parameter", "buffer", "attribute"])
def test_what_a_model_keeps_of_its_rows_in_what_is_not_learned_is_refused(graphs, how):
    with pytest.raises(ModelError, match="mixes the rows of different vertices"):
        losses(World(), graphs, lambda: Codes(how))


@pytest.mark.parametrize("how", ["tensor", "number", "list", "how often on many"])
def test_what_a_model_keeps_of_its_rows_for_the_next_ones_is_refused(graphs, how):
    with pytest.raises(ModelError, match="mixes the rows of different vertices in training"):
        losses(World(), graphs, lambda: Centring(how))


@pytest.mark.parametrize("how", ["shown", "made once"])
def test_what_a_model_only_shows_or_makes_once_is_not_refused(ranks, graphs, how):
    agree(ranks, graphs, lambda: Centring(how))


def test_batch_normalisation_by_several_workers_is_told_of(ranks, graphs):
    """The one thing by which plans train different models."""

    def notices(world, norm):
        told = Settings.of(norm=norm, fanouts=(3, 2), threads=1, epochs=1)
        graph, said = open_graph(graphs / str(world.size)), []
        trainer = Trainer(graph, make_model(told, graph), told, listen=said.append, world=world)
        trainer.fit()
        return [event.text for event in said if isinstance(event, Notice) and "batch normalisation" in event.text]

    assert len(ranks(2, notices, "batch")[0]) == 1
    assert ranks(1, notices, "batch")[0] == ranks(2, notices, "layer")[0] == []


def test_batch_normalisation_is_no_mixing_and_is_not_touched_by_the_trial(graphs):
    model = Normed(GCNConv)
    weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()
    assert int(model.norm.num_batches_tracked) == 0


class Counting(Two):
    """Counts its steps as people do, and is another model from some on."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.step, self.seen, self.by = 0, [], {"calls": 0}
        self.total = torch.zeros(1)

    def between(self, x):
        if not self.training:
            return x.tanh()
        self.step += 1
        self.seen.append(self.step)
        self.by["calls"] += 1
        self.total += 1
        self.last = self.step
        return (x / max(0.1, 2 * 0.9 ** float(self.total))).tanh()


def test_steps_that_a_model_counts_itself_are_those_of_training(ranks, graphs):
    """Trials before training, and of its first batches, are none."""
    model = Counting()
    weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()
    assert (model.step, model.seen, model.by, int(model.total)) == (0, [], {"calls": 0}, 0)
    assert not hasattr(model, "last")
    agree(ranks, graphs, Counting, None, Plan(("push", "push"), seeds="home"))


class CountsAllCalls(Two):
    """Another model in every other call, whatever the mode."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.calls, self.more = 0, nn.Linear(8, 8)

    def between(self, x):
        self.calls += 1
        return self.more(x).tanh() if self.calls % 2 else x.tanh()


def test_calls_that_a_model_counts_in_any_mode_are_those_of_the_run(ranks, graphs):
    """No look at the model before is one: they are more on several workers."""
    model = CountsAllCalls()
    weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()
    assert model.calls == 0
    agree(ranks, graphs, CountsAllCalls, plan=Plan(("cover", "cover"), seeds="home"))


class CountsInABuffer(Two):
    """Steps that are counted beside the model's parameters, and on itself."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.step = 0
        self.register_buffer("steps", torch.zeros(()))

    def between(self, x):
        if self.training:
            self.step += 1
            self.steps += 1
        return (x * (1 + 0.1 * self.steps + 0.03 * self.step)).tanh()


class Clock:
    """A helper that is no module."""

    def __init__(self):
        self.steps, self.by_mode = 0, [{"steps": 0}]

    def tick(self):
        self.steps += 1
        self.by_mode[0]["steps"] += 1
        return self.steps + self.by_mode[0]["steps"]


class CountsByAHelper(Two):
    """The same by an object that it holds, and by what that holds."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.clock = Clock()

    def between(self, x):
        return (x * (1 + 0.05 * (self.clock.tick() if self.training else self.clock.steps * 2))).tanh()


@dataclass(slots=True)
class Ticks:
    steps: int = 0


class CountsInWhatHolds(Two):
    """Counts its steps in an object that only holds things."""

    def __init__(self, make):
        super().__init__(SAGEConv)
        self.held = make(steps=0)

    def between(self, x):
        self.held.steps += self.training
        return (x * (1 + 0.05 * self.held.steps)).tanh()


@pytest.mark.parametrize("make", [Ticks, SimpleNamespace])
def test_steps_that_a_model_counts_in_what_only_holds_them_are_those_of_training(ranks, graphs, make):
    model = CountsInWhatHolds(make)
    weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()
    assert model.held.steps == 0
    agree(ranks, graphs, lambda: CountsInWhatHolds(make))


class SkipsByAGenerator(Two):
    """Leaves something out now and then, for a whole layer, by a generator of its own."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.more, self.numbers = nn.Linear(8, 8), np.random.default_rng(4)

    def between(self, x):
        return x + self.more(x).tanh() if not self.training or self.numbers.random() < 0.7 else x


@pytest.mark.parametrize("model", [CountsInABuffer, CountsByAHelper, SkipsByAGenerator])
@pytest.mark.parametrize(("seeds", "epochs"), [(6, 1), (18, 2)])
def test_steps_are_counted_where_no_example_of_a_batch_is(ranks, graphs, seeds, epochs, model):
    """Of models that migrate some have none in a small batch, and some workers see no model with any."""
    agree(ranks, graphs, model, epochs=epochs, seeds=seeds, plan="migrate")


class MasksByAGenerator(SkipsByAGenerator):
    """Draws for each row by a generator of its own."""

    def between(self, x):
        return x * torch.from_numpy(self.numbers.random((len(x), 1))).to(x) if self.training else x


def test_numbers_of_its_own_for_each_row_are_refused(ranks, graphs):
    with pytest.raises(ModelError, match="the model draws random numbers by a generator of its own"):
        agree(ranks, graphs, MasksByAGenerator)


class BegunAnyhow(SkipsByAGenerator):
    """Its generator has no seed."""

    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng()


def test_generators_without_a_seed_are_refused(ranks, graphs):
    with pytest.raises(ModelError, match=r"another model than worker 0 \(it draws by a generator of its own"):
        agree(ranks, graphs, BegunAnyhow)


class LearnsWhatIsMissing(Two):
    """A learned row for vertices that lack theirs: no such row is in some batches."""

    def __init__(self, out, above):
        super().__init__(lambda wide, _: SAGEConv(wide, out) if wide == WIDTH else GCNConv(out, CLASSES))
        self.instead, self.above = nn.Parameter(torch.full((WIDTH,), 0.3)), above

    def forward(self, x, edge_index):
        missing = x[:, 0] > self.above
        if missing.any():
            x = x.clone()
            x[missing] = self.instead
        return super().forward(x, edge_index)


@pytest.mark.parametrize("plan", ["snp", "split"])
@pytest.mark.parametrize("out", [3, 8], ids=["mapped before they travel", "after"])
def test_rows_that_are_learned_on_some_workers_alone(ranks, graphs, plan, out):
    agree(ranks, graphs, lambda: LearnsWhatIsMissing(out, 2.5), epochs=1, seeds=12, plan=plan)


class TimesANumber(Two):
    """Rows times a number that is learned, which has no axis."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def between(self, x):
        return x.relu() * self.scale


def test_a_parameter_without_an_axis(ranks, graphs):
    agree(ranks, graphs, TimesANumber, plan=Plan(("push", "pull"), seeds="home"))


class Guarded(nn.Module):
    """Residuals where rows are alike, as people ask for that."""

    def __init__(self, alike):
        super().__init__()
        self.convs, self.alike = nn.ModuleList([SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, CLASSES)]), alike

    def forward(self, x, edge_index):
        for conv in self.convs:
            h = conv(x, edge_index)
            x = (h + x if self.alike(h, x) else h).tanh()
        return x


GUARDS = {
    "shape": lambda h, x: h.shape == x.shape,
    "size": lambda h, x: h.size() == x.size(),
    "rows": lambda h, x: (
        x.size(0) <= h.shape[0] and h.shape[0] >= len(h) and not x.size(0) > h.size(0) and h.size(-1) == x.size(1)
    ),
    "by hand": lambda h, x: h.shape[1] == WIDTH,
}


@pytest.mark.parametrize("full", [False, True], ids=["batches", "the full graph"])
@pytest.mark.parametrize("guard", some(GUARDS, "shape", "rows"))
def test_residuals_of_rows_of_one_shape(ranks, graphs, guard, full):
    """There are as many rows behind a convolution as before it, in a batch too: as on the whole graph."""
    more = {"full_graph": True} if full else {}
    plan = Plan(("pull", "cover"), seeds="home", **({"scope": "graph", "replicate": True} if full else {}))
    agree(ranks, graphs, lambda: Guarded(GUARDS[guard]), plan=plan, **more)
    alike, always = (
        ranks(1, lambda world, of=GUARDS[name]: losses(world, graphs, lambda: Guarded(of), **more))[0]
        for name in (guard, "by hand")
    )
    assert alike == always


@pytest.mark.parametrize("guard", [lambda h, x: len(h) == len(x), lambda h, x: h.numel() == x.numel()])
def test_other_questions_for_as_many_rows_are_refused(graphs, guard):
    loader = weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))
    with pytest.raises(ModelError, match=r"before convs.1 .* compare shapes or sizes, as in h.shape == x.shape"):
        weft.parallel(Guarded(lambda h, x: guard(h, x) and h.shape[-1] == x.shape[-1]), loader)


class SpectralNorm(Two):
    """A norm that takes a step in each forward in training."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.map = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))

    def between(self, x):
        return self.map(x).relu()


def test_what_a_model_keeps_steps_once_a_batch_however_many_parts_that_has(ranks, graphs):
    for make in (SpectralNorm, Counting):
        alone = ranks(1, lambda world: losses(world, graphs, make))[0]  # noqa: B023
        parts = ranks(1, lambda world: losses(world, graphs, make, micro_batches=3))[0]  # noqa: B023
        assert parts == pytest.approx(alone, abs=1e-10)
        agree(ranks, graphs, make, plan=Plan(("local", "local"), seeds="home", models="migrate"))


class ById(Two):
    """Besides, rows of a table, by what the first feature says."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.table = nn.Embedding(5, 8, sparse=True)

    def between(self, x):
        return x.relu() + self.table((x[:, 0] > 0).long())


def test_sparse_gradients_of_several_workers_are_refused(ranks, graphs):
    with pytest.raises(TrainingError, match="a gradient is sparse"):
        ranks(2, lambda world: losses(world, graphs, ById, optimizer="sgd"))


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_complex_numbers_are_refused(graphs, kind):
    model, of = Two(SAGEConv), torch.ones(8, dtype=torch.complex64)
    if kind == "buffer":
        model.register_buffer("turn", of)
    else:
        model.turn = nn.Parameter(of)
    with pytest.raises(ModelError, match=r"complex numbers \(turn\).*view_as_real"):
        weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2)))


def test_weights_of_classes_are_in_the_models_numbers(graphs):
    weights = nn.CrossEntropyLoss(weight=torch.arange(1.0, 1 + CLASSES), reduction="none")
    model, graph = Two(SAGEConv).double(), open_graph(graphs / "1")
    result = weft.train(graph, model, loss=weights, fanouts=(3, 2), epochs=1, dtype="float64")
    assert result.best_epoch == 0 and weights.weight.dtype == torch.float64


class Warming(nn.Module):
    """A loss that counts, and counts for more later."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, rows, labels):
        self.calls += 1
        return F.cross_entropy(rows, labels, reduction="none") * 0.8**self.calls


class WarmingOfAll(weft.VertexObjective):
    """The same as an objective."""

    calls = 0

    def loss(self, model, rows, targets):
        self.calls += 1
        return super().loss(model, rows, targets) * 0.8**self.calls


@pytest.mark.parametrize("make", [lambda: LossObjective(Warming()), WarmingOfAll])
def test_calls_that_a_loss_counts_are_those_of_training(ranks, graphs, make):
    """No look at whether it is a sum is one."""

    def trained(world):
        graph = open_graph(graphs / str(world.size))
        told = Settings.of(dtype="float64", threads=1, epochs=2, fanouts=(3, 2), batch_size=102 // world.size)
        with seeded(3):
            model = Two(SAGEConv).double()
        trainer = Trainer(graph, model, told, world=world, objective=set_up(make(), graph, told))
        found = [trainer.train_epoch(epoch)[1] for epoch in range(2)]
        trainer.close()
        return found

    alone, *others = (ranks(size, trained)[0] for size in (1, 2, 3))
    for found in others:
        assert found == pytest.approx(alone, abs=1e-10)


class Draws(Two):
    def __init__(self, how):
        super().__init__(SAGEConv)
        self.how, self.generator = how, torch.Generator().manual_seed(0)

    def between(self, x):
        if not self.training:
            return x
        by = {
            "Python's": lambda: x.relu() if random.random() > 0.5 else x.tanh(),
            "numpy's": lambda: x * float(np.random.rand()),
            "rows, by numpy": lambda: x + torch.from_numpy(np.random.standard_normal(x.shape)).to(x),
            "rows, by Python": lambda: x * torch.tensor([random.random() for _ in range(len(x))]).to(x)[:, None],
            "rows, by a generator": lambda: x + torch.rand(len(x), 8, generator=self.generator).to(x),
        }
        return by[self.how]()


@pytest.mark.parametrize("how", ["Python's", "numpy's"])
def test_numbers_for_a_whole_layer_hang_on_the_batch_alone(ranks, graphs, how):
    """So they are the same on all workers, each of which has generators of its own where it is a process."""
    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        found.append(ranks(1, losses, graphs, lambda: Draws(how)))
    assert found[0] == found[1]


@pytest.mark.parametrize("how", ["rows, by numpy", "rows, by Python", "rows, by a generator"])
def test_numbers_for_rows_are_refused_on_several_workers(ranks, graphs, how):
    def work(world):
        return losses(world, graphs, lambda: Draws(how), plan=Plan(("pull", "pull"), seeds="home"))

    with pytest.raises(ModelError, match="draws random numbers"):
        ranks(2, work)
    ranks(1, work)


def test_numbers_for_as_many_rows_as_there_are_columns_are_refused(ranks, graphs):
    class AsMany(Two):
        def between(self, x):
            return x + torch.randn_like(x) if self.training else x

    def work(world):
        with seeded(0):
            model = AsMany(SAGEConv)
        loader = weft.Loader(open_graph(graphs / "2"), world=world, fanouts=(3, 2), batch_size=4, plan="gdp")
        weft.parallel(model, loader)

    with pytest.raises(ModelError, match=r"draws random numbers by torch\.randn_like"):
        ranks(2, work)


class Later(Two):
    """Does something else from the second epoch on."""

    def __init__(self, how):
        super().__init__(SAGEConv)
        self.how, self.strength = how, 0.0

    def between(self, x):
        if not self.strength:
            return x
        return x - self.strength * x.mean(0) if self.how == "mixes" else x + self.strength * torch.randn_like(x)


@pytest.mark.parametrize("how", ["mixes", "draws"])
def test_what_a_model_does_later_is_looked_at_again(ranks, graphs, how):
    def work(world):
        with seeded(0):
            model = Later(how)
        loader = weft.Loader(
            open_graph(graphs / "2"), world=world, fanouts=(3, 2), batch_size=50, plan="gdp", epochs=2, threads=1
        )
        run, met = weft.parallel(model, loader), []
        try:
            for epoch in range(2):
                model.strength = 0.1 * epoch
                for batch in loader:
                    run(batch)
                    met.append(epoch)
        except ModelError as error:
            return met, str(error)
        finally:
            loader.abandon()

    for met, said in ranks(2, work):
        assert set(met) == {0}
        assert {"mixes": "mixes the rows", "draws": "draws random numbers"}[how] in said


class Begins(Two):
    """Draws random numbers from some batch on, which no attribute of it tells beforehand."""

    def __init__(self, shape):
        super().__init__(SAGEConv)
        self.shape = shape
        self.register_buffer("batches", torch.zeros(()))

    def between(self, x):
        if not self.training:
            return x
        self.batches += 1
        return x * torch.rand(self.shape(x)) if self.batches > 2 else x


@pytest.mark.parametrize("of", ["rows", "columns"])
def test_random_numbers_that_set_in_within_an_epoch_are_seen_in_the_next_batch(ranks, graphs, of):
    """Those of rows are refused then; those for all rows alike are everyone's."""

    def work(world):
        with seeded(0):
            model = Begins(lambda x: x.shape if of == "rows" else x.shape[1:])
        loader = weft.Loader(open_graph(graphs / "2"), world=world, fanouts=(3, 2), batch_size=4, plan="gdp")
        run, met = weft.parallel(model, loader), 0
        try:
            for batch in loader:
                run(batch)
                met += 1
        except ModelError as error:
            return met, str(error)
        finally:
            loader.abandon()
        return met, len(loader)

    for met, said in ranks(2, work):
        if of == "rows":
            assert (
                met >= 2
            )  # workers of one process share its generators: what one draws may be hidden by the other's seed
            assert "draws random numbers" in said
        else:
            assert met == said > 4


class CountsBefore(Two):
    def forward(self, x, edge_index):
        count = x.size(0)
        return self.second(self.first(x, edge_index).view(count, 2, 4).flatten(1), edge_index)


def test_a_number_of_rows_from_before_a_convolution_is_refused(graphs):
    with pytest.raises(ModelError, match=r"each convolution leaves fewer: h.size\(0\) behind it"):
        weft.train(open_graph(graphs / "1"), CountsBefore(SAGEConv), fanouts=(3, 2), epochs=1)
    alone = weft.train(open_graph(graphs / "1"), CountsBefore(SAGEConv), full_graph=True, epochs=1)
    assert alone.history


class NeedsWeights(MessagePassing):
    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.linear(x), edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


def test_a_convolution_that_can_not_do_without_weights(ranks, graphs):
    agree(ranks, graphs, lambda: Two(NeedsWeights, True), plan=Plan(("pull", "pull"), seeds="home"))


class InColumns(Two):
    """Weights of edges as rows of one number."""

    column = staticmethod(lambda weight: weight.view(-1, 1))

    def forward(self, x, edge_index, edge_weight):
        weight = self.column(edge_weight)
        return self.second(self.between(self.first(x, edge_index, weight)), edge_index, weight)


OF_ROWS_OF_EDGES = {
    "gine": lambda width, out: GINEConv(nn.Linear(width, out), edge_dim=1),
    "transformer": lambda width, out: TransformerConv(width, out, edge_dim=1),
    "nn": lambda width, out: NNConv(width, out, nn.Linear(1, width * out)),
    "gat": lambda width, out: GATConv(width, out, edge_dim=1),
}


@pytest.mark.parametrize("name", OF_ROWS_OF_EDGES)
def test_weights_of_edges_as_rows_of_one_number(ranks, graphs, name):
    agree(ranks, graphs, lambda: InColumns(OF_ROWS_OF_EDGES[name]), plan=Plan(("pull", "pull"), seeds="home"))
    graph = open_graph(graphs / "1")
    with seeded(3):
        model = InColumns(OF_ROWS_OF_EDGES[name])
    src, dst = graph.indices, np.repeat(np.arange(300), np.diff(graph.indptr))
    edges, weights = torch.from_numpy(np.stack([src, dst]).astype(np.int64)), torch.from_numpy(graph.edge_weight[:])
    expected = model(torch.from_numpy(graph.features[:]), edges, weights)
    loader = weft.Loader(graph, fanouts=(-1, -1), batch_size=len(graph.seeds("train")))
    run, batch = weft.parallel(model, loader), next(iter(loader))
    torch.testing.assert_close(run(batch), expected[batch.seeds], rtol=1e-4, atol=1e-5)
    run.close()


@pytest.mark.parametrize("column", [lambda w: w[:, None], lambda w: w.unsqueeze(-1), lambda w: w.reshape(-1, 1)])
def test_rows_of_one_number_however_they_are_made(graphs, column):
    model = InColumns(OF_ROWS_OF_EDGES["gine"])
    model.column = column
    assert weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1).history


def test_weights_of_edges_in_another_shape_than_a_convolution_takes(graphs):
    with pytest.raises(
        ModelError, match=r"one number each .*: if it takes a row of each edge, give it edge_weight\.view"
    ):
        weft.train(open_graph(graphs / "1"), Two(OF_ROWS_OF_EDGES["gine"], True), fanouts=(3, 2), epochs=1)


class ByNumber(MessagePassing):
    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        up = edge_index[:, edge_index[0] < edge_index[1]]
        return self.propagate(up, x=self.linear(x))


def test_a_convolution_that_looks_at_the_numbers_of_vertices_is_refused(graphs):
    with pytest.raises(ModelError, match="at the numbers of vertices"):
        weft.train(open_graph(graphs / "1"), Two(ByNumber), fanouts=(3, 2), epochs=1)


class InSteps(Two):
    def forward(self, x, edge_index):
        return self.second(self.first(x.view(-1, 2, 3), edge_index).flatten(1), edge_index)


def test_rows_of_several_axes_are_refused(graphs):
    model = InSteps(lambda width, out: SAGEConv(3, 4, node_dim=0) if width == WIDTH else SAGEConv(width, out))
    with pytest.raises(ModelError, match=r"gets rows of shape \[vertices, 2, 3\]: .* flatten them before it"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)


class Plain(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


def test_a_model_without_parameters_has_nothing_to_train(graphs):
    with pytest.raises(TrainingError, match="the model has no parameters"):
        weft.train(open_graph(graphs / "1"), Two(lambda *_: Plain()), fanouts=(3, 2), epochs=1)


def test_a_plan_of_another_depth_is_refused(graphs):
    told = Settings.of(full_graph=True, threads=1)
    with pytest.raises(ConfigError, match="has 3 placements for 2 convolutions: give one for each"):
        Trainer(open_graph(graphs / "1"), Two(SAGEConv), told, plan=Plan(("pull",) * 3, seeds="home", scope="graph"))


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = GCNConv(WIDTH, 8), nn.BatchNorm1d(8), GCNConv(8, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


def normalised(world, folder, plan, epochs, checkpoints=None, **options):
    told = Settings.of(fanouts=(-1, -1), batch_size=12, dtype="float64", threads=1, seed=5, epochs=epochs, **options)
    if checkpoints is not None:
        told = told.changed(checkpoint=str(checkpoints), resume=True)
    with seeded(3):
        model = Normalised().double()
    trainer = Trainer(open_graph(folder / str(world.size)), model, told, world=world, plan=plan)
    result = trainer.fit()
    return [one["validation"] for one in result.history], dict(model.state_dict())


@pytest.mark.parametrize("layers", ["local,local", "cover,cover"])
def test_a_run_with_batch_normalisation_goes_on_as_if_it_had_not_stopped(ranks, graphs, tmp_path, layers):
    plan = Plan(tuple(layers.split(",")), seeds="home" if "cover" in layers else "spread")
    whole = ranks(3, normalised, graphs, plan, 2)
    ranks(3, normalised, graphs, plan, 1, tmp_path / "kept")
    resumed = ranks(3, normalised, graphs, plan, 2, tmp_path / "kept")
    for (figures, state), (figures_again, again) in zip(whole, resumed, strict=True):
        assert figures == figures_again
        assert all(torch.equal(state[name], again[name]) for name in state)


OF_BATCHES = {"fanouts": (-1, -1), "batch_size": 50}


@pytest.mark.parametrize("few", [0, 1])
@pytest.mark.parametrize(
    ("layers", "options"),
    [
        ("pull,cover", {"full_graph": True}),
        ("columns,columns", {"full_graph": True, "plan": "tp-decoupled"}),
        ("cover,cover", OF_BATCHES),
        ("local,local", OF_BATCHES),
    ],
)
def test_the_averages_are_of_a_worker_that_has_rows_for_some(ranks, graphs, tmp_path, layers, options, few):
    """The first one owns `few` vertices, or the last one does, by whose averages nobody goes either way."""
    scope = {"scope": "graph" if "full_graph" in options else "batches"}
    plan = None if "plan" in options else Plan(tuple(layers.split(",")), seeds="home", slack=1.0, **scope)
    whole, found = open_graph(graphs / "1"), []
    for which in (0, 1):
        owner = np.full(300, 1 - which, dtype=np.int32)
        owner[:few] = which
        write_partitioned(whole, owner, 2, tmp_path / str(which))

        def work(world, which, epochs, kept, resume=False):
            with seeded(3):
                model = Normalised().double()
            more = {"checkpoint": str(tmp_path / kept), "resume": resume, "dtype": "float64", "threads": 1, "seed": 5}
            told = Settings.of(**options, **more, epochs=epochs)
            result = Trainer(open_graph(tmp_path / str(which)), model, told, world=world, plan=plan).fit()
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            return result.history, result.test, state

        both = ranks(2, work, which, 3, f"whole-{which}")
        ranks(2, work, which, 1, f"longer-{which}")
        for one, again in zip(both, ranks(2, work, which, 3, f"longer-{which}", True), strict=True):
            assert one[:2] == again[:2]
            assert all(torch.equal(tensor, again[2][name]) for name, tensor in one[2].items())
        (newest,) = (tmp_path / f"whole-{which}").glob("step-*3" if "full_graph" in options else "step-*6")
        kept = load_file(newest / "state.safetensors").items()
        means = [one for name, one in kept if name.endswith("running_mean") and not name.startswith("averages")]
        assert len(means) == 2 and all(one.any() for one in means)  # the model's, and the best one's
        found.append(both[0])
    (history, test, state), (again, test_again, state_again) = found
    norm = next(name for name in state if name.endswith("running_mean"))
    assert [one["validation"] for one in history] == pytest.approx([one["validation"] for one in again])
    assert test == pytest.approx(test_again) and state[norm].any()
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, state_again[name], atol=1e-10, rtol=0)


def test_time_steps_are_not_merged_by_the_clock_where_it_would_say_what_model_comes_out(ranks, graphs):
    def work(world, **options):
        told = []
        with seeded(3):
            model = Normalised()
        settings = Settings.of(fanouts=(2, 2), batch_size=12, plan="migrate", threads=1, epochs=1, **options)
        Trainer(open_graph(graphs / "3"), model, settings, told.append, world).fit()
        return [event.text for event in told if isinstance(event, Notice)]

    assert any("no time steps are merged: batch normalisation" in text for text in ranks(3, work)[0])
    assert not any("time steps are merged" in text for text in ranks(3, lambda world: work(world, merge="random"))[0])


def test_what_is_measured_is_the_model_that_is_saved(ranks, graphs):
    plan = Plan(("local", "local"))
    sampled, exact = (
        ranks(3, lambda world, how=how: normalised(world, graphs, plan, 2, evaluation=how)[0])[0]
        for how in ("sampled", "exact")
    )
    assert sampled == exact


class Decoder(nn.Module):
    """As people score links: two dense layers on the product of the rows, with dropout between."""

    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.how, self.calls = nn.Linear(8, 8), nn.Linear(8, 1), how, 0
        self.register_buffer("mean", torch.ones(()))

    def forward(self, heads, tails):
        x = self.first(heads[:, None] * tails)
        if self.how == "mixes":
            x = x - x.mean((0, 1))
        if self.how == "draws" and self.training:
            x = x + torch.randn_like(x)
        if self.how == "keeps" and self.training:
            self.calls, self.mean = self.calls + 1, 0.9 * self.mean + 0.2
            x = x * self.mean + self.calls
        if self.how == "remembers" and self.training:
            x = x * self.mean
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        if self.how == "draws one":
            x = x + np.random.rand() + random.random()
        if self.how == "not of none":
            x = x.reshape(len(heads) * tails.shape[1], -1).view(len(heads), tails.shape[1], -1)
        if self.how == "by pair, flat":
            return self.second(F.dropout(x.flatten(0, 1).relu(), 0.5, self.training)).view(tails.shape[:2])
        if self.how == "by head":
            x = x * F.dropout(heads, 0.3, self.training)[:, None]
        return self.second(F.dropout(x.relu(), 0.5, self.training)).squeeze(-1)


def of_links(how):
    return weft.LinkPredictor(Two(lambda width, out: SAGEConv(width, 8)), Decoder(how))


@pytest.mark.parametrize("full", [False, True], ids=["batches", "the full graph"])
@pytest.mark.parametrize("how", some(["by pair", "by pair, flat", "by head"], "by pair, flat", "by head"))
def test_dropout_of_a_decoder_is_by_pair(ranks, graphs, monkeypatch, how, full):
    monkeypatch.setattr(links, "_SCORES", 24)  # so that scores are computed in pieces
    options = {"epochs": 1, "seeds": 300}
    if full:
        options = {"full_graph": True, "plan": Plan(("pull", "pull"), seeds="home", scope="graph")}
    agree(ranks, graphs, lambda: of_links(how), task="link", **options)


@pytest.mark.parametrize("how", ["keeps", "not of none"])
@pytest.mark.parametrize("seeds", [450, 1290])
def test_decoders_that_keep_something_score_all_pairs_at_once(ranks, graphs, monkeypatch, how, seeds):
    """So that it is the same, however many pairs a worker has in a batch, or none."""
    monkeypatch.setattr(links, "_SCORES", 24)
    agree(ranks, graphs, lambda: of_links(how), task="link", seeds=seeds)


def test_scores_that_are_no_numbers_are_not_ranked(graphs):
    class Cosine(nn.Module):
        def forward(self, heads, tails):
            return (heads[:, None] * tails).sum(2) * (1.0 if self.training else float("nan"))

    model = weft.LinkPredictor(Two(lambda width, out: SAGEConv(width, 8)), Cosine())
    with pytest.raises(TrainingError, match="decoder Cosine gives nan for pairs of the validation split"):
        weft.train(open_graph(graphs / "1"), model, task="link", fanouts=(3, 2), epochs=1, log="json")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("mixes", "other scores if other pairs"),
        ("draws", "draws random numbers"),
        ("remembers", "keeps something of its examples by which the next ones are told"),
    ],
)
def test_a_decoder_that_looks_at_other_pairs_is_refused_on_several_workers(ranks, graphs, how, said):
    def work(world):
        losses(world, graphs, lambda: of_links(how), task="link", epochs=1)

    with pytest.raises(TrainingError, match=f"decoder Decoder .*{said}"):
        ranks(2, work)
    ranks(1, work)


def test_a_decoder_may_draw_one_number_for_all_pairs(ranks, graphs, monkeypatch):
    """By numpy and Python, too, which begin anew with each batch, and are not drawn from again for gradients."""

    def work(world, **options):
        return losses(world, graphs, lambda: of_links("draws one"), task="link", **options)

    whole = ranks(1, work)
    monkeypatch.setattr(links, "_SCORES", 24)
    assert ranks(1, work) == whole
    ranks(1, partial(work, micro_batches=2))  # where it is tried, as on several workers


@pytest.mark.parametrize("how", ["by head", "not of none"])
def test_a_decoder_is_trained_on_rows_that_are_not_learned(ranks, graphs, how):
    """Also by workers that have no link in a batch."""

    def make():
        model = of_links(how)
        model.encoder.requires_grad_(False)
        return model

    agree(ranks, graphs, make, task="link", seeds=1290, epochs=1)


class Scaled(nn.Module):
    def __init__(self, learned):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learned)

    def forward(self, rows, labels):
        return self.scale * F.cross_entropy(rows, labels, reduction="none")


def test_a_loss_with_parameters_to_learn_is_refused(graphs):
    graph, options = open_graph(graphs / "1"), {"fanouts": (3, 2), "epochs": 1}
    with pytest.raises(ConfigError, match=r"parameters to learn \(scale\), which weft.train does not train"):
        weft.train(graph, Two(SAGEConv), loss=Scaled(True), **options)
    weft.train(graph, Two(SAGEConv), loss=Scaled(False), **options)


class NoisyByAGenerator:
    def __init__(self):
        self.numbers = np.random.default_rng(0)

    def __call__(self, rows, labels):
        noise = torch.from_numpy(self.numbers.standard_normal(rows.shape)).to(rows)
        return F.cross_entropy(rows + noise, labels, reduction="none")


def noisy_by_torch(rows, labels):
    return F.cross_entropy(rows + torch.randn_like(rows), labels, reduction="none")


@pytest.mark.parametrize(
    ("noisy", "by"), [(lambda: noisy_by_torch, r"torch\.randn_like"), (NoisyByAGenerator, "a generator of its own")]
)
def test_a_loss_that_draws_for_each_vertex_is_refused_on_several_workers(ranks, graphs, noisy, by):
    def work(world):
        graph, options = open_graph(graphs / "2"), {"fanouts": (3, 2), "epochs": 1, "threads": 1, "plan": "gdp"}
        with seeded(0):
            model = Two(SAGEConv)
        objective = LossObjective(noisy()).setup(graph, Settings.of(**options))
        Trainer(graph, model, Settings.of(**options), world=world, objective=objective).train_epoch(0)

    with pytest.raises(TrainingError, match=rf"the loss function draws random numbers by {by}"):
        ranks(2, work)


@pytest.mark.parametrize("model", [SAGEConv, lambda x: x], ids=["a class", "a function"])
def test_what_is_no_module_is_refused(graphs, model):
    with pytest.raises(ModelError, match=r"and no torch\.nn\.Module: give one that is built"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)


def test_a_part_that_is_compiled_is_refused(graphs):
    model = Two(SAGEConv)
    model.third = torch.compile(nn.Linear(4, 4))
    with pytest.raises(ModelError, match=r"Two has a part that is compiled \(torch.compile\)"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)


def test_gradients_of_rows_can_be_hooked(ranks, graphs):
    """As in plain PyTorch: a reversed gradient trains another model, and one that is to be kept is there."""
    kept = []

    class Reversed(Two):
        def between(self, x):
            h = x.tanh()
            if self.training and h.requires_grad:
                h.register_hook(lambda gradient: -gradient)
                h.retain_grad()
                kept.append(h)
            return h

    def plain(world):
        graph = open_graph(graphs / "1")
        into = np.arange(graph.num_vertices).repeat(np.diff(graph.indptr))
        x, edges = torch.tensor(graph.features).double(), torch.tensor(np.stack([graph.indices, into])).long()
        seeds, labels = torch.tensor(graph.seeds("train")), torch.tensor(graph.labels).long()
        with seeded(3):
            model = Reversed(SAGEConv).double()
        optimizer, found = torch.optim.Adam(model.parameters(), 0.003), []
        for _ in range(3):
            loss = F.cross_entropy(model(x, edges)[seeds], labels[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(float(loss))
        return found

    alone = ranks(1, plain)[0]
    kept.clear()
    for size in (1, 2):
        found = ranks(size, partial(losses, folder=graphs, make=partial(Reversed, SAGEConv), epochs=3, full_graph=True))
        assert found[0] == pytest.approx(alone, abs=1e-10)
    assert all(h.grad is not None and h.grad.abs().sum() > 0 for h in kept[:2])


def test_hooks_that_are_not_linear_are_refused_where_gradients_come_in_parts(ranks, graphs):
    """Several workers have parts of a row's gradient, and so have pieces of a batch; on the full graph its owner has all."""

    class Clipped(Two):
        def between(self, x):
            if x.requires_grad:
                x.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
            return x.tanh()

    for size, options in (2, {"plan": "gdp"}), (1, {"micro_batches": 2}):
        with pytest.raises(ModelError, match="a function that is not linear"):
            ranks(size, partial(losses, folder=graphs, make=partial(Clipped, SAGEConv), **options))
    agree(ranks, graphs, partial(Clipped, SAGEConv), full_graph=True)


class NormedFirst(Two):
    """Steps a buffer before its first convolution, in place, and multiplies by it."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("steps", torch.ones(()))

    def forward(self, x, edge_index):
        if self.training:
            self.steps += 1
        return super().forward(self.enter(x) * self.steps, edge_index)


class WarmsUp(Two):
    """Learns before its first convolution from some step on; and unfreezes a part of itself by itself."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.calls, self.add = 0, nn.Parameter(torch.full((WIDTH,), 0.3))
        self.second.lin_l.requires_grad_(False)

    def forward(self, x, edge_index):
        self.calls += self.training
        if self.calls > 3:
            x = x + self.add
        if self.calls > 5:
            self.second.lin_l.requires_grad_()
        return super().forward(x, edge_index)


@pytest.mark.parametrize("make", [NormedFirst, WarmsUp], ids=lambda make: make.__name__)
@pytest.mark.parametrize("plan", ["snp", "split", "gdp"])
def test_models_that_change_before_their_first_convolution(ranks, graphs, make, plan):
    agree(ranks, graphs, make, epochs=3, seeds=90, plan=plan)


def test_hooks_of_modules_gradients_are_refused(graphs):
    model = Two(SAGEConv)
    model.second.lin_l.register_full_backward_hook(lambda module, into, out: None)
    with pytest.raises(
        ModelError, match=r"second.lin_l has hooks of a module's gradients .*: hook rows in the forward"
    ):
        weft.parallel(model, weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2)))


def test_a_state_that_can_not_be_taken_again_is_refused_before_training(graphs):
    model = Two(lambda *widths: GATConv(*widths))
    nn.utils.parametrizations.weight_norm(model.first.lin, "weight")
    with pytest.raises(ModelError, match=r"Two.load_state_dict does not take what its state_dict gives"):
        weft.train(open_graph(graphs / "1"), model, fanouts=(3, 2), epochs=1)


class OfAttributes(nn.Module):
    """Takes what edges weigh by the name that PyG's models have for it."""

    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(WIDTH, 8), make(8, CLASSES)

    def forward(self, x, edge_index, edge_attr):
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


ATTRIBUTES = {
    "gcn": lambda: OfAttributes(GCNConv),
    "a hop": lambda: OfAttributes(lambda wide, out: SGConv(wide, out, K=1)),
    "gat": lambda: OfAttributes(lambda *widths: GATConv(*widths, edge_dim=1)),
    "gine": lambda: OfAttributes(lambda wide, out: GINEConv(nn.Linear(wide, out), edge_dim=1)),
    "of pyg": lambda: GAT(WIDTH, 8, 2, CLASSES, edge_dim=1),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_edge_attributes_are_what_edges_weigh(ranks, graphs, name):
    graph = open_graph(graphs / "1")
    into = torch.arange(graph.num_vertices).repeat_interleave(torch.tensor(graph.indptr).diff())
    edges = torch.stack([torch.tensor(graph.indices).long(), into])
    weights, x = torch.tensor(graph.edge_weight).double()[:, None], torch.tensor(graph.features).double()
    with seeded(3):
        model = ATTRIBUTES[name]().double().eval()
    found = weft.infer(model, graph, dtype="float64").outputs
    assert torch.as_tensor(found).allclose(model(x, edges, edge_attr=weights), atol=1e-10)
    for plan, options in (
        (Plan(("pull", "local")), {}),
        (Plan(("pull", "pull"), seeds="home", scope="graph"), {"full_graph": True}),
    ):
        agree(ranks, graphs, ATTRIBUTES[name], plan=plan, **options)


def test_a_model_that_takes_edge_attributes_for_nothing_is_given_none(graphs):
    """PyG's own take them whatever their convolutions are, and fail where these have no use for them."""
    weft.parallel(GAT(WIDTH, 8, 2, CLASSES), weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2))).close()


class OfNumbers(nn.Module):
    """Looks up what integers among the features stand for."""

    def __init__(self, how, **options):
        super().__init__()
        self.how, self.table = how, nn.EmbeddingBag(9, 5) if how == "bag" else nn.Embedding(9, 5, **options)
        self.first, self.second = SAGEConv(9 if how == "one_hot" else 5, 8), SAGEConv(8, CLASSES)

    def forward(self, x, edge_index):
        ids = x.abs().long()
        if self.how == "one_hot":
            h = F.one_hot(ids[:, 0], num_classes=9).to(x.dtype)
        else:
            h = self.table(ids) if self.how == "bag" else self.table(ids).sum(1)
        return self.second(self.first(h, edge_index).relu(), edge_index)


class Indexes(OfNumbers):
    def forward(self, x, edge_index):
        ids, table = x[:, 0].abs().long() % 9, self.table.weight
        if self.how == "added":
            return self.second(self.first(x[:, :5], edge_index) + F.pad(table, (0, 3))[ids], edge_index)
        rows = table[ids] if self.how == "indexed" else table.index_select(0, ids)
        return self.second(self.first(rows, edge_index).relu(), edge_index)


@pytest.mark.parametrize("how", ["indexed", "selected", "added"])
def test_tables_that_are_indexed_are_refused_with_how_they_are_looked_up(graphs, how):
    with pytest.raises(ModelError, match=r"F.embedding\(ids, table\), not (by )?table\[ids\]"):
        weft.train(open_graph(graphs / "1"), Indexes(how), fanouts=(3, 2), epochs=1)


@pytest.mark.parametrize("how", ["embedding", "bag", "one_hot"])
@pytest.mark.parametrize("options", [{"plan": "snp"}, {"plan": "split"}, {"full_graph": True}])
def test_features_that_are_looked_up_in_a_table(ranks, graphs, how, options):
    """Models are tried on random rows before: whatever their numbers are, there is something in the table."""
    agree(ranks, graphs, partial(OfNumbers, how), **options)


@pytest.mark.parametrize(("option", "value"), [("max_norm", 0.5), ("scale_grad_by_freq", True)])
def test_tables_that_change_by_which_rows_a_worker_has_are_refused(graphs, option, value):
    """By one worker they are trained, and looks at the model leave them as they are."""
    graph, common = open_graph(graphs / "1"), {"fanouts": (3, 2), "epochs": 1, "log": "json"}
    model = OfNumbers("embedding", **{option: value})
    before = model.table.weight.clone()
    with pytest.raises(ModelError, match=rf"table: Embedding\({option}=.*hangs on which ids are looked up together"):
        weft.train(graph, model, micro_batches=2, **common)
    check_rows(model, WIDTH, 3, several=True)
    assert torch.equal(model.table.weight, before)
    weft.train(graph, model, **common)
    weft.infer(model, graph)


@pytest.mark.parametrize("late", [False, True])
def test_a_forward_that_is_set_on_a_convolution_is_refused(graphs, late):
    """It was not run, and it was gone afterwards."""
    graph, model = open_graph(graphs / "1"), Two(SAGEConv)
    loader = weft.Loader(graph, fanouts=(3, 2))
    run = weft.parallel(model, loader) if late else None
    forward = model.first.forward
    model.first.forward = lambda *given: 2 * forward(*given)
    with pytest.raises(ModelError, match=r"SAGEConv\(6, 8, .*\) has a forward that was set on it"):
        run(next(iter(loader))) if late else weft.infer(model, graph)
    assert model.first.forward is not forward


class CountsAll(Two):
    """Keeps something in each forward, whoever asks for it."""

    def __init__(self):
        super().__init__(SAGEConv)
        self.register_buffer("calls", torch.zeros(()))
        self.kept = None

    def between(self, x):
        self.calls = self.calls + 1
        self.kept = torch.linspace(1, 2, 8, dtype=x.dtype) if self.kept is None else self.kept
        return x * self.kept / self.calls


@pytest.mark.parametrize("evaluation", [{"eval_batch_size": 7}, {"evaluation": "exact"}])
def test_evaluation_leaves_what_a_model_keeps(ranks, graphs, evaluation):
    def trained(world, **options):
        told = Settings.of(fanouts=(-1, -1), batch_size=102 // world.size, epochs=2, dtype="float64", seed=5, **options)
        with seeded(3):
            model = CountsAll().double()
        trainer = Trainer(open_graph(graphs / str(world.size)), model, told, world=world)
        return [one["loss"] for one in trainer.fit().history], float(model.calls)

    (losses, calls), *_ = ranks(1, partial(trained, evaluate_every=0, **evaluation))
    for size in (1, 2):
        for found, counted in ranks(size, partial(trained, **evaluation)):
            assert found == pytest.approx(losses, abs=1e-10) and counted in (calls / 2, calls)


class GcnII(nn.Module):
    """Its convolutions are given the rows that it begins with, too."""

    def __init__(self, weighted=False, **options):
        super().__init__()
        self.into, self.out, self.weighted = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), weighted
        self.convs = nn.ModuleList(GCN2Conv(8, 0.3, 0.5, layer + 1, **options) for layer in range(2))

    def forward(self, x, edge_index, edge_weight=None):
        x = first = self.into(x).relu()
        for conv in self.convs:
            h = F.dropout(x, 0.4, self.training)
            given = {"edge_weight": edge_weight} if self.weighted else {}
            x = conv(h, x_0=first, edge_index=edge_index, **given).relu()
        return self.out(x)


class Placed(MessagePassing):
    """Messages go by where both ends are, which comes last; what is added comes before the edges."""

    def __init__(self, width, out):
        super().__init__(aggr="max")
        self.linear, self.added = nn.Linear(width + 2, out), nn.Linear(WIDTH, out)

    def forward(self, x, first, edge_index, position):
        return self.propagate(edge_index, x=x, position=position) + self.added(first)

    def message(self, x_j, position_i, position_j):
        return self.linear(torch.cat([x_j, position_i - position_j], 1)).tanh()


class Points(Two):
    def __init__(self):
        super().__init__(Placed)

    def forward(self, x, edge_index):
        position = x[:, :2]
        return self.second(self.first(x, x, edge_index, position).relu(), x, edge_index, position=position)


ALONGSIDE = {
    "gcnii": GcnII,
    "gcnii, two matrices": lambda: GcnII(shared_weights=False, add_self_loops=False),
    "gcnii, weights": lambda: GcnII(weighted=True),
    "gcnii, sums": lambda: GcnII(normalize=False),
    "own": Points,
}
HOME = [Plan((how, how), seeds="home") for how in ("pull", "push", "cover")]


@pytest.mark.parametrize("name", some(ALONGSIDE, "gcnii", "own"))
def test_convolutions_are_given_other_rows_than_those_that_they_convolve(ranks, graphs, name):
    make = ALONGSIDE[name]
    split = make is not Points
    agree(
        *(ranks, graphs, make, "gdp", HOME[0], Plan(("pull", "local"))),
        *([Plan(("push", "local")), *HOME[1:]] if split else ()),
    )
    agree(ranks, graphs, make, "halo", *(["tp"] if split else ()), full_graph=True)


class Hops(nn.Module):
    """A convolution of two hops; its inputs are the graph's, or made of them."""

    def __init__(self, make, weighted=False, mapped=True):
        super().__init__()
        width = 8 if mapped else WIDTH
        self.into = nn.Linear(WIDTH, 8) if mapped else nn.Identity()
        self.conv, self.weighted = make(width), weighted
        self.out = nn.Linear(
            getattr(self.conv, "out_channels", width) * (3 if isinstance(self.conv, MixHopConv) else 1), CLASSES
        )

    def forward(self, x, edge_index, edge_weight=None):
        given = {"edge_weight": edge_weight} if self.weighted else {}
        return self.out(F.dropout(self.conv(self.into(x), edge_index, **given), 0.3, self.training))


HOPS = {
    "sgc": lambda: Hops(lambda width: SGConv(width, 5, K=2), mapped=False),
    "sgc, weights": lambda: Hops(lambda width: SGConv(width, 5, K=2, add_self_loops=False), weighted=True),
    "ssgc": lambda: Hops(lambda width: SSGConv(width, 5, alpha=0.2, K=2)),
    "tag": lambda: Hops(lambda width: TAGConv(width, 5, K=2)),
    "tag, sums": lambda: Hops(lambda width: TAGConv(width, 5, K=2, normalize=False), weighted=True),
    "appnp": lambda: Hops(lambda width: APPNP(2, 0.2), weighted=True),
    "mixhop": lambda: Hops(lambda width: MixHopConv(width, 5, [0, 1, 2])),
    "lightgcn": lambda: Two(
        lambda width, out: Sequential("x, edge_index", [(LGConv(), "x, edge_index -> x"), nn.Linear(width, out)])
    ),
}


@pytest.mark.parametrize("name", some(HOPS, "sgc", "appnp"))
def test_convolutions_of_several_hops_are_as_many_layers(ranks, graphs, name):
    make = HOPS[name]
    agree(ranks, graphs, make, "gdp", HOME[2], Plan(("push", "local")), *(["nfp"] if name == "sgc" else []))
    agree(ranks, graphs, make, "halo", "tp", full_graph=True)
    assert BlockModel(make()).describe().startswith("2 layers")


class Adds(MessagePassing):
    """Says how it is split, and adds its own rows to the merged ones: in their place, if it `writes`."""

    def __init__(self, writes, width, out):
        super().__init__(aggr="mean")
        self.writes, self.linear = writes, nn.Linear(width, out)

    def weft_split(self):
        return weft.Split(self.finish, merge="mean")

    def finish(self, merged, own):
        return self.linear(merged.add_(own) if self.writes else merged + own)

    def forward(self, x, edge_index):
        return self.finish(self.propagate(edge_index, x=x), x)

    def message(self, x_j):
        return x_j


class Halves(nn.Module):
    def __init__(self, writes):
        super().__init__()
        self.writes, self.hop, self.linear = writes, LGConv(), nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        h = self.hop(x, edge_index)
        h = h.mul_(0.5) if self.writes else h * 0.5
        return self.linear(F.dropout(h, 0.3, self.training, inplace=self.writes))


@pytest.mark.parametrize("make", [lambda writes: Two(partial(Adds, writes)), Halves], ids=["a split", "a hop"])
def test_what_the_model_writes_into_is_merged_again(ranks, graphs, make):
    for size in (1, 2):
        plain, writing = (
            ranks(size, partial(losses, folder=graphs, make=partial(make, writes), plan="halo", full_graph=True))[0]
            for writes in (False, True)
        )
        assert writing == plain


def test_a_batch_that_is_run_twice_is_merged_again(graphs):
    with seeded(3):
        model = Two(partial(Adds, True)).double().eval()
    loader = weft.Loader(open_graph(graphs / "1"), fanouts=(3, 2), batch_size=30, dtype="float64")
    run = weft.parallel(model, loader)
    for batch in loader:
        assert torch.equal(run(batch), run(batch))
    run.close()


def test_dropout_of_hops_is_refused(graphs):
    make = partial(Hops, lambda width: APPNP(2, 0.2, dropout=0.5))
    with pytest.raises(ModelError, match="looks further than at the edges"):
        weft.train(open_graph(graphs / "1"), make(), fanouts=(3,), epochs=1)


class Tutorial(MessagePassing):
    """GCN as PyG's tutorial writes it, which looks up degrees; weights of edges are added up to them."""

    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.lin, self.bias = nn.Linear(width, out, bias=False), nn.Parameter(torch.zeros(out))

    def forward(self, x, edge_index, edge_weight=None):
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, 1.0, num_nodes=x.size(0))
        (src, dst), x = edge_index, self.lin(x)
        roots = (degree(dst, len(x), x.dtype) if edge_weight is None else scatter(edge_weight, dst, 0, len(x))).rsqrt()
        norm = roots[src] * roots[dst] * (1 if edge_weight is None else edge_weight)
        return self.propagate(edge_index, x=x, norm=norm) + self.bias

    def message(self, x_j, norm):
        return F.dropout(norm.view(-1, 1) * x_j, 0.2, self.training)


class Fagcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.convs = nn.ModuleList(FAConv(8, dropout=0.3) for _ in range(2))

    def forward(self, x, edge_index):
        x = first = F.dropout(self.into(x).relu(), 0.3, self.training)
        for conv in self.convs:
            x = conv(x, first, edge_index)
        return self.out(x)


NEIGHBOURS = {
    "tutorial": lambda: Two(Tutorial),
    "tutorial, weights": lambda: Two(Tutorial, weighted=True),
    "fagcn": Fagcn,
    "arma": lambda: Two(partial(ARMAConv, num_stacks=2), weighted=True),
    "eg": lambda: Two(partial(EGConv, aggregators=["symnorm", "max"], num_heads=4)),
}


@pytest.mark.parametrize("name", some(NEIGHBOURS, "tutorial, weights", "fagcn"))
def test_convolutions_look_up_degrees_of_neighbours_where_all_neighbours_are(ranks, graphs, name):
    make = NEIGHBOURS[name]
    agree(ranks, graphs, make, "gdp", HOME[0], Plan(("pull", "local")), "leap", fanouts=(-1, -1))
    agree(ranks, graphs, make, full_graph=True, plan="halo")
    with pytest.raises(ModelError, match=r"at the edges of neighbours, too, .* take all of them"):
        agree(ranks, graphs, make, plan="gdp")


def test_the_planner_measures_what_looks_up_degrees(ranks, graphs):
    agree(ranks, graphs, NEIGHBOURS["tutorial"], plan="auto", fanouts=(-1, -1))


@pytest.mark.parametrize("name", [*ALONGSIDE, *HOPS, *NEIGHBOURS])
def test_they_are_what_pyg_makes_of_them(graphs, name):
    """Rows of all vertices, and gradients of a batch with all neighbours."""
    graph = open_graph(graphs / "1")
    with seeded(3):
        model = (ALONGSIDE | HOPS | NEIGHBOURS)[name]().double().eval()
    src, dst = graph.indices, np.repeat(np.arange(300), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([src, dst]).astype(np.int64))
    weighted = getattr(model, "weighted", False)
    given = {"edge_weight": torch.from_numpy(graph.edge_weight[:]).double()} if weighted else {}
    x = torch.from_numpy(graph.features[:].astype(np.float64))
    expected = model(x, edges, **given)
    found = weft.infer(model, graph)
    torch.testing.assert_close(torch.from_numpy(found.outputs), expected.detach(), rtol=1e-10, atol=1e-10)
    assert name not in ALONGSIDE or found.embeddings.shape == (
        300,
        8,
    )  # of the last convolution, without what is alongside
    depth = BlockModel(model, WIDTH).depth
    loader = weft.Loader(graph, fanouts=[-1] * depth, batch_size=50, dtype="float64")
    run, batch = weft.parallel(model, loader), next(iter(loader))
    wanted = torch.autograd.grad(expected[batch.seeds].square().sum(), model.parameters(), materialize_grads=True)
    rows = run(batch)
    torch.testing.assert_close(rows, expected[batch.seeds], rtol=1e-10, atol=1e-10)
    rows.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        got = torch.zeros_like(gradient) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(got, gradient, rtol=1e-9, atol=1e-9)


def test_rows_alongside_are_of_vertices(graphs):
    class Learned(GcnII):
        def forward(self, x, edge_index):
            x = self.into(x)
            return self.out(self.convs[0](x, self.out.weight[:1], edge_index))

    with pytest.raises(ModelError, match=r"x_0 that does not come of its vertices' rows .*\[1, 8\].* by x_0 \+ 0 \* x"):
        weft.train(open_graph(graphs / "1"), Learned(), fanouts=(3,), epochs=1)


def test_rows_alongside_are_numbers(graphs):
    class Kinds(Two):
        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index, x.long())

    with pytest.raises(
        ModelError, match=r"other rows besides those that it convolves \(edge_weight, \[.*\] of torch.int64,"
    ):
        weft.train(open_graph(graphs / "1"), Kinds(GCNConv), fanouts=(3, 2), epochs=1)


class OfTwoHeads(Two):
    def __init__(self):
        super().__init__(lambda width, out: FeaStConv(width, out, heads=2))


class OfMedians(Two):
    """Which PyG can't take of no edges at all."""

    def __init__(self):
        super().__init__(lambda width, out: SAGEConv(width, out, aggr="median"))


class Cosines(MessagePassing):
    """Divides by the length of rows, and by the sum of weights; drops of its edges."""

    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index, edge_weight):
        unit = x / x.norm(dim=1, keepdim=True)
        sums = scatter(edge_weight, edge_index[1], 0, len(x))
        x = self.linear(x)
        return x + self.propagate(edge_index, x=x, unit=unit, by=edge_weight / sums[edge_index[1]])

    def message(self, x_j, unit_i, unit_j, by):
        return F.dropout((unit_i * unit_j).sum(1, keepdim=True) * by[:, None] * x_j, 0.3, self.training)


class OfCosines(Two):
    def __init__(self):
        super().__init__(Cosines, weighted=True)

    def between(self, x):
        return x.tanh()


@pytest.mark.parametrize("make", [OfTwoHeads, OfMedians, OfCosines])
def test_a_black_box_runs_where_a_worker_has_no_rows(ranks, graphs, make):
    """Of 200 seeds 2 are left for an epoch's last batch of three workers."""
    agree(ranks, graphs, make, plan="gdp", seeds=66)


class OfNorms(Two):
    """Of edges and of rows."""

    def __init__(self):
        super().__init__(partial(GENConv, norm="batch"))
        self.first = EdgeConv(nn.Sequential(nn.Linear(2 * WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU()))


def test_norms_in_black_boxes_are_numbers_where_a_worker_has_no_rows(ranks, graphs):
    models = []

    def make():
        models.append(OfNorms())
        return models[-1]

    for found in ranks(3, lambda world: losses(world, graphs, make, plan="gdp", seeds=66)):
        assert np.isfinite(found).all()
    assert all(value.isfinite().all() for model in models for value in model.state_dict().values())


def test_vertices_without_edges_by_their_numbers_are_refused(graphs):
    """EGConv puts loops at vertices up to the last one that has an edge."""
    whole = open_graph(graphs / "1")
    rows, labels = whole.features[:40], whole.labels[:40]
    edges = np.random.default_rng(0).integers(0, 40, (2, 60))
    make = partial(Two, lambda width, out: EGConv(width, out, ["sum", "mean"], num_heads=1, num_bases=2))
    split = np.zeros(40, dtype=np.uint8)
    for lone in (True, False):
        some = edges[:, (edges % 3 != 0).all(0)] if lone else np.concatenate([edges, np.tile(np.arange(40), (2, 1))], 1)
        graph = Graph.from_arrays(some, num_vertices=40, features=rows, labels=labels, split=split)
        if lone:
            with pytest.raises(ModelError, match="gives a vertex without in-edges another row where"):
                weft.train(graph, make(), fanouts=(-1, -1), batch_size=4, epochs=1, evaluate_every=0)
        else:
            weft.train(graph, make(), fanouts=(-1, -1), batch_size=4, epochs=1, evaluate_every=0)


def test_so_they_are_where_all_sources_of_a_batch_are_destinations():
    """On the whole graph there is nothing to refuse: its vertices have their own numbers."""
    edges, split = np.array([[1, 1, 2, 3, 4], [1, 1, 2, 3, 4]]), np.array([0, 1, 0, 1, 0], dtype=np.int8)
    rows = np.random.default_rng(0).random((5, WIDTH), dtype=np.float32)
    graph = Graph.from_arrays(edges, num_vertices=5, features=rows, labels=np.arange(5) % CLASSES, split=split)
    make = partial(Two, lambda width, out: EGConv(width, out, ["sum", "mean"], num_heads=1, num_bases=2))
    weft.train(graph, make(), full_graph=True, epochs=1)
    with pytest.raises(ModelError, match="gives a vertex without in-edges another row where"):
        weft.train(graph, make(), fanouts=(-1, -1), batch_size=3, epochs=1, evaluate_every=0)


class OverAll(nn.Module):
    """Attention over all vertices."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.conv = GPSConv(8, GINConv(nn.Linear(8, 8)), heads=2, norm="layer_norm")

    def forward(self, x, edge_index):
        return self.out(self.conv(self.into(x), edge_index))


class Reshapes(Two):
    """By a width that torch can't tell where there are no rows."""

    def between(self, x):
        return x.reshape(x.size(0), 2, -1).flatten(1).relu()


class Largest(Two):
    """Asks for a number that no rows don't have, and makes nothing of it."""

    def between(self, x):
        x.max()
        return x.relu()


def test_a_model_that_can_not_take_no_rows_is_told_so(graphs):
    graph = open_graph(graphs / "1")
    assert weft.train(graph, Reshapes(SAGEConv), full_graph=True, epochs=1, evaluate_every=0).history
    assert weft.train(graph, Reshapes(SAGEConv), fanouts=(3, 2), batch_size=67, micro_batches=3, epochs=1).history
    settings = Settings.of(fanouts=(3, 2))
    with pytest.raises(
        ModelError, match=r"none in a batch \(cannot reshape.*\): write the width out.*h\.flatten\(1\)$"
    ):
        check_model(settings, Reshapes(SAGEConv), graph.num_features, 2)
    with pytest.raises(ModelError, match=r"none in a batch \(.*\), as what looks at all rows together, such as h\.max"):
        check_model(settings, Largest(SAGEConv), graph.num_features, 2)


def test_a_model_of_all_rows_runs_on_the_full_graph_by_one_worker(graphs):
    graph = open_graph(graphs / "1")
    assert weft.train(graph, OverAll(), full_graph=True, epochs=1, evaluate_every=0).history
    with pytest.raises(ModelError, match="mixes the rows of different vertices"):
        weft.train(graph, OverAll(), fanouts=(3,), epochs=1, evaluate_every=0)


def on_the_whole_graph(graphs, model, **more):
    """What PyG makes of all vertices, and what Weft does."""
    graph = open_graph(graphs / "1")
    src, dst = graph.indices, np.repeat(np.arange(300), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([src, dst]).astype(np.int64))
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(graph.features[:].astype(np.float64)), edges, **more)
    graph = replace(graph, edge_type=(np.arange(1500) % 3).astype(np.int32)) if more else graph
    return torch.from_numpy(weft.infer(model, graph).outputs), expected


def films(*between):
    def make(width, out):
        return FiLMConv(
            width, out, nn=nn.Sequential(nn.Linear(width, 5), *(make() for make in between), nn.Linear(5, 2 * out))
        )

    return lambda: Two(make)


@pytest.mark.parametrize("plan", ["gdp", "split", "dnp"])
def test_networks_that_modulate_are_row_by_row(ranks, graphs, plan):
    """As those of a model are: their dropout is each vertex's own."""
    agree(ranks, graphs, films(nn.Tanh, partial(nn.Dropout, 0.3)), plan=plan)


def test_networks_that_modulate_take_a_row_alone(ranks, graphs):
    make = films(partial(nn.BatchNorm1d, 5), nn.Tanh)
    ((loss,),) = ranks(1, lambda world: losses(world, graphs, make, epochs=1, seeds=199))
    assert np.isfinite(loss)
    found, expected = on_the_whole_graph(graphs, make().double())
    torch.testing.assert_close(found, expected)


def biased(width, out):
    conv = GATConv(width, out)
    conv.lin = nn.Linear(width, out)
    return conv


def test_a_map_that_was_given_a_bias_has_it_under_all_plans(ranks, graphs):
    """Or is refused: where columns are shared out, its products are added up."""
    found, expected = on_the_whole_graph(graphs, Two(biased).double())
    torch.testing.assert_close(found, expected)
    agree(ranks, graphs, lambda: Two(biased), plan="split")
    with pytest.raises(ModelError, match="needs whole rows, so its layer can't be placed by columns"):
        ranks(2, lambda world: losses(world, graphs, lambda: Two(biased), plan="nfp"))


def test_hops_are_those_of_the_module_as_it_is(graphs):
    model = Two(lambda width, out: SGConv(width, out, K=2)).double()
    for loops in (True, False):
        model.first.add_self_loops = loops
        torch.testing.assert_close(*on_the_whole_graph(graphs, model))
    model.first.K = 0
    torch.testing.assert_close(*on_the_whole_graph(graphs, model))
    assert str(DegreeHop("SGConv(6, 4, K=2)")) == "a hop of SGConv(6, 4, K=2)"


@pytest.mark.parametrize("make", [GraphConv, partial(TAGConv, K=1, normalize=False)])
def test_types_that_are_given_as_weights_are_types(graphs, make):
    class TypesAsWeights(Two):
        def forward(self, x, edge_index, edge_type):
            return self.second(self.first(x, edge_index, edge_type), edge_index)

    model = TypesAsWeights(make).double()
    try:
        found, expected = on_the_whole_graph(graphs, model, edge_type=torch.arange(1500) % 3)
    except ModelError as error:
        assert "looks further than" in str(error)  # a hop by numbers that are no weights
    else:
        torch.testing.assert_close(found, expected)


def test_rows_alongside_are_in_one_piece_and_of_numbers(graphs):
    class Viewed(Placed):
        def forward(self, x, first, edge_index, position):
            return super().forward(x.view(-1).view(x.shape), first, edge_index, position)

    class Points(Two):
        def __init__(self):
            super().__init__(Viewed)

        def forward(self, x, edge_index):
            return self.second(self.first(x, x, edge_index, x[:, :2]), x, edge_index, x[:, :2])

    torch.testing.assert_close(*on_the_whole_graph(graphs, Points().double()))

    class Numbers(Two):
        def forward(self, x, edge_index):
            return self.second(self.first(x.long(), x, edge_index, x[:, :2]), x, edge_index, x[:, :2])

    with pytest.raises(ModelError, match=r"other rows besides those .*beside \[.*\] of torch.int64"):
        on_the_whole_graph(graphs, Numbers(Placed).double())
