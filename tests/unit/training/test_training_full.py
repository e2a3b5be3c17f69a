"""Training on the full graph, by one worker: it learns, resumes to the same bits, and merges inputs that stay once."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv, SGConv

import weft
from weft.errors import ConfigError, ModelError, TrainingError
from weft.graph import SelfLoops, communities
from weft.nn import Decoupled
from weft.nn.sums import Sums
from weft.plan import Plan, Settings, tp_decoupled
from weft.training import EpochEnded, Finished, Started, Stepped, Trainer, load_model, make_model, save_model
from weft.training.models import plan_for
from weft.training.objectives import VertexObjective


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph") / "graph"
    return communities(folder, vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100, signal=0.5)


def settings(**given):
    usual = {"full_graph": True, "hidden": 16, "layers": 2, "epochs": 4, "threads": 1, "dropout": 0.2}
    return Settings.of(**usual | given)


def run(graph, **given):
    chosen, events = settings(**given), []
    return Trainer(graph, make_model(chosen, graph), chosen, events.append).fit(), events


def same_bits(one, other):
    one, other = one.state_dict(), other.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("model", "plan"),
    [*((model, "halo") for model in ("gcn", "sage", "gat", "gin", "deepgcn")), ("gcn", "tp"), ("gat", "tp-decoupled")],
)
def test_models_learn(graph, model, plan):
    result, _ = run(graph, model=model, plan=plan, epochs=40, lr=0.02)
    assert result.history[-1]["loss"] < 0.7 * result.history[0]["loss"]
    assert result.test > 0.6  # five classes: chance is 0.2


def test_an_epoch_is_one_update_on_all_vertices(graph):
    _, events = run(graph, epochs=3)
    started, finished = events[0], events[-1]
    assert isinstance(started, Started)
    assert "one worker" in started.plan
    assert "600 seeds, all 1,500 vertices and 20,000 edges at once" in started.plan
    assert started.batches == 1
    stepped = [event for event in events if isinstance(event, Stepped)]
    assert [(event.seeds, event.edges) for event in stepped] == [(600, 2 * graph.num_edges)] * 3
    assert sum(isinstance(event, EpochEnded) for event in events) == 3
    assert isinstance(finished, Finished)
    assert finished.test is not None


def test_examples_are_made_once_an_epoch(graph, monkeypatch):
    """None are made ahead, as nothing is begun with them."""
    epochs, examples = [], VertexObjective.examples

    def noted(self, chosen, epoch, batch):
        epochs.append(epoch)
        return examples(self, chosen, epoch, batch)

    monkeypatch.setattr(VertexObjective, "examples", noted)
    run(graph, epochs=3)
    assert epochs == [0, 1, 2]


def test_runs_resume_to_the_same_bits(graph, tmp_path):
    whole, _ = run(graph, epochs=5)
    run(graph, epochs=5, checkpoint=tmp_path / "cut")
    for step in (4, 5):
        shutil.rmtree(tmp_path / "cut" / f"step-{step:09d}")
    resumed, events = run(graph, epochs=5, checkpoint=tmp_path / "cut", resume=True)
    assert sum(isinstance(event, EpochEnded) for event in events) == 2
    assert same_bits(whole.model, resumed.model)
    assert resumed.history == whole.history


class Hops(nn.Module):
    """Three sums over neighbours, and a map of what comes of them."""

    def __init__(self, width, classes):
        super().__init__()
        self.conv = SGConv(width, classes, K=3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_inputs_that_stay_are_merged_once(graph, monkeypatch):
    counted, original = [], Sums.whole_with_own
    monkeypatch.setattr(Sums, "whole_with_own", lambda *given: counted.append(1) or original(*given))

    def merges(name="gcn", module=None):
        counted.clear()
        chosen = settings(epochs=6, evaluate_every=0, model=name)
        Trainer(graph, module or make_model(chosen, graph), chosen).fit()
        return len(counted)

    epochs, evaluations = 6, 2
    for model in ("gcn", "sage", "gin"):
        assert merges(model) == epochs + evaluations + 1  # the second layer's, and the inputs once
    assert merges(module=Hops(graph.num_features, graph.num_classes)) == 3  # which are all of the inputs
    changing = Changing(graph.num_features, graph.num_classes)
    assert merges(module=changing) == 2 * (epochs + evaluations)


def test_inputs_that_a_model_changes_in_place_are_refused(graph):
    class InPlace(Changing):
        def forward(self, x, edge_index):
            return super().forward(x.mul_(2), edge_index)

    chosen = settings()
    with pytest.raises(ModelError, match="changes its inputs in place"):
        Trainer(graph, InPlace(graph.num_features, graph.num_classes), chosen).fit()


def test_the_decoupled_model_is_another_one(graph, tmp_path):
    run(graph, checkpoint=tmp_path / "model")
    with pytest.raises(TrainingError, match=r"plan = auto \(now tp-decoupled\)"):
        run(graph, checkpoint=tmp_path / "model", resume=True, plan="tp-decoupled")


class Changing(nn.Module):
    """Its inputs are not what was read: dropout comes before the first convolution."""

    def __init__(self, width, out):
        super().__init__()
        self.first, self.second = GCNConv(width, 8), SAGEConv(8, out)

    def forward(self, x, edge_index):
        x = nn.functional.dropout(x, 0.1, self.training) * 2
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Noisy(Hops):
    """It draws in evaluation, too."""

    def forward(self, x, edge_index):
        return self.conv(x + torch.rand(1), edge_index)


def test_draws_in_evaluation_are_the_same_each_time(graph):
    """As where batches are sampled: they go by the batch's key, not by what was drawn before."""
    loader = weft.Loader(graph, full_graph=True)
    run = weft.parallel(Noisy(graph.num_features, graph.num_classes).eval(), loader)
    rows = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad():
            rows += [run(batch) for batch in loader.over("validation")]
    assert torch.equal(*rows)


def test_a_users_model_from_python(graph):
    model = Changing(graph.num_features, graph.num_classes)
    result = weft.train(graph, model, full_graph=True, epochs=3, lr=0.05, log="json")
    assert result.model is model
    assert result.history[-1]["loss"] < result.history[0]["loss"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fanouts": (5, 5)}, "fanouts means nothing to training on the full graph: drop it, or drop full_graph"),
        ({"batch_size": 7}, "batch_size means nothing"),
        ({"evaluation": "exact"}, "evaluation means nothing"),
        ({"sampler": "labor"}, "sampler means nothing"),
        ({"plan": "split"}, "is for batches: drop full_graph, or choose halo, tp, tp-decoupled"),
        ({"memory": "much"}, "memory = 'much' is no size: give one with its unit, such as 2GB"),
        ({"full_graph": False, "plan": "tp"}, "is for the full graph: set full_graph"),
        ({"full_graph": False, "chunks": 3}, "chunks means nothing to training on batches: drop it, or set full_graph"),
    ],
)
def test_settings_that_contradict_are_explained(given, said):
    with pytest.raises(ConfigError, match=said):
        settings(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plan": "pull,local"}, "not possible on the whole graph: place all layers at owners"),
        ({"plan": "columns,pull"}, "or all of them by columns"),
        ({"plan": "pull"}, "not known: choose one of halo, tp, tp-decoupled"),
        ({"plan": "pull,pull,pull"}, "3 placements for 2 convolutions"),
        (
            {"plan": "halo", "memory": "1GB"},
            "memory means nothing to plan = 'halo', where no layer is by columns: drop it, or set plan = 'tp'",
        ),
        ({"plan": "halo", "chunks": 4}, "mean something to layers by columns only"),
        ({"plan": "push,pull", "replicate": True}, "pull the inputs"),
        ({"plan": "halo", "replicate": True, "topology": "partitioned"}, "set topology = 'replicated'"),
        ({"plan": "tp", "topology": "partitioned"}, "set topology = 'replicated'"),
    ],
)
def test_plans_that_make_no_sense_are_explained(graph, given, said):
    chosen = settings(**given)
    with pytest.raises(ConfigError, match=said):
        plan_for(chosen, make_model(chosen, graph), 2)


def test_plans_of_files(graph, tmp_path):
    file, model = tmp_path / "plan.json", make_model(settings(), graph)
    wanted = Plan(("pull", "cover"), scope="graph", seeds="home", replicate=True)
    file.write_text(json.dumps(wanted.as_dict()))
    assert plan_for(settings(plan=str(file)), model, 2) == wanted
    with pytest.raises(ConfigError, match="is a plan of scope = 'graph': set full_graph"):
        plan_for(Settings.of(plan=str(file)), model, 2)
    file.write_text(json.dumps({"layers": ["local", "local"]}))
    with pytest.raises(ConfigError, match="is a plan of scope = 'batches': drop full_graph"):
        plan_for(settings(plan=str(file)), model, 2)
    file.write_text(json.dumps(Plan(("columns",) * 2, scope="graph", seeds="home", decoupled=True).as_dict()))
    with pytest.raises(ConfigError, match="name it, with plan = 'tp-decoupled'"):
        plan_for(settings(plan=str(file)), model, 2)


def test_a_decoupled_variant_and_its_plan_go_together(graph):
    """Else another model would be trained than the plan, or the model, says."""
    plain = make_model(settings(model="gcn"), graph)
    variant, by_name, of_variant = Decoupled(plain), {"full_graph": True, "plan": "tp"}, tp_decoupled(2)
    refused = [
        (variant, {"fanouts": [3, 3]}, "is a decoupled variant, and plan = 'local.*its .model"),
        (variant, {"full_graph": True}, "is a decoupled variant, and plan"),
        (variant, by_name, "is a decoupled variant, and plan = 'columns"),
        (plain, {"full_graph": True, "plan": of_variant}, "trains the decoupled variant of a model.*name it"),
    ]
    for model, given, said in refused:
        loader = weft.Loader(graph, **given)
        with pytest.raises(ConfigError, match=said):
            weft.parallel(model, loader)
        loader.close()
    run = weft.parallel(variant, weft.Loader(graph, full_graph=True, plan=of_variant))
    with pytest.raises(ConfigError, match="is a decoupled variant, and plan = 'columns"):
        run.use("tp")
    run.close()


@pytest.mark.parametrize("plan", ["auto", "tp-decoupled"])
def test_a_model_that_was_trained_is_written_and_read(graph, tmp_path, plan):
    result, events = run(graph, plan=plan)
    assert ("decoupled (another model)" in events[0].plan) is (plan == "tp-decoupled")
    save_model(tmp_path / "model", result.model, settings(plan=plan), graph)
    model = load_model(tmp_path / "model", graph).model
    assert same_bits(result.model, model)
    outputs = weft.infer(model, graph).outputs
    test = graph.seeds("test")
    assert np.isclose((outputs[test].argmax(1) == graph.labels[test]).mean(), result.test, atol=0.01)


def test_what_gcn_multiplies_rows_by_is_looked_up_once(graph, monkeypatch):
    asked, of = [], SelfLoops.of
    monkeypatch.setattr(SelfLoops, "of", lambda *given: asked.append(given) or of(*given))
    chosen = settings(model="gcn", epochs=3)
    trainer = Trainer(graph, make_model(chosen, graph), chosen)
    trainer.prepare()
    for epoch in range(3):
        trainer.train_epoch(epoch)
    trainer.close()
    assert len(asked) == 2 * 2  # by layer: of sources, and of destinations
