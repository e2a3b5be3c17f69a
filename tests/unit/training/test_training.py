"""Training end to end on a small graph: it learns, resumes to the same bits, and refuses what makes no sense."""

import gc
import json
import random
import re
import signal
import weakref
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from launcher import Running, ran
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import FiLMConv, GATConv, GATv2Conv, GraphConv, HeteroConv, SAGEConv, to_hetero
from torch_geometric.nn.models import GCN, GraphSAGE

import weft
from weft import cli, garbage
from weft.errors import ConfigError, InputError, ModelError, StorageError, TrainingError
from weft.exchange import World
from weft.graph import communities
from weft.keys import seeded
from weft.nn import sums
from weft.plan import Settings, split
from weft.sampling import Batches, NeighborSampler
from weft.stopping import Interrupts, listening
from weft.training import (
    EpochEnded,
    Finished,
    LossObjective,
    Notice,
    Started,
    Stepped,
    Trainer,
    check_plan,
    infer,
    inference,
    joined,
    load_model,
    make_model,
    save_model,
    set_up,
)
from weft.training.batches import PrefetchingFeed
from weft.training.objectives import objective_for
from weft.training.planning import task_of
from weft.training.trainer import rate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "graph"
    communities(path, vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100, signal=0.5)
    return path


@pytest.fixture(scope="module")
def graph(folder):
    return weft.Graph.open(folder)


def settings(**given):
    usual = {"hidden": 16, "fanouts": (4, 4), "batch_size": 100, "epochs": 2, "threads": 1, "dropout": 0.2}
    return Settings.of(**{name: value for name, value in (usual | given).items() if value is not None})


def run(graph, **given):
    chosen = settings(**given)
    events = []
    trainer = Trainer(graph, make_model(chosen, graph), chosen, events.append)
    return trainer.fit(), events


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gatv2", "gin", "deepgcn", "film"])
def test_every_named_model_learns(graph, model):
    result, _ = run(graph, model=model, epochs=6, lr=0.01, layers=2, **({"heads": 2} if "gat" in model else {}))
    assert result.history[-1]["loss"] < 0.7 * result.history[0]["loss"]
    assert result.test > 0.6  # five classes: chance is 0.2


@pytest.mark.parametrize("evaluation", ["sampled", "exact"])
@pytest.mark.parametrize(
    ("sampler", "model", "fanouts"),
    [
        ("labor", "sage", (4, 4)),
        ("labor", "gat", (4, 4)),
        ("layer", "sage", (600, 500)),
        ("layer", "gcn", (600, 500)),
        ("layer", "gin", (1100, 1000)),  # sums spread more than means
    ],
)
def test_every_sampler_learns(graph, sampler, model, fanouts, evaluation):
    result, events = run(graph, model=model, epochs=6, lr=0.01, sampler=sampler, fanouts=fanouts, evaluation=evaluation)
    assert f"{sampler} sampling, fanouts" in events[0].plan
    assert result.history[-1]["loss"] < 0.8 * result.history[0]["loss"]
    assert result.test > 0.6


def test_events_tell_the_story(graph):
    _, events = run(graph)
    batches = -(-600 // 100)
    assert isinstance(events[0], Started)
    assert "2 layers (2 fast)" in events[0].plan
    assert sum(isinstance(event, Stepped) for event in events) == 2 * batches
    assert sum(isinstance(event, EpochEnded) for event in events) == 2
    assert isinstance(events[-1], Finished)


def test_runs_repeat_to_the_bit(graph):
    one, two, other = (run(graph, seed=seed)[0] for seed in (1, 1, 2))
    assert same_bits(state(one.model), state(two.model))
    assert not same_bits(state(one.model), state(other.model))


class Convs(nn.Module):
    """Convolutions that merge the same inputs in several ways, or first change them in place."""

    def __init__(self, width, out, change):
        super().__init__()
        self.mean, self.sum = SAGEConv(width, 8, aggr="mean"), SAGEConv(width, 8, aggr="sum")
        self.change, self.last = change, SAGEConv(16, out)

    def forward(self, x, edge_index):
        if self.change:
            x.mul_(2)
        both = torch.cat([self.mean(x, edge_index), self.sum(x, edge_index) + self.mean(x, edge_index)], 1)
        return self.last(both.relu(), edge_index)


@pytest.mark.parametrize("sampling", [{"fanouts": (4, 4)}, {"fanouts": (300, 200), "sampler": "layer"}])
@pytest.mark.parametrize("change", [False, True])
def test_inputs_merged_ahead_are_those_that_the_model_merges(graph, change, sampling, monkeypatch):
    def train():
        torch.manual_seed(0)
        model = Convs(graph.num_features, graph.num_classes, change)
        return state(Trainer(graph, model, Settings.of(**sampling, batch_size=32, epochs=2, threads=1)).fit().model)

    calls, original = [], sums.merged
    monkeypatch.setattr(sums, "merged", lambda *given: calls.append(given) or original(*given))
    ahead = train()
    assert bool(calls) is not change  # changed inputs are not what was fetched
    monkeypatch.setattr(
        PrefetchingFeed, "merge", property(lambda loader: None, lambda loader, asked: None), raising=False
    )
    calls.clear()
    assert same_bits(ahead, train())
    assert not calls


@pytest.mark.parametrize(
    "given",
    [{"prefetch": 0}, {"prefetch": 1, "loaders": 1}, {"prefetch": 5, "loaders": 1}, {"prefetch": 3, "loaders": 3}],
)
def test_prefetching_changes_nothing(graph, given):
    assert same_bits(state(run(graph, **given)[0].model), state(run(graph)[0].model))


def test_a_users_model_is_trained_in_place(graph):
    model = GraphSAGE(graph.num_features, 16, 2, graph.num_classes)
    names, before = list(model.state_dict()), state(model)
    result = weft.train(graph, model, fanouts=[5, 5], epochs=1, batch_size=200, log="json")
    assert result.model is model
    assert list(model.state_dict()) == names
    assert not same_bits(before, state(model))


def test_batches_are_one_permutation_that_does_not_depend_on_numbering():
    seeds = np.arange(0, 1000, 3)
    batches = Batches(seeds, None, 64, seed=1)
    assert len(batches) == len(batches.of(0)) == -(-len(seeds) // 64)
    assert np.array_equal(np.sort(np.concatenate(batches.of(0))), seeds)
    assert not np.array_equal(np.concatenate(batches.of(0)), np.concatenate(batches.of(1)))
    original = np.random.default_rng(0).permutation(1000)  # vertex v was original[v] at import
    moved = Batches(np.flatnonzero(np.isin(original, seeds)), original, 64, seed=1)
    for mine, theirs in zip(moved.of(3), batches.of(3), strict=True):
        assert np.array_equal(original[mine], theirs)


def test_seeds_of_one_hash_are_in_the_order_of_their_ids(monkeypatch):
    monkeypatch.setattr("weft.sampling.sampler.hashes", lambda ids, *key: ids.astype(np.uint64) % np.uint64(3))
    original = np.random.default_rng(0).permutation(40)
    (only,) = Batches(np.arange(40), original, 40, seed=1).of(0)
    assert original[only].tolist() == sorted(range(40), key=lambda one: (one % 3, one))


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gin", "deepgcn", "film"])
@pytest.mark.parametrize("memory", [1 << 30, 0])
def test_exact_inference_equals_the_whole_graph_at_once(graph, model, memory, tmp_path):
    chosen = settings(model=model, dtype="float64", layers=2, **({"jk": "cat"} if model == "sage" else {}))
    module = make_model(chosen, graph).double()
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    with torch.no_grad():
        want = module.eval()(torch.from_numpy(np.array(graph.features)).double(), edge_index)
    got = infer(module, graph, dtype=torch.float64, memory=memory, scratch=tmp_path)
    torch.testing.assert_close(torch.from_numpy(got.outputs), want, rtol=1e-10, atol=1e-10)
    assert got.embeddings.shape == (graph.num_vertices, 16)
    assert [isinstance(rows, np.memmap) for rows in (got.outputs, got.embeddings)] == [not memory] * 2
    assert not list(tmp_path.iterdir())


class LaterOnes(torch.nn.Module):
    """Changes the rows of some vertices before its only convolution, in place."""

    def __init__(self, graph, last):
        super().__init__()
        self.conv, self.last = SAGEConv(graph.num_features, graph.num_classes), last

    def forward(self, x, edge_index):
        x[x[:, 0] == self.last] *= 2
        return self.conv(x, edge_index)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_features_that_enter_a_convolution_as_they_are_are_not_written(graph, monkeypatch, dtype):
    filled, write = [], inference._Store.filled

    def noted(store, parts):
        filled.append(write(store, parts))
        return filled[-1]

    monkeypatch.setattr(inference._Store, "filled", noted)
    monkeypatch.setattr(inference, "ROWS", 400)
    features = np.array(graph.features, dtype=dtype)
    last = float(features[-1, 0])
    graph = replace(graph, features=features)
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edge_index, x = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst])), torch.from_numpy(features)
    two = make_model(settings(layers=2, hidden=16), graph)
    for model, widths in (
        (two, [16, 16, 5, 5]),
        (LaterOnes(graph, -100.0), [5, 5, 12]),
        (LaterOnes(graph, last), [12, 5, 5]),
    ):
        filled.clear()
        got = infer(model, graph)
        assert [rows.shape[1] for rows in filled] == widths
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(got.outputs), model.eval()(x.float(), edge_index))
        if len(widths) == 3:
            entered = x.float()
            entered[entered[:, 0] == model.last] *= 2
            assert got.embeddings.tobytes() == entered.numpy().tobytes()


def test_what_inference_has_let_go_makes_room_in_memory():
    store, rows = inference._Store(10, 100.0, None), torch.ones(10, 2)  # of 80 bytes
    first = store.filled(iter([rows]))
    assert isinstance(store.filled(iter([rows])), np.memmap)
    del first
    assert not isinstance(store.filled(iter([rows])), np.memmap)


def test_labels_stay_where_the_graph_has_them(graph):
    """Workers of a host share its mapped file; what is looked up is as losses take it."""

    class Own(weft.VertexObjective):
        pass

    kept, own = (set_up(one, graph, settings()) for one in (weft.VertexObjective(), Own()))
    assert kept.labels.data_ptr() == graph.labels.ctypes.data
    assert torch.equal(kept.labels_at(torch.arange(9)), own.labels[:9])
    assert kept.labels_at(torch.arange(9)).dtype == own.labels.dtype == torch.int64
    loader = weft.Loader(graph, settings=settings())
    weft.parallel(make_model(settings(), graph), loader)
    for batch in loader:
        assert torch.equal(batch.y, own.labels[batch.seeds])


def test_exact_evaluation(graph):
    result, _ = run(graph, evaluation="exact", epochs=3)
    assert 0.3 < result.test <= 1


def test_early_stopping_keeps_the_best(graph):
    result, events = run(graph, epochs=200, patience=3, lr=0.05)
    ended = [event for event in events if isinstance(event, EpochEnded)]
    assert len(ended) < 200
    assert result.best_epoch == len(ended) - 1 - 3
    assert result.validation == max(event.validation for event in ended)


@pytest.mark.parametrize(
    "given",
    [
        {"optimizer": "sgd", "lr": 0.1},
        {"optimizer": "adamw"},
        {"schedule": "cosine", "warmup": 1.0},
        {"schedule": "linear"},
        {"clip_norm": 0.1},
        {"replace": True},
        {"norm": "batch"},
        {"norm": "layer", "jk": "max"},
        {"fanouts": (-1,), "layers": 2},
    ],
)
def test_options_train(graph, given):
    result, _ = run(graph, **given)
    assert np.isfinite(result.history[-1]["loss"])


def test_the_rate_of_each_step():
    """Warm-up, then constant or falling to zero: two epochs of four steps."""
    rises = [0.2, 0.4, 0.6, 0.8]
    for given, rates in (
        ({}, [1.0] * 8),
        ({"warmup": 1.0}, [*rises, 1.0, 1.0, 1.0, 1.0]),
        ({"warmup": 1.0, "schedule": "linear"}, [*rises, 1.0, 0.75, 0.5, 0.25]),
        ({"warmup": 1.0, "schedule": "cosine"}, [*rises, 1.0, 0.853553, 0.5, 0.146447]),
        ({"schedule": "linear"}, [1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]),
    ):
        chosen = Settings.of(lr=10.0, epochs=2, **given)
        found = [rate(chosen, step, 4) / 10 for step in range(8)]
        assert found == pytest.approx(rates, abs=1e-6), given


@pytest.mark.parametrize("given", [{"schedule": "cosine", "warmup": 1.0}, {"schedule": "linear"}])
def test_epochs_of_which_only_the_steps_are_made_go_by_the_rates_of_a_run(graph, given):
    result, _ = run(graph, epochs=3, **given)
    chosen = settings(epochs=3, **given)
    trainer = Trainer(graph, make_model(chosen, graph), chosen)
    assert [trainer.train_epoch(epoch)[1] for epoch in range(3)] == [of["loss"] for of in result.history]
    trainer.close()


def test_memory_is_flat_over_epochs(graph):
    """What is held now, not the most that was: earlier tests have held more."""

    def held():
        gc.collect()
        return int(re.search(r"RssAnon:\s*(\d+)", Path("/proc/self/status").read_text())[1])  # KiB

    chosen = settings(epochs=1)
    trainer = Trainer(graph, make_model(chosen, graph), chosen)
    trainer.prepare()
    for epoch in range(10):
        trainer.train_epoch(epoch)
    before = held()
    for epoch in range(10, 60):
        trainer.train_epoch(epoch)
    assert held() - before < 20 << 10


def test_a_run_looks_at_nothing_that_was_to_stay_before_it(graph, runs_look_for_no_garbage, monkeypatch):
    """A worker that is a fork would get its own copy of all that its launcher has imported."""
    monkeypatch.setattr(garbage, "_SHARE", runs_look_for_no_garbage)
    monkeypatch.setattr(garbage, "_last", (-float("inf"), 0.0))  # so that this one looks

    class Kept:
        pass

    kept, chosen = Kept(), settings(epochs=1)
    kept.itself, there = kept, weakref.ref(kept)
    gc.freeze()
    del kept
    with closing(Trainer(graph, make_model(chosen, graph), chosen)) as trainer:
        trainer.prepare()
        assert there() is not None
    gc.collect()
    assert there() is None


@pytest.fixture(scope="module")
def command(folder):
    """The command that trains, with its checkpoints in some folder."""
    flags = "--hidden 16 --fanouts 4,4 --batch-size 20 --epochs 3 --threads 1 --dropout 0.2 --checkpoint-every 3"
    first = ["weft", "train", folder, *flags.split(), "--log", "json", "--checkpoint"]
    return lambda where, *more: [*first, where, *more]


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    """The model of a command that gets no signal."""
    made = tmp_path_factory.mktemp("undisturbed")
    assert ran(command(made / "whole", "--out", made / "model")).returncode == 0
    return (made / "model" / "state.safetensors").read_bytes()


class TestResuming:
    def test_at_any_batch(self, graph, tmp_path):
        """Stopped after some batches (by an error in place of the kill) and resumed: the same bits, optimiser and all."""
        whole, _ = run(graph, epochs=3, checkpoint=tmp_path / "whole")
        for stop in (1, 7, 12, 13):
            given = {"epochs": 3, "checkpoint": tmp_path / f"at-{stop}", "checkpoint_every": 1}
            chosen = settings(**given)

            class Killed(Exception):
                pass

            seen = []

            def listen(event, seen=seen, stop=stop, killed=Killed):
                seen.extend([event] if isinstance(event, Stepped) else [])
                if isinstance(event, Stepped) and len(seen) == stop + 1:
                    raise killed

            with pytest.raises(Killed):
                Trainer(graph, make_model(chosen, graph), chosen, listen).fit()
            resumed, _ = run(graph, **given, resume=True)
            assert same_bits(state(whole.model), state(resumed.model))
            assert resumed.history == whole.history
            (_, a), (_, b) = (self.newest(tmp_path / name) for name in ("whole", f"at-{stop}"))
            assert same_bits(a, b)

    @staticmethod
    def newest(folder):
        from safetensors.torch import load_file

        last = max(folder.glob("step-*"))
        return last, load_file(last / "state.safetensors")

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    def test_after_a_signal(self, command, undisturbed, tmp_path, signum):
        process = Running(command(tmp_path / "cut"))
        steps = 0
        for line in process.stdout:
            steps += json.loads(line)["record"] == "Stepped"
            if steps == 37:
                process.send_signal(signum)
                break
        _, errors = process.communicate(timeout=200)
        if signum == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 128 + signum
            assert "go on with --resume" in errors
        resumed = ran(command(tmp_path / "cut", "--resume", "--out", tmp_path / "model"))
        assert resumed.returncode == 0, resumed.stderr
        assert "going on from" in resumed.stdout
        assert (tmp_path / "model" / "state.safetensors").read_bytes() == undisturbed

    def test_a_damaged_checkpoint_is_passed_over(self, graph, tmp_path):
        where = tmp_path / "run"
        whole, _ = run(graph, epochs=3, checkpoint=where)
        newest = max(where.glob("step-*"))
        data = bytearray((newest / "state.safetensors").read_bytes())
        data[-1] ^= 1
        (newest / "state.safetensors").write_bytes(data)
        resumed, events = run(graph, epochs=3, checkpoint=where, resume=True)
        assert any("is damaged" in getattr(event, "text", "") for event in events)
        assert same_bits(state(whole.model), state(resumed.model))
        for folder in where.glob("step-*"):
            (folder / "state.json").write_text("{")
        with pytest.raises(TrainingError, match=r"no checkpoint .* can be read"):
            run(graph, epochs=3, checkpoint=where, resume=True)

    def test_only_the_same_run_goes_on(self, graph, tmp_path):
        where = tmp_path / "run"
        run(graph, epochs=1, checkpoint=where)
        with pytest.raises(TrainingError, match=r"earlier run: go on from them with --resume"):
            run(graph, epochs=1, checkpoint=where)
        with pytest.raises(TrainingError, match=r"\(in Python resume=True\)"):
            run(graph, epochs=1, checkpoint=where)
        with pytest.raises(TrainingError, match=r"other settings: lr = 0.003 \(now 0.1\)"):
            run(graph, epochs=1, checkpoint=where, resume=True, lr=0.1)
        communities(tmp_path / "other", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, seed=9)
        with pytest.raises(TrainingError, match=r"other settings: sampler = neighbor \(now labor\)"):
            run(graph, epochs=1, checkpoint=where, resume=True, sampler="labor")
        with pytest.raises(TrainingError, match="another graph"):
            run(weft.Graph.open(tmp_path / "other"), epochs=1, checkpoint=where, resume=True)
        for name in ("split", "features"):  # as of a graph that was imported again in another way
            other = replace(graph, **{name: np.roll(getattr(graph, name), 1, axis=0)})
            with pytest.raises(TrainingError, match="another graph"):
                run(other, epochs=1, checkpoint=where, resume=True)

    def test_the_newest_are_kept(self, graph, tmp_path):
        run(graph, epochs=5, checkpoint=tmp_path, keep=2)
        assert len(list(tmp_path.glob("step-*"))) == 2
        assert (tmp_path / "best").is_dir()

    def test_a_full_disk_leaves_the_older_checkpoint(self, graph, tmp_path, monkeypatch):
        import errno

        from weft.training import checkpoint

        run(graph, epochs=1, checkpoint=tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

        def full(path, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(StorageError, match="no space left"):
            checkpoint.save_step(tmp_path, 3, 99, {"a": torch.zeros(3)}, {})
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_several_labels_a_vertex():
    """Each class is one of the features, passed on from in-neighbours: micro-F1 comes close to 1."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((800, 6)).astype(np.float32)
    ring = np.stack([np.arange(800), (np.arange(800) + 1) % 800])
    labels = (np.roll(features, 1, axis=0)[:, :3] > 0).astype(np.uint8)
    split = rng.choice(3, 800, p=(0.6, 0.2, 0.2))
    graph = weft.Graph.from_arrays(ring, features=features, labels=labels, split=split)
    result, _ = run(graph, epochs=40, fanouts=(1,), lr=0.05, dropout=0.0, hidden=3)
    assert result.test > 0.9


def test_half_precision_features_train(graph):
    half = weft.Graph(
        graph.indptr,
        graph.indices,
        features=graph.features.astype(np.float16),
        labels=graph.labels,
        split=graph.split,
        num_classes=5,
    )
    for dtype in ("float32", "float64"):
        assert abs(run(half, dtype=dtype)[0].test - run(graph, dtype=dtype)[0].test) < 0.05


def test_edge_weights_reach_the_model(graph):
    """A GCN on a weighted graph uses the weights; drawing by weight is for other models, and said so."""
    weight = np.random.default_rng(0).random(graph.num_edges).astype(np.float32)
    options = {"features": graph.features, "labels": graph.labels, "split": graph.split, "num_classes": 5}
    weighted = weft.Graph(graph.indptr, graph.indices, edge_weight=weight, **options)
    assert run(weighted, model="gcn")[0].history != run(graph, model="gcn")[0].history
    assert run(weighted, weighted=True)[0].test > 0.3
    with pytest.raises(ModelError, match=r"GCNConv\(.*\) needs uniform sampling"):
        run(weighted, model="gcn", weighted=True)
    with pytest.raises(ConfigError, match="needs edge weights"):
        run(graph, weighted=True)


@pytest.mark.parametrize(
    "given, unused",
    [
        ({"model": "sage"}, ["edge weights are not used: GraphSAGE", "edge types are not used: GraphSAGE"]),
        ({"model": "gcn"}, ["edge types are not used: GCN"]),
        ({"model": "rgcn"}, ["edge weights are not used"]),
        ({"model": "sage", "weighted": True}, ["edge types are not used: GraphSAGE"]),
        ({"model": "gcn", "full_graph": True, "batch_size": None, "fanouts": None}, ["edge types are not used"]),
    ],
)
def test_edge_values_that_a_model_leaves_out_are_named(graph, given, unused):
    weight = np.random.default_rng(0).random(graph.num_edges).astype(np.float32)
    types = np.random.default_rng(1).integers(0, 3, graph.num_edges).astype(np.int32)
    options = {"features": graph.features, "labels": graph.labels, "split": graph.split, "num_classes": 5}
    both = weft.Graph(graph.indptr, graph.indices, edge_weight=weight, edge_type=types, **options)
    _, events = run(both, **given)
    told = [event.text for event in events if isinstance(event, Notice) and "not used" in event.text]
    assert len(told) == len(unused)
    assert all(wanted in text for wanted, text in zip(unused, told, strict=True))


class TestMistakes:
    def test_a_model_of_other_widths_is_refused(self, graph):
        with pytest.raises(ModelError, match="GraphSAGE does not run on rows of 12 features: build it for as many"):
            weft.train(graph, GraphSAGE(13, 8, 2, 5))
        with pytest.raises(ModelError, match=r"gives 4 numbers .* 5 classes: build it with .* unknown is to be -1\)"):
            weft.train(graph, GraphSAGE(12, 8, 2, 4), epochs=1)

    def test_a_model_that_can_not_be_trained_is_refused(self, graph):
        def sage():
            return GraphSAGE(12, 8, 2, 5)

        class InHalf(GraphSAGE):
            def forward(self, x, edge_index):
                with torch.autocast("cpu", torch.bfloat16):
                    return super().forward(x, edge_index)

        class Flat(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = GraphSAGE(12, 8, 2, 1)

            def forward(self, x, edge_index):
                return self.inner(x, edge_index)[:, 0]

        class OfTypes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = HeteroConv({("a", "to", "a"): SAGEConv(-1, 5)})

            def forward(self, x_dict, edge_index_dict):
                return self.conv(x_dict, edge_index_dict)

        def train(model):
            weft.train(graph, model, fanouts=[2, 2], epochs=1)

        with pytest.raises(ModelError, match=r"has parameters without values yet \(.*\): give its layers in_channels"):
            train(GraphSAGE(-1, 8, 2, 5))
        with pytest.raises(ModelError, match=r"OfTypes.forward takes dictionaries by type \(x_dict, edge_ind"):
            train(OfTypes())
        types = (["a"], [("a", "to", "a")])
        with seeded(1):
            by_type = to_hetero(GraphSAGE((-1, -1), 8, 2, 5), types)
        with pytest.raises(ModelError, match=r"GraphModule.forward takes dictionaries by type"):
            train(by_type)
        with pytest.raises(TrainingError, match="there is nothing to train: no parameter of GraphSAGE that counts"):
            train(sage().requires_grad_(False))
        with torch.no_grad(), pytest.raises(TrainingError, match=r"or gradients are off \(torch.no_grad"):
            train(sage())
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(ModelError, match=r"leave out torch\.autocast"):
            train(sage())
        with pytest.raises(ModelError, match=r"leave out torch\.autocast"):
            train(InHalf(12, 8, 2, 5))
        with pytest.raises(ModelError, match=r"gives a tensor of shape \(\d+,\): each vertex needs a row of 5 numbers"):
            train(Flat())

    def test_generators_are_as_they_were(self, graph):
        """So that models made one after the other are not all the same."""

        def drawn():
            return torch.rand(2).tolist(), np.random.rand(), random.random()

        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        before = drawn(), drawn()
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        first = drawn()
        run(graph, epochs=1)
        assert (first, drawn()) == before

    def test_an_empty_split_and_one_of_another_name_are_not_measured(self, graph):
        bare = weft.Graph(
            graph.indptr,
            graph.indices,
            features=graph.features,
            labels=graph.labels,
            split=np.where(graph.split == 1, 3, graph.split),
            num_classes=5,
        )
        for more in ({}, {"task": "link", "link_split": "90/0/10"}):
            trainer = Trainer(bare, GraphSAGE(12, 5, 2, 5), Settings.of(fanouts=(2, 2), **more))
            with pytest.raises(
                InputError, match="the validation split is empty, so that nothing can be measured on it"
            ):
                trainer.evaluate("validation")
            with pytest.raises(
                InputError, match="no split to measure is called 'val': choose one of train, validation, test"
            ):
                trainer.measure("val")
            trainer.close()

    def test_data_of_pyg_is_a_graph(self):
        edges = torch.randint(0, 60, (2, 300), generator=torch.Generator().manual_seed(0))
        data = Data(torch.randn(60, 3), edges, y=torch.arange(60) % 2, train_mask=torch.arange(60) < 40)
        assert len(weft.train(data, GraphSAGE(3, 4, 2, 2), epochs=2).history) == 2

    def test_a_plan_may_be_an_object_and_settings_a_group(self, graph):
        events = []
        few = {"fanouts": [2, 2], "optimisation": {"epochs": 1, "lr": 0.5}, "listen": events.append}
        weft.train(graph, "gcn", **few)
        assert events[0].settings["lr"] == 0.5
        with pytest.raises(ConfigError, match="plan means nothing to a run of one worker"):  # which it is taken to be
            weft.train(graph, "gcn", plan=weft.Plan(("pull", "local")), **few)
        with pytest.raises(
            ConfigError, match="prefetch = 4 is set beside a plan that has prefetch = 2: drop one of them"
        ):
            weft.train(graph, "gcn", plan=weft.Plan(("local", "local")), prefetch=4, **few)
        with pytest.raises(ConfigError, match=r"no setting 'settings'; give them .* optimisation={'lr': 0.01}"):
            weft.train(graph, settings=Settings.of(lr=0.5))

    def test_a_graph_without_features_is_refused(self, graph):
        rest = {"labels": graph.labels, "split": graph.split, "num_classes": 5}
        bare = weft.Graph(graph.indptr, graph.indices, **rest)
        without_columns = weft.Graph(graph.indptr, graph.indices, features=np.zeros((1500, 0), np.float32), **rest)
        for begin in (
            lambda: run(bare),
            lambda: make_model(settings(), bare),
            lambda: weft.train(bare, GraphSAGE(3, 4, 2)),
            lambda: make_model(settings(), without_columns),
            lambda: weft.train(without_columns, GraphSAGE(3, 4, 2)),
        ):
            with pytest.raises(InputError, match=r"no features to train on: .*nn\.Embedding"):
                begin()

    def test_tensorboard_is_told_figures_and_closed_whatever_happens(self, graph, tmp_path, monkeypatch):
        told, flushed, closed = {}, [], []

        class SummaryWriter:
            def __init__(self, folder):
                assert folder == str(tmp_path)

            def add_scalar(self, name, value, epoch):
                told[name, epoch] = value

            def flush(self):
                flushed.append(len(told))

            def close(self):
                closed.append(len(told))

        monkeypatch.setattr("weft.report.training_log.find_spec", lambda name: True)
        monkeypatch.setattr(
            "weft.report.training_log.import_module", lambda name: SimpleNamespace(SummaryWriter=SummaryWriter)
        )
        few = {"fanouts": [2, 2], "hidden": 4, "threads": 1, "tensorboard": tmp_path, "log": "none"}
        result = weft.train(graph, epochs=2, **few)
        assert closed == [len(told)] and len(flushed) == 2 and told["test/accuracy", 2] == result.test
        assert told["validation", 1] == told["validation/accuracy", 1] == result.history[0]["validation"]
        with pytest.raises(ZeroDivisionError):
            weft.train(graph, epochs=2, listen=lambda event: 1 / 0, **few)
        assert len(closed) == 2

    def test_a_listener_is_told_of_epochs_and_may_end_the_run(self, graph, capsys):
        class PrunedError(Exception):
            pass

        few, seen = {"fanouts": [2, 2], "hidden": 4, "threads": 1}, []

        def listen(event):
            if isinstance(event, weft.training.EpochEnded):
                seen.append((event.epoch, event.loss, event.figures["accuracy"]))
                if len(seen) == 3:
                    raise PrunedError

        result = weft.train(graph, epochs=2, log="none", listen=listen, **few)
        assert seen == [(e["epoch"], e["loss"], e["validation"]) for e in result.history] and len(seen) == 2
        assert capsys.readouterr().out == ""
        with pytest.raises(PrunedError):
            weft.train(graph, epochs=2, listen=listen, **few)
        assert "epoch   1 of 2" in capsys.readouterr().out
        with pytest.raises(ConfigError, match="listen is a list: give a function of an event"):
            weft.train(graph, epochs=1, listen=[listen])
        with pytest.raises(ConfigError, match="listen is of this process, and workers are others: drop it"):
            weft.train(graph, epochs=1, listen=listen, workers=2, on="ray")

    def test_tensorboard_must_be_installed(self, graph, tmp_path, monkeypatch):
        monkeypatch.setattr("weft.report.training_log.find_spec", lambda name: None)
        with pytest.raises(ConfigError, match="the package is not installed: pip install"):
            weft.train(graph, tensorboard=tmp_path, epochs=1)

    def test_nan_loss_names_the_batch(self, graph):
        with pytest.raises(TrainingError, match=r"the loss is (nan|inf) in epoch \d+, batch \d+: lower lr"):
            run(graph, lr=1e18, optimizer="sgd", epochs=5)

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_gradient_that_is_no_number_is_no_step(self, graph, ranks, workers):
        """In the run's last batch, on one of the workers, after which nothing else would tell."""

        def work(world):
            with seeded(1):
                model = GraphSAGE(graph.num_features, 8, 2, graph.num_classes)
            before = [parameter.detach().clone() for parameter in model.parameters()]

            def loss(rows, labels):
                root = (rows[:, 0] * 0).sqrt() if world.rank == workers - 1 else rows[:, 0]  # its derivative is none
                return F.cross_entropy(rows, labels, reduction="none") + 0 * root

            settings = Settings.of(fanouts=[2, 2], batch_size=1000, epochs=1, threads=1)
            objective = set_up(LossObjective(loss), graph, settings)
            trainer = Trainer(graph, model, settings, world=world, objective=objective)
            with pytest.raises(
                TrainingError, match="a gradient is nan or infinite in epoch 1, batch 1, though the loss is a number"
            ):
                trainer.fit()
            assert all(torch.equal(one, p.detach()) for one, p in zip(before, model.parameters(), strict=True))

        ranks(workers, work)

    def test_a_run_that_has_ended_keeps_no_connections(self, graph, ranks):
        def work(world):
            settings = Settings.of(fanouts=[2, 2], batch_size=1000, epochs=1, threads=1)
            trainer = Trainer(graph, make_model(settings, graph), settings, world=world)
            trainer.fit()
            with pytest.raises(AssertionError, match="this communicator was closed"):
                trainer.loader.comm.barrier()

        ranks(2, work)

    def test_parameters_that_are_no_numbers_are_not_kept(self, graph, tmp_path):
        def loss(rows, labels):
            return 1e25 * F.cross_entropy(rows, labels, reduction="none")

        with pytest.raises(TrainingError, match="a parameter is no number, or infinite, after epoch 1: lower lr"):
            weft.train(
                graph,
                fanouts=[2, 2],
                batch_size=1000,
                epochs=1,
                optimizer="sgd",
                lr=1e18,
                loss=loss,
                checkpoint=tmp_path,
            )
        assert not [*tmp_path.glob("step-*")]

    def test_nan_loss_before_any_step_is_not_of_the_learning_rate(self, graph):
        with pytest.raises(TrainingError, match=r"nan in epoch 1, batch 1: no step was made yet, so it is not lr"):
            weft.train(graph, fanouts=[2], epochs=1, loss=lambda rows, labels: (rows[:, 0] * 0 - 1).log())

    def test_nan_loss_behind_steps_may_be_of_the_learning_rate(self, graph):
        chosen = settings(optimizer="sgd", lr=1e15)
        trainer = Trainer(graph, make_model(chosen, graph), chosen)
        with pytest.raises(TrainingError, match=r"nan in epoch 1, batch [2-9]: lower lr"):
            trainer.train_epoch(0)
        trainer.loader.abandon()

    def test_nan_loss_by_negative_edge_weights(self):
        edges = torch.randint(0, 60, (2, 300), generator=torch.Generator().manual_seed(0))
        data = Data(torch.randn(60, 3), edges, y=torch.arange(60) % 2, train_mask=torch.arange(60) < 40)
        data.edge_weight = torch.where(torch.arange(300) % 3 == 0, -1.0, 0.4)
        with pytest.raises(TrainingError, match=r"some of the graph's edge weights are negative, .* the root"):
            weft.train(data, GCN(3, 4, 2, 2), epochs=3)

    @pytest.mark.parametrize(
        ("of", "remedy"),
        [(torch.float64, "set dtype = 'float64'"), (torch.bfloat16, r"call model.float\(\), or set dtype")],
    )
    def test_models_of_other_types_are_not_made_float32_in_silence(self, graph, of, remedy):
        with seeded(1):
            model = GCN(graph.num_features, 4, 2, graph.num_classes).to(of)
        with pytest.raises(
            ConfigError, match=f"has parameters of {of}, and would be computed in float32, .*: {remedy}"
        ):
            weft.train(graph, model, fanouts=[2], epochs=1)
        weft.train(graph, model, fanouts=[2], epochs=1, dtype="float64")
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}

    def test_patience_without_anything_to_validate_on(self):
        edges = torch.randint(0, 60, (2, 300), generator=torch.Generator().manual_seed(0))
        data = Data(torch.ones(60, 3), edges, y=torch.arange(60) % 2, train_mask=torch.arange(60) < 40)
        with pytest.raises(ConfigError, match="patience would have no effect: nothing is in the validation split"):
            weft.train(data, model="gcn", epochs=3, patience=2)

    def test_numbers_of_numpy_and_torch_are_numbers(self, graph):
        given = {"batch_size": np.int64(80), "fanouts": np.array([2, 3]), "lr": torch.tensor(0.5), "epochs": np.int8(1)}
        settings = Settings.of(**given)
        assert (settings.sampling.batch_size, settings.sampling.fanouts, settings.optimisation.lr) == (80, (2, 3), 0.5)
        assert type(settings.sampling.batch_size) is int and type(settings.optimisation.lr) is float
        with pytest.raises(ConfigError, match="fanouts"):
            Settings.of(fanouts=np.array([1.5], dtype=np.float32))
        assert weft.train(graph, **given, device=torch.device("cpu")).history

    def test_unknown_settings_name_the_nearest(self, graph):
        with pytest.raises(ConfigError, match="no setting 'epoch'; did you mean 'epochs'"):
            weft.train(graph, epoch=3)
        with pytest.raises(ConfigError, match="no setting 'learning_rate'; did you mean 'lr'"):
            weft.train(graph, learning_rate=3)
        with pytest.raises(ConfigError, match="no setting 'optimization'; did you mean 'optimisation'"):
            weft.train(graph, optimization={"lr": 0.1})
        with pytest.raises(ConfigError, match="optimizer = 'adma' is not possible; did you mean 'adam'"):
            weft.train(graph, optimizer="adma")
        with pytest.raises(ConfigError, match=r"dropout = 1\.5 is out of range; it must be from 0\.0 to 0\.99"):
            weft.train(graph, dropout=1.5)
        with pytest.raises(ConfigError, match="epochs = 'many' is not a whole number"):
            weft.train(graph, epochs="many")

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("callbacks", "weft.train takes listen=, a function that is told of each epoch"),
            ("criterion", "what is learned is task, or loss="),
            ("train_mask", "the graph's own split says it"),
            ("lr_scheduler", "did you mean 'schedule'"),
            ("gpus", "did you mean 'workers'"),
            ("nonsense", "known ones are model, hidden"),
        ],
    )
    def test_what_others_have_is_pointed_to(self, graph, name, words):
        with pytest.raises(ConfigError, match=f"no setting '{name}'; {words}"):
            weft.train(graph, **{name: 1})

    def test_objects_in_place_of_words_are_told_where_they_go(self, graph):
        long = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
        own = r"choose one of .* \(another one goes into a loop of one's own: weft.Loader, weft.parallel\)$"
        for given, words in (
            ({"optimizer": torch.optim.AdamW}, f"optimizer = the class AdamW is not a word; {own}"),
            ({"optimizer": long}, f"optimizer = an object of AdamW is not a word; {own}"),
            ({"optimizer": "lion"}, f"optimizer = 'lion' is not possible; {own}"),
            ({"schedule": torch.optim.lr_scheduler.StepLR}, f"schedule = the class StepLR is not a word; {own}"),
        ):
            with pytest.raises(ConfigError, match=words):
                weft.train(graph, **given)

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"fanouts": (5, 5), "layers": 3}, "contradict each other"),
            ({"fanouts": (5, 0)}, "fanouts hold a 0"),
            (
                {"plan": "auto cache=5%"},
                "plan = 'auto cache=5%': .*: write plan = 'auto', and such as cache = 0.05 besides",
            ),
            ({"heads": 2}, "heads means nothing to the model sage"),
            ({"model": "film", "jk": "cat"}, "jk means nothing to the model film"),
            ({"momentum": 0.5}, "momentum means nothing to adam"),
            ({"resume": True}, "resume means nothing to a run without checkpoints: drop it, or set checkpoint"),
            ({"patience": 2, "evaluate_every": 0}, "patience means nothing to a run that is evaluated only at its end"),
            ({"sampler": "labor", "replace": True}, "replace means nothing to sampler = 'labor'"),
            ({"sampler": "layer", "weighted": True, "fanouts": (9,)}, "weighted means nothing to sampler"),
            ({"sampler": "layer"}, "sampler = 'layer' needs fanouts: how many vertices of the whole graph"),
        ],
    )
    def test_contradictions(self, given, match):
        with pytest.raises(ConfigError, match=match):
            Settings.of(**given)

    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize(
        ("conv", "named"),
        [
            (lambda i, o: GATConv(i, o), "GATConv"),
            (lambda i, o: FiLMConv(i, o), "FiLMConv"),
            (lambda i, o: SAGEConv(i, o, aggr="max"), "SAGEConv"),
            (lambda i, o: GraphConv(i, o, "max"), "GraphConv"),
        ],
    )
    def test_convolutions_that_do_not_sum_are_not_sampled_by_layer(self, graph, conv, named, workers):
        chosen = settings(sampler="layer", fanouts=(100, 100), workers=workers)
        model = nn.Sequential(SAGEConv(graph.num_features, 8), conv(8, graph.num_classes))
        with pytest.raises(ModelError, match=rf"{named}\(.*can't be sampled layer by layer.*set sampler = 'labor'"):
            check_plan(chosen, graph, model) if workers > 1 else Trainer(graph, model, chosen)

    def test_models_from_files(self, graph, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text(
            "from torch_geometric.nn.models import GCN\n"
            "def make_model(i, o): return GCN(i, 8, 2, o)\n"
            "def bad(i, o): return 3\n"
        )

        def train(model):
            chosen = Settings.of(model=model, fanouts=(4, 4), batch_size=100, epochs=1, threads=1)
            return Trainer(graph, make_model(chosen, graph), chosen).fit()

        assert train(f"{file}:make_model").test is not None
        with pytest.raises(ModelError, match="no function 'other'"):
            train(f"{file}:other")
        with pytest.raises(ModelError, match="gave a int"):
            train(f"{file}:bad")
        with pytest.raises(StorageError, match="no file"):
            train(f"{tmp_path}/none.py:make_model")

    def test_models_from_files_are_as_in_scripts(self, graph, tmp_path):
        """With convolutions of their own, data classes, and files beside them; what goes wrong is told by its line."""
        (tmp_path / "weft_own_layers.py").write_text(
            "import torch\nfrom torch_geometric.nn import MessagePassing\n"
            "class Mean(MessagePassing):\n"
            "    def __init__(self, i, o): super().__init__(aggr='mean'); self.lin = torch.nn.Linear(i, o)\n"
            "    def forward(self, x, edge_index): return self.propagate(edge_index, x=self.lin(x))\n"
        )
        own = tmp_path / "my-model.v2.py"
        own.write_text(
            "from __future__ import annotations\nfrom dataclasses import dataclass\nimport torch\n"
            "from torch_geometric.nn import MessagePassing\nfrom weft_own_layers import Mean\n"
            "@dataclass\nclass Sizes:\n    hidden: int = 8\n"
            "class Tanh(MessagePassing):\n"
            "    def forward(self, x, edge_index): return self.propagate(edge_index, x=x)\n"
            "    def message(self, x_j): return x_j.tanh()\n"
            "class Net(torch.nn.Module):\n"
            "    def __init__(self, i, o): super().__init__(); self.a, self.b = Mean(i, o), Tanh()\n"
            "    def forward(self, x, edge_index): return self.b(self.a(x, edge_index), edge_index)\n"
            "made = Net(3, 3)\n"
            "def wrong(i, o):\n    return Net(i)\n"
        )
        chosen = {"fanouts": (4, 4), "batch_size": 100, "epochs": 1, "threads": 1}

        def train(model):
            settings = Settings.of(model=model, **chosen)
            return Trainer(graph, make_model(settings, graph), settings).fit()

        assert train(f"{own}:Net").test is not None
        with pytest.raises(ModelError, match=r"made can't be called .it is a model already"):
            train(f"{own}:made")
        with pytest.raises(ModelError, match=r"my-model.v2.py, line 17: TypeError: .*missing 1 required"):
            train(f"{own}:wrong")
        for text, said in {
            "def f(:": "line 1: SyntaxError",
            "\nimport nowhere_at_all": "line 2: ModuleNotFoundError",
        }.items():
            (tmp_path / "broken.py").write_text(text)
            with pytest.raises(ModelError, match=rf"broken.py, {said}"):
                train(f"{tmp_path / 'broken.py'}:f")

    def test_a_saved_model_finds_its_file_from_any_folder(self, graph, tmp_path, monkeypatch):
        (tmp_path / "mine.py").write_text(
            "from torch_geometric.nn.models import GCN\ndef f(i, o): return GCN(i, 8, 2, o)\n"
        )
        monkeypatch.chdir(tmp_path)
        chosen = Settings.of(model="mine.py:f", fanouts=(4, 4))
        save_model(tmp_path / "out", make_model(chosen, graph), chosen, graph)
        monkeypatch.chdir("/")
        assert load_model(tmp_path / "out", graph).settings.model.name == f"{tmp_path}/mine.py:f"


def test_loader_errors_come_out_and_threads_end(graph, monkeypatch):
    import threading

    before = {*threading.enumerate()}  # loaders of others that nobody has looked for yet as garbage
    chosen = settings()
    trainer = Trainer(graph, make_model(chosen, graph), chosen)

    def broken(*args, **kwargs):
        raise RuntimeError("sampling failed")

    monkeypatch.setattr(NeighborSampler, "sample", broken)
    with pytest.raises(RuntimeError, match="sampling failed"):
        trainer.fit()
    assert not [thread for thread in {*threading.enumerate()} - before if thread.name.startswith("weft-loader")]


class Tied(nn.Module):
    """Both ways through a convolution go by the same parameters."""

    def __init__(self, features, classes):
        super().__init__()
        self.convs = nn.ModuleList([GATv2Conv(features, 8, share_weights=True), GATv2Conv(8, classes)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_parameters_that_layers_share_are_saved(folder, tmp_path):
    (tmp_path / "tied.py").write_text(
        "from test_training import Tied\n\n\ndef make(features, classes):\n    return Tied(features, classes)\n"
    )
    graph = weft.Graph.open(folder)
    chosen = settings(model=f"{tmp_path / 'tied.py'}:make", hidden=None, dropout=None)
    trained = make_model(chosen, graph)
    save_model(tmp_path / "out", trained, chosen, graph)
    loaded = load_model(tmp_path / "out", graph).model
    assert same_bits(state(trained), state(loaded))
    assert loaded.convs[0].lin_l.weight is loaded.convs[0].lin_r.weight


class Medians(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.conv = SAGEConv(features, classes, aggr="median")

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_an_aggregation_that_needs_neighbours_says_so(folder):
    whole = weft.Graph.open(folder)
    edges = np.array([[0, 1, 2], [3, 4, 5]])
    values = {"features": whole.features, "labels": whole.labels, "split": whole.split}
    graph = weft.Graph.from_arrays(edges, num_vertices=whole.num_vertices, **values)
    with pytest.raises(ModelError, match=r"SAGEConv.* no in-edges .* add`; --self-relation, where edges have types"):
        weft.train(graph, Medians(graph.num_features, 5), fanouts=(4,), batch_size=100, epochs=1)


NO_VERTICES = {
    "are of several lengths or kinds: give ids": ("paper", np.ones(1500, dtype=bool)),
    "have vertex 7 more than once": torch.tensor([3, 7, 7]),
    "have vertex 0 more than once: give each once, or make a mask of bool": np.arange(1500) % 2,
    "are of type float64": np.array([1.5, 2.0]),
    "a mask of 10 vertices": torch.ones(10, dtype=torch.bool),
    "run from 3 to 1500": [3, 1500],
    "run from -1 to 3": [-1, 3],
    r"shape \(1, 2\)": torch.tensor([[1, 2]]),
}


@pytest.mark.parametrize("words", NO_VERTICES)
def test_what_are_no_vertices_is_refused(graph, words):
    with pytest.raises(ConfigError, match=f"seeds .*{words}|seeds {words}"):
        weft.Loader(graph, fanouts=(4, 4), seeds=NO_VERTICES[words])
    loader = weft.Loader(graph, fanouts=(4, 4))
    weft.parallel(make_model(settings(), graph), loader)
    with pytest.raises(ConfigError, match=words):
        next(loader.over(NO_VERTICES[words]))


@pytest.mark.parametrize("none", [[], np.zeros(1500, dtype=bool)])
def test_no_seeds_are_refused(graph, none):
    with pytest.raises(ConfigError, match=r"^seeds name no vertex, .*: give some, or a split="):
        weft.Loader(graph, fanouts=(4, 4), seeds=none)


def test_vertices_are_given_as_people_have_them(graph):
    loader = weft.Loader(graph, fanouts=(4, 4))
    weft.parallel(make_model(settings(), graph), loader)
    mask = np.zeros(1500, dtype=bool)
    mask[[5, 9]] = True
    for given, ids in (
        ([9, 5], [9, 5]),
        (range(3), [0, 1, 2]),
        (mask, [5, 9]),
        (torch.from_numpy(mask), [5, 9]),
        ([], []),
    ):
        seeds = [batch.seeds.tolist() for batch in loader.over(given)]
        assert [vertex for each in seeds for vertex in each] == ids


def test_a_split_without_labels_is_refused(graph):
    bare = replace(graph, labels=np.where(graph.split == 2, -1, graph.labels).astype(np.int32))
    loader = weft.Loader(bare, fanouts=(4, 4))
    weft.parallel(make_model(settings(), bare), loader)
    with pytest.raises(
        ConfigError, match=r"^none of the \d+ vertices in the split 'test' has a label: .* give their ids$"
    ):
        next(loader.over("test"))
    with pytest.raises(ConfigError, match=r"in the split 'test' has a label: choose another, or give seeds=$"):
        weft.Loader(bare, fanouts=(4, 4), split="test")


def test_a_split_is_gone_over_as_an_objective_without_labels_evaluates_it(graph):
    split = np.where(graph.split == 2, 3, graph.split).astype(graph.split.dtype)  # none is tested
    bare, objective = replace(graph, labels=None, split=split), degrees_with(labelled=False)
    loader = weft.Loader(bare, fanouts=(4, 4), objective=objective)
    weft.parallel(make_model(settings(), graph), loader)
    seeds = torch.cat([batch.seeds for batch in loader.over("validation")])
    assert seeds.tolist() == np.flatnonzero(graph.split == 1).tolist()
    loader.objective.seeds["validation"] = np.array([7, 2])  # as by a setup of its own
    assert [batch.seeds.tolist() for batch in loader.over("validation")] == [[7, 2]]
    with pytest.raises(ConfigError, match=r"^the graph has no vertices in the split 'test': .* give their ids$"):
        loader.over("test")
    with pytest.raises(
        InputError, match=r"has no labels, .* \(an objective with labelled = False, or a Loader's seeds="
    ):
        weft.Loader(bare, fanouts=(4, 4), split="validation")


def test_two_loaders_may_have_an_objective(graph):
    """Each is of its own graph's labels, as where a part is trained on and the whole is evaluated."""
    objective, other = weft.VertexObjective(), replace(graph, labels=(graph.labels + 1) % graph.num_classes)
    loaders = [weft.Loader(one, fanouts=(4, 4), objective=objective) for one in (graph, other)]
    for loader, of in zip(loaders, (graph, other), strict=True):
        weft.parallel(make_model(settings(), of), loader)
        for batch in loader:
            assert batch.y.tolist() == of.labels[batch.seeds].tolist()


def test_evaluation_leaves_a_loops_own_draws_alone(graph):
    loader = weft.Loader(graph, fanouts=(4, 4))
    run = weft.parallel(make_model(settings(), graph), loader)
    run.model.eval()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    for batch in loader.over("validation"):
        run(batch)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_what_a_loader_does_not_look_at_is_refused(graph):
    with pytest.raises(ConfigError, match="workers"):
        weft.Loader(graph, fanouts=(4, 4), workers=2)
    with pytest.raises(ConfigError, match="give one of them"):
        weft.Loader(graph, fanouts=(4, 4), seeds=[1], split="validation")
    with pytest.raises(ConfigError, match="no state of a loader"):
        weft.Loader(graph, fanouts=(4, 4)).load_state_dict({})


def test_a_loader_does_not_ask_the_planner(graph):
    with pytest.raises(
        ConfigError, match=r"plan = 'auto' asks the planner, and a loader has no .*: name one \(`weft plan"
    ):
        weft.Loader(graph, fanouts=(4, 4), plan="auto")
    for plan in (None, split(2)):
        with pytest.raises(ConfigError, match=r"wire = 'auto' asks the planner, .*: set wire = 'float16', or drop it"):
            weft.Loader(graph, fanouts=(4, 4), plan=plan, wire="auto")
    weft.Loader(graph, settings=Settings.of(fanouts=(4, 4), plan="auto", wire="auto"))  # of weft.train, too


def test_the_planner_leaves_float16_out_where_features_are_numbers_that_it_has_not(graph):
    settings = Settings.of(fanouts=(4, 4), plan="auto", wire="auto")
    numbers = replace(graph, features=21 * np.arange(graph.num_vertices, dtype=np.float32)[:, None])
    for of, choices in ((graph, ("float32", "float16")), (numbers, ("float32",))):
        task = task_of(settings, 2, 60, objective_for(of, settings), workers=2, features=of.features)
        assert task.choices["wire"] == choices and task.halves == (len(choices) == 2)


def test_a_loop_of_ones_own_has_the_threads_that_the_loader_was_given(graph):
    before = torch.get_num_threads()
    run = weft.parallel(make_model(settings(), graph), weft.Loader(graph, fanouts=(4, 4), threads=before + 1))
    assert torch.get_num_threads() == before + 1
    run.close()
    assert torch.get_num_threads() == before


class Away(torch.Tensor):
    """On a device, of which numpy knows nothing."""

    def __array__(self, *given):
        raise TypeError("can't convert a tensor on a device to numpy")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_seeds_may_be_on_a_device(graph):
    seeds = torch.tensor([5, 3, 9]).as_subclass(Away)
    assert weft.Loader(graph, fanouts=(4, 4), seeds=seeds).objective.seeds["train"].tolist() == [5, 3, 9]


def test_a_signal_ends_a_sweep_that_goes_on_behind_failures(graph):
    begun = []

    def listen(event):
        if isinstance(event, weft.training.Stepped) and event.batch == 1:
            signal.raise_signal(signal.SIGINT)

    def sweep():
        for lr in (0.1, 0.01):
            begun.append(lr)
            with suppress(Exception):
                weft.train(graph, fanouts=[2, 2], hidden=4, threads=1, batch_size=100, lr=lr, log="none", listen=listen)

    with pytest.raises(weft.Interrupted) as stop:
        sweep()
    assert begun == [0.1] and stop.value.signum == signal.SIGINT


def test_signals_that_a_program_around_python_hears_are_left_to_it(monkeypatch):
    before = signal.getsignal(signal.SIGUSR1)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda signum: None)
        with listening(Interrupts().note):
            patch.undo()
            assert signal.getsignal(signal.SIGUSR1) is before


def test_workers_meet_as_the_first_loader_of_a_script_says(monkeypatch):
    """A second one's tls would have no effect, and it would train in the open."""
    monkeypatch.setattr("weft.training.loader._joined", [(World(), Settings.of(timeout=60))])
    for given in ({}, {"timeout": 60.0}, {"device": "cpu"}):
        assert joined(Settings.of(**given)).size == 1
    for given, met in (({"tls": "secret"}, "tls = None"), ({"timeout": 3600}, r"timeout = 60(\.0)?")):
        with pytest.raises(
            ConfigError, match=f"would have no effect: the workers have met already, with {met}: say it in"
        ):
            joined(Settings.of(**given))


def test_options_beside_a_plan_that_is_made_are_those_it_has(graph):
    for given in ({"cache": 0.1}, {"wire": "float16"}, {"prefetch": 0}):
        with pytest.raises(ConfigError, match="is set beside a plan that has"):
            weft.Loader(graph, fanouts=(4, 4), plan=split(2), **given)
    weft.Loader(graph, fanouts=(4, 4), plan=split(2, cache=0.1), cache=0.1, merge="none", slack=0)
    assert weft.Loader(graph, fanouts=(4, 4), plan=split(2, prefetch=8), loaders=5).settings.parallel.loaders == 5
    with pytest.raises(ConfigError, match="loaders means nothing to a run that makes fewer batches ready at a time"):
        weft.Loader(graph, fanouts=(4, 4), plan=split(2, prefetch=3), loaders=5)
    with pytest.raises(ConfigError, match="loaders means nothing to training on the full graph"):
        weft.Loader(graph, plan=split(2, prefetch=8), loaders=5, full_graph=True)


def by_name(world, graph):
    """The plan that a run goes on by, of which only the name is said; and that which was named at first."""
    loader = weft.Loader(graph, fanouts=(4, 4), plan="gdp", world=world, threads=1)
    with seeded(1):
        model = make_model(settings(), graph)
    run = weft.parallel(model, loader)
    run.use("leap")
    with pytest.raises(ConfigError, match="nonsense"):
        run.use("nonsense")
    other = run.plan_name
    run.use(None)
    return other, run.plan_name


def test_another_plan_by_its_name(graph, ranks):
    assert ranks(2, by_name, graph) == [("local+local seeds=home", "local+local seeds=spread")] * 2


def test_a_loader_whose_plan_nobody_named_takes_models_of_any_depth(graph):
    loader = weft.Loader(graph)
    for depth in (2, 3, 2):
        run = weft.parallel(make_model(settings(layers=depth, fanouts=None), graph), loader)
        assert len(run.plan.layers) == depth
        run.close()


@pytest.mark.parametrize("there", ["thesis.txt", "graph/manifest.json"])
def test_a_model_takes_the_place_of_no_other_folder(graph, folder, tmp_path, there):
    out, chosen = tmp_path / "out", settings()
    (out / there).parent.mkdir(parents=True)
    (out / there).write_text("precious")
    with pytest.raises(StorageError, match="is no trained model"):
        save_model(out, make_model(chosen, graph), chosen, graph)
    done = ran(["weft", "train", folder, "--out", out, "--epochs", "1", "--fanouts", "3,3"])
    assert done.returncode == 2 and "will not be replaced" in done.stderr
    assert (out / there).read_text() == "precious"
    for path, words in (("", "a path is empty"), (str(out / there), "choose another name")):
        done = ran(["weft", "train", folder, "--out", path, "--epochs", "1", "--fanouts", "3,3"])
        assert done.returncode == 2 and words in done.stderr


def degrees_with(**changed):
    """An objective that has something wrong."""
    return type("Wrong", (weft.VertexObjective,), changed)()


def with_seeds(chosen):
    """A `setup` that trains on these vertices."""

    def setup(self, graph, settings):
        weft.VertexObjective.setup(self, graph, settings)
        self.seeds["train"] = chosen
        return self

    return setup


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (weft.VertexObjective, r"objective is a class: give one of it, VertexObjective\(\)"),
        (
            degrees_with(setup=lambda self, graph, settings: None),
            r"Wrong.setup\(\) gave a NoneType: let it return self",
        ),
        (degrees_with(score=lambda self, rows, vertices: 0.5), r"Wrong.score\(\) gave 0.5: let it give two numbers"),
        (
            degrees_with(loss=lambda self, model, rows, targets: rows.sum(1)),
            r"Wrong.loss\(\) gave a tensor of torch.float32, ",
        ),
        (
            degrees_with(loss=lambda self, model, rows, targets: rows.sum() * 1j),
            r"Wrong.loss\(\) gave a tensor of torch.complex64, \(\): let it give one real number",
        ),
        (
            degrees_with(loss=lambda self, model, rows, targets: 0.5),
            r"Wrong.loss\(\) gave a float: let it give one real number",
        ),
        (
            degrees_with(score=lambda self, rows, vertices: (rows, rows)),
            r"Wrong.score\(\) gave two Tensors that are no numbers",
        ),
        (
            degrees_with(setup=with_seeds([3, 3])),
            r"Wrong.seeds\['train'\] have vertex 3 more than once: give each once",
        ),
        (degrees_with(setup=with_seeds([0.5])), r"Wrong.seeds\['train'\] are of type float64"),
        (degrees_with(setup=with_seeds([])), "Wrong has nothing to train on"),
    ],
)
def test_objectives_that_are_not_finished_are_told(graph, objective, words):
    with pytest.raises((ConfigError, TrainingError), match=words):
        weft.train(graph, model="sage", objective=objective, fanouts=[2], epochs=1)


@pytest.mark.parametrize("chosen", [[5, 3, 9], torch.tensor([5, 3, 9])])
def test_seeds_of_an_objective_may_be_any_ids(graph, chosen):
    objective = degrees_with(setup=with_seeds(chosen))
    trained = weft.train(graph, model="sage", objective=objective, fanouts=[2], epochs=1)
    assert objective.seeds["train"].tolist() == [5, 3, 9] and trained.history


def test_a_loader_sets_an_objective_up(graph):
    learned = degrees_with(setup=with_seeds([5, 3, 9]))
    first = weft.Loader(graph, [2, 2], objective=learned, seed=1)
    loader = weft.Loader(graph, [2, 2], objective=learned, seed=2)  # made ready anew: for its own graph, and its seed
    assert (first.objective, first.objective._seed, loader.objective._seed) == (learned, 1, 2)
    weft.parallel(make_model(settings(), graph), loader)
    (batch,) = loader
    assert sorted(batch.seeds.tolist()) == [3, 5, 9]
    with pytest.raises(ConfigError, match="objective is a class: give one of it"):
        weft.Loader(graph, [2, 2], objective=weft.VertexObjective)


def test_a_mean_over_vertices_is_no_sum(graph):
    """Several workers, or micro-batches, would make several means of it."""

    def mean(self, model, rows, targets):
        return torch.nn.functional.cross_entropy(rows, self.labels_at(targets.ids))

    options = {"model": "sage", "fanouts": [2], "epochs": 1, "batch_size": 100}
    weft.train(graph, objective=degrees_with(loss=mean), **options)
    with pytest.raises(
        TrainingError, match=r"Wrong.loss\(\) gives .* for 50 vertices, .* let it be a sum over vertices"
    ):
        weft.train(graph, objective=degrees_with(loss=mean), micro_batches=2, **options)


def test_a_figure_that_is_no_number_is_worse_than_any(graph, capsys):
    class Late(weft.VertexObjective):
        calls = 0

        def score(self, rows, vertices):
            self.calls += 1
            right, of_all = super().score(rows, vertices)
            return (float("nan") if self.calls in (1, 3) else right), of_all

    trained = weft.train(graph, model="sage", objective=Late(), fanouts=[3], epochs=4, log="json")
    figures = [one["validation"] for one in trained.history]
    assert np.isnan(figures).tolist() == [True, False, True, False]
    assert trained.validation == np.nanmax(figures) and trained.best_epoch == int(np.nanargmax(figures))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert lines and not any("NaN" in line for line in lines)


@pytest.mark.parametrize("how", ["sampled", "exact"])
def test_a_model_that_gives_no_numbers_is_not_measured(graph, how):
    class Broken(GraphSAGE):
        def forward(self, x, edge_index):
            rows = super().forward(x, edge_index)
            return rows if self.training else rows + torch.where(rows > -1e9, float("nan"), 0.0)

    with seeded(1):
        model = Broken(graph.num_features, 4, 1, graph.num_classes)
    with pytest.raises(TrainingError, match=r"vertices of the validation split hold nan, .* lower lr, set clip_norm"):
        weft.train(graph, model, fanouts=[3], epochs=1, evaluation=how)


@pytest.mark.parametrize("columns", [0, slice(0, 1)])
def test_a_number_a_vertex_has_no_accuracy(graph, columns):
    """The first epoch's model would be kept as the best one: of one column, the first is always the largest."""

    class Flat(GraphSAGE):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index)[:, columns]

    def loss(rows, labels):
        return (rows.flatten() - labels).square()

    with seeded(1):
        model = Flat(graph.num_features, 4, 1, 1)
    with pytest.raises(
        ModelError, match="of which there is no accuracy: give a row of 5 numbers a vertex, or an objective"
    ):
        weft.train(graph, model, loss=loss, fanouts=[2], epochs=1)


def test_what_inference_is_told_as_training_is(graph, tmp_path):
    with seeded(1):
        model = GraphSAGE(graph.num_features, 4, 1, graph.num_classes).double()
    exact = weft.infer(model, graph, dtype=torch.float64, memory=1 << 20).outputs
    assert np.array_equal(exact, weft.infer(model, graph, dtype="float64", memory="1MiB").outputs)
    assert np.array_equal(exact, weft.infer(model, graph, threads=0).outputs)
    for given, words in (
        ({"dtype": "half"}, "dtype = 'half' is not possible"),
        ({"dtype": "float32"}, r"dtype is torch.float32, but the model has parameters of torch.float64: call model.to"),
        ({"memory": "much"}, "memory = 'much' is no size"),
        ({"memory": -1}, "memory = -1 is no size"),
        ({"threads": None}, "threads = None is no number of threads"),
        ({"scratch": str(tmp_path / "none")}, "none is no folder"),
        ({"scratch": tmp_path / "none"}, "none is no folder"),
    ):
        with pytest.raises(ConfigError, match=words):
            weft.infer(model, graph, **given)


@pytest.mark.parametrize(
    ("out", "kept", "words"),
    [
        ("same", "same", "can't be saved at"),
        ("kept/step-000000004", "kept", "can't be saved at"),
        ("out", "out/kept", "can't be saved at"),
        ("n" * 300, "kept", "File name too long"),
        ("out", "file", "is a file, and checkpoints go to a folder"),
    ],
)
def test_models_and_checkpoints_are_kept_apart(folder, tmp_path, out, kept, words):
    (tmp_path / "file").touch()
    flags = ["--out", tmp_path / out, "--checkpoint", tmp_path / kept]
    done = ran(["weft", "train", folder, *flags, "--epochs", "1", "--fanouts", "3,3"])
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "kept").exists()


def test_a_trained_model_is_replaced_and_an_empty_folder_taken(graph, tmp_path):
    chosen = settings()
    (tmp_path / "out").mkdir()
    for _ in range(2):
        save_model(tmp_path / "out", make_model(chosen, graph), chosen, graph)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"state.json", "state.safetensors"}


def test_a_checkpoint_is_not_replaced_by_a_model_nor_taken_for_a_folder_of_some(folder, tmp_path, capsys):
    usual = ["train", folder, "--epochs", 1, "--fanouts", "3,3", "--hidden", 8]

    def refused(*more):
        assert cli.main([*map(str, [*usual, *more])]) == 2
        return capsys.readouterr().err

    assert ran(["weft", *usual, "--checkpoint", tmp_path / "kept", "--out", tmp_path / "out"]).returncode == 0
    (step,) = (tmp_path / "kept").glob("step-*")
    for at in (step, tmp_path / "kept" / "best"):
        assert "is a run's checkpoint, so it will not be replaced" in refused("--out", at)
    for at, what in ((step, "a checkpoint"), (tmp_path / "out", "a trained model")):
        for more in ([], ["--resume"]):
            assert f"is {what} itself: name the folder that a run's" in refused("--checkpoint", at, *more)
