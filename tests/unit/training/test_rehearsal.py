"""The rehearsal: a plan trains until its epochs agree, or for long enough; and its scenes tell all costs apart."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from weft import _kernels
from weft.exchange import Communicator, Owners
from weft.graph import communities
from weft.planner import Cluster, Host, Observation, Planner, Workers, refined, space
from weft.planner.fitting import told_by
from weft.planner.loads import LayerCost, ModelCost
from weft.training import make_model, rehearsal
from weft.training.objectives import objective_for
from weft.training.planning import task_of

# What work may cost on some machine: of the size that it has on the reference machine, which tells some costs only as 0.
COSTS = {
    "hop": 1.7e-4,
    "draw": 1e-8,
    "number": 2.5e-8,
    "cut": 4e-8,
    "cover": 1.1e-7,
    "even": 1.8e-6,
    "edge": 9e-9,
    "ask": 1.4e-8,
    "message": 1.7e-4,
    "tell": 5e-4,
    "fetch": 4e-4,
    "gather": 2.4e-10,
    "carry": 2e-10,
    "arrive": 4e-10,
    "cross": 4e-4,
    "join": 6e-8,
    "sum": 3e-10,
    "step": 2.3,
    "layers": 1.6,
    "pace": 5e-4,
    "busy": 0.9,
    "overlap": 4.0,
    "disk": 0.0,
}
SHARES = {"pace", "busy", "overlap", "disk"}
# What the layers of each scene cost, the one nearest the inputs first, as they were timed once: timed anew, what is found
# would hang on what else the machine does.
LAYERS = [
    (
        0.98,
        0.0,
        [
            LayerCost(0.47, 2.8e-6, 3.2e-4, 2.0e-5, 4.5e-5, 6.8e-5, 5.4e-5, 1.8e-5, 0.0, 4.3e-5),
            LayerCost(0.63, 2.1e-5, 3.1e-4, 1.2e-5, 1.3e-4, 1.9e-4, meanwhile=4.0e-5, meanwhile_back=6.6e-5),
            LayerCost(0.64, 2.1e-6, 3.9e-4, 0.0, 3.9e-4, 8.6e-4, meanwhile=1.4e-4, meanwhile_back=1.9e-4),
        ],
    ),
    (
        0.73,
        3.0e-4,
        [
            LayerCost(0.45, 0.0, 4.4e-4, 5.8e-5, 2.3e-4, 3.8e-4, 1.5e-4, 6.0e-5, 0.0, 1.7e-4),
            LayerCost(0.62, 1.2e-4, 0.0, 6.6e-5, 9.7e-4, 2.1e-3, meanwhile=4.6e-4, meanwhile_back=6.1e-4),
            LayerCost(0.61, 1.1e-4, 0.0, 2.4e-4, 4.2e-3, 8.9e-3, meanwhile=1.9e-3, meanwhile_back=2.4e-3),
        ],
    ),
    (
        1.63,
        0.0,
        [
            LayerCost(0.52, 4.0e-6, 2.4e-3, 2.2e-5, 5.1e-5, 6.3e-5, 8.1e-5, 1.4e-5, 0.0, 3.1e-5),
            LayerCost(0.90, 1.8e-4, 1.4e-2, 3.4e-5, 3.0e-4, 4.2e-4, meanwhile=1.0e-4, meanwhile_back=2.7e-4),
            LayerCost(0.64, 9.5e-5, 1.7e-3, 1.9e-4, 8.1e-4, 2.1e-3, meanwhile=2.6e-4, meanwhile_back=3.7e-4),
        ],
    ),
]
WORKERS = 4


@pytest.fixture
def epochs(monkeypatch):
    """How many epochs a plan trains for, at most so many, if they take so long and so much of the processors."""

    def run(seconds, worked, most=4):
        taken = iter(worked)

        def observed(trainer, comm, planner, plan, epoch):
            return SimpleNamespace(seconds=seconds, processor={"compute": np.full(2, next(taken) / 2)})

        monkeypatch.setattr(rehearsal, "observed", observed)

        return len(rehearsal._epochs(None, None, None, None, most))

    return run


def test_epochs_that_agree_are_enough(epochs):
    assert epochs(0.1, [1.0, 1.01]) == 2
    assert epochs(0.1, [1.0, 1.2, 1.1, 1.05]) == 4
    assert epochs(0.1, [1.0, 1.15, 1.05, 1.05]) == 4
    assert epochs(0.1, [1.0, 1.1, 1.05]) == 3


def test_long_ones_are_few(epochs):
    assert epochs(2.0, [1.0, 1.5]) == 1
    assert epochs(0.3, [1.0, 1.5, 1.2]) == 2
    assert epochs(0.1, [1.0, 1.5, 1.2], most=1) == 1


def test_the_small_graphs_edges_are_drawn_once(tmp_path, monkeypatch):
    calls, draw = [], _kernels.community_edges
    monkeypatch.setattr(_kernels, "community_edges", lambda *args: calls.append(args[1]) or draw(*args))
    communities(tmp_path / "graph", vertices=500, edges=4000, width=4)
    assert calls == [0]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return rehearsal.small_graph(tmp_path_factory.mktemp("told") / "graph")


@pytest.fixture(scope="module", params=["hosts", "host"])
def told(request, graph):
    """A cluster of four hosts, or of one; and of each scene a planner for four workers there, with its plans."""
    hosts = [0] * WORKERS if request.param == "host" else [*range(WORKERS)]
    bounds = np.linspace(0, graph.num_vertices, WORKERS + 1).astype(np.int64)
    planners = []
    for scene, (step, between, layers) in zip(rehearsal.SCENES, LAYERS, strict=True):
        objective, model = objective_for(graph, scene.settings), make_model(scene.settings, graph)
        task = replace(task_of(scene.settings, 3, scene.seeds * WORKERS, objective), anew=True)
        sizes = sum(p.nbytes for p in model.parameters()), [64, scene.hidden, scene.hidden, 16]
        cost = ModelCost(layers, between, step, COSTS["pace"], *sizes)
        with patch.object(space, "model_cost", lambda *how, cost=cost: cost):
            planners.append((Planner(graph, model, task, Workers(Owners(bounds), hosts)), scene.plans))
    machines = tuple(Host(f"h{n}", 1e9, 1e11, hosts.count(n), float(hosts.count(n))) for n in sorted(set(hosts)))
    return Cluster(machines, 1e-4, 1e-4, 1e9, COSTS), planners


def epochs_of(cluster, planners, noise=0.0, seed=0):
    """Epochs that take what they would at these costs, but for some noise in what each stage takes."""
    rng = np.random.default_rng(seed)
    for planner, plans in planners:
        for plan in plans:
            units, convolved = planner.units(plan, replace(cluster, work={"pace": COSTS["pace"]}))
            took = {
                stage: sum((COSTS[kind] * of for kind, of in kinds.items()), np.zeros(WORKERS))
                for stage, kinds in units.items()
            }
            took["compute"] = took["compute"] + convolved @ [COSTS["step"], COSTS["layers"]] / WORKERS
            took = {stage: of * np.exp(noise * rng.standard_normal()) for stage, of in took.items()}
            found = planner.predict(plan, cluster)
            yield Observation(planner, plan, found.seconds, found.stages, took)


def test_scenes_tell_all_costs_from_each_other(told):
    cluster, planners = told
    seen = [*epochs_of(cluster, planners)]
    kinds, units, seconds, _, _ = told_by(cluster, seen)
    rows = units / np.maximum(seconds, 0.05 * seconds.max())[:, None]
    kept = rows.max(0) > 0  # a host's workers read each other's rows, and ask nobody for them
    lengths = np.linalg.norm(rows[:, kept], axis=0)
    assert np.linalg.cond(rows[:, kept] / lengths) < 25
    found = refined(replace(cluster, work=wrong(COSTS, 0)), seen)
    for kind in kinds:
        assert found[kind] == pytest.approx(COSTS[kind], rel=0.2), kind


def wrong(costs, seed):
    """Costs that are 1.5 times as high, and each off by another factor besides."""
    rng = np.random.default_rng(seed)
    off = {kind: 1.5 * float(np.exp(0.3 * rng.standard_normal())) for kind in costs}
    return {kind: rate if kind in SHARES else rate * off[kind] for kind, rate in costs.items()}


def test_costs_are_found_in_noise(told):
    cluster, planners = told
    for seed in range(3):
        known = wrong(COSTS, seed)
        found = refined(replace(cluster, work=known), [*epochs_of(cluster, planners, 0.03, seed)])
        for kind in COSTS.keys() - SHARES:
            assert found[kind] == pytest.approx(COSTS[kind], rel=0.5), kind
        off = {
            name: np.mean([abs(np.log(work[kind] / COSTS[kind])) for kind in COSTS.keys() - SHARES])
            for name, work in (("before", known), ("after", found))
        }
        assert off["after"] < 0.4 * off["before"]


def test_a_stage_that_seems_to_take_next_to_nothing_moves_no_cost_far(told):
    """As where the batches of a short epoch were fetched before it was timed."""
    cluster, planners = told
    seen = [*epochs_of(cluster, planners)]
    first = next(number for number, one in enumerate(seen) if one.planner is planners[-1][0])
    odd = seen[first].processor | {"fetch": 0.1 * seen[first].processor["fetch"]}
    seen[first] = replace(seen[first], processor=odd)
    found = refined(replace(cluster, work=COSTS), seen)
    for kind in ("gather", "carry", "ask", "fetch"):
        assert found[kind] == pytest.approx(COSTS[kind], rel=0.25), kind


def test_what_epochs_do_not_tell_goes_by_what_they_tell(told):
    cluster, planners = told
    planner, plans = planners[0]
    known = {kind: 1.5 * rate if kind not in SHARES else rate for kind, rate in COSTS.items()}
    found = refined(replace(cluster, work=known), [*epochs_of(cluster, [(planner, plans[:1])])])
    for kind in ("cut", "cover", "even", "edge", "join"):
        assert found[kind] == pytest.approx(COSTS[kind], rel=0.2), kind


@pytest.mark.parametrize("told", ["hosts"], indirect=True)  # a host has no links to others
def test_plans_that_links_hold_up_are_not_rehearsed(told):
    cluster, planners = told
    planner, _ = planners[0]
    scene = rehearsal.SCENES[0]
    assert rehearsal._told(scene, planner, cluster, Communicator()) == [*scene.plans]
    slow = cluster.with_links(0.02)
    kept = rehearsal._told(scene, planner, slow, Communicator())
    assert 0 < len(kept) < len(scene.plans) and all(plan.cache for plan in kept)
    assert len(rehearsal._told(scene, planner, cluster.with_links(1e-6), Communicator())) == 1
