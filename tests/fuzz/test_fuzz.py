"""Damaged files never crash a command, give a traceback, or change a run in silence (`make fuzz` tries for an hour)."""

import io
import json
import os
import signal
import zlib

import graphs
import numpy as np
import pytest
import tables
from damage import WAYS, damaged
from outcomes import Commands, Here
from rounds import GraphRounds, TableRounds, contents, run_for

from weft.cli import main
from weft.errors import WeftError
from weft.graph import OF_EDGES, EdgeOptions, Graph, find_source, import_graph, remove_whole

GRAPHS, TABLES = 216, 150  # cases of the quick round


@pytest.fixture(scope="module")
def commands():
    with Commands() as running:
        yield running


@pytest.mark.parametrize("kind", sorted(graphs.KINDS))
@pytest.mark.parametrize("way", sorted(WAYS))
def test_damaged_graphs_are_refused_or_the_same(tmp_path, kind, way):
    """In this process: what crashes it fails the suite."""
    graphs.KINDS[kind](tmp_path / "sound")
    sound = Graph.open(tmp_path / "sound")
    for seed in range(GRAPHS // len(WAYS) // len(graphs.KINDS)):
        told = damaged(tmp_path / "sound", tmp_path / "damaged", way, seed)
        try:
            found = Graph.open(tmp_path / "damaged")
        except WeftError as error:
            assert str(error), told
            assert main(["verify", str(tmp_path / "damaged")]) in (1, 2), told
            continue
        names = ("indptr", "indices", *OF_EDGES, "labels", "split", "original_ids", "vertex_type")
        for name in names:
            before, after = getattr(sound, name), getattr(found, name)
            assert (before is None and after is None) or np.array_equal(before, after), told
        everyone = np.arange(sound.num_vertices)
        assert np.array_equal(sound.features[everyone], found.features[everyone]), told
        assert sound.facts == found.facts and sound.names == found.names, told


def test_damaged_graphs_under_commands(tmp_path, commands):
    rounds = GraphRounds(tmp_path, commands, ("info", "partition"))
    wrong = [found for found in (rounds.one(number) for number in range(0, 72, 7)) if found[2]]  # all kinds
    assert not wrong


def test_spoiled_tables(tmp_path):
    rounds = TableRounds(tmp_path, Here())
    wrong = [found for found in (rounds.one(number) for number in range(TABLES)) if found[2]]
    assert not wrong


@pytest.mark.slow
def test_five_minutes():
    counts, wrong = run_for(300, seed=1_000_000)
    assert not wrong, counts


def test_verify_names_what_is_damaged(tmp_path, capsys):
    graphs.plain(tmp_path / "graph")
    assert main(["verify", str(tmp_path / "graph")]) == 0
    assert "all is sound" in capsys.readouterr().out
    data = bytearray((tmp_path / "graph" / "features.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "graph" / "features.npy").write_bytes(data)
    assert main(["verify", str(tmp_path / "graph"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in found if one["damage"]] == ["features.npy"] and found[0]["bytes"] > 0
    assert main(["verify", str(tmp_path / "graph")]) == 1
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("features.npy")]
    assert "its checksum differs" in line and "1 of 7 are damaged" in out
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert main(["verify", str(folder)]) == 2
        assert "is no graph, trained model or folder of checkpoints, and has none" in capsys.readouterr().err


def test_verify_looks_at_all_that_lies_below(tmp_path, capsys):
    """A newcomer's folder: a trained model beside its graph and its checkpoints."""
    import torch

    from weft.training.checkpoint import save, save_step

    (tmp_path / "deep").mkdir()
    graphs.plain(tmp_path / "deep" / "graph")
    save(tmp_path / "model", {"a": torch.ones(4)}, {})
    save_step(tmp_path / "kept", 3, 1, {"a": torch.ones(4)}, {})
    (tmp_path / "deep" / "circle").symlink_to(tmp_path)
    assert main(["verify", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "deep/graph/features.npy  " in out and "kept/step-000000001  " in out and "\nmodel  " in out
    assert out.count("features.npy") == 1
    for file in ("deep/graph/features.npy", "kept/step-000000001/state.safetensors"):
        data = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert main(["verify", str(tmp_path)]) == 1
    assert f"2 of {len(out.splitlines()) - 1} are damaged" in capsys.readouterr().out


def test_verify_takes_arrays_beside_a_graph_for_none(tmp_path, capsys):
    graphs.plain(tmp_path / "graph")
    np.save(tmp_path / "rows.npy", np.ones((4, 2)))  # as `weft embed --out rows.npy` writes them
    assert main(["verify", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "graph/features.npy  " in out and "rows.npy" not in out and "all is sound" in out
    (tmp_path / "graph" / "manifest.json").unlink()  # a graph still
    for folder in (tmp_path, tmp_path / "graph"):
        assert main(["verify", str(folder)]) == 1
        assert "1 of 1 are damaged" in capsys.readouterr().out


def test_verify_reads_checkpoints(tmp_path, capsys):
    import torch

    from weft.training.checkpoint import save_step

    for step in (1, 2):
        save_step(tmp_path, 3, step, {"a": torch.ones(4)}, {})
    unfinished = tmp_path / ".step-000000003.writing-1"  # which no run looks at
    unfinished.mkdir()
    (unfinished / "state.json").write_text("{")
    assert main(["verify", str(tmp_path)]) == 0
    file = tmp_path / "step-000000002" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "step-000000001  " in out and "step-000000002  " in out and "1 of 2 are damaged" in out


def test_graphs_of_0_1_0_are_read(tmp_path):
    """Their manifests have no sum of their own; all else is checked."""
    import json

    graphs.plain(tmp_path / "graph")
    file = tmp_path / "graph" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["crc32"]
    file.write_text(json.dumps(manifest))
    Graph.open(tmp_path / "graph").verify()
    del manifest["arrays"]["edge_weight"]
    file.write_text(json.dumps(manifest))
    with pytest.raises(WeftError, match=r"does not name edge_weight\.npy"):
        Graph.open(tmp_path / "graph")


def test_a_file_that_lies_with_a_sum_that_fits(tmp_path):
    """Ids beyond the graph would make kernels read foreign memory."""
    import json

    graphs.plain(tmp_path / "graph")
    file, listed = tmp_path / "graph" / "indices.npy", tmp_path / "graph" / "manifest.json"
    indices = np.load(file)
    indices[7] = 200
    np.save(file, indices)
    manifest = json.loads(listed.read_text())
    manifest["arrays"]["indices"]["crc32"] = zlib.crc32(file.read_bytes()[128:])
    del manifest["crc32"]
    listed.write_text(json.dumps(manifest))
    with pytest.raises(WeftError, match=r"indices\.npy holds what it can't: edge 7 comes from vertex 200"):
        Graph.open(tmp_path / "graph")


@pytest.mark.parametrize("limit", [400, 1000, 5000])
def test_a_full_disk_leaves_the_old_graph(tmp_path, commands, limit):
    """No file can grow beyond `limit` bytes, as on a disk that fills up at that place."""
    source = tmp_path / "source"
    source.mkdir()
    for name, array in tables.arrays().items():
        np.save(source / f"{name}.npy", np.repeat(array, 9, axis=array.ndim - 1) if name == "edge_index" else array)
    for name in ("edge_weight", "edge_type"):
        (source / f"{name}.npy").unlink()
    graphs.plain(tmp_path / "old")
    before = contents(tmp_path / "old")
    for argv in (
        ("import", source, tmp_path / "old"),
        ("partition", tmp_path / "old", tmp_path / "old", "--parts", 2, "--method", "random"),
    ):
        outcome = commands.run(*argv, "--overwrite", file_size=limit)
        assert outcome.kind == "refused", outcome
        assert "failed: File too large" in outcome.err
        assert contents(tmp_path / "old") == before
        left = {path.name for path in tmp_path.iterdir() if ".steps-" not in path.name}  # which the next one takes over
        assert left == {"old", "source"}


def test_an_interrupted_import_is_cleaned_up(tmp_path):
    """One that was killed, by this process's number in another container; and one that had moved the old graph aside."""
    import os

    source = find_source("cora", tmp_path)
    for left in (f".graph.writing-{os.getpid()}", ".graph.writing-999999999"):
        (tmp_path / left).mkdir()
    import_graph(source, tmp_path / "graph", EdgeOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    before = contents(tmp_path / "graph")
    (tmp_path / "graph").rename(tmp_path / ".graph.writing-999999999-old")
    with pytest.raises(WeftError, match="exists already"):
        import_graph(source, tmp_path / "graph", EdgeOptions())
    assert contents(tmp_path / "graph") == before


def test_signals_are_crashes():
    from outcomes import Outcome

    assert Outcome(-signal.SIGSEGV, "", "", 0).kind == "crash"
    assert Outcome(-signal.SIGALRM, "", "", 0).kind == "hang"
    assert Outcome(2, "", "weft: no\n", 0).kind == "refused"
    assert Outcome(1, "", "Traceback (most recent call last)", 0).kind == "traceback"


def test_verify_passes_over_a_step_that_its_run_removes_meanwhile(tmp_path, monkeypatch, capsys):
    """Whenever that is: before it is looked at, or while it is read."""
    import torch

    from weft.training.checkpoint import save_step

    told, left = set(), 0
    for number in range(40):
        folder, left = tmp_path / str(number), number
        for step in (1, 2):
            save_step(folder, 3, step, {"a": torch.ones(4)}, {})
        goes = folder / "step-000000001"

        def removing(call, goes=goes):
            def called(path, *given, **more):
                nonlocal left
                if str(path).startswith(str(goes)):
                    left -= 1
                    if left == -1:
                        remove_whole(goes)
                return call(path, *given, **more)

            return called

        with monkeypatch.context() as patch:
            for module, name in ((os, "scandir"), (os, "stat"), (os, "listdir"), (io, "open")):
                patch.setattr(module, name, removing(getattr(module, name)))
            assert main(["verify", str(folder)]) == 0, number
        said = capsys.readouterr().out
        assert "step-000000002  " in said and "all is sound" in said
        told.add("step-000000001  " in said)
        if left >= 0:  # all was read before
            break
    assert told == {False, True} and number > 5
    assert main(["verify", str(tmp_path / "0" / "step-000000001")]) == 2
