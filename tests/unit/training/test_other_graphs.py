"""Exact inference on other graphs than the one that was trained on."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv

import weft
from weft.errors import ConfigError, GraphFormatError, InputError, ModelError, WeftError
from weft.graph import checks
from weft.training import infer  # before modules are made, so that what PyG generates for them is kept in memory


def graph_of(vertices, width=3):
    random = torch.Generator().manual_seed(vertices)
    edges = torch.randint(0, vertices, (2, 4 * vertices if vertices > 1 else 0), generator=random)
    return Data(torch.randn(vertices, width, generator=random).double(), edges)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vertices", [1, 30, 500])
def test_more_vertices_and_fewer(vertices, dtype, tmp_path):
    data, model = graph_of(vertices), GCN(3, 4, 2, 3).to(dtype)
    weft.Graph.from_pyg(data).save(tmp_path / "graph")
    wanted = model(data.x.to(dtype), data.edge_index).detach()
    for graph in (data, weft.Graph.from_pyg(data), tmp_path / "graph", str(tmp_path / "graph")):
        outputs = torch.from_numpy(infer(model, graph).outputs)
        assert outputs.dtype == dtype
        torch.testing.assert_close(outputs, wanted)


def test_another_width_is_refused():
    with pytest.raises(
        ModelError, match="GCN does not run on rows of 5 features: build it for as many as the graph has"
    ):
        infer(GCN(3, 4, 2, 3), graph_of(30, width=5))


class Handed(nn.Module):
    """Hands on whatever it is given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


@pytest.mark.parametrize("wrapped", [AveragedModel, Handed, lambda model: Handed(AveragedModel(model))])
def test_a_wrapper_is_given_what_the_model_within_takes(wrapped):
    data, model = graph_of(30), GCN(3, 4, 2, 3).double()
    data.edge_weight = torch.rand(data.num_edges, dtype=torch.float64)
    wanted = model(data.x, data.edge_index, edge_weight=data.edge_weight).detach()
    torch.testing.assert_close(torch.from_numpy(infer(wrapped(model), data).outputs), wanted, rtol=1e-6, atol=1e-6)


def test_weights_that_a_model_leaves_out_are_told():
    class Named(Handed):
        def forward(self, x, edge_index, **kwargs):
            return self.model(x, edge_index, **kwargs)

    data = graph_of(30)
    data.edge_weight = torch.rand(data.num_edges)
    with pytest.warns(UserWarning, match="edge weights are not used: Named gives its convolutions none"):
        infer(Named(GCN(3, 4, 2, 3)), data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer(GCN(3, 4, 2, 3), data)


def test_modules_keep_their_modes():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = GCNConv(3, 4), nn.BatchNorm1d(4).eval()

        def forward(self, x, edge_index):
            return self.norm(self.conv(x, edge_index))

    model = Frozen()
    infer(model, graph_of(30))
    assert model.training and model.conv.training and not model.norm.training


def test_what_is_no_graph_is_refused_in_a_sentence():
    data = graph_of(30)
    for given, name in ((GCN(3, 4, 2, 3), "GCN"), ([data], "list"), (None, "NoneType")):
        with pytest.raises(
            GraphFormatError, match=rf"{name} is no graph that Weft reads: .* \(of a data set: dataset\[0\]\)"
        ):
            weft.train(given, GCN(3, 4, 2, 3))
        with pytest.raises(GraphFormatError, match="is no graph that Weft reads"):
            weft.Loader(given)
        with pytest.raises(GraphFormatError, match="is no graph that Weft reads"):
            infer(GCN(3, 4, 2, 3), given)


@pytest.mark.parametrize("source", [3, 5_000_000, -1])
def test_a_graph_made_by_hand_has_no_source_that_is_no_vertex(source):
    vertices = {"labels": np.zeros(3, np.int32), "split": np.zeros(3, np.uint8), "num_classes": 2}
    indices = np.array([1, source, 0], np.int32)
    graph = weft.Graph(np.arange(4), indices, features=np.ones((3, 3), np.float32), **vertices)
    model = GCN(3, 4, 2, 2)
    for begin in (lambda: weft.train(graph, model), lambda: weft.Loader(graph), lambda: infer(model, graph)):
        with pytest.raises(InputError, match=f"edge 1 comes from vertex {source}, but ids are 0 to 2"):
            begin()


_WRONG = {
    "features is a Tensor: give a numpy array": {"features": torch.ones(3, 3)},
    r"features is of float32 and shape \(3,\)": {"features": np.ones(3, np.float32)},
    "labels is a list: give a numpy array": {"labels": [0, 1, 2]},
    "labels is of float64": {"labels": np.array([0, np.nan, 1])},
    "labels run from 0 to 2, and num_classes is 0: give num_classes = 3 or more": {
        "labels": np.arange(3),
        "num_classes": 0,
    },
    "split holds -1": {"split": np.array([0, -1, 1], np.int8)},
    "two vertices have the same original id": {"original_ids": np.zeros(3, np.int64)},
}


@pytest.mark.parametrize("words", _WRONG)
def test_what_a_graph_made_by_hand_lacks_is_said(words):
    given = {"features": np.ones((3, 3), np.float32), "labels": np.zeros(3, np.int32), "num_classes": 3} | _WRONG[words]
    with pytest.raises(WeftError, match=words):
        weft.Loader(weft.Graph(np.arange(4), np.array([1, 2, 0], np.int32), **given))


def test_files_of_ones_own_are_looked_at(tmp_path):
    """They are mapped, as the graph's are, but nobody has seen what they hold."""
    weft.Graph.from_pyg(graph_of(3)).save(tmp_path / "graph")
    graph = weft.Graph.open(tmp_path / "graph")
    np.save(tmp_path / "own.npy", np.full_like(graph.indices, 77))
    own = np.load(tmp_path / "own.npy", mmap_mode="r")
    with pytest.raises(InputError, match="edge 0 comes from vertex 77, but ids are 0 to 2"):
        infer(GCN(3, 4, 2, 3), replace(graph, indices=own))


def test_what_a_graph_holds_is_looked_at_once(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setitem(checks._CHECKS, "indices", lambda graph, piece, first: seen.append(first))
    made, model = weft.Graph.from_pyg(graph_of(30)), GCN(3, 4, 2, 3)
    made.save(tmp_path / "graph")
    graph = weft.Graph.open(tmp_path / "graph")
    assert len(seen) == 2
    for one in (made, graph, replace(graph, num_classes=3)):
        infer(model, one)
    assert len(seen) == 2
    by_hand = weft.Graph(made.indptr, made.indices, features=made.features)
    infer(model, by_hand)
    infer(model, by_hand)
    assert len(seen) == 3
    with pytest.raises(InputError, match="feature 0 of vertex 0 is nan"):
        infer(model, replace(graph, features=np.full((30, 3), np.nan)))


def test_what_is_no_objective_and_no_settings_is_refused_in_a_sentence():
    graph, model = weft.Graph.from_pyg(graph_of(30)), GCN(3, 4, 2, 2)
    for begin in (weft.train, lambda *given, **more: weft.Loader(graph, **more)):
        with pytest.raises(ConfigError, match=r"objective is a str, and no weft\.Objective: .* task='link'"):
            begin(graph, model, objective="link")
    for begin in (weft.Trainer, lambda graph, model, settings: weft.Loader(graph, settings=settings)):
        with pytest.raises(ConfigError, match=r"settings is a dict: give weft\.Settings\.of"):
            begin(graph, model, {"lr": 1})


def test_a_loader_tells_that_it_was_closed_and_that_it_stays_here():
    data = graph_of(30)
    data.y, data.train_mask = torch.zeros(30, dtype=torch.int64), torch.ones(30, dtype=torch.bool)
    loader, model = weft.Loader(data, [2, 2], 10), GCN(3, 4, 2, 2)
    with pytest.raises(ConfigError, match=r"this loader has no model yet, .*: call run = weft\.parallel"):
        next(iter(loader))
    weft.parallel(model, loader).close()
    with pytest.raises(ConfigError, match=r"this loader was closed: call run = weft\.parallel"):
        next(iter(loader))
    run = weft.parallel(model, loader)
    assert len(run(next(iter(loader)))) == 10
    for one, words in ((loader, "make one in the process that goes over it"), (run, "keep the model")):
        with pytest.raises(TypeError, match=f"can't be pickled or copied, .*: {words}"):
            pickle.dumps(one)
    run.close()
