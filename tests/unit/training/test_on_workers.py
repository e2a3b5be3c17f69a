"""A script whose workers are elsewhere: what they are sent and what comes back, by a launcher that only pickles both."""

import pickle

import pytest
from torch_geometric.nn import GraphSAGE

import weft
from weft.cluster import Launcher
from weft.graph import communities
from weft.plugins import LAUNCHERS

FEW = {"fanouts": [3, 3], "threads": 1, "epochs": 2, "plan": "gdp", "log": "none"}


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
