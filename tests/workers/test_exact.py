"""Every plan trains the same model: losses and parameters after three Adam steps equal one worker, in float64 to 1e-10."""

import itertools
import json
import random
from functools import cache, partial

import numpy as np
import pytest
from steps import run, train

from weft.errors import ConfigError
from weft.graph import Graph, HeteroFeatures, communities
from weft.partition import allocate, write_partitioned
from weft.plan import Plan

HOME = {"seeds": "home"}


def plan(*layers, **options):
    return {"layers": list(layers), **options}


PLANS = {
    "gdp": plan("local", "local"),
    "leap": plan("local", "local", **HOME),
    "snp": plan("push", "local"),
    "dnp": plan("pull", "local"),
    "nfp": plan("columns", "local"),
    "split by pull": plan("pull", "pull", **HOME),
    "split by push": plan("push", "push", **HOME),
    "split by cover": plan("cover", "cover", **HOME),
    "push, seeds spread": plan("push", "push"),
    "push then pull": plan("push", "pull", **HOME),
    "pull then push": plan("pull", "push"),
    "cover then local": plan("cover", "local", **HOME),
    "columns then pull": plan("columns", "pull", **HOME),
    "columns then push": plan("columns", "push"),
    "gdp, partitioned": plan("local", "local", topology="partitioned"),
    "snp, partitioned": plan("push", "local", topology="partitioned"),
    "cover, partitioned": plan("cover", "cover", topology="partitioned", **HOME),
    "gdp, cache": plan("local", "local", cache=0.3),
    "push, cache": plan("push", "push", cache=0.2, cache_by="degree"),
    "cover, cache in bytes": plan("cover", "cover", cache=2400, **HOME),
    "gdp by host": plan("local", "local", group="host"),
    "snp by host": plan("push", "local", group="host"),
    "split by host, cache": plan("cover", "cover", group="host", cache=0.2, **HOME),
    "pull by host": plan("pull", "pull", group="host", **HOME),
    "nfp by host": plan("columns", "local", group="host"),
    "dnp by host": plan("pull", "local", group="host"),
    "split below, by host": plan("cover", "local", group="host", **HOME),
}
METHODS = ("random", "metis", "kaminpar")
SHARES = {2: (5, 1), 3: (1, 4, 2), 4: (2, 2, 1, 1)}  # of workers that are not to do the same
WHOLE = [name for name in PLANS if not {"push", "cover", "columns"} & set(PLANS[name]["layers"])]  # neighbourhoods meet
NO_COLUMNS = [name for name in PLANS if "columns" not in PLANS[name]["layers"]]

# The models, and the plans that each is run under in the fast suite (all that it can in the slow one).
FAST = {
    "sage-mean": list(PLANS),
    "sage-max": ["snp", "split by cover", "nfp"],
    "sage-mean-project": ["snp", "dnp"],
    "narrow": ["snp", "split by push", "nfp", "gdp"],
    "gcn": ["gdp", "snp", "split by cover", "nfp", "cover, partitioned"],
    "gcn-weights": ["snp", "split by cover", "nfp", "nfp by host", "gdp, partitioned"],
    "gin": ["snp", "dnp", "split by cover", "nfp"],
    "gat": ["leap", "snp", "dnp", "split by cover", "nfp", "push, seeds spread"],
    "gatv2": ["snp", "dnp", "split by cover", "dnp by host", "split below, by host"],
    "film": ["snp", "dnp", "split by cover"],
    "deepgcn": ["snp", "dnp", "split by cover", "dnp by host"],
    "jk": ["dnp", "split by push", "push, seeds spread", "dnp by host", "split below, by host"],
    "rgcn": [
        "gdp",
        "leap",
        "snp",
        "dnp",
        "nfp",
        "nfp by host",
        "split by cover",
        "push, seeds spread",
        "cover, partitioned",
    ],
    "rgcn-bases": ["snp", "nfp", "split by push", "gdp, partitioned"],
    "rgcn-blocks": ["nfp", "split by cover"],
    "rgcn-types": ["gdp", "leap", "snp", "dnp", "split by cover", "cover, partitioned", "gdp, cache", "gdp by host"],
    "rgat": ["gdp", "leap", "snp", "dnp", "nfp", "split by cover", "push, seeds spread", "snp, partitioned"],
    "rgat-bases": ["nfp", "split by pull"],
    "rgat-types": ["dnp", "split by cover", "cover, cache in bytes", "split by host, cache"],
    "own": WHOLE,
    "declared": ["gdp", "snp", "push, seeds spread", "split by cover", "cover, partitioned", "split by host, cache"],
    "graph-weights": ["leap", "snp", "dnp", "nfp", "split by cover", "gdp, partitioned"],
    "graph-narrow-weights": ["nfp", "nfp by host", "split by push", "cover, partitioned"],
}
CAN = {model: list(PLANS) for model in FAST} | {"own": WHOLE}
CAN |= dict.fromkeys(("gatv2", "film", "deepgcn", "sage-mean-project", "declared"), NO_COLUMNS)
CAN |= dict.fromkeys(("rgcn-types", "rgat-types"), NO_COLUMNS)


@pytest.fixture(scope="session")
def graphs(tmp_path_factory):
    """`graphs(kind, workers, method)`: where a graph of some kind is, whole or in parts, made when it is first asked for.

    It has self-loops, repeated edges, vertices without in-edges, and edge weights, relations or types.
    """
    folder, made = tmp_path_factory.mktemp("graphs"), {}

    @cache
    def placed(kind, workers, method):
        graph, shares = made[kind], None
        if method == "uneven":  # one owner holds nothing, another next to nothing
            owners = np.zeros(graph.num_vertices, dtype=np.int32)
            owners[:5] = 2
        elif method == "shares":  # vertices are as even as ever, which leaves much to even
            owners, shares = allocate(graph, workers, "metis", seed=3), SHARES[workers]
        else:
            owners = allocate(graph, workers, method, seed=3)
        path = folder / f"{kind}-{workers}-{method}"
        write_partitioned(graph, owners, workers, path, shares=shares)
        return str(path)

    plain = communities(folder / "plain", vertices=600, edges=5000, width=6, classes=4, train=0.3)
    rng = np.random.default_rng(1)
    dst = np.repeat(np.arange(600), np.diff(plain.indptr))
    edges = np.stack([plain.indices, dst])[:, dst % 7 != 0]  # some vertices lose all in-edges
    edges = np.concatenate([edges, edges[:, :200], np.tile(np.arange(0, 600, 9), (2, 1))], axis=1)
    values = {"features": plain.features, "labels": plain.labels, "split": plain.split, "num_vertices": 600}
    weights = rng.random(edges.shape[1]).astype(np.float32)
    made |= {
        "plain": Graph.from_arrays(edges, **values),
        "weights": Graph.from_arrays(edges, edge_weight=weights, **values),
        "relations": Graph.from_arrays(edges, edge_type=rng.choice(4, edges.shape[1], p=(0.6, 0.3, 0.1, 0)), **values),
    }
    kinds = rng.integers(0, 3, 600)  # of vertices, with features of three widths
    tables = tuple(plain.features[kinds == kind, :width] for kind, width in enumerate((6, 2, 0)))
    values |= {"features": HeteroFeatures(kinds.astype(np.uint8), tables), "vertex_type": kinds}
    made["types"] = Graph.from_arrays(edges, edge_type=rng.integers(0, 3, edges.shape[1]), **values)
    return placed


def kind_of(model):
    """The graph that a model is for."""
    if model.endswith(("weights", "types")):
        return model.rpartition("-")[2]
    return "relations" if model.startswith(("rgcn", "rgat")) else "plain"


def case(graphs, model, name, workers, method=None, **more):
    method = method or {1: "random", 2: "metis", 3: "random", 4: "kaminpar"}[workers]
    return {
        "model": model,
        "graph": graphs("plain" if method == "uneven" else kind_of(model), workers, method),
        "plan": PLANS[name],
        "fanouts": [4, 3],
        "batch_size": 100,  # of 180 seeds: the third one is of another epoch
        **more,
    }


def compare(wanted, got, names):
    off = {}
    for name, mine, theirs in zip(names, got, wanted, strict=True):
        error = max(np.abs(mine[key] - theirs[key]).max() for key in ("losses", "parameters"))
        if not error < 1e-10:
            off[name] = error
    assert not off


@pytest.fixture(scope="session")
def alone(graphs, ranks):
    """What one worker makes of each kind of case."""
    kinds = [(model, {}) for model in FAST] + [("sage-mean", more) for more in EXTRAS.values()]
    kinds += [(model, SAMPLERS[sampler]) for sampler, model in BY_SAMPLER]
    cases = [case(graphs, model, "gdp", 1, **more) for model, more in kinds]
    results = run(ranks, cases, 1, train)
    return {(model, json.dumps(more)): result for (model, more), result in zip(kinds, results, strict=True)}


EXTRAS = {
    "with replacement": {"sampling": {"replace": True}},
    "all neighbours": {"fanouts": [-1, -1]},
    "batches of one": {"batch_size": 1},
    "batches of two": {"batch_size": 2},
    "another key": {"seed": 6},
}


SAMPLERS = {
    "labor": {"sampling": {"sampler": "labor"}},
    "layer": {"sampling": {"sampler": "layer"}, "fanouts": [250, 150]},
}
# The models under the other samplers, and the plans of the fast suite; layer-wise ones sum their edges.
BY_SAMPLER = {
    ("labor", "sage-mean"): ["gdp", "snp", "nfp", "split by cover", "push then pull", "gdp, partitioned"],
    ("labor", "gcn"): ["dnp", "cover, partitioned"],
    ("labor", "gat"): ["split by cover", "snp, partitioned"],
    ("layer", "sage-mean"): [
        *("gdp", "snp", "dnp", "nfp", "split by cover", "push then pull", "columns then push"),
        *("gdp, partitioned", "snp, partitioned", "cover, partitioned", "push, cache", "split by host, cache"),
    ],
    ("layer", "sage-sum"): ["snp", "nfp", "split by pull", "gdp, partitioned"],
    ("layer", "sage-mean-project"): ["snp", "dnp"],
    ("layer", "narrow"): ["nfp", "split by push", "gdp"],
    ("layer", "gcn"): ["gdp", "snp", "nfp", "split by cover", "cover, partitioned"],
    ("layer", "gcn-weights"): ["snp", "nfp", "split by cover", "gdp, partitioned"],
    ("layer", "gin"): ["gdp", "dnp", "nfp", "split by cover"],
    ("layer", "declared"): ["gdp", "snp", "cover, partitioned"],
    ("layer", "jk"): ["push, seeds spread"],
    ("layer", "graph-weights"): ["snp", "nfp", "split by cover"],
}


def check_samplers(ranks, graphs, alone, workers, names, method=None):
    cases = [case(graphs, model, name, workers, method, **SAMPLERS[sampler]) for sampler, model, name in names]
    wanted = [alone[model, json.dumps(SAMPLERS[sampler])] for sampler, model, _ in names]
    compare(wanted, run(ranks, cases, workers, train), names)


def test_samplers(ranks, graphs, alone):
    """Every other one of those plans; all: test_samplers_in_the_whole_matrix."""
    names = [(*kind, name) for kind, plans in BY_SAMPLER.items() for name in plans]
    check_samplers(ranks, graphs, alone, 3, names[::2])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_samplers_in_the_whole_matrix(ranks, graphs, alone, workers, method):
    names = [(sampler, model, name) for sampler, model in BY_SAMPLER for name in CAN.get(model, PLANS)]
    check_samplers(ranks, graphs, alone, workers, names, method)


def test_samplers_train_other_models(alone):
    """Each sampler draws otherwise, so that no comparison is between runs that ignore the setting."""
    results = [alone["sage-mean", json.dumps(more)]["parameters"] for more in ({}, *SAMPLERS.values())]
    assert all(np.abs(one - other).max() > 1e-4 for one, other in itertools.combinations(results, 2))


@pytest.mark.parametrize(
    ("workers", "transport", "plans"),
    [
        (3, "sockets", [*PLANS][::2]),
        (2, "gloo", [*PLANS][1::2]),
        *(pytest.param(*given, [*PLANS], marks=pytest.mark.slow) for given in ((3, "sockets"), (2, "gloo"))),
    ],
)
def test_processes_do_what_threads_do(processes, graphs, alone, workers, transport, plans):
    """The same over this project's connections, and over torch.distributed's own collectives: each plan over one of them."""
    names = [("sage-mean", name) for name in plans]
    launch = partial(processes, transport=transport)
    got = run(launch, [case(graphs, model, name, workers) for model, name in names], workers, train)
    compare([alone[model, "{}"] for model, _ in names], got, names)


@pytest.mark.parametrize("workers", [2, 4])
def test_fast_plans(ranks, graphs, alone, workers):
    """Each model on two workers by some plans, on four by the others; on 2, 3 and 4 by all: test_whole_matrix."""
    every = [(model, name) for model, plans in FAST.items() for name in plans]
    names = [one for number, one in enumerate(every) if ("by host" in one[1] or number % 2 == 1) == (workers == 4)]
    got = run(ranks, [case(graphs, model, name, workers) for model, name in names], workers, train)
    compare([alone[model, "{}"] for model, _ in names], got, names)


@pytest.mark.parametrize("workers", SHARES)
def test_uneven_shares(ranks, graphs, alone, workers):
    """Which worker computes a seed changes nothing: dealt out or evened by shares, in teams too."""
    chosen = ["gdp", "leap", "snp", "dnp", "nfp", "split by cover", "push, seeds spread", "gdp, partitioned"]
    chosen += ["leap, evened", "leap, evened, partitioned", "snp by host", "split by host, cache", "gdp, cache"]
    plans = PLANS | {name: plan for name, (plan, _) in TURNS.items()}
    cases = [case(graphs, "sage-mean", "gdp", workers, "shares", plan=plans[name]) for name in chosen]
    compare([alone["sage-mean", "{}"]] * len(chosen), run(ranks, cases, workers, train), chosen)


def test_nasty_batches(ranks, graphs, alone):
    """Workers without seeds, without vertices, and batches of one."""
    chosen = ["gdp", "leap", "snp", "dnp", "nfp", "split by cover", "split by push", "cover, partitioned"]
    names = [(kind, name) for kind in EXTRAS if kind != "another key" for name in chosen]
    cases = [case(graphs, "sage-mean", name, 3, "uneven", **EXTRAS[kind]) for kind, name in names]
    compare([alone["sage-mean", json.dumps(EXTRAS[kind])] for kind, _ in names], run(ranks, cases, 3, train), names)


def test_the_comparison_can_fail(alone):
    """Another key of sampling and dropout gives another model, far outside of the tolerance."""
    one, other = alone["sage-mean", "{}"], alone["sage-mean", json.dumps(EXTRAS["another key"])]
    assert np.abs(one["parameters"] - other["parameters"]).max() > 1e-4


# Batches that are gone through in turns, by a trainer: in pieces, or in the time steps of migrating models.
MIGRATE = plan("local", "local", models="migrate", **HOME)
TURNS = {
    "migrate": (MIGRATE, {}),
    "migrate, a fetch a step": (MIGRATE | {"gather": "step", "merge": "none"}, {}),
    "migrate, merge at random": (MIGRATE | {"merge": "random"}, {}),
    "migrate, partitioned, cache": (MIGRATE | {"topology": "partitioned", "cache": 0.2}, {}),
    "leap, evened": (plan("local", "local", slack=0.0, **HOME), {}),
    "leap, evened, partitioned": (plan("local", "local", slack=0.05, topology="partitioned", **HOME), {}),
    "gdp in pieces": (plan("local", "local"), {"micro_batches": 3}),
    "leap in pieces": (plan("local", "local", **HOME), {"micro_batches": 2}),
    "split in pieces": (plan("cover", "cover", **HOME), {"micro_batches": 3}),
    "nfp in pieces": (plan("columns", "local"), {"micro_batches": 2}),
    "push in pieces by host": (plan("push", "push", group="host"), {"micro_batches": 5}),
}


def in_turns(graphs, model, workers, method, name, size=96, sampler="neighbor"):
    placed, settings = TURNS.get(name, (PLANS["gdp"], {"micro_batches": 4} if name == "pieces" else {}))
    fanouts = {"fanouts": SAMPLERS["layer"]["fanouts"]} if sampler == "layer" else {}
    settings = settings | {"sampler": sampler}
    return case(graphs, model, "gdp", workers, method, plan=placed, settings=settings, batch_size=size, **fanouts)


OF_TURNS = [("sage-mean", name) for name in TURNS]
OF_TURNS += [("gat", "migrate"), ("gat", "split in pieces"), ("gcn", "migrate"), ("gcn", "leap, evened")]


@pytest.fixture(scope="module")
def whole(graphs, ranks):
    """What one worker makes of whole batches, by model."""
    models = sorted({model for model, _ in OF_TURNS})
    cases = [in_turns(graphs, model, 1, None, "whole") for model in models]
    return dict(zip(models, run(ranks, cases, 1, train), strict=True))


def check_turns(ranks, graphs, whole, workers, method, names):
    got = run(ranks, [in_turns(graphs, model, workers, method, name) for model, name in names], workers, train)
    compare([whole[model] for model, _ in names], got, names)


@pytest.mark.parametrize(
    ("workers", "method", "names"),
    [(2, "metis", OF_TURNS[1::2]), (3, "uneven", OF_TURNS)],
)
def test_batches_in_turns(ranks, graphs, whole, workers, method, names):
    """Migrating, pre-gathering, merging, evened homes, micro-batches; with skewed homes too (one owner has almost all).

    On four workers: test_all_batches_in_turns.
    """
    check_turns(ranks, graphs, whole, workers, method, names)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "method"), [(2, "metis"), (4, "kaminpar")])
def test_all_batches_in_turns(ranks, graphs, whole, workers, method):
    check_turns(ranks, graphs, whole, workers, method, OF_TURNS)


@pytest.mark.slow
def test_turns_of_small_batches(ranks, graphs):
    """Time steps and pieces without a seed, on some workers or on all but one."""
    chosen = ("migrate", "migrate, a fetch a step", "leap, evened", "split in pieces", "push in pieces by host")
    names = [("sage-mean", name) for name in chosen]
    (wanted,) = run(ranks, [in_turns(graphs, "sage-mean", 1, None, "whole", 4)], 1, train)
    got = run(ranks, [in_turns(graphs, model, 4, "metis", name, 4) for model, name in names], 4, train)
    compare([wanted] * len(names), got, names)


def test_turns_of_other_samplers(ranks, graphs):
    samplers = ("labor", "layer")
    names = [
        (sampler, name) for sampler in samplers for name in ("migrate", "leap, evened, partitioned", "split in pieces")
    ]
    alone = run(ranks, [in_turns(graphs, "sage-mean", 1, None, "whole", sampler=one) for one in samplers], 1, train)
    wanted = [alone[samplers.index(sampler)] for sampler, _ in names]
    cases = [in_turns(graphs, "sage-mean", 3, "metis", name, sampler=sampler) for sampler, name in names]
    compare(wanted, run(ranks, cases, 3, train), names)


def test_one_worker_in_pieces(ranks, graphs):
    whole, pieces = run(ranks, [in_turns(graphs, "sage-mean", 1, None, name) for name in ("whole", "pieces")], 1, train)
    compare([whole], [pieces], ["pieces"])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_whole_matrix(ranks, graphs, alone, workers, method):
    names = [(model, name) for model in FAST for name in CAN[model]]
    got = run(ranks, [case(graphs, model, name, workers, method) for model, name in names], workers, train)
    compare([alone[model, "{}"] for model, _ in names], got, names)


CHOICES = {
    "seeds": ("home", "spread"),
    "group": ("all", "host"),
    "topology": ("replicated", "partitioned"),
    "cache": (0.0, 0.2, 1.0, 2400),
    "cache_by": ("reads", "degree"),
    "slack": (0.0, 0.2, 1.0),
}


def some_plan(draw, names):
    """A plan of any two placements and any options, that there can be."""
    while True:
        layers = draw.choice(names), draw.choice(["local", "pull", "push", "cover"])
        drawn = plan(*layers, **{name: draw.choice(values) for name, values in CHOICES.items()})
        try:
            Plan.from_dict(drawn)
        except ConfigError:
            continue
        if (drawn["group"], drawn["topology"]) != ("host", "partitioned"):  # a run refuses that
            return drawn


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))])
def test_plans_at_random(ranks, graphs, alone, seed):
    """Whatever is combined with whatever."""
    draw, workers, names, cases = random.Random(seed), 3 + seed % 2, [], []
    for _ in range(24):
        model = draw.choice([model for model in FAST if CAN[model] is not WHOLE])
        usual = ["local", "pull", "push", "cover", *([] if CAN[model] is NO_COLUMNS else ["columns"])]
        cases.append(case(graphs, model, "gdp", workers, draw.choice(METHODS), plan=some_plan(draw, usual)))
        names.append((model, str(cases[-1]["plan"])))
    compare([alone[model, "{}"] for model, _ in names], run(ranks, cases, workers, train), names)


DRAWN = {
    "neighbor": {},
    "replace": {"replace": True},
    "labor": {"sampler": "labor"},
    "layer": {"sampler": "layer"},
}
SUMS = [
    "sage-mean",
    "sage-mean-project",
    "gcn",
    "gcn-weights",
    "gin",
    "declared",
    "jk",
    "graph-weights",
]  # what estimates can be added up


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_samplers_at_random(ranks, graphs, seed):
    """Whatever draws, as many neighbours as may be, for batches of any size: against one worker that draws so."""
    draw, workers, cases, alone = random.Random(seed), 2 + seed % 3, [], []
    for _ in range(10):
        drawn = draw.choice(list(DRAWN))
        model = draw.choice(SUMS if drawn == "layer" else [model for model in FAST if CAN[model] is not WHOLE])
        counts = [-1, 7, 40, 300] if drawn == "layer" else [-1, 1, 2, 5]
        more = {
            "fanouts": [draw.choice(counts), draw.choice(counts)],
            "batch_size": draw.choice([5, 23, 90]),
            "sampling": DRAWN[drawn],
            "steps": 3,
        }
        usual = ["local", "pull", "push", "cover", *([] if CAN[model] is NO_COLUMNS else ["columns"])]
        cases.append(
            case(graphs, model, "gdp", workers, draw.choice(METHODS), **more) | {"plan": some_plan(draw, usual)}
        )
        alone.append(case(graphs, model, "gdp", 1, **more))
    compare(run(ranks, alone, 1, train), run(ranks, cases, workers, train), [str(one) for one in cases])
