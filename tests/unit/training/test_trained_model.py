"""A trained model on another graph: names count, not numbers alone; classes are the model's; labels are not needed."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GCN

import weft
from weft.cli import main
from weft.cluster import Launcher
from weft.errors import ConfigError, InputError, ModelError
from weft.graph import Graph
from weft.keys import seeded
from weft.plan import Settings
from weft.plugins import LAUNCHERS
from weft.training import checkpoint, infer, load_model, make_model, save_model, table_of, told

CITES, LIKES, WRITES = ("paper", "cites", "paper"), ("paper", "likes", "paper"), ("author", "writes", "paper")


def hetero(relations=(CITES, LIKES, WRITES), types=("paper", "author"), width=4):
    """Always the same vertices and edges, in another order."""
    draw = torch.Generator().manual_seed(0)
    tables = {"paper": torch.randn(12, 4, generator=draw), "author": torch.randn(6, width, generator=draw)}
    ends = {
        CITES: torch.randint(12, (2, 40), generator=draw),
        LIKES: torch.randint(12, (2, 40), generator=draw),
        WRITES: torch.stack([torch.randint(6, (20,), generator=draw), torch.randint(12, (20,), generator=draw)]),
    }
    data = HeteroData()
    for name in types:
        data[name].x = tables[name]
    data["paper"].y = torch.arange(12) % 3
    for relation in relations:
        data[relation].edge_index = ends[relation]
    return Graph.from_pyg(data)


def saved(folder, graph, **options):
    fanouts = {} if "full_graph" in options else {"fanouts": (5, 5)}
    settings = Settings.of(**{"model": "rgcn", "hidden": 8, **fanouts, **options})
    save_model(folder, make_model(settings, graph), settings, graph)
    return folder


def rows(folder, graph):
    trained = load_model(folder, graph)
    return infer(trained.model.eval(), trained.graph).outputs


def plain(labels, names=None, **more):
    draw = np.random.default_rng(0)
    given = {"features": draw.standard_normal((12, 4)).astype(np.float32), **more}
    return Graph.from_arrays(draw.integers(0, 12, (2, 60)), labels=labels, class_names=names, **given)


def test_a_graph_may_be_a_path(tmp_path):
    graph = plain(np.arange(12) % 3)
    graph.save(tmp_path / "graph")
    folder = saved(tmp_path / "model", graph, model="sage")
    for place in (tmp_path / "graph", str(tmp_path / "graph"), f"file://{tmp_path / 'graph'}"):
        np.testing.assert_array_equal(rows(folder, place), rows(folder, graph))


def test_what_has_started_the_workers_need_not_be_known_where_a_model_is_read(tmp_path, monkeypatch):
    class Containers(Launcher):
        name, help = "containers", "of a house of its own"
        shown = submit = None

    monkeypatch.setattr(LAUNCHERS, "_added", {})
    LAUNCHERS.register(Containers)
    graph = plain(np.arange(12) % 3)
    folder = saved(tmp_path / "model", graph, model="sage", on="containers")
    monkeypatch.setattr(LAUNCHERS, "_added", {})
    assert load_model(folder, graph).settings.parallel.on == "local"
    with pytest.raises(ConfigError, match="launcher 'containers' is not known"):
        Settings.of(on="containers")


def test_a_decoupled_model_asks_for_types_if_its_model_does(tmp_path):
    graph, typed = plain(np.arange(12) % 3), plain(np.arange(12) % 3, edge_type=np.arange(60) % 2)
    whole = {"full_graph": True, "plan": "tp-decoupled", "layers": 2}
    folder = saved(tmp_path / "model", graph, model="gcn", **whole)
    np.testing.assert_array_equal(rows(folder, typed), rows(folder, graph))
    folder = saved(tmp_path / "typed", typed, model="rgcn", **whole)
    with pytest.raises(ModelError, match="knows 2 types of edges, the graph has 3"):
        load_model(folder, plain(np.arange(12) % 3, edge_type=np.arange(60) % 3))


def test_relations_in_another_order_are_refused(tmp_path):
    folder = saved(tmp_path / "model", hetero())
    assert rows(folder, hetero()).shape == (18, 3)
    with pytest.raises(
        ModelError,
        match=r"trained on the types of edges paper-cites-paper, paper-likes-paper, author-writes-paper, the graph has "
        r"paper-likes-paper, paper-cites-paper, author-writes-paper: they go by their numbers",
    ):
        load_model(folder, hetero((LIKES, CITES, WRITES)))


def test_a_model_that_asks_for_no_relations_takes_any(tmp_path):
    folder = saved(tmp_path / "model", hetero(), model="sage")
    there, other = rows(folder, hetero()), rows(folder, hetero((LIKES, CITES, WRITES)))
    np.testing.assert_allclose(other, there, rtol=1e-5, atol=1e-5)


def test_types_of_vertices_in_another_order_are_refused(tmp_path):
    folder = saved(tmp_path / "model", hetero())
    with pytest.raises(
        ModelError, match="on the types of vertices paper, author, the graph has author, paper: they go by"
    ):
        load_model(folder, hetero(types=("author", "paper")))


def test_other_features_of_a_type_are_refused(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3), model="sage")
    with pytest.raises(
        ModelError, match=r"takes 4 features \(by type of vertex, .*\), the graph has 4, 2: use the graph"
    ):
        load_model(folder, hetero(width=2))


def test_relations_that_were_not_there_are_refused(tmp_path):
    types = np.arange(60) % 3
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3, edge_type=types))
    with pytest.raises(ModelError, match="knows 3 types of edges, the graph has 5: use a graph that has the same ones"):
        load_model(folder, plain(np.arange(12) % 3, edge_type=np.arange(60) % 5))


def test_fewer_relations_that_have_names_are_refused(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3, edge_type=np.arange(60) % 3))
    named = plain(np.arange(12) % 3, edge_type=np.arange(60) % 2, edge_type_names=("a", "b"))
    with pytest.raises(ModelError, match="knows 3 types of edges, the graph has 2: use a graph that has the same ones"):
        load_model(folder, named)


def test_models_of_links_tell_no_classes(tmp_path):
    folder = saved(tmp_path / "model", plain(None), model="sage", task="link")
    assert load_model(str(folder), plain(np.arange(12) % 4)).model is not None


def test_the_last_relations_may_have_no_edge(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3, edge_type=np.arange(60) % 3))
    fewer = plain(np.arange(12) % 3, edge_type=np.arange(60) % 2)
    named = replace(fewer, edge_type_names=("0", "1", "2"))
    np.testing.assert_array_equal(rows(folder, fewer), rows(folder, named))


def test_classes_are_those_of_the_model(tmp_path):
    labels, words = np.arange(12) % 3, ("blue", "green", "red")
    folder, other = saved(tmp_path / "model", plain(labels, words), model="sage"), ("amber", "blue", "green", "violet")
    graph = load_model(folder, plain(np.arange(12) % 4, other)).graph
    assert graph.labels.tolist() == [-1, 0, 1, -1] * 3 and load_model(
        folder, plain(labels, words)
    ).graph.labels.tolist()[:3] == [0, 1, 2]
    found = told(rows(folder, plain(np.arange(12) % 4, other)), "predictions", False)
    table = table_of(found, np.arange(12), 0, graph, "predictions")
    assert table["class_name"].to_pylist() == [words[one] for one in table["class"].to_pylist()]


def test_a_graph_without_labels_will_do(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3, ("a", "b", "c")), model="sage")
    np.testing.assert_array_equal(rows(folder, plain(None)), rows(folder, plain(np.arange(12) % 3)))
    assert load_model(folder, plain(None)).graph.class_names == ("a", "b", "c")


def test_several_labels_a_vertex_are_known_without_them(tmp_path):
    labels = (np.arange(36).reshape(12, 3) % 2).astype(np.uint8)
    folder = saved(tmp_path / "model", plain(labels), model="sage")
    assert load_model(folder, plain(None)).several_labels and load_model(folder, plain(labels)).several_labels


def test_other_classes_that_have_no_names_are_refused(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3), model="sage")
    with pytest.raises(ModelError, match="tells 3 classes, the graph has 4: use the graph it was trained for"):
        load_model(folder, plain(np.arange(12) % 4))


def test_models_of_early_versions_are_read(tmp_path):
    graph = plain(np.arange(12) % 3, ("a", "b", "c"))
    folder = saved(tmp_path / "model", graph, model="sage")
    want = rows(folder, graph)
    tensors, facts = checkpoint.load(folder, checkpoint.MODEL)
    early = {name: facts[name] for name in ("settings", "features", "classes")}
    shutil.rmtree(folder)
    checkpoint.save(folder, tensors, early)
    np.testing.assert_array_equal(rows(folder, graph), want)
    assert "graph" not in json.loads((folder / "state.json").read_text())
    with pytest.raises(ModelError, match="tells 3 classes, the graph has 4"):
        load_model(folder, plain(np.arange(12) % 4))
    with pytest.raises(ModelError, match=r"takes 4 features \(.*\), the graph has 2: use the graph"):
        load_model(folder, plain(np.arange(12) % 3, features=np.zeros((12, 2), np.float32)))


def test_the_command_writes_the_names_that_the_model_learned(tmp_path, capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    words = ("blue", "green", "red")
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3, words), model="sage")
    plain(None).save(tmp_path / "new")
    out = tmp_path / "out.parquet"
    words_of = ["embed", tmp_path / "new", "--model", folder, "--out", out, "--what", "predictions"]
    assert main([*map(str, words_of)]) == 0, capsys.readouterr().err
    table = pq.read_table(out)
    assert table["class_name"].to_pylist() == [words[one] for one in table["class"].to_pylist()]
    assert weft.Graph.open(tmp_path / "new").labels is None


def test_the_command_tells_of_weights_that_the_model_leaves_out(tmp_path, capsys):
    weighted = plain(np.arange(12) % 3, edge_weight=np.ones(60))
    weighted.save(tmp_path / "g")
    for model, left_out in (("sage", True), ("gcn", False)):
        folder = saved(tmp_path / model, weighted, model=model)
        words = ["embed", tmp_path / "g", "--model", folder, "--out", tmp_path / f"{model}.npy"]
        assert main([*map(str, words)]) == 0
        assert ("note  the graph's edge weights are not used" in capsys.readouterr().out) == left_out


@pytest.mark.parametrize(("then", "now", "said"), [(True, False, "trained with weights"), (False, True, "without")])
def test_weights_of_edges_that_are_new_or_missing_are_refused(tmp_path, then, now, said):
    graphs = {has: plain(np.arange(12) % 3, **({"edge_weight": np.ones(60)} if has else {})) for has in (then, now)}
    folder = saved(tmp_path / "model", graphs[then], model="gcn")
    assert load_model(folder, graphs[then]).model is not None
    with pytest.raises(ModelError, match=said):
        load_model(folder, graphs[now])


OF_EDGES = """
from torch_geometric.nn import GAT

def takes(width, classes):
    return GAT(width, 8, 2, classes, edge_dim=5)

def leaves_out(width, classes):
    return GAT(width, 8, 2, classes)
"""


@pytest.mark.parametrize(("then", "now", "said"), [(5, 0, "trained with 5 .* has none"), (0, 5, "with no .* has 5")])
def test_features_of_edges_that_are_new_or_missing_are_refused(tmp_path, then, now, said):
    (tmp_path / "own.py").write_text(OF_EDGES)
    draw = np.random.default_rng(0)
    graphs = {
        wide: plain(np.arange(12) % 3, **({"edge_features": draw.random((60, wide), np.float32)} if wide else {}))
        for wide in (then, now)
    }

    def folder_of(name):
        settings = Settings.of(model=f"{tmp_path}/own.py:{name}", fanouts=(5, 5))
        save_model(tmp_path / name, make_model(settings, graphs[then]), settings, graphs[then])
        return tmp_path / name

    folder = folder_of("takes")
    assert len(rows(folder, graphs[then])) == 12
    with pytest.raises(ModelError, match=said):
        load_model(folder, graphs[now])
    folder = folder_of("leaves_out")
    np.testing.assert_allclose(rows(folder, graphs[then]), rows(folder, graphs[now]), rtol=1e-5)


def test_a_model_that_takes_no_weights_is_applied_with_them_or_without(tmp_path):
    weighted, bare = (plain(np.arange(12) % 3, **more) for more in ({"edge_weight": np.ones(60)}, {}))
    folder = saved(tmp_path / "model", weighted, model="sage")
    assert (rows(folder, weighted) == rows(folder, bare)).all()


COUNTS = """
import torch
from torch_geometric.nn import GCN

class Counts(GCN):
    def __init__(self, *widths):
        super().__init__(widths[0], 8, 2, widths[1])
        self.calls, self.scale, self.late = 0, torch.ones(()), None
        self.register_buffer("shift", torch.zeros(widths[1]), persistent=False)

    def forward(self, x, edge_index):
        if self.training:
            self.calls, self.scale = self.calls + 1, self.scale * 0.9
            self.late = torch.eye(3)[1] * self.calls
            self.shift = self.shift + 0.3 * torch.eye(len(self.shift))[0]
        return super().forward(x, edge_index) * self.scale + self.shift * self.calls + (self.late if self.calls else 0)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_model_keeps_besides_its_state_dict_is_saved(tmp_path, capsys, dtype):
    (tmp_path / "counts.py").write_text(COUNTS)
    graph = plain(np.arange(12) % 3, split=np.arange(12) % 3)
    graph.save(tmp_path / "g")
    words = ["--model", f"{tmp_path / 'counts.py'}:Counts", "--fanouts", "full", "--epochs", "3", "--dtype", dtype]
    assert main(["train", str(tmp_path / "g"), *words, "--log", "json", "--out", str(tmp_path / "m")]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    model = load_model(tmp_path / "m", graph).model
    assert model.calls == (records[-1]["best_epoch"] + 1) and model.scale == pytest.approx(0.9**model.calls)
    assert {p.dtype for p in model.parameters()} == {getattr(torch, dtype)}
    right = infer(model.eval(), graph).outputs.argmax(1) == graph.labels
    assert right[graph.seeds("test")].mean() == pytest.approx(records[-1]["test"])
    assert checkpoint.load(tmp_path / "m", checkpoint.MODEL)[1]["attributes"] == [["", "calls", model.calls]]


RANDOM = """
import random
import numpy as np
import torch
from torch_geometric.nn import GCN

AT_THE_TOP = torch.from_numpy(np.random.randn(4, 8)).float()

class Features(GCN):
    def __init__(self, width, classes, table, scale):
        super().__init__(8, 8, 2, classes)
        self.table, self.scale = table, scale

    def forward(self, x, edge_index):
        return super().forward((x @ torch.as_tensor(self.table)).sin() * self.scale, edge_index)

def make(width, classes):
    return Features(width, classes, AT_THE_TOP + torch.from_numpy(np.random.randn(4, 8)).float(), random.random())

def drawn(width, classes):
    return Features(width, classes, torch.from_numpy(np.random.default_rng().random((4, 8), np.float32)), 1.0)

def array(width, classes):
    return Features(width, classes, np.random.default_rng().random((4, 8), np.float32), random.SystemRandom().random())
"""


@pytest.mark.parametrize("function", ["make", "drawn", "array"])
def test_what_a_model_is_built_with_at_random_is_that_of_the_run(tmp_path, capsys, function):
    (tmp_path / "own.py").write_text(RANDOM)
    graph = plain(np.arange(12) % 3, split=np.arange(12) % 3)
    graph.save(tmp_path / "g")
    words = ["--model", f"{tmp_path / 'own.py'}:{function}", "--fanouts", "full", "--epochs", "3"]

    def train():
        assert main(["train", str(tmp_path / "g"), *words, "--log", "json", "--out", str(tmp_path / "m")]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["test"]

    measured = [train(), train()]
    trained = load_model(tmp_path / "m", graph)
    if function == "array":
        first, second = trained.otherwise
        assert first.startswith("scale of the model = 0.") and second == "table of the model"
        words = ["embed", tmp_path / "g", "--model", tmp_path / "m", "--out", tmp_path / "rows.npy"]
        assert main([*map(str, words)]) == 0
        assert f"table of the model: when {tmp_path / 'm'} was saved it was otherwise" in capsys.readouterr().out
        return
    assert trained.otherwise == [] and (function == "drawn" or measured[0] == measured[1])
    right = infer(trained.model.eval(), graph).outputs.argmax(1) == graph.labels
    assert right[graph.seeds("test")].mean() == pytest.approx(measured[1])
    rows = [infer(load_model(tmp_path / "m", graph).model.eval(), graph).outputs for _ in range(2)]
    assert (rows[0] == rows[1]).all()


def test_what_a_trained_model_is_saved_without_is_told(tmp_path, capsys):
    listed = COUNTS.replace("self.calls, self.scale, self.late =", "self.seen, self.calls, self.scale, self.late = {},")
    listed = listed.replace("if self.training:", "if self.training:\n            self.seen['x'] = 1")
    (tmp_path / "counts.py").write_text(listed)
    plain(np.arange(12) % 3, split=np.arange(12) % 3).save(tmp_path / "g")
    words = ["--model", f"{tmp_path / 'counts.py'}:Counts", "--fanouts", "full", "--epochs", "1"]
    assert main(["train", str(tmp_path / "g"), *words, "--out", str(tmp_path / "m")]) == 0
    assert capsys.readouterr().err == (
        f"weft: seen of the model: training has changed it, and {tmp_path / 'm'} is without it: where its rows hang "
        f"on it, they are not those that were measured; keep numbers, or tensors, as attributes or buffers\n"
    )


def test_built_in_models_keep_nothing_else(tmp_path):
    plain(np.arange(12) % 3, split=np.arange(12) % 3).save(tmp_path / "g")
    words = ["--model", "gat", "--norm", "batch", "--fanouts", "2,2", "--epochs", "2", "--out", str(tmp_path / "m")]
    assert main(["train", str(tmp_path / "g"), *words]) == 0
    tensors, facts = checkpoint.load(tmp_path / "m", checkpoint.MODEL)
    assert facts["attributes"] == [] and not any(name.startswith("/") for name in tensors)


def test_rows_beyond_all_numbers(tmp_path):
    outputs = np.array([[1.0, 2.0, 0.0], [0.0, np.inf, 1.0], [-np.inf, 0.0, -1.0]], dtype=np.float32)
    assert told(outputs, "predictions", several=False).tolist() == [1, 1, 1]
    assert told(outputs, "predictions", several=True).tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    with pytest.raises(InputError, match="rows of 1 vertices hold nan, or are beyond all numbers"):
        told(outputs, "probabilities", several=False)
    assert told(outputs[[0, 2]], "probabilities", several=False).sum(1) == pytest.approx(1.0)


def test_a_number_a_vertex_is_no_class():
    with pytest.raises(InputError, match="one number a vertex, which is none of 3 classes: weft"):
        told(np.ones((4, 1), dtype=np.float32), "predictions", False, 3)
    with pytest.raises(InputError, match="none of 0 classes"):  # of a graph without labels
        told(np.ones((4, 1), dtype=np.float32), "predictions", False, 0)
    assert told(np.ones((4, 1), dtype=np.float32), "predictions", False, 1).tolist() == [0] * 4


def test_columns_beyond_the_classes_have_no_name():
    graph = plain(np.arange(12) % 3, names=("a", "b", "c"))
    table = table_of(np.array([0, 4, 2], dtype=np.int32), np.arange(3), 0, graph, "predictions")
    assert table["class_name"].to_pylist() == ["a", None, "c"]


def test_rows_of_bfloat16_are_told_as_float32():
    class Short(GCN):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).bfloat16()

    with seeded(0):
        model = Short(4, 8, 2, 3)
    outputs = infer(model, plain(np.arange(12) % 3)).outputs
    assert outputs.dtype == np.float32 and np.array_equal(torch.from_numpy(outputs).bfloat16().float(), outputs)


@pytest.mark.parametrize("of", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wrapped", [lambda model: model, weft.nn.Decoupled])
def test_inference_in_other_types_is_refused(of, wrapped):
    graph = plain(np.arange(12) % 3)
    with seeded(0):
        model = wrapped(GCN(4, 8, 2, 3)).to(of)
    told = rf"the model has parameters of {of}, and inference computes in float32 or float64: call model\.float\(\)"
    for dtype in (None, "float32", of):
        with pytest.raises(ConfigError, match=told):
            infer(model, graph, dtype=dtype)
    assert infer(model.float(), graph).outputs.dtype == np.float32
    with pytest.raises(ConfigError, match=f"dtype is {of}, and inference computes in float32 or float64: give one"):
        infer(model, graph, dtype=of)


def test_inference_of_parameters_of_two_types_is_refused():
    with seeded(0):
        model = GCN(4, 8, 2, 3)
    model.convs[1].double()
    told = r"of torch\.float64, and would be computed in torch\.float32, .*: call model\.to\(torch\.float32\)$"
    with pytest.raises(ConfigError, match=told):
        infer(model, plain(np.arange(12) % 3))
    assert infer(model.double(), plain(np.arange(12) % 3)).outputs.dtype == np.float64


def test_models_that_were_saved_in_other_types_are_computed_in_those_of_their_settings(tmp_path):
    graph = plain(np.arange(12) % 3)
    settings = Settings.of(model="gcn", fanouts=[2, 2])
    save_model(tmp_path / "m", make_model(settings, graph).bfloat16(), settings, graph)
    assert infer(load_model(tmp_path / "m", graph).model, graph).outputs.dtype == np.float32


def test_a_graph_whose_labels_lack_the_last_class_will_do(tmp_path):
    folder = saved(tmp_path / "model", plain(np.arange(12) % 3), model="sage")
    assert load_model(folder, plain(np.arange(12) % 2)).graph.num_classes == 3
