"""An objective from outside: exact on several workers, known to the command line, passed as an object; a loss function."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from exactness import HOME, check_exact, make_parts, sage
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import weft
from weft import cli
from weft.cluster import Launcher
from weft.errors import ConfigError, TrainingError, WeftError
from weft.graph import Graph
from weft.keys import seeded
from weft.nn import encoder_of
from weft.plan import Plan
from weft.plugins import DOORS, OBJECTIVES
from weft.training import LinkObjective, load_model, make_model, of_all_workers, save_model
from weft.training.objectives import move, set_up
from weft.training.objectives.vertices import VertexTargets

PLANS = {
    "gdp": {"layers": ["local", "local"]},
    "nfp": {"layers": ["columns", "local"]},
    "split, partitioned": {"layers": ["cover", "cover"], "topology": "partitioned", **HOME},
    "migrate": {"layers": ["local", "local"], "models": "migrate", "merge": "none", **HOME},
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("graphs"))


def one_column(width, classes):
    return GraphSAGE(width, 8, 2, 1, dropout=0.3)


def test_it_is_known_by_its_name():
    assert OBJECTIVES.names() == ("vertex", "link", "degree")
    assert OBJECTIVES.help()["degree"] == "the logarithm of a vertex's in-degree"
    with pytest.raises(ConfigError, match="objective 'degres' is not known: did you mean 'degree'"):
        weft.Settings.of(task="degres")
    with pytest.raises(ConfigError, match="decoder means nothing to task = 'degree'"):
        weft.Settings.of(task="degree", decoder="mlp")


def test_every_plan_trains_what_one_worker_trains(ranks, parts):
    losses, _ = check_exact(ranks, parts, one_column, PLANS, task="degree")
    assert losses[-1] < losses[0]


class Growing(weft.VertexObjective):
    """Counts its batches in several ways, and weighs by them."""

    def setup(self, graph, settings):
        super().setup(graph, settings)
        self.calls, self.total, self.seen, self.norm = 0, torch.zeros(()), [], nn.Module()
        self.of_numpy, self.several = np.zeros(1), torch.zeros(3)
        self.view = self.several[:1]
        self.norm.register_buffer("steps", torch.zeros(()))
        return self

    def loss(self, model, rows, targets):
        self.calls += 1
        self.total += 1
        self.norm.steps += 1
        self.of_numpy += 1
        self.several += 1
        self.seen.append(self.calls)
        steps = (
            self.calls,
            float(self.total),
            len(self.seen),
            float(self.norm.steps),
            float(self.of_numpy[0]),
            float(self.view),
        )
        weight = 1 + 0.1 * sum(steps)
        return weight * F.cross_entropy(rows, self.labels_at(targets.ids), reduction="sum")


def test_what_a_loss_keeps_steps_once_a_batch_however_many_parts_that_has(ranks, parts):
    def losses(world, plan=None, **options):
        graph = Graph.open(parts[world.size])
        with seeded(11):
            model = sage(graph.num_features, graph.num_classes).double()
        size = 120 // world.size
        settings = weft.Settings.of(fanouts=(4, 3), batch_size=size, dtype="float64", threads=1, seed=5, **options)
        objective = Growing().setup(graph, settings)
        plan = plan and Plan.from_dict(plan)
        trainer = weft.Trainer(graph, model, settings, world=world, plan=plan, objective=objective)
        found = [trainer.train_epoch(epoch)[1] for epoch in range(2)]
        trainer.close()
        return [*found, objective.calls, int(objective.total), len(objective.seen), int(objective.norm.steps)]

    alone = ranks(1, losses)[0]
    assert alone[2:] == [4] * 4
    assert ranks(1, lambda world: losses(world, micro_batches=3))[0] == pytest.approx(alone, abs=1e-10)
    for found in ranks(3, losses, PLANS["migrate"]):
        assert found == pytest.approx(alone, abs=1e-10)


class Remembering(weft.VertexObjective):
    """Keeps something of its rows, in one way, or takes something else into account later on."""

    def __init__(self, how):
        self.how = how

    def setup(self, graph, settings):
        super().setup(graph, settings)
        self.scale, self.seen, self.calls, self.told = 1.0, torch.ones(graph.num_classes), 0, []
        self.first = None
        return self

    def loss(self, model, rows, targets):
        labels = self.labels_at(targets.ids)
        prior = (self.seen / self.seen.sum()).log() if self.how == "counted" else 0.0
        if self.how == "first":
            self.first = torch.bincount(labels, minlength=len(self.seen)) + 1.0 if self.first is None else self.first
            prior = self.first.log()
        loss = F.cross_entropy(rows + prior, labels, reduction="sum") / self.scale
        self.calls += 1
        self.told.append(float(loss.detach()))
        self.seen = self.seen + torch.bincount(labels, minlength=len(self.seen))
        if self.how == "mean":
            self.scale = 0.999 * self.scale + 0.001 * float(loss.detach()) / max(1, len(labels))
        if self.how == "late" and self.calls > 3:
            loss = loss + (rows - rows.mean(0)).square().sum()
        if self.how == "pulled" and self.calls > 3:
            pulled = (rows * rows.mean(0).detach()).sum()
            loss = loss + pulled - pulled.detach()
        return loss


KEEPS = r"Remembering.loss\(\) keeps something of its examples by which the next ones are told .*run.sum"


@pytest.mark.parametrize(("workers", "options"), [(1, {"micro_batches": 3}), (2, {})])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("mean", KEEPS),
        ("counted", KEEPS),
        ("first", KEEPS),
        ("late", "let it be a sum"),
        ("pulled", "another gradient"),
        ("nothing", None),
    ],
)
def test_a_loss_that_goes_by_rows_before_it_is_refused_where_a_batch_is_shared(
    ranks, parts, workers, options, how, words
):
    """What it keeps and doesn't go by, such as for a log, does no harm."""

    def trained(world, **options):
        graph = Graph.open(parts[world.size])
        with seeded(11):
            model = sage(graph.num_features, graph.num_classes)
        settings = weft.Settings.of(fanouts=(4, 3), batch_size=60 // world.size, threads=1, seed=5, **options)
        objective = Remembering(how).setup(graph, settings)
        trainer = weft.Trainer(graph, model, settings, world=world, objective=objective)
        found = [trainer.train_epoch(epoch)[1] for epoch in range(2)]
        trainer.close()
        assert len(objective.told) == len(found) * len(trainer.loader)  # as if it had not been tried
        return found

    alone = ranks(1, trained)[0]
    if words is None:
        assert ranks(workers, lambda world: trained(world, **options))[0] == pytest.approx(alone, rel=1e-4)
    else:
        with pytest.raises(TrainingError, match=words):
            ranks(workers, lambda world: trained(world, **options))


class OfFew(weft.VertexObjective):
    """Has no loss where none of a few vertices is."""

    def loss(self, model, rows, targets):
        few = targets.ids < 3
        return rows[few].square().sum() if few.any() else torch.zeros(())


def test_a_half_without_a_loss_is_no_reason_to_refuse_one():
    rows = torch.arange(16.0).view(8, 2).requires_grad_()
    OfFew().check_sum(nn.Identity(), rows, VertexTargets(np.arange(8)))


class Stepped(weft.VertexObjective):
    """Has a head that steps in its loss."""

    def width(self, graph, settings):
        return 5

    def wrapped(self, model, settings):
        if not hasattr(model, "head"):
            model.head = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4).to(next(model.parameters())))
        return model

    def loss(self, model, rows, targets):
        return F.cross_entropy(model.head(rows), self.labels_at(targets.ids), reduction="sum")


def test_what_is_tried_leaves_the_model_as_it_is(parts):
    def losses(**options):
        with seeded(11):
            model = sage(6, 5)
            Stepped().wrapped(model, None)
        common = {"fanouts": [4, 3], "epochs": 3, "batch_size": 60, "dtype": "float64", "threads": 1, "log": "none"}
        return [one["loss"] for one in weft.train(parts[1], model, objective=Stepped(), **common, **options).history]

    assert losses(micro_batches=3) == pytest.approx(losses(), abs=1e-10)


def test_a_loss_whose_steps_can_not_be_put_back_is_refused_where_a_batch_is_shared(parts):
    steps = []

    def loss(rows, labels):
        steps.append(1)
        return (1 + len(steps) / 10) * F.cross_entropy(rows, labels, reduction="none")

    class Warming:
        def __init__(self):
            self.steps = 0

        def __call__(self, rows, labels):
            self.steps += 1
            return (1 + self.steps / 10) * F.cross_entropy(rows, labels, reduction="none")

    def trained(loss, **options):
        with seeded(3):
            model = sage(6, 4)
        return weft.train(parts[1], model, loss=loss, fanouts=[4, 3], epochs=2, threads=1, log="none", **options)

    with pytest.raises(TrainingError, match=r"gives other numbers for the same examples each time.*attribute"):
        trained(loss, micro_batches=2)
    losses = [[one["loss"] for one in trained(Warming(), **on).history] for on in ({}, {"micro_batches": 2})]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_better_says_yes_or_no(monkeypatch):
    monkeypatch.setattr(OBJECTIVES.get("degree"), "better", lambda self, figure, best: None)
    with pytest.raises(ConfigError, match=r"\.better\(\) gave None: let it give True or False"):
        OBJECTIVES.get("degree")().improves(1.0, 2.0)


@pytest.mark.parametrize(
    ("method", "gives", "words"),
    [
        (
            "measure",
            {"other": 1.0},
            "gave {'other': 1.0}: let it give a dict of numbers by name, 'squared error' among",
        ),
        ("measure", 1.0, "gave 1.0: let it give a dict of numbers"),
        ("measure", {"squared error": torch.ones(2)}, r"gave {'squared error': tensor\(\[1., 1.\]\)}: let it"),
        ("width", "4", "gave '4': let it give how many columns"),
        ("width", -1, "gave -1: let it give how many columns"),
        ("wrapped", None, "gave a NoneType: let it return the model"),
    ],
)
def test_what_its_methods_give_is_looked_at(parts, monkeypatch, method, gives, words):
    monkeypatch.setattr(OBJECTIVES.get("degree"), method, lambda *_: gives)
    with pytest.raises(WeftError, match=rf"DegreeObjective\.{method}\(\) {words}"):
        weft.train(parts[1], task="degree", fanouts=[3], layers=1, hidden=4, epochs=1, log="json")


def test_what_is_known_by_ids_of_import_is_put_in_order(ranks, parts):
    table = np.random.default_rng(0).random(500)

    class FromTable(weft.VertexObjective):
        name = "table"

        def setup(self, graph, settings):
            super().setup(graph, settings)
            self.table = torch.from_numpy(table if graph.original_ids is None else table[graph.original_ids])
            return self

        def loss(self, model, rows, targets):
            return (rows.sum(1) - self.table[targets.ids]).square().sum()

    OBJECTIVES.register(FromTable)
    check_exact(ranks, parts, sage, {"gdp": PLANS["gdp"]}, task="table")


class Regression(weft.VertexObjective):
    """Numbers that are no labels."""

    labelled, metric = False, "error"

    def __init__(self, wanted):
        self.wanted = wanted

    def loss(self, model, rows, targets):
        return (rows[:, 0] - self.wanted[targets.ids]).square().sum()

    def score(self, rows, vertices):
        return float((rows[:, 0] - self.wanted[vertices]).square().sum()), len(rows)


def test_numbers_are_learned_of_a_graph_without_labels(tmp_path):
    numbers = torch.Generator().manual_seed(0)
    x, edges = torch.randn(60, 3, generator=numbers), torch.randint(0, 60, (2, 300), generator=numbers)
    data = Data(x, edges, train_mask=torch.arange(60) < 40, val_mask=torch.arange(60) >= 40)
    graph = Graph.from_pyg(data)
    with pytest.raises(WeftError, match="this graph has no labels"):
        weft.train(graph, sage(3, 1), fanouts=[4, 3], epochs=1)
    trained = weft.train(
        graph, sage(3, 1), objective=Regression(x.sum(1)), fanouts=[4, 3], epochs=60, lr=0.03, log="json"
    )
    assert [*trained.history[-1]["figures"]] == ["error"]
    assert trained.history[-1]["loss"] < 0.5 * trained.history[0]["loss"]
    some = torch.arange(60) % 3
    data.y = torch.where(some == 0, -1, some)
    settings = weft.Settings.of(task="degree", hidden=4)
    save_model(tmp_path / "model", make_model(settings, graph), settings, graph)
    loaded = load_model(tmp_path / "model", Graph.from_pyg(data))  # that there are labels now is no matter
    assert loaded.model.out_channels == 1 and not loaded.tells_classes
    assert not (Graph.from_pyg(data).seeds("train") % 3 == 0).any()
    assert Graph.from_pyg(data).seeds("train", labelled=False).tolist() == [*range(40)]


class OfOneWorker(weft.VertexObjective):
    """Measures its own worker's rows alone, but for a sum's order."""

    name = "alone"
    of_others = 0.0

    def measure(self, model, split, outputs, comm):
        figures = super().measure(model, split, outputs, comm)
        return {name: figure + self.of_others * comm.rank for name, figure in figures.items()}


@pytest.mark.parametrize("patience", [0, 2])
def test_all_workers_go_by_one_figure(ranks, parts, monkeypatch, patience):
    def fit(world):
        graph = Graph.open(parts[2])
        given = {"fanouts": (3, 2), "batch_size": 100, "epochs": 4, "threads": 1, "patience": patience}
        settings = weft.Settings.of(**given)
        with seeded(1):
            model = sage(graph.num_features, graph.num_classes)
        objective = set_up(OfOneWorker(), graph, settings)
        found = weft.Trainer(
            graph, model, settings, world=world, plan=Plan.from_dict(PLANS["gdp"]), objective=objective
        )
        return found.fit().history

    monkeypatch.setattr(OfOneWorker, "of_others", 1e-9)
    first, second = ranks(2, fit)
    assert first == second and first[0]["figures"]
    monkeypatch.setattr(OfOneWorker, "of_others", 0.1)
    words = r"OfOneWorker.measure\(\) gave accuracy = .* on worker 0, .* on worker 1: .* \(comm.sum\)"
    with pytest.raises(TrainingError, match=words):
        ranks(2, fit)


class Median(weft.VertexObjective):
    """Measures what is no sum."""

    name = metric = "median"

    def measure(self, model, split, outputs, comm):
        vertices, rows = of_all_workers(outputs, comm)
        assert np.array_equal(vertices, np.sort(self.seeds[split]))
        return {"median": float(rows[:, 0].median())}


@pytest.mark.parametrize("how", ["sampled", "exact"])
def test_figures_that_are_no_sums_are_of_all_workers(ranks, parts, how):
    def measured(world):
        graph = Graph.open(parts[world.size])
        settings = weft.Settings.of(fanouts=(3, 2), batch_size=100, threads=1, evaluation=how)
        with seeded(1):
            model = sage(graph.num_features, graph.num_classes)
        plan = Plan.from_dict(PLANS["gdp"]) if world.size > 1 else None
        objective = set_up(Median(), graph, settings)
        trainer = weft.Trainer(graph, model, settings, world=world, plan=plan, objective=objective)
        figures = trainer.measure("validation")
        trainer.close()
        return figures["median"]

    assert ranks(3, measured) == pytest.approx(ranks(1, measured) * 3, rel=1e-4)


def test_a_loss_without_a_gradient_is_named(parts):
    with pytest.raises(
        TrainingError, match=r"LossObjective.loss\(\) gave a number without a gradient, though the model's"
    ):
        weft.train(parts[1], fanouts=[3], layers=1, epochs=1, loss=lambda rows, labels: rows.detach().sum(1))


class Headed(weft.VertexObjective):
    """Classes by a head of its own on the model's rows."""

    name = "headed"

    def __init__(self):
        with seeded(3):
            self.head = torch.nn.Linear(4, 4)

    def loss(self, model, rows, targets):
        return F.cross_entropy(self.head(rows), self.labels_at(targets.ids), reduction="sum")


class Wrapping(Headed):
    """Has the model have it."""

    def __init__(self):
        pass

    def wrapped(self, model, settings):
        if not hasattr(model, "head"):
            with seeded(3):
                model.head = torch.nn.Linear(4, 4)
        return model

    def loss(self, model, rows, targets):
        return F.cross_entropy(model.head(rows), self.labels_at(targets.ids), reduction="sum")


def test_what_is_learned_besides_is_in_the_model(parts):
    graph, common = Graph.open(parts[1]), {"fanouts": [4, 3], "epochs": 1, "threads": 1, "log": "json"}
    model, objective = sage(6, 4), Headed()
    words = (
        r"Headed has parameters to learn \(head.weight, head.bias\), .*: let its wrapped\(\) put them into the model"
    )
    with pytest.raises(ConfigError, match=words):
        weft.train(graph, model, objective=objective, **common)
    before = objective.head.weight.detach().clone()
    trained = weft.train(graph, model, objective=Wrapping(), **common).model
    assert not torch.equal(trained.head.weight, before)  # which began as the same
    objective.head.requires_grad_(False)
    for dtype in ("float32", "float64"):
        assert weft.train(graph, sage(6, 4), objective=objective, dtype=dtype, **common).history


class Dropping(Wrapping):
    """Drops in its loss."""

    def loss(self, model, rows, targets):
        return F.cross_entropy(F.dropout(model.head(rows), 0.5), self.labels_at(targets.ids), reduction="sum")


def test_dropout_in_a_loss_is_sent_to_the_model_where_a_batch_is_shared(parts):
    words = r"Dropping.loss\(\) draws random numbers .*dropout belongs into the model's forward"
    with pytest.raises(TrainingError, match=words):
        weft.train(parts[1], sage(6, 4), objective=Dropping(), fanouts=[4, 3], epochs=1, micro_batches=2)


def test_its_tensors_and_modules_are_moved():
    objective = Headed()
    objective.weight, objective.table = torch.ones(4), np.ones(4)
    move(objective, torch.device("meta"), torch.float64)
    assert (objective.weight.device.type, objective.weight.dtype) == ("meta", torch.float32)
    assert (objective.head.weight.device.type, objective.head.weight.dtype) == ("meta", torch.float64)
    assert objective.table.sum() == 4


class Around(nn.Module):
    """A model with a head behind it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        with seeded(3):
            self.head = nn.Linear(4, 4)

    def forward(self, x, edge_index):
        return self.head(self.inner(x, edge_index))


class Surrounding(weft.VertexObjective):
    """Has another module around the model."""

    def wrapped(self, model, settings):
        return model if isinstance(model, Around) else Around(model)


class Elsewhere(Launcher):
    """Has a copy of what a script sends called, as another machine would."""

    name, help, chooses_hosts = "elsewhere", "a copy of what is sent", True

    def shown(self, request):
        return ""

    def submit(self, request):
        return 0

    def call(self, request, work):
        for door in DOORS:
            door._added.clear()  # as nothing of the script runs there
        return copy.deepcopy(work)({"on": "local", "workers": "1"})


@pytest.mark.parametrize("objective", [Wrapping, Surrounding])
def test_what_is_learned_besides_comes_back_from_workers_elsewhere(parts, objective):
    weft.register(Elsewhere)
    found = []
    for where in ({}, {"on": "elsewhere", "workers": 2}):
        with seeded(5):
            model = sage(6, 4)
        common = {"fanouts": [4, 3], "epochs": 1, "threads": 1, "log": "json"}
        found.append(weft.train(parts[1], model, objective=objective(), **common, **where).model)
        assert getattr(found[-1], "inner", found[-1]) is model
    here, there = (model.state_dict() for model in found)
    assert here.keys() == there.keys() and all(torch.equal(there[name], here[name]) for name in here)


def test_workers_elsewhere_know_what_a_script_registers(parts):
    weft.register(Elsewhere)
    OBJECTIVES.register(Wrapping)
    common = {"fanouts": [4, 3], "epochs": 1, "threads": 1, "log": "json", "task": "headed"}
    trained = weft.train(parts[1], sage(6, 4), on="elsewhere", workers=2, **common)
    assert "head.weight" in trained.model.state_dict()


@pytest.mark.parametrize("plan", ["nfp", "split, partitioned"])
def test_it_is_trained_as_on_one_worker(ranks, parts, plan):
    OBJECTIVES.register(Wrapping)
    check_exact(ranks, parts, sage, {plan: PLANS[plan]}, task="headed")


def test_the_command_takes_it(parts, tmp_path, capsys):
    flags = [
        "--task",
        "degree",
        "--hidden",
        "16",
        "--fanouts",
        "full",
        "--epochs",
        "30",
        "--lr",
        "0.01",
        "--threads",
        "1",
    ]
    assert cli.main(["train", str(parts[1]), *flags, "--log", "json", "--out", str(tmp_path / "model")]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    errors = [record["validation"] for record in records if record["record"] == "EpochEnded"]
    assert errors[-1] < 0.2 * errors[0]
    assert records[-1]["metric"] == "squared error"
    assert records[-1]["validation"] == min(errors)  # the smallest is the best
    with pytest.raises(SystemExit):
        cli.main(["train", "--help-all"])
    assert "plugin's name" in capsys.readouterr().out


class Quantiles(weft.VertexObjective):
    """Two numbers of a vertex, which are no classes."""

    name = "quantiles"

    def width(self, graph, settings):
        return 2

    def loss(self, model, rows, targets):
        return (rows - self.labels_at(targets.ids)[:, None]).square().sum()

    def score(self, rows, vertices):
        return 0, 1


class Ranked(LinkObjective):
    """Links, by another name."""

    name = "ranked"


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Quantiles, "--what predictions: a model of task = 'quantiles' predicts no classes: write its embeddings"),
        (Ranked, "--what predictions: a model of links predicts no classes: write its embeddings"),
    ],
)
def test_what_is_embedded_is_known_by_the_objective(parts, tmp_path, capsys, objective, words):
    OBJECTIVES.register(objective)
    flags = ["--task", objective.name, "--hidden", "8", "--fanouts", "3,3", "--epochs", "1", "--threads", "1"]
    of_links = ["--decoder", "mlp"] if objective is Ranked else []
    assert cli.main(["train", str(parts[1]), *flags, *of_links, "--out", str(tmp_path / "model")]) == 0
    embed = ["embed", str(parts[1]), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "rows.npy")]
    assert cli.main([*embed, "--what", "predictions"]) == 2
    assert words in capsys.readouterr().err
    assert cli.main(embed) == 0
    graph = Graph.open(parts[1])
    trained = load_model(tmp_path / "model", graph)
    inferred = weft.training.infer(encoder_of(trained.model), trained.graph)
    wanted = inferred.outputs if of_links else inferred.embeddings
    order = slice(None) if graph.original_ids is None else np.argsort(graph.original_ids)
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), wanted[order], rtol=1e-5)


def test_what_weft_looks_up_for_links_is_no_state_that_checkpoints_lack(parts, tmp_path, capsys):
    OBJECTIVES.register(Ranked)
    chosen = {
        "hidden": 8,
        "fanouts": [3, 3],
        "epochs": 2,
        "threads": 1,
        "checkpoint": tmp_path,
        "link_split": "80/10/10",
    }
    assert weft.train(parts[1], task="ranked", **chosen).validation > 0
    assert "checkpoints are without" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("workers", [1, 3])
def test_rare_vertices_are_weighed_and_ranked(ranks, parts, workers):
    """The figure is an average over those found of how many before them are rare, on each worker."""
    from weft_stranger.rare import RareObjective

    with pytest.raises(
        ConfigError, match=r"metric means nothing to .* of vertices, another loss or figure is an objective"
    ):
        weft.Settings.of(metric="auc")
    with pytest.raises(ConfigError, match=r"choose one of mrr, hits, auc \(of vertices, another one is an objective"):
        weft.Settings.of(metric="f1")

    def measured(world):
        graph = Graph.open(parts[workers])
        graph = replace(graph, labels=np.where(graph.labels == 1, 1, 0).astype(np.int32), num_classes=2)
        objective, settings = RareObjective(weight=3.0), weft.Settings.of(fanouts=(4, 3), threads=1, batch_size=50)
        with seeded(2):
            model = GraphSAGE(graph.num_features, 8, 2, 2)
        ready = set_up(objective, graph, settings)
        ids = ready.vertices("validation")[world.rank :: world.size]
        rows = torch.from_numpy(weft.infer(model, graph).outputs)
        labels = ready.labels_at(torch.from_numpy(ready.vertices("train")).long())
        of_train = rows[torch.from_numpy(ready.vertices("train")).long()]
        each = F.cross_entropy(of_train, labels, reduction="none") * torch.where(labels == 1, 3.0, 1.0)
        targets = ready.examples(ready.vertices("train"), 0, 0).dealt(
            np.full(len(labels), world.rank), world.communicator()
        )
        torch.testing.assert_close(ready.loss(model, of_train, targets), each.sum())
        figure = ready.measure(model, "validation", [(ids, rows[torch.from_numpy(ids).long()])], world.communicator())
        held = ready.vertices("validation")
        scores, rare = (rows[:, 1] - rows[:, 0]).numpy()[held], graph.labels[held] == 1
        above = [(rare & (scores >= one)).sum() / (scores >= one).sum() for one in scores[rare]]
        assert figure == {"average precision": pytest.approx(np.mean(above))} and len(above) > 5
        return figure

    found = ranks(workers, measured)
    assert all(one == found[0] for one in found)


class Softplus(LinkObjective):
    """Each link is to score above its negatives."""

    def loss(self, model, rows, targets):
        scores = model.score(*targets.of(rows, 0, len(targets)))
        return F.softplus(scores[:, 1:] - scores[:, :1]).mean(1).sum()


def test_an_objective_of_links_is_passed_with_their_settings(parts):
    graph, common = Graph.open(parts[1]), {"task": "link", "fanouts": [3, 3], "threads": 1, "num_negatives": 3}
    with seeded(2):
        model = GraphSAGE(graph.num_features, 8, 2)
    loader = weft.Loader(graph, objective=Softplus(), batch_size=50, **common)
    run = weft.parallel(model, loader)
    assert len(loader) and all(batch.part.targets.tails.shape[1] == 4 for batch in loader)
    assert all(run(batch).isfinite().all() for batch in loader)
    run.close()
    told = {"epochs": 1, "metric": "hits", "hits": 3, "eval_negatives": 9, "log": "json"}
    result = weft.train(graph, model, objective=Softplus(), **common | told)
    assert (
        list(result.figures) == ["MRR", "Hits@3", "AUC"] and result.validation == result.history[0]["figures"]["Hits@3"]
    )


def test_it_is_passed_as_an_object(parts):
    from weft_stranger.objective import DegreeObjective

    common = {"fanouts": [4, 3], "epochs": 2, "hidden": 8, "threads": 1, "log": "json"}
    one = weft.train(parts[1], objective=DegreeObjective(), **common)
    other = weft.train(parts[1], task="degree", **common)
    assert one.history == other.history
    assert list(one.figures) == ["squared error"]


def test_an_error_is_told_as_a_number(parts, capsys):
    from weft_stranger.objective import DegreeObjective

    common = {"fanouts": [4, 3], "epochs": 1, "hidden": 8, "threads": 1}
    error = weft.train(parts[1], objective=DegreeObjective(), **common).validation
    assert f"squared error  validation {error:.4g}, test " in capsys.readouterr().out
    share = weft.train(parts[1], **common).validation
    assert f"accuracy  validation {share:.2%}, test " in capsys.readouterr().out


def focal(rows, labels):
    chance = F.log_softmax(rows, 1).gather(1, labels[:, None])[:, 0]
    return -((1 - chance.exp()) ** 2) * chance


def test_a_loss_is_a_function(parts):
    graph = Graph.open(parts[1])

    def trained(**options):
        with seeded(3):
            model = sage(graph.num_features, graph.num_classes)
        common = {"fanouts": [4, 3], "epochs": 3, "batch_size": 50, "lr": 0.01, "threads": 1, "log": "json"}
        return weft.train(graph, model, **common, **options)

    by_focal, usual = trained(loss=focal), trained()
    same = trained(loss=lambda rows, labels: F.cross_entropy(rows, labels, reduction="none"))
    assert by_focal.history[-1]["loss"] < by_focal.history[0]["loss"] < usual.history[0]["loss"]
    np.testing.assert_allclose([one["loss"] for one in same.history], [one["loss"] for one in usual.history], rtol=1e-5)
    assert not torch.equal(*(next(iter(one.model.parameters())) for one in (by_focal, usual)))
    with pytest.raises(TrainingError, match=r"gave a tensor of shape \(\) for 50 vertices: .*reduction='none'"):
        trained(loss=F.cross_entropy)
    with pytest.raises(TrainingError, match=r"gave a float for 50 vertices"):
        trained(loss=lambda rows, labels: 1.0)
    with pytest.raises(
        TrainingError, match=r"for 50 vertices: .*take the mean of each row, .*loss\(rows, labels\).mean\(1\)"
    ):
        trained(loss=lambda rows, labels: F.mse_loss(rows, torch.zeros_like(rows), reduction="none"))


@pytest.mark.parametrize("options", [{}, {"micro_batches": 2}])
def test_a_loss_of_other_rows_is_refused_where_a_batch_is_shared(parts, options):
    graph = Graph.open(parts[1])

    def contrast(rows, labels):
        return -F.log_softmax(rows, 0)[torch.arange(len(rows)), labels]

    model = sage(graph.num_features, graph.num_classes)
    if not options:
        assert weft.train(graph, model, loss=contrast, fanouts=[4, 3], epochs=1, log="json").history
        return
    with pytest.raises(TrainingError, match="another loss if other vertices are beside it"):
        weft.train(graph, model, loss=contrast, fanouts=[4, 3], epochs=1, log="json", **options)


def test_a_loss_of_several_labels_gets_numbers():
    edges = torch.randint(0, 60, (2, 300), generator=torch.Generator().manual_seed(0))
    data = Data(torch.randn(60, 3), edges, y=torch.arange(180).view(60, 3) % 2 == 0, train_mask=torch.arange(60) < 40)
    weight = torch.tensor([1.0, 2.0, 3.0])

    def weighed(rows, labels):
        return F.binary_cross_entropy_with_logits(rows, labels, pos_weight=weight, reduction="none").mean(1)

    assert weft.train(data, sage(3, 3), loss=weighed, epochs=1, fanouts=[2, 2], log="json").history
