"""Inference by tasks: the table of `weft embed`, in files; stopped, it goes on."""

import inspect

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tasks_here import here
from torch_geometric.nn import GIN, ChebConv, Sequential

import weft
from weft.cli import main
from weft.commands import embed
from weft.errors import ConfigError, ModelError
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import embed_by_tasks, infer_task, inference, save_model, shards

infer_here = here(infer_task)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(inference, "ROWS", 128)
    monkeypatch.setattr(shards, "ROWS", 128)
    monkeypatch.setattr(inference, "_EDGES", 700)
    monkeypatch.setattr(shards, "_SHARD", 150)
    monkeypatch.setattr(shards, "_CHUNK", 90)
    monkeypatch.setattr(embed, "_ROWS", 130)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "g", vertices=600, edges=6000, width=12, classes=4)
    write_partitioned(graph, allocate(graph, 3, "random"), 3, folder / "parts")
    return Graph.open(folder / "parts")


def trained(graph, folder, **settings):
    batches = {} if "full_graph" in settings else {"fanouts": [3, 3], "batch_size": 100}
    width = {} if ":" in settings.get("model", "") else {"hidden": 8}
    settings = {"model": "sage", "epochs": 1, "threads": 1} | width | batches | settings
    result = weft.train(graph, **settings)
    save_model(folder, result.model, Settings.read(settings, "here"), graph)
    return folder


def by_one_process(graph, model, what, folder):
    words = ["embed", graph.path, "--model", model, "--what", what, "--out", folder / "one.parquet", "--threads", 1]
    assert main([*map(str, words), "--overwrite"]) == 0
    return pq.read_table(folder / "one.parquet")


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_tasks_tell_what_one_process_tells(graph, tmp_path, model, monkeypatch):
    kept, write, widths = trained(graph, tmp_path / "model", model=model), shards._write, set()
    monkeypatch.setattr(shards, "_write", lambda rows, out: [widths.add(rows.shape[1]), write(rows, out)][1])
    for what in ("embeddings", "predictions", "probabilities"):
        assert embed_by_tasks(graph, kept, what, tmp_path / what, infer_here) == 600
        assert len(list((tmp_path / what).iterdir())) == 4
        assert pq.read_table(tmp_path / what).equals(by_one_process(graph, kept, what, tmp_path))
    assert widths == {4, 8}  # the features, which are 12 wide, enter a convolution as they are
    assert not list(tmp_path.glob(".*"))


def test_rows_are_written_some_at_a_time_as_all_at_once(graph, tmp_path, monkeypatch):
    kept = trained(graph, tmp_path / "model")
    for what in ("embeddings", "predictions", "probabilities"):
        written = []
        for rows in (130, 1000):
            monkeypatch.setattr(embed, "_ROWS", rows)
            words = ["embed", graph.path, "--model", kept, "--what", what, "--out", tmp_path / "a.npy", "--overwrite"]
            assert main([*map(str, words), "--threads", "1"]) == 0
            written.append(((tmp_path / "a.npy").read_bytes(), by_one_process(graph, kept, what, tmp_path)))
        (pieces, table), (whole, table_of_whole) = written
        assert pieces == whole and table.equals(table_of_whole)
        np.save(tmp_path / "b.npy", np.load(tmp_path / "a.npy"))
        assert (tmp_path / "b.npy").read_bytes() == whole


def test_rows_beyond_the_memory_are_in_files_of_a_folder(graph, tmp_path, monkeypatch, capsys):
    kept, made = trained(graph, tmp_path / "model"), inference.scratch_array
    usual = by_one_process(graph, kept, "embeddings", tmp_path)
    folders = []
    monkeypatch.setattr(inference, "scratch_array", lambda *how: [folders.append(how[2]), made(*how)][1])
    words = ["embed", graph.path, "--model", kept, "--out", tmp_path / "one.parquet", "--overwrite", "--threads", 1]
    assert main([*map(str, [*words, "--memory", "1kB", "--scratch", tmp_path])]) == 0
    assert set(folders) == {tmp_path} and pq.read_table(tmp_path / "one.parquet").equals(usual)
    capsys.readouterr()
    for more, said in (
        ("--memory much", "memory 'much' is not a size"),
        (f"--scratch {tmp_path}/none", "none is no folder: make it, or name another"),
        (f"--on ray --out {tmp_path}/all --scratch {tmp_path}", "--scratch: on Ray rows go to files beside --out"),
        (f"--on ray --out {tmp_path}/all", "--threads: on Ray each task computes by one; drop it, or --on"),
    ):
        assert main([*map(str, words), *more.split()]) == 2
        assert said in capsys.readouterr().err
    flat = trained(graph, tmp_path / "flat", full_graph=True, plan="tp-decoupled")
    assert main([*map(str, words), "--model", str(flat), "--memory", "1kB"]) == 2
    assert "--memory would have no effect: a decoupled model takes all rows at once" in capsys.readouterr().err


GCNII = """
from torch import nn
from torch_geometric.nn import GCN2Conv

class GcnII(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.into, self.out = nn.Linear(width, 8), nn.Linear(8, classes)
        self.convs = nn.ModuleList(GCN2Conv(8, 0.3, 0.5, layer + 1) for layer in range(2))

    def forward(self, x, edge_index):
        x = first = self.into(x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index).relu()
        return self.out(x)
"""


def test_embeddings_are_without_the_rows_that_go_beside_them(graph, tmp_path):
    (tmp_path / "gcnii.py").write_text(GCNII)
    trained(graph, tmp_path / "m", model=f"{tmp_path / 'gcnii.py'}:GcnII")
    for what in ("embeddings", "probabilities"):
        assert embed_by_tasks(graph, tmp_path / "m", what, tmp_path / what, infer_here) == 600
        assert pq.read_table(tmp_path / what).equals(by_one_process(graph, tmp_path / "m", what, tmp_path))


class Stop(Exception):
    """A kill, as far as tasks go."""


def stopping_at(stage):
    def run(folder, name, current, indices):
        for done in infer_here(folder, name, current, indices):
            if current == stage:
                raise Stop
            yield done

    return run


def noting(ran):
    def run(folder, name, current, indices):
        ran.append(current)
        yield from infer_here(folder, name, current, indices)

    return run


@pytest.mark.parametrize("stage", ["rows-0", "edges-0", "rows-1", "shards"])
def test_what_was_stopped_goes_on(graph, tmp_path, stage):
    kept, ran = trained(graph, tmp_path / "model"), []
    with pytest.raises(Stop):
        embed_by_tasks(graph, kept, "predictions", tmp_path / "out", stopping_at(stage))
    assert not (tmp_path / "out").exists()
    embed_by_tasks(graph, kept, "predictions", tmp_path / "out", noting(ran))
    assert ran[0] == stage  # what was done before is not done again
    assert pq.read_table(tmp_path / "out").equals(by_one_process(graph, kept, "predictions", tmp_path))


OWN = """
import torch
from torch_geometric.nn import SAGEConv

def between(x):
    return x.relu()

class Net(torch.nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(width, 8), SAGEConv(8, classes)])

    def forward(self, x, edge_index):
        return self.convs[1](between(self.convs[0](x, edge_index)), edge_index)
"""


@pytest.mark.parametrize(
    ("changed", "began"),
    [
        (("between(self.convs[0](x, edge_index))", "-3 * self.convs[0](x, edge_index)"), "rows-0"),
        (("x.relu()", "-3 * x.relu()"), "rows-0"),  # of no class
        (("0.2", "0.3"), "rows-0"),  # of Weft
        (("", ""), "edges-1"),
    ],
)
def test_rows_of_other_code_are_made_anew(graph, tmp_path, monkeypatch, changed, began):
    file, ran = tmp_path / "own.py", []
    file.write_text(OWN)
    monkeypatch.setattr(weft, "__version__", "0.2")
    kept = trained(graph, tmp_path / "model", model=f"{file}:Net")
    with pytest.raises(Stop):
        embed_by_tasks(graph, kept, "predictions", tmp_path / "out", stopping_at("edges-1"))
    file.write_text(OWN.replace(*changed))
    monkeypatch.setattr(weft, "__version__", weft.__version__.replace(*changed))
    embed_by_tasks(graph, kept, "predictions", tmp_path / "out", noting(ran))
    assert ran[0] == began
    assert pq.read_table(tmp_path / "out").equals(by_one_process(graph, kept, "predictions", tmp_path))


def test_decoupled_models_are_refused(graph, tmp_path):
    kept = trained(graph, tmp_path / "model", model="gcn", full_graph=True, plan="tp-decoupled")
    with pytest.raises(ConfigError, match="embed without --on ray"):
        embed_by_tasks(graph, kept, "predictions", tmp_path / "out", infer_here)


def chebyshev(width, out):
    lines = (ChebConv(width, 8, 3), "x, edge_index -> x"), (ChebConv(8, out, 3), "x, edge_index -> x")
    return Sequential("x, edge_index", [*lines])


def normed(width, out):
    return GIN(width, 8, 2, out, norm="GraphNorm")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(normed, "GINConv.* mixes the rows of different"), (chebyshev, "ChebConv.* looks further than")],
)
@pytest.mark.parametrize(("rows", "edges"), [(1000, 700), (128, 10_000)])
def test_models_of_all_rows_are_inferred_at_once_which_is_told(graph, monkeypatch, make, reason, rows, edges):
    monkeypatch.setattr(inference, "ROWS", rows)
    monkeypatch.setattr(inference, "_EDGES", edges)
    with seeded(0):
        model = make(12, 4).eval()
    ends = np.stack([graph.indices, np.repeat(np.arange(600), np.diff(graph.indptr))]).astype(np.int64)
    with torch.no_grad():
        expected = model(torch.from_numpy(graph.features[:]), torch.from_numpy(ends))
    with pytest.warns(
        UserWarning, match=f"^all 600 vertices are computed at once, in memory, as in PyG, for .*{reason}"
    ):
        found = weft.infer(model, graph)
    torch.testing.assert_close(torch.from_numpy(found.outputs), expected, rtol=1e-4, atol=1e-5)
    assert found.embeddings.shape == (600, 8)


def test_models_of_all_rows_are_inferred_where_these_are_few_and_nothing_is_told(graph, monkeypatch, recwarn):
    monkeypatch.setattr(inference, "ROWS", 1000)
    monkeypatch.setattr(inference, "_EDGES", 10_000)
    with seeded(0):
        model = normed(12, 4)
    weft.infer(model, graph)
    assert not [warning for warning in recwarn if "at once" in str(warning.message)]


@pytest.mark.parametrize("make", ["normed", "chebyshev"])
def test_tasks_refuse_models_of_all_rows(graph, tmp_path, make):
    (tmp_path / "own.py").write_text(
        "from torch_geometric.nn import GIN, ChebConv, Sequential\n\n\n" + inspect.getsource(globals()[make])
    )
    kept = trained(graph, tmp_path / "model", model=f"{tmp_path / 'own.py'}:{make}", full_graph=True)
    with pytest.raises(ModelError, match=r"(mixes the rows|looks further) .*: embed without --on ray, by one process$"):
        embed_by_tasks(graph, kept, "predictions", tmp_path / "out", infer_here)
    with pytest.warns(UserWarning, match="all 600 vertices are computed at once"):
        by_one_process(graph, kept, "predictions", tmp_path)
