"""The planner of the full graph: slow links make it choose what sends least, and it says what it leaves out, and why."""

import json
from dataclasses import replace

import numpy as np
import pytest
from torch_geometric.nn import GATConv, GATv2Conv, SAGEConv

from weft.errors import ConfigError, ModelError
from weft.exchange import simulate
from weft.graph import Graph, HeteroFeatures, communities, rmat
from weft.nn import Met
from weft.nn.block_model import convolution_of
from weft.partition import allocate, write_partitioned
from weft.plan import Settings, tp
from weft.planner import KINDS, Cluster, Host, slice_bench, whole_graph
from weft.planner.loads import LayerCost
from weft.planner.slice_bench import sliced
from weft.planner.task import shared_out
from weft.report import answer_as_dict
from weft.training import WhatIf

WORK = dict.fromkeys(KINDS, 1e-9) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}


def cluster(bandwidth, memory=1e9, workers=3):
    return Cluster(tuple(Host(f"h{n + 1}", bandwidth, memory) for n in range(workers)), 1e-4, 1e-4, 1e9, WORK)


def what_if(graph, folder, method="metis", **given):
    write_partitioned(graph, allocate(graph, 3, method), 3, folder / "parts")
    settings = Settings.of(**{"full_graph": True, "hidden": 16, "layers": 3, "threads": 1, "epochs": 100} | given)
    return WhatIf(Graph.open(folder / "parts"), settings)


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    """A graph that falls into three parts, nearly."""
    folder = tmp_path_factory.mktemp("near")
    graph = communities(folder / "g", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    return what_if(graph, folder)


def sent(answer):
    return {p.name: sum(p.sent.values()) for p in answer.predictions}


def test_over_slow_links_what_sends_least_is_best(near, tmp_path):
    answer = near.answer(cluster(1e5))
    usable = {p.name: sum(p.sent.values()) for p in answer.predictions if p.excluded is None}
    assert usable[answer.best.name] == min(usable.values())
    assert answer.best.plan.layers[0] == "pull"
    tangled = rmat(tmp_path / "g", vertices=1024, edges=60_000, width=12, classes=5, train=0.4, skew=(0.25, 0.25, 0.25))
    far = what_if(tangled, tmp_path, "random").answer(cluster(1e5))
    assert sent(far)["tp"] < sent(far)["halo"]
    json.dumps(answer_as_dict(far))


def test_the_decoupled_model_is_told_but_not_chosen(near):
    answer = near.answer(cluster(1e6))
    told = {p.name: p for p in answer.predictions}
    assert "another model" in told["tp-decoupled"].excluded
    assert told["tp-decoupled"].seconds > 0
    assert sum(told["tp-decoupled"].sent.values()) < sum(told["tp"].sent.values())
    assert any("tp-decoupled would take" in said for said in answer.reasons)
    assert all(told[name].excluded is None for name in ("halo", "tp"))


@pytest.mark.parametrize(("model", "heads"), [("gcn", 0), ("gat", 4)])
def test_what_the_decoupled_model_sends_is_its_formula(near, model, heads):
    """Rows to slices and back, forward and backward, a head after the other; two numbers a vertex, layer and head to all."""
    graph, settings = near._graph, near._settings.changed(model=model, plan="tp-decoupled")
    told = {p.name: p for p in WhatIf(graph, settings).answer(cluster(1e6)).predictions}
    assert told["tp-decoupled"].excluded is None and "decoupled" in told["tp"].excluded
    rows = graph.num_vertices * 2 / 3 * 4 * graph.num_classes * max(heads, 1)
    assert told["tp-decoupled"].sent["exchange"] == pytest.approx(
        4 * (rows + 2 * 2 * 2 * graph.num_vertices * 3 * heads)
    )


def test_long_runs_compute_near_halos_again(near):
    planner = near.planner(cluster(1e5), 1)
    halo = planner.space.named["halo"]
    plain, again = (planner.predict(replace(halo, replicate=way), cluster(1e5)) for way in (False, True))
    assert sum(again.sent.values()) < sum(plain.sent.values())
    assert again.memory > plain.memory


@pytest.mark.parametrize("given", [{"replicate": False}, {"topology": "partitioned"}])
def test_halos_that_are_not_computed_again_are_not_counted(near, monkeypatch, given):
    """It is several passes over the graph."""
    counted, count = [], whole_graph.count_graph
    monkeypatch.setattr(whole_graph, "count_graph", lambda *rest: counted.append(rest[-1]) or count(*rest))
    WhatIf(near._graph, near._settings.changed(**given)).answer(cluster(1e6))
    assert counted == [0]


def test_models_over_relations_are_planned_too(tmp_path):
    graph = communities(tmp_path / "g", vertices=600, edges=6000, width=6, classes=3, train=0.4, block=60)
    typed = replace(graph, edge_type=np.arange(graph.num_edges, dtype=np.int32) % 3)
    for model, plan, names in (("rgat", "auto", ("halo", "tp")), ("rgcn", "tp-decoupled", ("tp-decoupled",))):
        asked = what_if(typed, tmp_path / model, model=model, hidden=8, plan=plan)
        told = {p.name: p for p in asked.answer(cluster(1e6)).predictions}
        assert all(told[name].excluded is None and told[name].seconds > 0 for name in names)


def test_rows_travel_while_others_are_summed(near, monkeypatch):
    """In rounds: more exchanges of as many bytes, of which what can be is hidden; attention has no such way."""
    long = LayerCost(fixed=0.0, source=0.0, destination=0.01, edge=0.01)  # whatever machine this is
    monkeypatch.setattr("weft.planner.whole_graph.sliced", lambda *of: replace(sliced(*of), cost=long))
    planner = near.planner(cluster(1e6), 1).of(near._model)
    slow = replace(cluster(1e6), work=WORK | {"pace": 1e-3})
    at_once, hidden = (planner.predict(tp(3, overlap=way), slow) for way in (False, True))
    assert hidden.seconds < at_once.seconds and hidden.sent == pytest.approx(at_once.sent)
    parts = {plan: [*planner.space.parts(plan)] for plan in (tp(3), tp(3, overlap=False))}
    assert all(part.by_rounds for part in parts[tp(3)] if part.messages)
    assert sum(len(part.messages) for part in parts[tp(3)]) == 8 * sum(
        len(part.messages) for part in parts[tp(3, overlap=False)]
    )


def test_rows_that_a_round_does_without_are_found_by_going_over_the_vertices_once(near, monkeypatch):
    planner, passes, bincount = near.planner(cluster(1e6), 1).of(near._model), [], np.bincount
    monkeypatch.setattr(np, "bincount", lambda *of, **more: passes.append(of) or bincount(*of, **more))
    tp_ways = planner.space._ways[True, False]
    for rounds in (1, 2, 8, 300):
        each = (1 - 1 / rounds) ** (np.diff(near._graph.indptr) + 1.0)
        assert tp_ways._late(rounds) == pytest.approx(each.mean())
    assert len(passes) == 1


def test_workers_share_out_what_they_time():
    ran = []

    def share(world):
        runs = [lambda number=number: ran.append(number) or {"found": number} for number in range(5)]
        return shared_out(runs, world and world.communicator())

    (alone,) = simulate(1, share)
    assert alone == share(None) == [{"found": number} for number in range(5)]
    ran.clear()
    assert simulate(3, share) == [alone] * 3 and sorted(ran) == list(range(5))


def test_what_one_worker_can_not_time_all_refuse():
    def refuse():
        raise ModelError("no such layer")

    def share(world):
        with pytest.raises(ModelError, match="no such layer"):
            shared_out([lambda: 1, refuse, lambda: 2], world.communicator())
        return True

    assert simulate(2, share) == [True] * 2


@pytest.mark.parametrize("conv", [SAGEConv(12, 18), GATConv(12, 9, heads=2), GATv2Conv(12, 9, heads=2)], ids=str)
def test_few_of_many_workers_show_what_all_send(near, monkeypatch, conv):
    """Slices get narrower with the rank, the last ones are empty: who lies between two that send the same needn't run."""
    met, runs = Met(convolution_of(conv), 12, 18, learned=True), 0

    def counting(workers, counted, alike):
        def noted(rank):
            nonlocal runs
            runs += 1
            return counted(rank)

        return looked_at(workers, noted, alike)

    looked_at = slice_bench._of_each
    monkeypatch.setattr(slice_bench, "_of_each", counting)
    few = sliced(near._graph, met, 1, 40, False)
    monkeypatch.setattr(slice_bench, "_of_each", lambda workers, counted, alike: [*map(counted, range(workers))])
    every = sliced(near._graph, met, 1, 40, False)
    assert (few.messages, few.edge_bytes) == (every.messages, every.edge_bytes)
    assert runs <= 20


def test_what_attention_keeps_an_edge_is_part_of_memory(tmp_path):
    graph = communities(tmp_path / "g", vertices=600, edges=9000, width=6, classes=3, train=0.4, block=60)
    planner = what_if(graph, tmp_path, model="gat", hidden=8, heads=4).planner(cluster(1e6), 1)
    halo, whole, ranges = (
        planner.predict(plan, cluster(1e6)) for plan in (planner.space.named["halo"], tp(3), tp(3, chunks=8))
    )
    of_edges = 4 * 4 * graph.num_edges  # four numbers of four bytes, an edge and head
    assert whole.memory - ranges.memory == pytest.approx(2 * 7 / 8 * of_edges, rel=0.5)
    assert halo.memory > 2 * 4 * of_edges / 3  # two layers of four heads, a third of the edges at least
    assert not any(part.by_rounds for part in planner.space.parts(tp(3)))


def test_half_precision_moves_half_as_much(near):
    planner = near.planner(cluster(1e6), 1)
    whole, half = (planner.predict(tp(3, wire=precision), cluster(1e6)) for precision in ("float32", "float16"))
    assert half.sent["exchange"] == pytest.approx(whole.sent["exchange"] / 2)


def test_what_does_not_fit_is_said(near):
    with pytest.raises(ConfigError, match=r"no plan fits this cluster: .* would need"):
        near.answer(cluster(1e6, memory=1e4))
    with pytest.raises(ConfigError, match="the cluster has 2 workers, but 3 are planned"):
        near.planner(cluster(1e6), 1).answer(cluster(1e6, workers=2))


@pytest.mark.parametrize(
    ("name", "value", "means_nothing_to"),
    [
        ("topology", "partitioned", {"tp", "tp-decoupled"}),
        ("replicate", True, {"tp", "tp-decoupled"}),
        ("overlap", False, {"halo"}),
        ("chunks", 4, {"halo"}),
        ("wire", "float16", set()),
    ],
)
def test_what_is_decided_narrows_the_search(near, name, value, means_nothing_to):
    decided = WhatIf(near._graph, near._settings.changed(**{name: value}))
    answer = decided.answer(cluster(1e6))
    assert getattr(answer.best.plan, name) == value
    told = {p.name: p for p in answer.predictions}
    for plan in ("halo", "tp", "tp-decoupled"):
        assert (f"{name} = {value!r} is set" in (told[plan].excluded or "")) == (
            plan in means_nothing_to - {"tp-decoupled"}
        )
        assert getattr(told[plan].plan, name) == value or plan in means_nothing_to
    assert all(getattr(p.plan, name) == value for p in answer.predictions if p.excluded is None)


def test_plans_that_need_more_than_a_worker_may_use_are_left_out(near):
    plenty = near.answer(cluster(1e5))
    halo, tp = (next(p for p in plenty.predictions if p.name == name) for name in ("halo", "tp"))
    most = min(halo.memory, tp.memory) - 1
    with pytest.raises(ConfigError, match="no plan fits this cluster"):
        WhatIf(near._graph, near._settings.changed(memory="1KiB")).answer(cluster(1e5))
    less = WhatIf(near._graph, near._settings.changed(memory=f"{halo.memory / 1e9 + 1}GB"))
    assert less.answer(cluster(1e5)).best.seconds == pytest.approx(plenty.best.seconds, rel=0.2)
    planner = near.planner(cluster(1e5), 1)
    planner.space.task, before = replace(planner.space.task, memory=most), planner.space.task
    try:
        assert planner.predict(halo.plan, cluster(1e5)).excluded.startswith("would need")
    finally:
        planner.space.task = before


def test_within_a_budget_the_decoupled_model_needs_less_than_tp(near):
    """As it computes again, or maps from files, what does not fit."""
    decoupled = near._settings.changed(plan="tp-decoupled")
    roomy = {p.name: p for p in WhatIf(near._graph, decoupled).answer(cluster(1e6)).predictions}
    budget = decoupled.changed(memory=f"{int(roomy['tp'].memory * 0.75)}b")
    told = {p.name: p for p in WhatIf(near._graph, budget).answer(cluster(1e6)).predictions}
    assert told["tp-decoupled"].excluded is None
    assert told["tp-decoupled"].memory < budget.budget < told["tp"].memory


def test_sweeps_over_links_and_widths(near):
    links, widths = near.sensitivity(cluster(1e6))
    assert set(links.seconds) >= {"halo", "tp"}
    assert links.seconds["tp"] == sorted(links.seconds["tp"], reverse=True)
    assert widths.seconds["tp"][0] < widths.seconds["tp"][-1]


def test_a_width_that_no_plan_fits_has_no_fastest(near):
    def least(hidden):
        found = WhatIf(near._graph, near._settings.changed(hidden=hidden)).answer(cluster(1e5))
        return min(plan.memory for plan in found.predictions if plan.excluded is None)

    room = near._settings.changed(hidden=8, memory=f"{(least(8) + least(512)) / 2e9}GB")
    _, widths = WhatIf(near._graph, room).sensitivity(cluster(1e5))
    assert (widths.values[0], widths.values[-1]) == (8, 512)
    assert widths.best[0] and not widths.best[-1]
    assert all(np.isnan(seconds[-1]) for seconds in widths.seconds.values())


@pytest.mark.parametrize("typed", [False, True])
def test_for_another_number_of_workers_features_are_not_copied(tmp_path, typed):
    rng = np.random.default_rng(0)
    rows, types = rng.random((90, 1 << 12), dtype=np.float32), rng.integers(0, 2, 90).astype(np.uint8)
    features = HeteroFeatures(types, (rows[types == 0], rows[types == 1, :9])) if typed else rows
    more = {"features": features, "labels": rng.integers(0, 3, 90), "split": np.zeros(90, np.uint8)}
    graph = replace(Graph.from_arrays(rng.integers(0, 90, (2, 600)), **more), bounds=np.array([0, 40, 90]))
    what = WhatIf(graph, Settings.of(full_graph=True, hidden=16, threads=1), "random")
    parts = what._partitioned(cluster(1e6, workers=3), tmp_path, scaled=False)
    assert (parts.features.shape, parts.features.dtype) == (graph.features.shape, graph.features.dtype)
    assert parts.feature_widths == graph.feature_widths and parts.features.nbytes == graph.features.nbytes
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and sum(512 * file.stat().st_blocks for file in files) < graph.features.nbytes / 2
    assert what.answer(cluster(1e6, workers=3)).best
