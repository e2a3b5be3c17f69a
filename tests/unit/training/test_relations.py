"""Training over relations and types of vertices, end to end: it learns, and what is exact on the whole graph stays so."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import weft
from weft.cli import main
from weft.errors import ConfigError, ModelError
from weft.plan import Settings
from weft.training import Trainer, infer, make_model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from hetero_data import make_data


@pytest.fixture(scope="module")
def graph():
    return weft.Graph.from_pyg(make_data())


def settings(**given):
    usual = {"model": "rgcn", "hidden": 16, "batch_size": 200, "epochs": 6, "threads": 1, "lr": 0.01}
    return Settings.of(**usual | given)


def run(graph, **given):
    chosen = settings(**given)
    return Trainer(graph, make_model(chosen, graph), chosen).fit()


@pytest.mark.parametrize(
    "given",
    [{}, {"model": "rgat", "heads": 2, "epochs": 20}, {"bases": 1}, {"full_graph": True, "epochs": 40}],
    ids=str,
)
def test_papers_learn_from_their_authors(graph, given):
    """A paper's own features tell next to nothing of its topic; its author's do."""
    if given.get("full_graph"):
        chosen = Settings.of(model="rgcn", hidden=16, threads=1, lr=0.01, **given)
        result = Trainer(graph, make_model(chosen, graph), chosen).fit()
    else:
        result = run(graph, **given)
    assert result.test > 0.75


@pytest.mark.parametrize("model", ["rgcn", "rgat"])
def test_exact_inference_equals_the_whole_graph_at_once(graph, model, tmp_path):
    chosen = settings(model=model, dtype="float64")
    module = make_model(chosen, graph).double()
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    x = torch.from_numpy(graph.features[:]).double()
    types, kinds = (torch.from_numpy(np.array(a)).long() for a in (graph.edge_type, graph.vertex_type))
    with torch.no_grad():
        want = module.eval()(x, edge_index, types, kinds)
    for memory in (1 << 30, 0):
        got = infer(module, graph, dtype=torch.float64, memory=memory, scratch=tmp_path)
        torch.testing.assert_close(torch.from_numpy(got.outputs), want, rtol=1e-10, atol=1e-10)


def test_from_the_command_line(graph, tmp_path, capsys):
    graph.save(tmp_path / "g")
    flags = ["--model", "rgcn", "--hidden", "8", "--epochs", "1", "--threads", "1", "--evaluation", "exact"]
    assert main(["train", str(tmp_path / "g"), *flags, "--out", str(tmp_path / "model")]) == 0
    assert "2 layers (2 fast)" in capsys.readouterr().out
    out = tmp_path / "e.parquet"
    assert main(["embed", str(tmp_path / "g"), "--model", str(tmp_path / "model"), "--out", str(out)]) == 0
    table = pq.read_table(out)
    assert table.column("type").to_pylist() == ["author"] * 500 + ["paper"] * 2000
    assert table.column("id").to_pylist() == [*range(500), *range(2000)]  # as the data numbers each type's


def test_models_without_relations_ignore_types(graph):
    """GraphSAGE takes neither; it sees all rows at the width of the widest."""
    assert np.isfinite(run(graph, model="sage", epochs=1).test)


class TestMistakes:
    def test_settings(self):
        with pytest.raises(ConfigError, match="bases means nothing to the model sage"):
            Settings.of(model="sage", bases=2)
        with pytest.raises(ConfigError, match="set one of them"):
            Settings.of(model="rgcn", bases=2, blocks=2)

    def test_no_relations(self, graph):
        plain = weft.Graph(graph.indptr, graph.indices, features=graph.features[:], labels=graph.labels)
        with pytest.raises(ConfigError, match="needs types of edges"):
            make_model(settings(), plain)

    def test_layer_wise_sampling(self, graph):
        with pytest.raises(ModelError, match="can't be sampled layer by layer"):
            run(graph, sampler="layer", fanouts=(100, 100))
