"""Allocations side by side: each plan's rows against counting by hand, and the same however vertices are numbered."""

import json
from dataclasses import replace

import numpy as np
import pytest

from weft.errors import InputError, StorageError
from weft.graph import Graph, communities
from weft.partition import Traces, TrainingTask, allocate, measure, write_partitioned
from weft.planner import NEVER, Cluster, Comparer, Host, owners_in, read_measured
from weft.sampling import Batches, NeighborSampler, dealt

TASK = TrainingTask((4, 3), 120, 5, widths=(24.0, 32.0, 20.0))  # of a layer, pulling is cheaper below and pushing above


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=2000, edges=24_000, width=6, classes=5, train=0.3)


def machines(*workers, bandwidth=1e6):
    return Cluster(
        tuple(Host(f"h{n}", bandwidth, 1.0, count, count) for n, count in enumerate(workers)), 0.0, 0.0, NEVER
    )


def compared(graph, allocations, cluster, batches=4, **options):
    slack = options.get("slack", 99.0)
    comparer = Comparer(graph, options.get("task", TASK), cluster, slack=slack, batches=batches)
    return comparer.compare(allocations, options.get("measured", {}), lambda stage, done, total: None)


def slow_flows(graph, owners, workers, batches, shares=None):
    """Bytes between hosts by hand, [from what is needed, at whom], in the first batches: gdp, leap, split."""
    host = np.repeat(np.arange(len(workers)), workers)
    sampler, parts = NeighborSampler(graph, TASK.fanouts, seed=TASK.seed), sum(workers)
    sent = {plan: np.zeros((len(workers), len(workers))) for plan in ("gdp", "leap", "split")}
    shares = np.full(parts, 1 / parts) if shares is None else shares
    for number, seeds in enumerate(
        Batches(graph.seeds("train"), graph.original_ids, TASK.batch_size, TASK.seed).of(0)[:batches]
    ):
        for plan, worker in (("gdp", dealt(len(seeds), shares)), ("leap", owners[seeds])):
            for h in range(len(workers)):
                own = seeds[host[worker] == h]
                if len(own):
                    needed = sampler.sample(own, 0, number).vertices.numpy()
                    sent[plan][h] += 24 * np.bincount(host[owners[needed]], minlength=len(workers))
        sample = sampler.sample(seeds, 0, number)
        vertices = sample.vertices.numpy()
        for block, way, width in zip(sample.blocks, ("pull", "push"), (24, 40), strict=True):
            dst, src = owners[vertices[block.dst().numpy()]], owners[vertices[block.src.numpy()]]
            rows = block.src.numpy() if way == "pull" else block.dst().numpy()
            needs, gives = (dst, src) if way == "pull" else (src, dst)
            needs = host[needs] if way == "pull" else needs  # inputs come once to a host, for all its workers
            for to, giver, _ in set(zip(needs.tolist(), gives.tolist(), rows.tolist(), strict=True)):
                sent["split"][to if way == "pull" else host[to], host[giver]] += width
    for table in sent.values():
        np.fill_diagonal(table, 0)
    return sent


@pytest.mark.parametrize("workers", [(1, 1, 1), (2, 1), (2, 2)])
def test_flows_are_those_counted_by_hand(graph, workers):
    owners = allocate(graph, sum(workers), "metis", seed=1)
    made = compared(graph, {"metis": owners}, machines(*workers), batches=2)
    scale = len(graph.seeds("train")) / (2 * TASK.batch_size)
    for plan, sent in slow_flows(graph, owners, workers, 2).items():
        flow = made.allocations[0].flows[plan]
        assert flow.bytes == pytest.approx(sent.sum() * scale)
        assert flow.most_in == pytest.approx(sent.sum(1).max() * scale)
        assert flow.most_out == pytest.approx(sent.sum(0).max() * scale)
        assert flow.seconds == pytest.approx(max(flow.most_in, flow.most_out) / 1e6)
        assert flow.rows == pytest.approx(flow.bytes / 24) or plan == "split"
    assert (made.parts, made.hosts, made.looked_at, made.batches) == (sum(workers), len(workers), 2, 5)


def test_directories_go_by_their_own_shares(graph, tmp_path):
    owners, shares = allocate(graph, 3, "random", shares=(2, 1, 1)), {"random": np.array([0.5, 0.25, 0.25])}
    comparer = Comparer(graph, TASK, machines(1, 1, 1), batches=2)
    told = comparer.compare({"random": owners}, {}, lambda stage, done, total: None, shares).allocations[0]
    scale = len(graph.seeds("train")) / (2 * TASK.batch_size)
    sent = slow_flows(graph, owners, (1, 1, 1), 2, shares["random"])["gdp"]
    assert told.flows["gdp"].bytes == pytest.approx(sent.sum() * scale)
    assert told.figures["balance"]["vertices"] == pytest.approx(1, abs=0.01)


def test_leap_counts_seeds_where_training_evens_them_to(graph):
    owners = np.minimum(2, np.random.default_rng(0).geometric(0.6, graph.num_vertices) - 1).astype(np.int32)
    found = [compared(graph, {"skewed": owners}, machines(1, 1, 1), batches=99, slack=s) for s in (0.0, 0.1, 99.0)]
    for slack, made in zip((0.0, 0.1, None), found, strict=True):
        rows = Traces(graph, TASK, batches=99).rows(owners, 3, slack=slack).sum(0)
        assert made.allocations[0].flows["leap"].rows == (rows - np.diag(rows.diagonal())).sum()
    assert len({made.allocations[0].flows["leap"].rows for made in found}) == 3
    assert len({made.allocations[0].flows["gdp"].rows for made in found}) == 1


def test_a_whole_epoch_is_not_scaled(graph):
    owners = allocate(graph, 2, "random")
    made = compared(graph, {"random": owners}, machines(1, 1), batches=99)
    assert made.looked_at == made.batches == 5
    assert made.allocations[0].flows["leap"].bytes == slow_flows(graph, owners, (1, 1), 5)["leap"].sum()


def test_figures_are_those_of_measure_and_of_expected_work(graph):
    owners = allocate(graph, 3, "kaminpar")
    figures = compared(graph, {"k": owners}, machines(1, 1, 1)).allocations[0].figures
    assert figures["cut"] == measure(graph, owners, 3)["cut"]
    drawn = np.zeros(3)
    for epoch in range(20):
        sampler = NeighborSampler(graph, TASK.fanouts)
        for number, seeds in enumerate(Batches(graph.seeds("train"), None, TASK.batch_size, 0).of(epoch)):
            sample = sampler.sample(seeds, epoch, number)
            for block in sample.blocks:
                drawn += np.bincount(owners[sample.vertices.numpy()[block.dst().numpy()]], minlength=3)
    assert figures["balance"]["work"] == pytest.approx(3 * drawn.max() / drawn.sum(), rel=0.02)


def test_renumbered_directories_are_counted_alike(graph, tmp_path):
    made = {name: allocate(graph, 3, name) for name in ("metis", "random")}
    for name, owners in made.items():
        write_partitioned(graph, owners, 3, tmp_path / name)
    opened = {name: Graph.open(tmp_path / name) for name in made}
    for name, owners in made.items():
        assert (owners_in(graph, opened[name]) == owners).all()
    here = compared(graph, made, machines(1, 1, 1))
    base = opened["random"]
    there = compared(base, {name: owners_in(base, opened[name]) for name in made}, machines(1, 1, 1))
    for one, other in zip(here.allocations, there.allocations, strict=True):
        assert one.flows == other.flows
        assert one.figures["halo"] == other.figures["halo"] and one.figures["cut"] == other.figures["cut"]
        assert one.figures["work"] == pytest.approx(other.figures["work"], rel=1e-4)


def test_the_best_by_plan(graph):
    made = compared(graph, {name: allocate(graph, 4, name) for name in ("random", "metis")}, machines(1, 1, 1, 1))
    assert made.best("leap") == made.best("split") == "metis"


def test_graphs_without_training_or_features_and_single_hosts(graph):
    plain = Graph.from_arrays(np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))
    made = compared(plain, {"x": np.array([0, 0, 1, 1])}, machines(2), task=TrainingTask((2,), 2))
    assert made.hosts == 2 and made.allocations[0].flows["leap"].rows == 2
    alone = compared(graph, {"x": np.zeros(2000, dtype=np.int32)}, machines(1))
    assert all(flow.bytes == flow.seconds == 0 for flow in alone.allocations[0].flows.values())


class TestMeasured:
    def test_medians_by_allocation_and_plan(self, tmp_path):
        lines = [{"allocation": "a", "plan": "leap", "seconds": s, "more": 1} for s in (3.0, 1.0, 2.0)]
        lines.append({"allocation": "b", "plan": "push,local", "seconds": 0})
        (tmp_path / "m").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
        assert read_measured(tmp_path / "m") == {"a": {"leap": 2.0}, "b": {"push,local": 0.0}}

    @pytest.mark.parametrize(
        "line", ["no", "[]", "{}", '{"allocation": "a", "plan": "b", "seconds": -1}', '{"seconds": "x"}']
    )
    def test_bad_lines(self, tmp_path, line):
        (tmp_path / "m").write_text('{"allocation": "a", "plan": "b", "seconds": 1}\n' + line)
        with pytest.raises(InputError, match="line 2 is no measurement"):
            read_measured(tmp_path / "m")

    def test_no_file(self, tmp_path):
        with pytest.raises(StorageError, match="can't be read"):
            read_measured(tmp_path / "nowhere")


def test_bad_allocations(graph, tmp_path):
    with pytest.raises(InputError, match="is not partitioned"):
        owners_in(graph, graph)
    other = communities(tmp_path / "other", vertices=100, edges=400, width=6, classes=5)
    with pytest.raises(InputError, match="is no allocation of"):
        owners_in(graph, replace(other, bounds=np.array([0, 50, 100])))
