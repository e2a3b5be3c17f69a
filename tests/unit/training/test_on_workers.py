"""A script whose workers are elsewhere: what they are sent and what comes back, by a launcher that only pickles both."""

import pickle
from copy import deepcopy
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE

import weft
from weft.cluster import Launcher
from weft.errors import ConfigError, InputError
from weft.graph import Graph, communities
from weft.plugins import LAUNCHERS


class Posted(Launcher):
    """Has a worker do it that knows only what is pickled: this process, once it is told that it is one."""

    name, help = "posted", "by mail"
    restarts = chooses_hosts = True
    changes = {}  # noqa: RUF012 - of settings, by what going on has changed

    def shown(self, request):
        return ""

    def submit(self, request):
        return 0

    def call(self, request, work):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "WEFT_LAUNCHER": self.name}.items():
                patch.setenv(name, value)
            return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(self.changes)))


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(tmp_path_factory.mktemp("graphs") / "g", vertices=300, edges=2000, width=8, classes=3)


@pytest.fixture(autouse=True)
def posted(monkeypatch):
    monkeypatch.setattr(LAUNCHERS, "_added", {})
    LAUNCHERS.register(Posted)


@pytest.mark.parametrize("model", [None, GraphSAGE(8, 4, 2, 3)])
def test_going_on_changes_settings_that_were_given_by_group(graph, monkeypatch, tmp_path, model):
    monkeypatch.setattr(Posted, "changes", {"resume": "true", "workers": "1", "batch_size": "100"})
    groups = {
        "parallel": {"on": "posted", "workers": 2, "max_restarts": 3, "min_workers": 1},
        "checkpoint": {"folder": tmp_path / "kept", "every": 1},
        "sampling": {"batch_size": 50, "fanouts": [3, 3]},
    }
    named = {"model": "sage", "hidden": 4} if model is None else {"model": model}
    result = weft.train(graph, **named, **groups, threads=1, epochs=2, log="none")
    assert len(result.history) == 2 and (model is None or result.model is model)
    assert len(list((tmp_path / "kept").glob("step-*"))) > 0


def test_runs_do_not_go_on_with_more_workers_than_they_began_with(graph, tmp_path):
    of = {"on": "posted", "workers": 2, "max_restarts": 3, "min_workers": 3, "checkpoint": tmp_path, "log": "none"}
    with pytest.raises(ConfigError, match="min_workers = 3 is more than workers = 2: lower it"):
        weft.train(graph, **of, fanouts=[3, 3])


def test_a_graph_that_was_changed_since_it_was_read_is_not_sent_as_its_folder(graph, tmp_path):
    """Workers would read the folder, and train on what is there."""
    few = {"fanouts": [3, 3], "threads": 1, "epochs": 1, "log": "none", "hidden": 4}
    changed = replace(graph, split=np.roll(graph.split, 1))
    with pytest.raises(InputError, match="this one has none, or was changed since it was read: save it"):
        weft.train(changed, on="posted", **few)
    changed.save(tmp_path / "g")
    losses = [
        weft.train(of, **few, **on).history[0]["loss"]
        for of, on in (
            (changed, {}),
            (tmp_path / "g", {"on": "posted"}),
            (Graph.open(tmp_path / "g"), {"on": "posted"}),
        )
    ]
    assert losses[0] == losses[1] == losses[2] != weft.train(graph, **few).history[0]["loss"]


class Annealed(torch.nn.Module):
    """Keeps what no state_dict has: of its class, of its own, in a part, and made late."""

    seen, noise = None, 1.0

    def __init__(self):
        super().__init__()
        self.conv, self.temperature, self.forwards = GraphSAGE(8, 4, 2, 3), 1.0, []
        self.register_buffer("shift", torch.zeros(3), persistent=False)
        self.part = torch.nn.Module()
        self.part.step = np.int64(0)

    @cached_property
    def scale(self):
        return torch.full((3,), 2.0)

    def forward(self, x, edge_index):
        out = self.conv(x, edge_index) * self.scale / self.temperature + self.shift
        if self.training:
            self.temperature *= 0.9
            self.noise /= 2
            self.part.step += 1
            self.shift += 0.1
            self.seen = self.shift * 2
            self.forwards.append(0)
        return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_model_keeps_besides_its_state_dict_comes_back(graph, capsys, dtype):
    few = {"fanouts": [3, 3], "threads": 1, "epochs": 2, "log": "none", "dtype": dtype, "batch_size": 50}
    here = Annealed()
    there = deepcopy(here)
    weft.train(graph, here, **few)
    capsys.readouterr()
    result = weft.train(graph, there, on="posted", **few)
    said = capsys.readouterr().err
    assert result.model is there and there.part.step == here.part.step > 0
    assert there.temperature == here.temperature < 1 and there.noise == here.noise < 1
    assert there.shift.dtype is here.shift.dtype and torch.equal(there.shift, here.shift)
    assert torch.equal(there.seen, here.seen) and isinstance(there.part.step, np.int64)
    outputs = [weft.infer(model.eval(), graph, dtype=dtype).outputs for model in (here, there)]
    assert np.array_equal(*outputs)
    assert said == (
        "weft: forwards of the model: training has changed it, and it stays with the workers: keep numbers, or tensors, as "
        "attributes or buffers\n"
    )
