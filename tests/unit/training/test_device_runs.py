"""Whole runs on the device that there is none of (tests/pretended.py): evaluation, checkpoints, links, turns, inference."""

import copy
import weakref
from types import SimpleNamespace

import numpy as np
import pretended
import pytest
import torch
from quick import some
from torch_geometric.nn.models import GraphSAGE

import weft
from weft import api, triton_kernels
from weft.cli import main
from weft.errors import ConfigError
from weft.features import DeviceStore
from weft.graph import communities
from weft.keys import Stream, seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Plan, Settings, gdp
from weft.training import EpochEnded, Trainer, loader, make_model, save_model, staging
from weft.training.modes import FullGraphMode
from weft.training.watch import Change

USUAL = {"dtype": "float64", "epochs": 2, "hidden": 8, "threads": 1, "fanouts": (3, 3), "batch_size": 40}
WHOLE = {"fanouts": None, "batch_size": None, "full_graph": True}
RUNS = {
    "exact evaluation": (1, {"evaluation": "exact"}),
    "clipped, in pieces": (1, {"micro_batches": 2, "clip_norm": 0.5, "optimizer": "sgd"}),
    "links": (1, {"task": "link", "decoder": "mlp"}),
    "links of two workers": (2, {"task": "link", "plan": "split"}),
    "links, exact": (2, {"task": "link", "plan": "snp", "evaluation": "exact"}),
    "models that migrate": (2, {"plan": "migrate", "norm": "batch"}),
    "pieces of two workers": (2, {"plan": "dnp", "micro_batches": 2, "cache": 0.3}),
    "a cache a host": (
        2,
        {"plan": "gdp", "micro_batches": 2, "cache": 0.3, "cache_per": "host", "evaluation": "exact"},
    ),
    "a cache a host, with turns": (2, {"plan": "migrate", "cache": 0.2, "cache_per": "host", "norm": "batch"}),
    "a cache a host, links": (2, {"task": "link", "plan": "leap", "cache": 0.2, "cache_per": "host", "prefetch": 0}),
    "decoupled": (2, {"model": "gcn", "plan": "tp-decoupled", **WHOLE}),
    "decoupled attention": (2, {"model": "gat", "heads": 2, "plan": "tp-decoupled", "dropout": 0.2, **WHOLE}),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    plain = communities(folder / "1", vertices=200, edges=1600, width=6, classes=4, train=0.4, seed=1)
    write_partitioned(plain, allocate(plain, 2, "random", seed=3), 2, folder / "2")
    return {parts: weft.Graph.open(folder / str(parts)) for parts in (1, 2)}


@pytest.fixture
def device(monkeypatch):
    with pretended.here() as device:
        yield device


def fit(world, graph, settings):
    """What a whole run finds, and the parameters in the end."""
    with seeded(Stream.INIT, 0):
        model = make_model(settings, graph)
    with pretended.here():
        result = Trainer(graph, model, settings, world=world).fit()
    found = [epoch["loss"] for epoch in result.history] + [epoch["validation"] for epoch in result.history]
    return [*found, result.test], [p.detach().cpu() for p in result.model.parameters()]


def same(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-9)
    for mine, theirs in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


# What the others have is in these, too: exact evaluation, models that migrate, and a decoupled one.
_QUICK = [case for case in RUNS if case not in ("exact evaluation", "models that migrate", "decoupled")]


@pytest.mark.parametrize("case", some(RUNS, *_QUICK))
def test_a_run_finds_what_it_finds_on_the_cpu(graphs, ranks, device, monkeypatch, case):
    workers, given = RUNS[case]
    given = USUAL | given
    given = {key: value for key, value in given.items() if value is not None}
    graph, settings = graphs[workers], Settings.of(**given)
    here = Settings.of(**{key: value for key, value in given.items() if key != "cache_per"})  # which is of devices
    wanted = ranks(workers, fit, graph, here)[0]
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    same(ranks(workers, fit, graph, settings)[0], wanted)


def test_a_device_alone_keeps_all_rows_where_it_has_room(graphs, device, monkeypatch):
    """And trains the same without them: where there is less room, or a cache or a plan was said."""
    graph = graphs[1]
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    size = graph.features.nbytes

    def told(free=4 * size, **given):
        monkeypatch.setattr("weft.training.modes.memory_of", lambda where: free)
        settings = Settings.of(**USUAL, **given)
        with seeded(Stream.INIT, 0):
            model = make_model(settings, graph)
        trainer = Trainer(graph, model, settings)
        loss, read, line = trainer.train_epoch(0)[1], dict(trainer.loader.read), trainer.run.describe()
        trainer.close()
        return loss, read, "all rows kept there" in line

    loss, read, said = told()
    assert said and read["cache"] > 0 and not read.get("own")
    for given in ({"free": 4 * size - 1}, {"cache": 0.0}, {"plan": "gdp"}):
        other, read, said = told(**given)
        assert (other, said, read.get("cache", 0)) == (loss, False, 0) and read["own"] > 0


class Changing:
    """A watch that changes plans once, within an epoch or after one."""

    def __init__(self, plan, within):
        self.left, self.within = [Change(plan, "another plan")], within

    def begins(self):
        pass

    def stepped(self, *given):
        return self.left.pop() if self.within and self.left else None

    def look(self, *given):
        return self.left.pop() if self.left else None


def test_an_epoch_is_told_by_the_plan_of_its_batches(graphs, ranks):
    """In the first one the plan changed; it does so behind the last batch of the second one again."""

    def work(world):
        settings, told = Settings.of(**USUAL | {"batch_size": 10, "epochs": 3}, plan="split"), []
        trainer = Trainer(graphs[2], make_model(settings, graphs[2]), settings, told.append, world)
        first, batches = trainer.parallel, []

        def stepped(*given):
            batches.append(given)
            return {2: Change(gdp(2), "another"), 8: Change(first, "the first")}.get(len(batches))

        trainer.watch = SimpleNamespace(begins=lambda: None, stepped=stepped, look=lambda *given: None)
        trainer.fit()
        assert len(batches) == 12
        ended = [event for event in told if isinstance(event, EpochEnded)]
        return [(event.plan, event.whole) for event in ended], str(gdp(2)), str(first)

    ended, other, first = ranks(2, work)[0]
    assert ended == [(other, False), (other, True), (first, True)]


@pytest.mark.parametrize("within", [True, False])
def test_a_plans_cache_goes_before_the_next_ones_is_made(graphs, device, monkeypatch, within):
    """Or a device would have to hold both."""
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    made, others, make = [], [], DeviceStore._empty_cache

    def recorded(store, rows):
        others.append([one() is not None for one in made])
        kept = make(store, rows)
        made.append(weakref.ref(kept))
        return kept

    monkeypatch.setattr(DeviceStore, "_empty_cache", recorded)
    settings = Settings.of(**USUAL, cache=0.4)
    trainer = Trainer(graphs[1], make_model(settings, graphs[1]), settings)
    held = trainer.loader.feed  # as a loop's batch may
    trainer.watch = Changing(Plan(("local", "local"), cache=0.2), within)
    trainer.fit()
    assert others == [[], [False]]
    assert held.store.fetch(torch.arange(5)).shape == (5, 6)


def test_the_whole_graph_of_a_plan_goes_before_the_next_ones_is_made(graphs, monkeypatch):
    made, others, make = [], [], FullGraphMode._feed

    def recorded(*given):
        others.append([one() is not None for one in made])
        feed = make(*given)
        made.append(weakref.ref(feed))
        return feed

    monkeypatch.setattr(FullGraphMode, "_feed", recorded)
    settings = Settings.of(**{name: of for name, of in (USUAL | WHOLE).items() if of is not None})
    trainer = Trainer(graphs[1], make_model(settings, graphs[1]), settings)
    trainer.watch = Changing(trainer.parallel, False)
    trainer.fit()
    assert others == [[], [False]]


def test_a_cache_a_host_is_refused_where_each_host_has_one_device(graphs, ranks, device, monkeypatch):
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    settings = Settings.of(**USUAL, plan="gdp", cache=0.3, cache_per="host", workers=2)
    with pytest.raises(
        ConfigError, match="cache_per means nothing to workers that have a host each: drop it, or start"
    ):
        ranks(2, fit, graphs[2], settings, hosts=[0, 1])


DRAWN = {  # where draws are asked for hop by hop, from the seeds on, of parts of the lists, with replacement, for links
    "one worker": (1, {"cache": 0.4, "prefetch": 0}),
    "split": (2, {"plan": "split", "cache": 0.3}),
    "lists in parts": (2, {"plan": "snp", "topology": "partitioned"}),
    "leap": (2, {"plan": "leap", "slack": 0.0, "replace": True}),
    "links of one": (1, {"task": "link", "loaders": 2}),
}


@pytest.mark.parametrize("case", some(DRAWN, "one worker", "lists in parts", "leap"))
def test_a_run_whose_neighbours_are_drawn_on_the_device(graphs, ranks, device, monkeypatch, case):
    """The same model as by draws of the CPU: whoever asks can't tell."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    workers, given = DRAWN[case]
    graph, settings = graphs[workers], Settings.of(**USUAL | {"fanouts": (4, 3)} | given)
    hops, sample = [], triton_kernels.sample
    wanted = ranks(workers, fit, graph, settings.changed(cache=0.0))[0]
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    pretended.interpret(monkeypatch)
    monkeypatch.setattr(triton_kernels, "sample", lambda *given: hops.append(len(given[2])) or sample(*given))
    same(ranks(workers, fit, graph, settings)[0], wanted)
    assert sum(hops) > 0
    drawn, hops[:] = len(hops), []
    same(ranks(workers, fit, graph, settings.changed(sample_on="cpu"))[0], wanted)
    assert drawn and not hops


def test_where_neighbours_are_drawn_is_told_or_refused(graphs, ranks, device, monkeypatch):
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    graph = graphs[1]

    def told(**given):
        settings = Settings.of(**USUAL | given)
        trainer = Trainer(graph, make_model(settings, graph), settings)
        trainer.close()
        return trainer.run.loader.mode.describe(trainer.parallel, [3, 3])[0]

    without = "fanouts 3,3, drawn on the CPU (there is no Triton for pretended:0)"
    assert told() == without
    with pytest.raises(
        ConfigError, match=r"sample_on = 'device' is not possible: there is no Triton for .*; set sample_on"
    ):
        told(sample_on="device")
    assert told(sampler="labor").endswith("drawn on the CPU (devices draw uniformly, not by sampler 'labor')")
    pretended.interpret(monkeypatch)
    assert told() == told(sample_on="device") == "fanouts 3,3, drawn on pretended:0"
    assert told(sample_on="cpu") == "fanouts 3,3, drawn on the CPU (as sample_on says)"
    many = r"unasked, devices draw up to 1,024 neighbours of a vertex, not 2,000"
    assert told(fanouts=(3, 2000)) == f"fanouts 3,3, drawn on the CPU ({many})"
    assert told(fanouts=(3, 2000), sample_on="device") == "fanouts 3,3, drawn on pretended:0"
    with pytest.raises(
        ConfigError, match=r"not possible: devices draw up to 1,048,576 neighbours of a vertex, not 2,000,0"
    ):
        told(fanouts=(3, 2_000_000), sample_on="device")
    monkeypatch.setattr(staging, "memory_of", lambda device: 15_999)  # 200 offsets of 8 bytes, 1,600 edges of 4
    full = r"the lists take 7.812 KiB, and half of the device's free memory is 7.812 KiB"
    assert told() == f"fanouts 3,3, drawn on the CPU ({full})"
    with pytest.raises(ConfigError, match=full):
        told(sample_on="device")


def test_a_run_goes_on_from_a_checkpoint_of_the_other(graphs, ranks, device, monkeypatch, tmp_path):
    graph, short = graphs[1], Settings.of(**USUAL | {"epochs": 1, "checkpoint": tmp_path / "kept"})
    whole = ranks(1, fit, graph, Settings.of(**USUAL | {"epochs": 3}))[0]
    for epochs, on in ((1, device), (2, torch.device("cpu")), (3, device)):
        monkeypatch.setattr(loader, "device_of", lambda wanted, world, on=on: on)
        found = ranks(1, fit, graph, short.changed(epochs=epochs, resume=epochs > 1))[0]
    same(found, whole)


@pytest.mark.parametrize(("what", "model"), [("embeddings", "sage"), ("predictions", "gat"), ("probabilities", "gcn")])
def test_embed_computes_on_the_device(graphs, device, monkeypatch, tmp_path, capsys, what, model):
    graph, asked = graphs[1], []
    settings = Settings.of(model=model, hidden=8, dtype="float64", fanouts=(3, 3))
    save_model(tmp_path / "model", make_model(settings, graph), settings, graph)

    def device_of(wanted, world):
        asked.append(wanted)
        return device if wanted == "cuda" else torch.device("cpu")

    monkeypatch.setattr(weft.training, "device_of", device_of)
    for wanted in ("cpu", "cuda"):
        arguments = [str(graph.path), "--model", str(tmp_path / "model"), "--out", str(tmp_path / f"{wanted}.npy")]
        assert main(["embed", *arguments, "--what", what, "--device", wanted]) == 0
    assert asked == ["cpu", "cuda"]
    assert "computed on pretended:0" in capsys.readouterr().out
    np.testing.assert_allclose(*(np.load(tmp_path / f"{name}.npy") for name in asked), rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_embed_refuses_a_device_that_is_not_there(capsys):
    assert main(["embed", "graph", "--model", "model", "--out", "rows.npy", "--device", "cuda"]) == 2
    assert "device 'cuda' is not here" in capsys.readouterr().err


class Elsewhere:
    """A launcher of workers that get copies, and have devices of their own; what travels may be read where there is none."""

    def call(self, request, work):
        given, self.told = work.args[2], lambda model: {one.device.type for one in model.parameters()}
        assert self.told(given) == {"cpu"}
        result, *besides = copy.deepcopy(work)({})
        assert self.told(result.model) == {"cpu"}
        return result, *besides


def test_a_model_travels_to_workers_and_back_by_host_memory(graphs, device, monkeypatch):
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    starts = iter([True, False])
    monkeypatch.setattr(api, "starts_workers", lambda *given: next(starts))
    monkeypatch.setattr(api, "LAUNCHERS", SimpleNamespace(get=lambda name: Elsewhere))
    model = GraphSAGE(6, 8, 2, 4).to(device)
    before = [parameter.detach().cpu() for parameter in model.parameters()]
    result = weft.train(graphs[1], model, fanouts=[3, 3], epochs=1, threads=1)
    assert result.model is model
    for was, now in zip(before, model.parameters(), strict=True):
        assert now.device == device and not torch.equal(was, now.detach().cpu())


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_inference_on_the_device(graphs, device, model):
    graph = graphs[1]
    settings = Settings.of(model=model, hidden=8)
    here = weft.infer(make_model(settings, graph), graph)
    there = weft.infer(make_model(settings, graph).to(device), graph)
    np.testing.assert_allclose(here.outputs, there.outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(here.embeddings, there.embeddings, rtol=1e-4, atol=1e-5)
