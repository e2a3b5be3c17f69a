"""What the planner says will travel is what travels, under every kind of plan and model; all workers choose the same."""

from dataclasses import replace

import numpy as np
import pytest
from predict import default, fill, predict

from weft.graph import HeteroFeatures, communities
from weft.partition import allocate, write_partitioned

WORKERS = 3
PLANS = [
    {"layers": ["local", "local"]},
    {"layers": ["local", "local"], "seeds": "home", "slack": 100.0},
    {"layers": ["columns", "local"]},
    {"layers": ["push", "local"]},
    {"layers": ["pull", "local"]},
    {"layers": ["cover", "local"], "seeds": "home", "slack": 100.0},
    {"layers": ["push", "push"]},
    {"layers": ["push", "push"], "seeds": "home"},
    {"layers": ["pull", "pull"], "seeds": "home"},
    {"layers": ["cover", "cover"], "seeds": "home"},
    {"layers": ["columns", "pull"], "seeds": "home"},
    {"layers": ["local", "local"], "topology": "partitioned"},
    {"layers": ["push", "local"], "topology": "partitioned"},
    *({"layers": layers, "cache": 0.2, "cache_by": "degree"} for layers in (["local", "local"], ["push", "local"])),
    {"layers": ["push", "push"], "cache": 0.2, "cache_by": "degree"},
    {"layers": ["cover", "cover"], "seeds": "home", "cache": 0.2, "cache_by": "degree"},
]

OF_ROWS = [plan for plan in PLANS if not {"cache", "topology"} & {*plan}]  # without what is of inputs and lists alone


SLACK = 0.05
UNEQUAL = [  # plans that go by the workers' shares
    {"layers": ["local", "local"]},
    {"layers": ["local", "local"], "seeds": "home", "slack": SLACK},
    {"layers": ["push", "local"], "seeds": "home", "slack": SLACK},
    {"layers": ["pull", "local"]},
    {"layers": ["columns", "local"]},
    {"layers": ["push", "push"]},
    {"layers": ["cover", "cover"], "seeds": "home"},
]


OF_GRAPH = [
    *(
        {"layers": layers, **more}
        for layers in (["pull"] * 3, ["pull", "cover", "push"])
        for more in ({}, {"replicate": True})
    ),
    {"layers": ["pull", "push", "cover"]},
    {"layers": ["columns"] * 3},
]


@pytest.mark.parametrize(
    "models",
    [
        ["gat", "gin"],
        ["gatv2"],
        *(pytest.param(of, marks=pytest.mark.slow) for of in (["sage", "gcn"], ["film"], ["deepgcn"])),
    ],
    ids=" ".join,
)
def test_so_they_are_on_the_full_graph(ranks, tmp_path, models):
    plans = [plan | {"scope": "graph", "seeds": "home"} for plan in OF_GRAPH]
    told = run(ranks, tmp_path, plans, models, {"full_graph": True, "layers": 3, "plan": "halo"})
    assert compared(told[0]) == len(models) * len(OF_GRAPH)
    assert all(figures == told[0] for figures in told[1:])


@pytest.fixture(scope="module")
def told(ranks, tmp_path_factory):
    return run(ranks, tmp_path_factory.mktemp("predictions"), PLANS, ["sage", "gat", "gin", "film"], of_batches(100.0))


@pytest.fixture
def parts_for(tmp_path):
    def parts_for(workers):
        graph = communities(tmp_path / "g", vertices=1500, edges=20_000, width=10, classes=5, train=0.4, block=100)
        write_partitioned(graph, allocate(graph, workers, "metis"), workers, tmp_path / "parts")
        return tmp_path / "parts"

    return parts_for


def of_batches(slack):
    return {"fanouts": (4, 3), "batch_size": 80, "slack": slack, "cache": 0.2, "cache_by": "degree"}


def run(ranks, folder, plans, models, settings, shares=None, relations=0, hosts=range(WORKERS), stored=np.float32):
    """What each worker predicts of each plan, and what all of them then send."""
    workers = len(hosts)
    graph = communities(folder / "g", vertices=1500, edges=20_000, width=10, classes=5, train=0.4, block=100)
    graph = replace(graph, features=graph.features.astype(stored))
    if relations:
        graph = replace(graph, edge_type=np.arange(graph.num_edges, dtype=np.int32) % relations)
    write_partitioned(graph, allocate(graph, workers, "metis"), workers, folder / "parts", shares=shares)
    return ranks(workers, predict, folder / "parts", models, plans, settings, hosts=hosts)


def typed_parts(folder, workers, widths=(60, 4, 0), stored=np.float32):
    """The same graph with vertices of several types, rows as wide as each type's, and a relation for each two types."""
    graph = communities(folder / "g", vertices=1500, edges=20_000, width=10, classes=5, train=0.4, block=100)
    rng = np.random.default_rng(0)
    kinds = rng.choice(len(widths), 1500, p=(0.2, 0.4, 0.4)).astype(np.uint8)
    tables = [
        rng.standard_normal((int((kinds == at).sum()), width), np.float32).astype(stored)
        for at, width in enumerate(widths)
    ]
    dst = np.repeat(np.arange(1500), np.diff(graph.indptr))
    relation = (kinds[graph.indices] * len(widths) + kinds[dst]).astype(np.int32)
    typed = {"vertex_type": kinds, "edge_type": relation, "features": HeteroFeatures(kinds, tuple(tables))}
    write_partitioned(replace(graph, **typed), allocate(graph, workers, "metis"), workers, folder / "parts")
    return folder / "parts"


def test_bytes_by_stage_are_those_predicted(told):
    assert compared(told[0]) >= 63


@pytest.mark.slow
def test_so_they_are_of_another_model(ranks, tmp_path):
    told = run(ranks, tmp_path, PLANS, ["gcn"], of_batches(100.0))
    assert compared(told[0]) >= len(PLANS)
    assert all(figures == told[0] for figures in told[1:])


def test_so_they_are_where_shares_are_uneven(ranks, tmp_path):
    told = run(ranks, tmp_path, UNEQUAL, ["sage"], of_batches(SLACK), (4, 2, 1))
    assert compared(told[0]) == len(UNEQUAL)
    assert all(figures == told[0] for figures in told[1:])


def test_so_they_are_where_rows_go_past_layers(ranks, tmp_path):
    """A residual's rows go to where the rows are that they are added to, and their gradients back."""
    asked = [
        {"layers": ["push", "pull", "local"]},
        {"layers": ["pull", "local", "local"]},
        {"layers": ["push", "push", "push"]},
        {"layers": ["cover", "cover", "local"], "seeds": "home", "slack": 100.0},
    ]
    told = run(ranks, tmp_path, asked, ["deepgcn"], of_batches(100.0) | {"fanouts": (4, 3, 2), "layers": 3})
    assert compared(told[0]) == len(asked)


def test_so_they_are_where_convolutions_are_given_other_rows(ranks, tmp_path):
    """Of these the destinations' own go to where results are, and none along edges."""
    for folder in ("batches", "graph", "float64"):
        (tmp_path / folder).mkdir()
    plans = [plan for plan in OF_ROWS if "columns" not in plan["layers"]]
    told = run(ranks, tmp_path / "batches", plans, ["gcnii", "tag"], of_batches(100.0))
    assert compared(told[0]) == 2 * len(plans)
    plans = [plan | {"scope": "graph", "seeds": "home"} for plan in OF_GRAPH]
    told = run(ranks, tmp_path / "graph", plans, ["gcnii of 3", "tag of 3"], {"full_graph": True, "plan": "halo"})
    assert compared(told[0]) == 2 * len(OF_GRAPH)
    told = run(ranks, tmp_path / "float64", PLANS[3:6], ["tag"], of_batches(100.0) | {"dtype": "float64"})
    assert compared(told[0]) == 3  # of hops, which have no parameters to tell their numbers by


def test_so_they_are_of_links(ranks, tmp_path):
    """Whose loss needs rows that other workers compute; negatives are others in each epoch of the full graph."""
    (tmp_path / "batches").mkdir()
    told = run(ranks, tmp_path / "batches", OF_ROWS, ["sage"], of_batches(100.0) | {"task": "link", "batch_size": 2700})
    assert compared(told[0]) == len(OF_ROWS)
    of_hosts = [{"layers": ["push", "push"], "seeds": "home"}, {"layers": ["local", "local"]}]
    (tmp_path / "hosts").mkdir()
    plans, settings = [plan | {"group": "host"} for plan in of_hosts], of_batches(100.0) | {"task": "link"}
    settings |= {"batch_size": 1350, "micro_batches": 2}
    told = run(ranks, tmp_path / "hosts", plans, ["sage"], settings, hosts=(0, 0, 1, 1))
    assert compared(told[0], 3) == len(plans)
    plans = [plan | {"scope": "graph", "seeds": "home"} for plan in OF_GRAPH]
    told = run(ranks, tmp_path, plans, ["sage"], {"full_graph": True, "layers": 3, "plan": "halo", "task": "link"})
    assert compared(told[0]) == len(plans)


def test_so_they_are_of_links_whose_rows_are_wider_than_the_last_convolutions(ranks, tmp_path):
    (tmp_path / "batches").mkdir()
    given, plans = (
        {"fanouts": (4,), "task": "link", "batch_size": 900},
        [{"layers": ["local"]}, {"layers": ["push"], "seeds": "home"}],
    )
    told = run(ranks, tmp_path / "batches", plans, ["headed"], given)
    assert compared(told[0]) == len(plans)
    halo = [{"layers": ["pull"], "scope": "graph", "seeds": "home"}]
    told = run(ranks, tmp_path, halo, ["headed"], {"full_graph": True, "plan": "halo", "task": "link"})
    assert compared(told[0]) == 1


def test_so_they_are_over_relations(ranks, tmp_path):
    chosen = [PLANS[at] for at in (0, 2, 3, 5, 7, 9, 12)]
    told = run(ranks, tmp_path, chosen, ["rgcn", "rgat"], of_batches(100.0), relations=3)
    assert compared(told[0]) == 2 * len(chosen)


def test_so_they_are_of_inputs_stored_in_half_precision(ranks, tmp_path):
    """Which a wire of half precision makes no smaller."""
    chosen = [PLANS[at] for at in (0, 1, 4, 5, 13)]
    plans = [plan | {"wire": wire} for plan in chosen for wire in ("float32", "float16")]
    told = run(ranks, tmp_path, plans, ["sage"], of_batches(100.0), stored=np.float16)
    assert compared(told[0]) == len(plans)
    (tmp_path / "hosts").mkdir()
    plans = [PLANS[0] | {"wire": "float16"}, PLANS[9] | {"wire": "float16"}]
    told = run(ranks, tmp_path / "hosts", plans, ["sage"], of_batches(100.0), hosts=(0, 0, 1, 1), stored=np.float16)
    assert compared(told[0]) == len(plans)


def test_rows_of_relations_are_told_nearly_on_slices_of_the_full_graph(ranks, tmp_path):
    """How many relations vertices send and receive by is known of some of them."""
    settings = {"full_graph": True, "layers": 3, "plan": "halo"}
    plans = [OF_GRAPH[-1] | {"scope": "graph", "seeds": "home"}]
    told = run(ranks, tmp_path, plans, ["rgcn", "rgat"], settings, relations=3)
    found = [(predicted, sent) for _, _, predicted, sent in told[0] if sent]
    assert len(found) == 2
    for predicted, sent in found:
        assert sent["exchange"] == pytest.approx(predicted["exchange"], rel=0.06)
    assert all(figures == told[0] for figures in told[1:])


OF_TYPES = [PLANS[at] for at in (0, 1, 3, 4, 7, 9, 11, 13, 14, 16)]


def test_rows_are_priced_as_wide_as_each_type_of_vertices_has_them(ranks, tmp_path):
    plans = [*OF_TYPES, PLANS[0] | {"wire": "float16"}]
    told = ranks(WORKERS, predict, typed_parts(tmp_path, WORKERS), ["rgcn"], plans, of_batches(100.0))
    assert compared(told[0]) == len(plans)
    assert all(figures == told[0] for figures in told[1:])


def test_so_they_are_where_a_host_has_several_workers(ranks, tmp_path):
    """These hand rows on padded."""
    hosts, whole = (0, 0, 1, 1), [PLANS[0], PLANS[4], PLANS[6], PLANS[13]]
    plans = [PLANS[9], PLANS[16], *(plan | {"group": group} for plan in whole for group in ("all", "host"))]
    told = ranks(4, predict, typed_parts(tmp_path, 4), ["rgcn"], plans, of_batches(100.0), hosts=hosts)
    assert compared(told[0]) == len(plans)
    assert all(figures == told[0] for figures in told[1:])


@pytest.mark.parametrize(
    ("hosts", "stored"), [((0, 1, 2), np.float32), ((0, 0, 1, 1), np.float32), ((0, 1, 2), np.float16)]
)
def test_caches_are_filled_by_rows_as_wide_as_they_are(ranks, tmp_path, hosts, stored):
    plans = [PLANS[13], PLANS[13] | {"wire": "float16"}, PLANS[16]]
    parts = typed_parts(tmp_path, len(hosts), stored=stored)
    for plan, predicted, most in ranks(len(hosts), fill, parts, hosts, plans, of_batches(100.0), hosts=hosts)[0]:
        assert most == pytest.approx(predicted, rel=0.01, abs=200), plan


def test_rows_of_relations_between_types_are_told_nearly_on_slices_of_the_full_graph(ranks, tmp_path):
    plans = [plan | {"scope": "graph", "seeds": "home"} for plan in ({"layers": ["columns"] * 2},)]
    settings, models = {"full_graph": True, "layers": 2, "plan": "halo"}, ["rgcn", "rgat"]
    told = ranks(WORKERS, predict, typed_parts(tmp_path, WORKERS), models, plans, settings)
    found = [(predicted, sent) for _, _, predicted, sent in told[0] if sent]
    assert len(found) == 2
    for predicted, sent in found:
        assert sent["exchange"] == pytest.approx(predicted["exchange"], rel=0.06)


def test_so_they_are_of_micro_batches(ranks, tmp_path):
    """Gradients are summed once a batch; the last batch is smaller, and has as many micro-batches."""
    chosen = [PLANS[at] for at in (0, 2, 3, 9)]
    told = run(ranks, tmp_path, chosen, ["sage"], of_batches(100.0) | {"micro_batches": 3})
    assert compared(told[0], messages=3) == len(chosen)
    assert all(figures == told[0] for figures in told[1:])


def test_columns_are_shared_by_those_who_are_a_team(ranks, tmp_path):
    plans = [{"layers": ["columns", "local"], "group": group} for group in ("host", "all")]
    settings = {"fanouts": (4, 3), "batch_size": 80}
    told = run(ranks, tmp_path, plans, ["sage", "gat"], settings, hosts=(0, 0, 1, 1))
    assert all(figures == told[0] for figures in told[1:])
    found = [(predicted, sent) for _, _, predicted, sent in told[0] if sent]
    assert len(found) == 2 * len(plans)
    for predicted, sent in found:
        for stage in ("sample", "fetch", "exchange"):
            assert sent[stage] == pytest.approx(predicted[stage], rel=0.01, abs=1_000)


def test_rows_come_once_to_a_host_and_are_handed_on(ranks, tmp_path):
    plans = [{"layers": layers} for layers in (["local", "local"], ["push", "local"])]
    plans += [{"layers": ["cover", "cover"], "seeds": "home", "group": group} for group in ("host", "all")]
    plans += [{"layers": ["pull", "local"], "group": "host"}, {"layers": ["push", "push"], "group": "host"}]
    plans += [plan | {"cache": 0.2, "cache_by": "degree"} for plan in plans]
    told = run(ranks, tmp_path, plans, ["sage", "gin"], of_batches(100.0), hosts=(0, 0, 1, 1))
    assert compared(told[0]) == 2 * len(plans)
    assert all(figures == told[0] for figures in told[1:])
    for _, plan, predicted, _ in told[0]:
        assert isinstance(predicted, str) or predicted["fetch"] > 0 or "push" in plan


@pytest.mark.parametrize("hosts", [(0, 1, 2), (0, 0, 1, 1)])
@pytest.mark.parametrize(("rows", "cache"), [(1.0, "100%"), (0.25, "25%")])
def test_so_they_are_under_the_plan_that_is_chosen_with_its_cache(ranks, parts_for, hosts, rows, cache):
    """What a cache misses is not known before: the dry run tells by batches that it was not filled by."""
    settings = {"fanouts": (4, 3), "batch_size": 40}
    plan, predicted, sent = ranks(len(hosts), default, parts_for(len(hosts)), hosts, rows, settings, hosts=hosts)[0]
    assert plan.endswith(f"cache={cache}")
    for stage in ("sample", "fetch", "exchange"):
        assert sent[stage] == pytest.approx(predicted[stage], rel=0.1, abs=4_000), (plan, stage)


def compared(told, messages=1):
    """How many plans' bytes were as predicted: all, or it fails. `messages`: so many times as many."""
    plans = 0
    for model, plan, predicted, sent in told:
        if not sent:
            continue
        for stage, count in sent.items():
            # Besides what is counted: 8 bytes for each array of ids in a message, and sums of losses with the gradients.
            more = 7_000 if stage == "sync" else 2_500 * messages
            assert count == pytest.approx(predicted[stage], rel=0.01, abs=more), (model, plan, stage)
        plans += 1
    return plans


def test_what_a_convolution_cannot_do_is_excluded_with_the_reason(told):
    excluded = {(model, plan): said for model, plan, said, sent in told[0] if not sent and plan != "best"}
    assert any(model == "film" and "layer 1 can't be columns" in said for (model, _), said in excluded.items())
    assert not any(model == "sage" for model, _ in excluded)


def test_all_workers_find_the_same(told):
    assert all(figures == told[0] for figures in told[1:])
