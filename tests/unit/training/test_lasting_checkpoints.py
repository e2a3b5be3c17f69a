"""Checkpoints that last: damage falls back, kills leave one, writing goes on beside training, runs get longer."""

import errno
import linecache
import os
import random
import shutil
import signal
import sys
import threading
import time
import tracemalloc
from functools import partial
from types import ModuleType

import numpy as np
import pytest
import torch
from quick import some
from torch import nn
from torch_geometric.nn.models import GraphSAGE

import weft
from weft.cli import main
from weft.errors import ModelError, StorageError, TrainingError
from weft.exchange import simulate
from weft.graph import communities
from weft.keys import Stream, seeded
from weft.plan import Settings
from weft.stopping import Interrupted
from weft.training import (
    Notice,
    Stepped,
    Trainer,
    checkpoint,
    load_model,
    make_model,
    run_state,
    save_model,
    set_up,
    trainer,
)
from weft.training.objectives import LossObjective
from weft.training.run_state import Progress

USUAL = {"hidden": 8, "fanouts": (3, 3), "batch_size": 60, "threads": 1, "dropout": 0.2, "lr": 0.02}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph") / "graph"
    communities(folder, vertices=300, edges=3_000, width=6, classes=4, train=0.4, block=50, signal=0.4)
    return weft.Graph.open(folder)


def run(graph, listen=None, world=None, **given):
    given = {key: value for key, value in (USUAL | given).items() if value is not None}
    chosen, events = Settings.of(**given), []

    def listen_too(event):
        events.append(event)
        if listen is not None:
            listen(event)

    return Trainer(graph, make_model(chosen, graph), chosen, listen_too, world=world).fit(), events


class Weighted(weft.VertexObjective):
    """Divided by the weights of a batch's labels, as torch's cross-entropy with weights is."""

    def __init__(self, weights, kind):
        self._weights, self._kind = np.array(weights), kind

    def examples(self, chosen, epoch, batch):
        found = super().examples(chosen, epoch, batch)
        found.terms = self._kind(self._weights[np.asarray(self.graph.labels)[found.vertices]].sum())
        return found

    def loss(self, model, rows, targets):
        weights = rows.new_tensor(self._weights.tolist())
        return torch.nn.functional.cross_entropy(rows, self.labels_at(targets.ids), weights, reduction="sum")


class Smoothed(weft.VertexObjective):
    """Labels that are not quite sure."""

    def __init__(self, share):
        self._share = share

    def loss(self, model, rows, targets):
        labels = self.labels_at(targets.ids)
        return torch.nn.functional.cross_entropy(rows, labels, reduction="sum", label_smoothing=float(self._share))


NET = """
import torch
from torch_geometric.nn import SAGEConv

class Net(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.first, self.second = SAGEConv(wide, 8), SAGEConv(8, out)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).{act}(), edge_index)
"""


def focal(rows, labels, power):
    chance = rows.log_softmax(1).gather(1, labels[:, None])[:, 0]
    return -((1 - chance.exp()) ** power) * chance


def told(events):
    return [event.text for event in events if isinstance(event, Notice)]


def assert_same(one, other):
    a, b = one.model.state_dict(), other.model.state_dict()
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    assert one.history == other.history
    assert (one.validation, one.test, one.best_epoch) == (other.validation, other.test, other.best_epoch)


def kept(folder):
    """Two checkpoints, and the files of the later one."""
    for step in (1, 2):
        checkpoint.save_step(folder, 2, step, {"a": torch.full((3,), float(step))}, {"progress": {"loss": 0.1 * step}})
    return [folder / "step-000000002" / name for name in ("state.json", "state.safetensors")]


class TestDamage:
    def test_every_flipped_byte_falls_back(self, tmp_path):
        for file in kept(tmp_path):
            sound = file.read_bytes()
            for at in range(len(sound)):
                file.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1 :])
                found = checkpoint.newest(tmp_path)
                assert found.state["progress"]["loss"] == 0.1 and found.tensors["a"][0] == 1
                (problem,) = found.problems
                assert "step-000000002 is damaged (" in problem
            file.write_bytes(sound)

    def test_every_cut_falls_back(self, tmp_path):
        for file in kept(tmp_path):
            sound = file.read_bytes()
            for length in range(len(sound)):
                file.write_bytes(sound[:length])
                assert checkpoint.newest(tmp_path).folder.name == "step-000000001"
            file.unlink()
            (problem,) = checkpoint.newest(tmp_path).problems
            assert problem.endswith(f"is damaged ({file.name} is missing)")
            file.write_bytes(sound)

    def test_both_damaged_is_one_sentence(self, tmp_path):
        for folder in [file.parent for file in kept(tmp_path)[:1]] + [tmp_path / "step-000000001"]:
            (folder / "state.safetensors").write_bytes(b"")
        remedy = "choose another folder, or remove this one, to train from the beginning"
        with pytest.raises(TrainingError, match=rf"no checkpoint in .* can be read \(.*\): {remedy}$") as caught:
            checkpoint.newest(tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_newer_version_is_not_passed_over(self, tmp_path, monkeypatch):
        kept(tmp_path)
        monkeypatch.setattr(checkpoint, "VERSION", 3)
        checkpoint.save_step(tmp_path, 9, 3, {}, {})
        monkeypatch.undo()
        with pytest.raises(TrainingError, match="is a checkpoint of version 3, this Weft reads 2: upgrade Weft"):
            checkpoint.newest(tmp_path)

    def test_it_is_said_in_one_line_and_damaged_ones_do_not_count(self, graph, tmp_path):
        whole, _ = run(graph, epochs=4, checkpoint=tmp_path, keep=2)
        newest = max(tmp_path.glob("step-*"))
        (newest / "state.json").write_text("")
        stopped = run_to_step(graph, 2, epochs=4, checkpoint=tmp_path, keep=2, checkpoint_every=1, resume=True)
        (line,) = [text for text in told(stopped) if "damaged" in text]
        assert (
            f"the checkpoint {newest} is damaged (" in line
            and "): going on from " in line
            and line.endswith("batch 1)")
        )
        resumed, _ = run(graph, epochs=4, checkpoint=tmp_path, keep=2, resume=True)
        assert_same(whole, resumed)
        for step in tmp_path.glob("step-*"):
            checkpoint.load(step)

    def test_damaged_ones_of_steps_that_do_not_come_again_do_not_count_either(self, graph, tmp_path):
        run(graph, epochs=1, checkpoint=tmp_path)
        (first,) = tmp_path.glob("step-*")
        step = int(first.name.removeprefix("step-"))
        damaged = tmp_path / f"step-{step + 1:09d}"  # as a signal wrote it, in the midst of an epoch
        shutil.copytree(first, damaged)
        (damaged / "state.json").write_text("")
        run(graph, epochs=2, checkpoint=tmp_path, keep=2, resume=True)
        last = tmp_path / f"step-{2 * step:09d}"
        assert {*tmp_path.glob("step-*")} == {first, damaged, last}
        checkpoint.load(first)
        run(graph, epochs=3, checkpoint=tmp_path, keep=2, resume=True)
        assert {*tmp_path.glob("step-*")} == {last, tmp_path / f"step-{3 * step:09d}"}


@pytest.mark.parametrize(
    ("weights", "kind"),
    [([1, 2, 3, 4], np.int64), ([1.5, 2, 3, 4], float), ([1.5, 2, 3, 4], np.float32), ([1, 2, 3, 4], torch.tensor)],
)
def test_whatever_a_batch_is_divided_by_a_run_goes_on_in_the_midst_of_an_epoch(graph, tmp_path, weights, kind):
    def fit(**given):
        settings = Settings.of(**USUAL, epochs=2, **given)
        objective = set_up(Weighted(weights, kind), graph, settings)
        with seeded(1):
            model = make_model(settings, graph)
        return Trainer(graph, model, settings, objective=objective).fit()

    whole = fit(checkpoint=tmp_path, checkpoint_every=1, keep=9)
    for later in sorted(tmp_path.glob("step-*"))[1:]:
        shutil.rmtree(later)
    assert_same(whole, fit(checkpoint=tmp_path, resume=True))


@pytest.mark.parametrize("kind", [lambda terms: None, lambda terms: np.nan, lambda terms: -1, lambda terms: np.ones(2)])
def test_what_a_loss_is_divided_by_is_a_number(graph, kind):
    settings = Settings.of(**USUAL)
    with pytest.raises(
        TrainingError, match=r"VertexExamples.terms is .*: let it be a number, by which the loss of the whole"
    ):
        Trainer(
            graph, make_model(settings, graph), settings, objective=set_up(Weighted([1] * 4, kind), graph, settings)
        ).fit()


class Killed(Exception):
    pass


def test_what_killed_runs_left_is_removed_though_nothing_is_left_to_train(graph, tmp_path):
    run(graph, checkpoint=tmp_path, epochs=1)
    for name in (".step-000000001.writing-999999999", ".best.writing-1.deadbeef"):
        (tmp_path / name).mkdir()
    others = tmp_path / ".big.writing-1.deadbeef"  # as of `weft import` on another host, into this folder
    others.mkdir()
    run(graph, checkpoint=tmp_path, epochs=1, resume=True)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [others.name, ".lock"]


def test_a_folder_that_is_refused_is_left_as_it_is(graph, tmp_path):
    settings = Settings.of(**USUAL)
    for place in (tmp_path / "model", tmp_path / "kept"):
        save_model(
            place if place.name == "model" else place / "step-000000001", make_model(settings, graph), settings, graph
        )
        left = place / ".best.writing-1.deadbeef"
        left.mkdir()
        before = sorted(place.iterdir())
        with pytest.raises(TrainingError, match=r"is a trained model itself|holds checkpoints of an earlier run"):
            run(graph, epochs=1, checkpoint=place)
        assert sorted(place.iterdir()) == before


def run_to_step(graph, step, **given):
    """The events of a run that ends after so many steps, as if it were killed."""
    events = []

    def listen(event):
        events.append(event)
        if sum(isinstance(one, Stepped) for one in events) == step:
            raise Killed

    with pytest.raises(Killed):
        run(graph, listen, **given)
    return events


READS = {"_path_normpath", "fspath", "fstat", "getpid", "is_dir", "listdir", "lstat", "scandir", "stat"}


@pytest.mark.parametrize("again", [False, True])
def test_a_kill_at_any_point_of_a_write_leaves_a_checkpoint(tmp_path, again):
    """Killed before each call of the system that changes files or folders; the next write removes what was left."""

    def write(folder):
        checkpoint.save_step(folder, 1 if not again else 2, 1 if again else 2, {"a": torch.zeros(3)}, {"now": 2})

    def changes_files(function):
        its = function.__self__
        home = its.__name__ if isinstance(its, ModuleType) else type(its).__module__
        return home in ("posix", "io", "_io") and function.__name__ not in READS

    point, ended = 0, False
    while not ended:
        point += 1
        folder = tmp_path / str(point)
        checkpoint.save_step(folder, 2, 1, {"a": torch.zeros(3)}, {"now": 1})
        child = os.fork()
        if not child:
            calls = 0

            def kill(frame, event, argument, point=point):
                nonlocal calls
                calls += event == "c_call" and changes_files(argument)
                if calls == point:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(kill)
            write(folder)
            os._exit(0)
        ended = os.waitpid(child, 0)[1] == 0
        for left in folder.glob(".*.writing-*/state.*"):
            left.write_bytes(left.read_bytes()[:-7])
        found = checkpoint.newest(folder)
        assert found.state["now"] == 2 if ended else found.state["now"] in (1, 2)
        assert found.problems == []
        write(folder)
        assert checkpoint.newest(folder).state["now"] == 2 and not list(folder.glob(".*"))
    assert point > 20


class TestWriting:
    def test_training_goes_on_meanwhile_and_the_end_waits(self, graph, tmp_path, monkeypatch):
        go_on, write, threads, steps = threading.Event(), checkpoint.save_step, set(), []

        def slow(*arguments):
            threads.add(threading.current_thread().name)
            assert go_on.wait(60)
            write(*arguments)

        def listen(event):
            steps.extend([event] if isinstance(event, Stepped) else [])
            if len(steps) == 3:  # of the second epoch, while the first one's checkpoint is held up
                assert not list(tmp_path.glob("step-*"))
                go_on.set()

        monkeypatch.setattr(checkpoint, "save_step", slow)
        result, events = run(graph, listen, epochs=2, evaluate_every=0, checkpoint=tmp_path)
        assert checkpoint.newest(tmp_path).state["progress"]["epoch"] == 2
        assert threads == {"weft-checkpoint_0"}
        assert not [one for one in threading.enumerate() if one.name.startswith("weft-checkpoint")]
        (cost,) = [text for text in told(events) if text.startswith("wrote ")]
        assert "2 checkpoints of" in cost and "training stopped for" in cost
        monkeypatch.undo()
        assert_same(result, run(graph, epochs=2, evaluate_every=0)[0])

    def test_a_failed_write_ends_the_run_at_the_next_step(self, graph, tmp_path, monkeypatch):
        steps, failed = [], threading.Event()

        def full(*_):
            failed.set()
            raise StorageError("no space left while writing it: free some, or choose another disk")

        def listen(event):
            steps.extend([event] if isinstance(event, Stepped) else [])
            if len(steps) == 3:
                assert failed.wait(60)

        monkeypatch.setattr(checkpoint, "save_step", full)
        with pytest.raises(StorageError, match="no space left"):
            run(graph, listen, epochs=3, evaluate_every=0, checkpoint=tmp_path)
        assert 3 <= len(steps) <= 4

    def test_the_last_write_may_fail_too(self, graph, tmp_path, monkeypatch):
        def full(*_):
            raise StorageError("no space left")

        monkeypatch.setattr(checkpoint, "save_step", full)
        with pytest.raises(StorageError, match="no space left"):
            run(graph, epochs=1, checkpoint=tmp_path)

    def test_an_evaluation_that_fails_costs_no_epoch(self, graph, tmp_path, monkeypatch):
        def full(*_):
            raise StorageError("400 GB of rows can't be put into /tmp")

        monkeypatch.setattr(trainer, "measure", full)
        with pytest.raises(StorageError, match="400 GB"):
            run(graph, epochs=2, checkpoint=tmp_path)
        monkeypatch.undo()
        result, events = run(graph, epochs=2, checkpoint=tmp_path, resume=True)
        assert {event.epoch for event in events if isinstance(event, Stepped)} == {1}  # the second one
        assert_same(result, run(graph, epochs=2)[0])

    def test_only_a_first_and_a_long_evaluation_have_one_before_them(self, graph, tmp_path, monkeypatch):
        def written():
            (cost,) = [text for text in told(run(graph, epochs=3, checkpoint=tmp_path)[1]) if text.startswith("wrote ")]
            shutil.rmtree(tmp_path)
            return cost.split(" of ")[0]

        assert written() == "wrote 4 checkpoints"
        monkeypatch.setattr(trainer, "_LONG", 0)
        assert written() == "wrote 6 checkpoints"

    def test_a_signal_in_an_epochs_last_step_does_not_wait_for_the_evaluation(self, graph, tmp_path, monkeypatch):
        def listen(event):
            if isinstance(event, Stepped) and event.batch == 2:
                signal.raise_signal(signal.SIGUSR1)

        monkeypatch.setattr(trainer, "measure", lambda *_: pytest.fail("it evaluates"))
        with pytest.raises(Interrupted, match="stopped after epoch 1, batch 2 of 2"):
            run(graph, listen, epochs=2, checkpoint=tmp_path)
        monkeypatch.undo()
        result, events = run(graph, epochs=2, checkpoint=tmp_path, resume=True)
        assert any(text.endswith("step-000000002 (epoch 1, its evaluation)") for text in told(events))
        assert_same(run(graph, epochs=2)[0], result)

    def test_ctrl_c_in_the_last_evaluation_ends_what_goes_on_behind_the_run(self, graph, tmp_path, monkeypatch):
        begun, measure = [], trainer.measure

        def measured(*given):
            begun.append(given)
            if len(begun) == 2:
                signal.raise_signal(signal.SIGINT)
            return measure(*given)

        monkeypatch.setattr(trainer, "measure", measured)
        with pytest.raises(Interrupted, match="stopped after epoch 2; go on with --resume"):
            run(graph, epochs=2, checkpoint=tmp_path)
        monkeypatch.undo()
        assert_same(run(graph, epochs=2)[0], run(graph, epochs=2, checkpoint=tmp_path, resume=True)[0])


def test_other_threads_are_told_of(graph, tmp_path):
    """By default they are the machine's, and torch divides some sums by them, such as those of LayerNorm."""
    run(graph, checkpoint=tmp_path, epochs=1, threads=2)
    for threads in (2, 1):
        _, events = run(graph, checkpoint=tmp_path, resume=True, epochs=2, threads=threads)
        lines = [line for line in told(events) if "was computed with threads = 2, now it is 1: some of torch's" in line]
        assert len(lines) == (threads == 1)


LONGER = [
    {},
    {"evaluate_every": 3},  # the fourth epoch is evaluated only where it is the last one
    {"evaluate_every": 0},
    {"evaluate_every": 3, "patience": 1, "lr": 0.2},
    {"patience": 2, "lr": 0.2},
    {"optimizer": "sgd", "clip_norm": 0.5, "warmup": 5.0, "norm": "batch"},
    {"full_graph": True, "fanouts": None, "batch_size": None},
    {"sampler": "labor", "evaluation": "exact"},
]


class TestLonger:
    @pytest.mark.parametrize("given", some(LONGER, *LONGER[2:6]), ids=str)
    def test_ten_epochs_are_four_and_then_six(self, graph, tmp_path, given):
        given = given | {"checkpoint": tmp_path / "cut"}
        whole, _ = run(graph, epochs=10, **given | {"checkpoint": tmp_path / "whole"})
        four, _ = run(graph, epochs=4, **given)
        assert_same(four, run(graph, epochs=4, **given, resume=True)[0])
        longer, _ = run(graph, epochs=10, **given, resume=True)
        assert_same(whole, longer)
        states = [checkpoint.newest(tmp_path / name) for name in ("whole", "cut")]
        assert all(torch.equal(tensor, states[1].tensors[name]) for name, tensor in states[0].tensors.items())
        assert states[0].state["progress"] == states[1].state["progress"]
        best = [checkpoint.load(tmp_path / name / "best")[1]["epoch"] for name in ("whole", "cut")]
        assert best[0] == best[1]

    def test_an_interrupted_run_too(self, graph, tmp_path):
        whole, _ = run(graph, epochs=5)
        run_to_step(graph, 5, epochs=3, checkpoint=tmp_path, checkpoint_every=1)
        assert_same(whole, run(graph, epochs=5, checkpoint=tmp_path, resume=True)[0])

    def test_a_run_that_patience_ended_goes_on_with_more(self, graph, tmp_path):
        given = {"epochs": 10, "lr": 0.5, "seed": 3}
        whole, _ = run(graph, **given, patience=4)
        short, _ = run(graph, **given, patience=1, checkpoint=tmp_path)
        assert len(short.history) < len(whole.history)
        still, events = run(graph, **given | {"epochs": 12}, patience=1, checkpoint=tmp_path, resume=True)
        assert_same(short, still)
        assert any("patience ended it: give more" in text for text in told(events))
        assert_same(whole, run(graph, **given, patience=4, checkpoint=tmp_path, resume=True)[0])
        with pytest.raises(
            TrainingError, match="with patience = 1 the run would have stopped before the checkpoint step-"
        ):
            run(graph, **given, patience=1, checkpoint=tmp_path, resume=True)

    def test_evaluations_may_be_fewer_but_for_patience(self, graph, tmp_path):
        run(graph, epochs=2, checkpoint=tmp_path)
        result, _ = run(graph, epochs=6, checkpoint=tmp_path, resume=True, evaluate_every=3)
        assert [one["epoch"] for one in result.history if one["validation"] is not None] == [0, 1, 2, 5]
        with pytest.raises(TrainingError, match="was not evaluated every 3 epochs, which patience would count"):
            run(graph, epochs=6, checkpoint=tmp_path, resume=True, evaluate_every=3, patience=4)

    @pytest.mark.parametrize(
        ("first", "then", "match"),
        [
            ({}, {"epochs": 1}, "is in epoch 2 already, beyond epochs = 1: set epochs to 2 or more"),
            ({"schedule": "cosine"}, {"epochs": 4}, r"other settings: epochs = 2 \(now 4\)"),
            ({"schedule": "linear"}, {"epochs": 4}, r"epochs where schedule is constant"),
            ({"patience": 9}, {"evaluate_every": 2, "patience": 9}, r"other settings: evaluate_every = 1 \(now 2\)"),
            (
                {},
                {"lr": 0.5},
                r"lr = 0.02 \(now 0.5\); use the same, or another folder \(what may change: batch_size if ",
            ),
        ],
    )
    def test_what_would_have_been_otherwise_is_refused(self, graph, tmp_path, first, then, match):
        run(graph, epochs=2, **first, checkpoint=tmp_path)
        with pytest.raises(TrainingError, match=match):
            run(graph, **{"epochs": 2} | first | then, checkpoint=tmp_path, resume=True)

    @pytest.mark.parametrize(
        ("then", "now", "loss", "said"),
        [
            ({"aggr": "max"}, {"aggr": "max"}, None, None),
            ({}, {"aggr": "max"}, None, "aggr=mean) (now convs.0: SAGEConv(6, 8, aggr=max))"),
            ({}, {"act": "elu"}, None, "act: ReLU() (now act: ELU(alpha=1.0))"),
            ({}, {}, torch.nn.CrossEntropyLoss(reduction="none"), "VertexObjective (now learned: CrossEntropyLoss())"),
        ],
    )
    def test_a_model_or_a_loss_that_reads_otherwise_is_told(self, graph, tmp_path, then, now, loss, said):
        events, settings = [], Settings.of(**USUAL, epochs=1, checkpoint=tmp_path)
        models = [GraphSAGE(graph.num_features, 8, 2, graph.num_classes, **of) for of in (then, now)]
        Trainer(graph, models[0], settings).fit()
        objective = None if loss is None else set_up(LossObjective(loss), graph, settings)
        again = settings.changed(epochs=2, resume=True)
        Trainer(graph, models[1], again, events.append, objective=objective).fit()
        lines = [line for line in told(events) if "is of another model or loss" in line]
        assert len(lines) == (said is not None) and all(said in line for line in lines)

    @pytest.mark.parametrize(
        ("then", "now", "said"),
        [
            (Smoothed(0.1), Smoothed(0.9), "learned: Smoothed(share=0.1) (now learned: Smoothed(share=0.9))"),
            (partial(focal, power=1), partial(focal, power=2), "learned: focal(power=1) (now learned: focal(power=2))"),
            (Smoothed(0.1), Smoothed(np.float64(0.1)), None),
        ],
    )
    def test_so_is_what_an_objective_or_a_loss_was_made_with(self, graph, tmp_path, then, now, said):
        events = []
        for epochs, one in enumerate((then, now), 1):
            settings = Settings.of(**USUAL, epochs=epochs, checkpoint=tmp_path, resume=epochs > 1)
            objective = set_up(one if isinstance(one, Smoothed) else LossObjective(one), graph, settings)
            Trainer(graph, make_model(settings, graph), settings, events.append, objective=objective).fit()
        lines = [line for line in told(events) if "is of another model or loss" in line]
        assert len(lines) == (said is not None) and all(said in line for line in lines)

    def test_so_is_code_that_was_edited(self, graph, tmp_path, capsys):
        file, events = tmp_path / "net.py", []
        own = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}
        settings = Settings.of(**own, model=f"{file}:Net", epochs=1, checkpoint=tmp_path / "kept")
        for epochs, act in enumerate(("relu", "relu", "tanh"), 1):
            file.write_text(NET.format(act=act))
            linecache.checkcache(str(file))
            again = settings.changed(epochs=epochs, resume=epochs > 1)
            model = make_model(again, graph)
            Trainer(graph, model, again, events.append).fit()
            lines = [line for line in told(events) if "the code of Net was edited since the checkpoint" in line]
            assert len(lines) == (act == "tanh")
        save_model(tmp_path / "out", model, settings, graph)
        embed = ["embed", str(graph.path), "--model", str(tmp_path / "out"), "--overwrite", "--out"]
        for act in ("tanh", "relu"):
            file.write_text(NET.format(act=act))
            linecache.checkcache(str(file))
            assert main([*embed, str(tmp_path / "rows.npy")]) == 0
            said = f"the code of Net was edited since {tmp_path}/out was saved"
            assert (said in capsys.readouterr().out) == (act == "relu")

    def test_rows_that_travelled_in_another_precision(self, graph, tmp_path):
        two = partial(run, graph, plan="gdp", batch_size=30, checkpoint=tmp_path)
        simulate(2, lambda world: two(world=world, epochs=1))
        newest = max(tmp_path.glob("step-*"))
        tensors, state = checkpoint.load(newest)
        checkpoint.save(newest, tensors, state | {"wire": "float16"})
        with pytest.raises(
            TrainingError, match="whose rows travelled as float16, now they are to as float32: set wire"
        ):
            simulate(2, lambda world: two(world=world, epochs=2, resume=True))

    @pytest.mark.parametrize("alone", ["float16", "float32"])
    def test_but_one_worker_goes_on_where_several_had_rows_travel_and_several_after_it(self, graph, tmp_path, alone):
        two = partial(run, graph, plan="gdp", batch_size=30, checkpoint=tmp_path)
        simulate(2, lambda world: two(world=world, epochs=1, wire="float16"), hosts=[0, 1])
        result, _ = run(graph, epochs=2, plan="gdp", wire=alone, checkpoint=tmp_path, resume=True)
        assert len(result.history) == 2
        with pytest.raises(TrainingError, match=r"wire = float16 \(now float32\)"):
            simulate(2, lambda world: two(world=world, epochs=3, resume=True))
        (result, _), _ = simulate(
            2, lambda world: two(world=world, epochs=3, wire="float16", resume=True), hosts=[0, 1]
        )
        assert len(result.history) == 3

    def test_what_changes_no_model_may_change(self, graph, tmp_path):
        whole, _ = run(graph, epochs=3)
        run(graph, epochs=1, checkpoint=tmp_path / "a", checkpoint_every=1)
        (tmp_path / "a").rename(tmp_path / "b")
        other = {
            "threads": 2,
            "loaders": 2,
            "prefetch": 1,
            "micro_batches": 1,
            "timeout": 9.0,
            "keep": 1,
            "log": "json",
        }
        assert_same(whole, run(graph, epochs=3, **other, checkpoint=tmp_path / "b", resume=True)[0])


class Warming(nn.Module):
    """Counts its steps in attributes, by which it is another model."""

    def __init__(self):
        super().__init__()
        self.inner, self._step, self.heat = GraphSAGE(6, 8, 2, 4), 0, 2.0

    def forward(self, x, edge_index):
        if self.training:
            self._step += 1
            self.heat *= 0.9
        return self.inner(x / self.heat, edge_index) * (1 + self._step / 10)


def test_steps_that_a_model_counts_go_on_where_they_were(graph, tmp_path):
    def fit(**given):
        told = Settings.of(**{key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}, **given)
        with seeded(1):
            model = Warming()
        Trainer(graph, model, told).fit()
        return model

    whole = fit(epochs=3)
    fit(epochs=1, checkpoint=tmp_path, checkpoint_every=1)
    last = fit(epochs=3, checkpoint=tmp_path, resume=True)
    assert (last._step, last.heat) == (whole._step, whole.heat) and last._step == 6
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), last.parameters(), strict=True))
    tensors, state = checkpoint.load(tmp_path / "step-000000006")
    assert state["attributes"] == [["", "_step", 6], ["", "heat", whole.heat]]
    for wrong in (["", "forward", 1], ["gone", "a", 1], ["", "heat", [1]]):
        checkpoint.save(tmp_path / "step-000000006", tensors, state | {"attributes": [wrong]})
        with pytest.raises(TrainingError, match=f"step-000000006 .*{wrong[1]}"):
            fit(epochs=4, checkpoint=tmp_path, resume=True)


class Keeping(nn.Module):
    """As people write them: numbers of numpy's, one that ends as None, tensors that no state_dict has, or late, a list."""

    def __init__(self, listed=False):
        super().__init__()
        self.inner = GraphSAGE(6, 8, 2, 4)
        self.count, self.left, self.scale, self.seen = np.int64(0), 3, torch.tensor(1.0), [] if listed else None
        self.register_buffer("shift", torch.zeros(()), persistent=False)
        self.late = None

    def forward(self, x, edge_index):
        if self.training:
            self.late = x.new_zeros(()) if self.late is None else self.late + 0.1
            self.count, self.shift = self.count + 1, self.shift + 0.1
            self.scale.mul_(0.9)
            self.left = self.left and (self.left - 1 or None)
            if self.seen is not None:
                self.seen.append(1)
        x = x * self.scale + self.shift + (0 if self.late is None else self.late)
        return self.inner(x, edge_index) * (1 + float(self.count) / 10) + (self.left or 0)


class Smoothing(nn.Module):
    """A loss that changes: a number, and a buffer."""

    def __init__(self):
        super().__init__()
        self.smoothing = 0.5
        self.register_buffer("weight", torch.ones(4))

    def forward(self, rows, labels):
        self.smoothing *= 0.9
        self.weight[0] *= 0.9
        smoothed = {"label_smoothing": self.smoothing, "weight": self.weight}
        return nn.functional.cross_entropy(rows, labels, reduction="none", **smoothed)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_model_and_its_loss_keep_goes_on_where_it_was(graph, tmp_path, dtype):
    def fit(**given):
        usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}
        with seeded(1):
            model = Keeping()
        return weft.train(graph, model, loss=Smoothing(), dtype=dtype, **usual, **given)

    whole = fit(epochs=3)
    fit(epochs=1, checkpoint=tmp_path)
    last = fit(epochs=3, checkpoint=tmp_path, resume=True)
    assert_same(whole, last)
    assert last.model.count == whole.model.count == 6 and type(last.model.count) is np.int64
    assert last.model.left is None and torch.equal(last.model.shift, whole.model.shift)
    assert torch.equal(last.model.late, whole.model.late)


class Peaking(Keeping):
    """Gets worse after some epochs, by what no state_dict has."""

    def forward(self, x, edge_index):
        rows = super().forward(x, edge_index)
        return rows + max(0.0, float(self.late or 0.0) - 0.55) * 1e3 * torch.eye(4)[0]


@pytest.mark.parametrize("resumed", [False, True])
def test_the_best_epochs_model_is_what_it_kept_then(graph, tmp_path, resumed):
    """Not only by its state_dict: numbers, and buffers that are not in it, too; also if it was before a checkpoint."""

    def fit(epochs, **given):
        usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}
        with seeded(1):
            model = Peaking()
        return weft.train(graph, model, epochs=epochs, evaluation="exact", checkpoint=tmp_path, **usual, **given)

    if resumed:
        fit(6)
    best = fit(8, resume=resumed)
    assert 0 < best.best_epoch < 6
    assert best.model.count == 2 * (best.best_epoch + 1)
    right = weft.infer(best.model, graph).outputs.argmax(1) == graph.labels
    for split, figure in (("validation", best.validation), ("test", best.test)):
        assert right[graph.seeds(split)].mean() == pytest.approx(figure)


class Counting(Keeping):
    """Counts in an array of numpy's; another one stays as it is."""

    def __init__(self):
        super().__init__()
        self.seen_of, self.never = np.zeros(3), np.full(3, np.nan)

    def forward(self, x, edge_index):
        self.seen_of += self.training
        return super().forward(x, edge_index)


class Varied(nn.Module):
    """Keeps a tuple, complex numbers, and which of its parameters are learned."""

    def __init__(self):
        super().__init__()
        self.inner, self.pair, self.turn, self.sizes = GraphSAGE(6, 8, 2, 4), (1.0, ("a", np.int64(0))), 1j, None

    def forward(self, x, edge_index):
        if self.training:
            factor, (name, steps) = self.pair
            self.pair, self.turn, self.sizes = (factor * 0.9, (name, steps + 1)), self.turn * 1j * 0.9, (len(x[0]),)
            if steps == 3:
                self.inner.convs[0].requires_grad_(False)
        return self.inner(x * self.pair[0], edge_index) + self.turn.real


def test_tuples_complex_numbers_and_what_is_frozen_go_on_where_they_were(graph, tmp_path):
    usual, said = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}, []

    def fit(**given):
        with seeded(1):
            model = Varied()
        return weft.train(graph, model, **usual, **given, listen=lambda event: said.append(getattr(event, "text", "")))

    whole = fit(epochs=4)
    fit(epochs=2, checkpoint=tmp_path)
    last = fit(epochs=4, checkpoint=tmp_path, resume=True)
    assert_same(whole, last)
    assert last.model.pair == whole.model.pair and type(last.model.pair[1][1]) is np.int64
    assert (last.model.turn, last.model.sizes) == (whole.model.turn, (6,))
    assert not any(parameter.requires_grad for parameter in last.model.inner.convs[0].parameters())
    assert not any("checkpoints are without" in text for text in said)
    tensors, state = checkpoint.load(tmp_path / "step-000000004")
    assert ["inner.convs.0.lin_l", "weight.requires_grad", False] in state["attributes"]
    for wrong in (["inner", "a.requires_grad", True], ["", "pair", {"list": [1]}], ["", "turn", {"complex": ["a"]}]):
        checkpoint.save(tmp_path / "step-000000008", tensors, state | {"attributes": [wrong]})
        with pytest.raises(TrainingError, match=f"step-000000008 .*{wrong[1]}"):
            fit(epochs=5, checkpoint=tmp_path, resume=True)


def test_checkpoints_of_a_model_that_goes_on_itself_have_what_has_settled_before(graph, tmp_path):
    """As in a notebook: what training changes no more differs from what a model is built with, not from that one's."""
    usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}

    def built():
        with seeded(1):
            return Varied()

    whole, same = weft.train(graph, built(), **usual, epochs=6), built()
    for epochs in (4, 5):
        weft.train(graph, same, **usual, epochs=epochs, checkpoint=tmp_path, resume=epochs > 4)
        assert not any(parameter.requires_grad for parameter in same.inner.convs[0].parameters())
    last = weft.train(graph, built(), **usual, epochs=6, checkpoint=tmp_path, resume=True)
    assert_same(whole, last)
    assert not any(parameter.requires_grad for parameter in last.model.inner.convs[0].parameters())


class Warmth:
    """A helper that is no module, with another one that knows it."""

    def __init__(self):
        self.steps, self.inner = 0, None

    def step(self):
        self.steps, self.inner.heat = self.steps + 1, self.inner.heat * 0.9
        return self.inner.heat


class Inner:
    __slots__ = "heat", "outer"

    def __init__(self, outer):
        self.outer, self.heat = outer, torch.tensor(2.0)


class Helped(nn.Module):
    """From its 4th step on another model, by what a helper keeps, of which it has a method alone."""

    def __init__(self):
        super().__init__()
        warmth = Warmth()
        warmth.inner = Inner(warmth)
        self.inner, self.step, self.listed = GraphSAGE(6, 8, 2, 4), warmth.step, [warmth]

    def forward(self, x, edge_index):
        factor = self.step() if self.training else self.listed[0].inner.heat
        return self.inner(x * factor if self.listed[0].steps > 3 else x, edge_index)


class ByHelper:
    """A loss that changes by what a helper's helper keeps."""

    def __init__(self):
        self.warmth = Warmth()
        self.warmth.inner = Inner(None)

    def __call__(self, rows, labels):
        return self.warmth.step() * nn.functional.cross_entropy(rows, labels, reduction="none")


def test_what_helpers_keep_goes_on_where_it_was(graph, tmp_path):
    usual, said = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}, []

    def fit(**given):
        with seeded(1):
            model = Helped()
        listen = {"listen": lambda event: said.append(getattr(event, "text", ""))}
        return weft.train(graph, model, loss=ByHelper(), **usual, **given, **listen)

    whole = fit(epochs=4)
    fit(epochs=1, checkpoint=tmp_path)
    assert_same(whole, fit(epochs=4, checkpoint=tmp_path, resume=True))
    assert whole.model.listed[0].steps == 8
    assert not any("checkpoints are without" in text for text in said)


class Drawing(nn.Module):
    """Draws by a generator of its own, once a forward."""

    def __init__(self, make):
        super().__init__()
        self.inner, self.helper = GraphSAGE(6, 8, 2, 4), make()

    def forward(self, x, edge_index):
        draw = self.helper.random if hasattr(self.helper, "random") else lambda: torch.rand((), generator=self.helper)
        return self.inner(x * (0.5 + float(draw())) if self.training else x, edge_index)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.default_rng(3),
        lambda: np.random.RandomState(3),
        lambda: torch.Generator().manual_seed(3),
        lambda: random.Random(3),
    ],
    ids=["numpy", "numpy's old one", "torch", "Python"],
)
def test_generators_of_its_own_go_on_where_they_were(graph, tmp_path, make):
    usual, said = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}, []

    def fit(**given):
        with seeded(1):
            model = Drawing(make)
        return weft.train(graph, model, **usual, **given, listen=lambda event: said.append(getattr(event, "text", "")))

    whole = fit(epochs=3)
    fit(epochs=1, checkpoint=tmp_path)
    assert_same(whole, fit(epochs=3, checkpoint=tmp_path, resume=True))
    assert not any("checkpoints are without" in text for text in said)
    _, state = checkpoint.load(tmp_path / "step-000000002")
    assert [name for _, name, _ in state["attributes"]] == ["helper"]


class Plain(weft.VertexObjective):
    """An objective of the user's own, which keeps nothing but what Weft's does: the graph, which looks things up."""

    name, help = "plain", "keeps nothing"


def test_what_weft_looks_up_for_an_objective_is_no_state_that_checkpoints_lack(graph, tmp_path):
    said, usual = [], {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}
    listen = {"listen": lambda event: said.append(getattr(event, "text", ""))}
    fresh = weft.Graph.open(graph.path)
    weft.train(fresh, GraphSAGE(6, 8, 2, 4), objective=Plain(), **usual, epochs=2, checkpoint=tmp_path, **listen)
    assert said and not any("checkpoints are without" in text for text in said)


class Delayed(nn.Module):
    """Has a buffer that its first forward makes."""

    def __init__(self):
        super().__init__()
        self.inner = GraphSAGE(6, 8, 2, 4)
        self.register_buffer("scale", None)

    def forward(self, x, edge_index):
        if self.scale is None:
            self.scale = torch.full((6,), 1.5)
        if self.training:
            self.scale = self.scale * 0.9
        return self.inner(x * self.scale, edge_index)


def test_a_buffer_that_a_forward_makes_goes_on_where_it_was(graph, tmp_path):
    usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}

    def fit(**given):
        with seeded(1):
            model = Delayed()
        return weft.train(graph, model, **usual, **given)

    whole = fit(epochs=4)
    fit(epochs=2, checkpoint=tmp_path)
    last = fit(epochs=4, checkpoint=tmp_path, resume=True)
    assert_same(whole, last)
    assert torch.equal(last.model.scale, whole.model.scale)


class Fourier(nn.Module):
    """Random features that stay as they are, as people write them."""

    def __init__(self, kind, power=0.5):
        super().__init__()
        table = torch.randn(6, 8)
        self.kind, self.power, self.started = kind, power, f"by {id(self)}"
        self.rate = float(table[0, 0]) if kind == "rate" else 0.0
        if kind == "hidden":
            self.register_buffer("table", table, persistent=False)
        else:
            self.table = {"tensor": table, "array": table.numpy(), "list": [table]}.get(kind, torch.eye(6, 8))
        self.inner = GraphSAGE(8, 8, 2, 4)
        self.known = [self.inner, *self.inner.parameters(), self.inner.convs[0].lin_l.weight.detach().T]

    def forward(self, x, edge_index):
        table = self.table[0] if self.kind == "list" else torch.as_tensor(self.table)
        return self.inner((x @ table + self.rate).sin() ** (2 * self.power), edge_index)


def resumed(graph, folder, then, now, seed, loss=None):
    """A whole run, one that was resumed by a process whose random numbers are others, and what it was told."""
    said, usual = [], {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}

    def fit(make, seed, **given):
        with seeded(seed):
            model = make()
            more = {} if loss is None else {"loss": loss()}
        listen = {"listen": lambda event: said.append(event.text) if isinstance(event, Notice) else None}
        return weft.train(graph, model, **usual, **more, **given, **listen)

    whole = fit(then, 1, epochs=4)
    fit(then, 1, epochs=2, checkpoint=folder)
    said.clear()
    return (
        whole,
        fit(now, seed, epochs=4, checkpoint=folder, resume=True),
        [text for text in said if "built with" in text],
    )


@pytest.mark.parametrize("kind", ["tensor", "hidden"])
def test_tensors_that_a_model_was_built_with_are_the_checkpoints(graph, tmp_path, kind):
    whole, last, said = resumed(graph, tmp_path, partial(Fourier, kind), partial(Fourier, kind), seed=2)
    assert_same(whole, last)
    assert torch.equal(whole.model.table, last.model.table)
    (text,) = said
    assert (
        text
        == "table of the model: built with other numbers than in the checkpoint step-000000004, whose it goes on with"
    )


@pytest.mark.parametrize(
    ("kind", "named"),
    [("array", "table of the model"), ("list", "table of the model"), ("rate", "rate of the model = ")],
)
def test_other_numbers_that_a_model_was_built_with_are_told(graph, tmp_path, kind, named):
    _, _, said = resumed(graph, tmp_path, partial(Fourier, kind), partial(Fourier, kind), seed=2)
    (text,) = said
    assert text.startswith(
        f"the checkpoint step-000000004 is of a model or a loss that was built with other numbers: {named}"
    )


def test_numbers_that_a_model_is_given_otherwise_are_told_and_taken(graph, tmp_path):
    make, now = partial(Fourier, "tensor", power=1), partial(Fourier, "tensor", power=2)
    _, last, (text,) = resumed(graph, tmp_path, make, now, seed=1)
    assert last.model.power == 2 and "built with other numbers: power of the model = 1 (now 2): it goes on" in text


def test_so_are_a_losss_tensors(graph, tmp_path):
    make = partial(Fourier, "tensor")
    _, _, (text,) = resumed(graph, tmp_path, make, make, seed=1, loss=lambda: Weighing())
    assert "built with other numbers: weight of the objective's loss: it goes on" in text


class Weighing:
    """A loss with weights of classes that are drawn anew each time."""

    def __init__(self):
        self.weight = torch.from_numpy(np.random.default_rng().random(4, np.float32))

    def __call__(self, rows, labels):
        return nn.functional.cross_entropy(rows, labels, self.weight, reduction="none")


@pytest.mark.parametrize("kind", ["tensor", "hidden", "array", "list", "rate"])
def test_of_a_model_that_was_built_alike_nothing_is_told(graph, tmp_path, kind):
    whole, last, said = resumed(graph, tmp_path, partial(Fourier, kind), partial(Fourier, kind, power=0.5), seed=1)
    assert_same(whole, last)
    assert said == []


def test_nor_is_what_a_process_has_of_its_own(graph, tmp_path):
    """Words, and lists of parameters, which are the checkpoint's by then."""
    _, _, said = resumed(graph, tmp_path, partial(Fourier, "none"), partial(Fourier, "none"), seed=2)
    assert said == []


def test_the_best_model_of_before_a_checkpoint_has_what_it_was_built_with(graph, tmp_path):
    usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout", "lr")}

    def fit(seed, epochs, **given):
        with seeded(seed):
            model = Fourier("tensor")
        return weft.train(
            graph, model, epochs=epochs, lr=0.5, evaluation="exact", checkpoint=tmp_path, **usual, **given
        )

    then = fit(1, 6)
    best = fit(2, 6, resume=True)
    assert best.best_epoch < 5 and torch.equal(best.model.table, then.model.table)
    assert (weft.infer(best.model, graph).outputs == weft.infer(then.model, graph).outputs).all()


class Replaced(Varied):
    """Keeps what is made anew in each step, and what is made late: no numbers."""

    def forward(self, x, edge_index):
        if self.training:
            self.act, self.made = (lambda rows: rows), [*getattr(self, "made", ()), 1]
        return super().forward(x, edge_index)


@pytest.mark.parametrize(
    ("make", "seen"),
    [(lambda: Keeping(listed=True), "seen"), (Counting, "seen_of"), (Replaced, "act of the model, made")],
)
def test_what_checkpoints_are_without_is_told_once(graph, tmp_path, make, seen):
    usual, events = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}, []
    chosen = Settings.of(epochs=2, checkpoint=tmp_path, **usual)
    Trainer(graph, make(), chosen, events.append).fit()
    (text,) = (text for text in told(events) if "without" in text)
    assert text.startswith(f"checkpoints are without {seen} of the model, which training changes")


def test_the_best_epochs_model_has_the_lists_of_then(graph):
    """They are not saved, and are in memory."""

    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.seen = GraphSAGE(6, 8, 2, 4), {"steps": [0]}

        def forward(self, x, edge_index):
            self.seen["steps"][0] += self.training
            return self.inner(x, edge_index) + max(0, self.seen["steps"][0] - 8) * 1e3 * torch.eye(4)[0]

    usual = {key: value for key, value in USUAL.items() if key not in ("hidden", "dropout")}
    best = weft.train(graph, Lists(), epochs=8, evaluation="exact", **usual)
    assert best.model.seen == {"steps": [2 * (best.best_epoch + 1)]} and 0 < best.best_epoch < 6


def test_extra_state_that_is_no_tensor_is_refused(graph):
    class Extra(Warming):
        def get_extra_state(self):
            return {"steps": self._step}

    with pytest.raises(ModelError, match="the model: its get_extra_state gives a dict"):
        weft.train(graph, Extra(), fanouts=(3, 3))


def test_a_long_history_costs_training_nothing(tmp_path):
    """What is written is of the moment, the last epoch too; and takes little more memory than the text."""
    past = [{"epoch": n, "loss": 1 / (n + 3), "validation": None, "figures": {}} for n in range(8000)]
    progress = Progress(epoch=len(past), history=past)
    state = progress.as_dict()
    past[-1] |= {"validation": 0.5}
    past.append({"epoch": 8000, "loss": 0.1, "validation": None, "figures": {}})
    assert Progress.read(state) == Progress(epoch=8000, history=[*past[:7999], past[7999] | {"validation": None}])
    assert all(kept is epoch for kept, epoch in zip(state["history"][:-1], past, strict=False))
    tracemalloc.start()
    checkpoint.save(tmp_path / "kept", {"a": torch.zeros(3)}, {"progress": state})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (tmp_path / "kept" / "state.json").stat().st_size
    assert checkpoint.load(tmp_path / "kept")[1]["progress"] == state


def test_a_checkpoint_is_no_trained_model(graph, tmp_path):
    run(graph, checkpoint=tmp_path / "kept", epochs=1)
    for folder in (tmp_path / "kept").glob("[!.]*"):
        with pytest.raises(StorageError, match="is a checkpoint and no trained model: name what"):
            load_model(folder, graph)


def test_a_damaged_trained_model_is_no_checkpoint_to_resume(graph, tmp_path):
    settings = Settings.of(**USUAL)
    save_model(tmp_path / "out", make_model(settings, graph), settings, graph)
    file = tmp_path / "out" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        TrainingError, match=r"^the trained model .*out is damaged \(.*\): train it again, or take a copy$"
    ):
        load_model(tmp_path / "out", graph)


def test_two_runs_do_not_write_to_one_folder(graph, tmp_path):
    refused = []

    def another(event):
        if isinstance(event, Stepped) and not refused:
            with pytest.raises(
                TrainingError, match=r"another run writes its checkpoints to .*kept: choose another folder"
            ):
                run(graph, checkpoint=tmp_path / "kept", epochs=1, seed=7)
            refused.append(True)

    first, _ = run(graph, another, checkpoint=tmp_path / "kept", epochs=2)
    assert refused
    longer, _ = run(graph, checkpoint=tmp_path / "kept", resume=True, epochs=3)  # it has ended
    assert longer.history[:2] == first.history


def test_a_folder_is_claimed_by_a_file_which_network_file_systems_lock_for_all_hosts(tmp_path):
    file, alone = checkpoint.claimed(tmp_path / "kept")
    (lock,) = (tmp_path / "kept").iterdir()
    other = os.open(lock, os.O_RDWR)
    assert alone and os.path.sameopenfile(file, other)
    for number in (file, other):
        os.write(number, b"")  # it may be written to, or NFS gives no lock
        os.close(number)


def test_a_claim_from_elsewhere_is_waited_for_as_long_as_a_file_server_keeps_that_of_a_lost_host(tmp_path, monkeypatch):
    file, _ = checkpoint.claimed(tmp_path)
    os.pwrite(file, b"deadbeef", 0)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            os.close(file)

    monkeypatch.setattr(checkpoint.time, "sleep", wait)
    again, alone = checkpoint.claimed(tmp_path)
    assert alone and len(waits) == 3
    os.pwrite(again, b"deadbeef", 0)
    monkeypatch.setattr(checkpoint, "_LEASE", 0.0)
    with pytest.raises(TrainingError, match=r"another run writes .*\(if its host is gone for good, remove .*\.lock\)"):
        checkpoint.claimed(tmp_path)
    os.close(again)


def test_disks_may_be_slower_than_workers_wait(graph, ranks, tmp_path, monkeypatch):
    def train(world, folder, epochs, **more):
        given = {"plan": "gdp", "evaluate_every": 0, "checkpoint": folder, "epochs": epochs}
        settings = Settings.of(**USUAL, **given, **more)
        with seeded(Stream.INIT, 0):
            model = make_model(settings, graph)
        return Trainer(graph, model, settings, world=world).fit().history

    def slowed(usual, *given):
        time.sleep(2.6)
        return usual(*given)

    whole = ranks(2, train, tmp_path / "usual", 3)
    for name in ("save_step", "newest"):
        monkeypatch.setattr(checkpoint, name, partial(slowed, getattr(checkpoint, name)))
    ranks(2, train, tmp_path / "slow", 2, timeout=2.0)
    made, make = [], run_state.load_tensors
    monkeypatch.setattr(run_state, "load_tensors", lambda data: made.append(len(data)) or make(data))
    resumed = ranks(2, partial(train, resume=True), tmp_path / "slow", 3, timeout=2.0)
    losses = [[epoch["loss"] for epoch in history] for history in (*whole, *resumed)]
    assert losses == [losses[0]] * 4
    assert len(made) == 1  # the first worker has what it has read


def test_where_there_are_no_locks_what_may_be_written_elsewhere_is_let_alone(graph, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / ".step-000000001.writing-1.deadbeef").mkdir()
    monkeypatch.setattr(checkpoint.fcntl, "flock", refuse)
    run(graph, checkpoint=tmp_path, epochs=1)
    assert (tmp_path / ".step-000000001.writing-1.deadbeef").exists()


def test_a_checkpoint_of_another_model_is_told_as_that(graph, tmp_path):
    def trained(*widths, epochs, **more):
        model = GraphSAGE(6, *widths)
        return weft.train(graph, model, fanouts=(3, 3), epochs=epochs, checkpoint=tmp_path / "kept", **more)

    trained(8, 2, 4, epochs=1)
    with pytest.raises(
        TrainingError, match=r"is of another model, with convs.0.lin_l.bias of shape \(8,\) \(now \(16,\)\)"
    ):
        trained(16, 2, 4, epochs=2, resume=True)
