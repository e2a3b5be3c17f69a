"""Links on many workers equal plain PyG on the whole graph: losses, figures and parameters, in float64 to 1e-10."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from link_steps import EPOCHS, link_model, link_settings, train_links
from safetensors.torch import load_file
from steps import run
from test_exact import HOME, MIGRATE, PLANS, compare, plan
from torch_geometric.nn.models import GraphSAGE

from weft.graph import SPLITS, Graph, communities, split_links
from weft.keys import Stream, seeded
from weft.nn import LinkPredictor, make_decoder
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.sampling import uniform_negatives
from weft.training import Trainer
from weft.training.objectives.links import LinkObjective

FULL, SAMPLED, BATCH = [-1, -1], [4, 3], 360

# What is learned in which way.
LEARNED = {
    "plain": {},
    "mlp": {"decoder": "mlp"},
    "margin": {"loss": "margin", "margin": 0.3, "num_negatives": 3},
    "in the batch": {"negatives": "batch", "num_negatives": 2},
    "margin, in the batch, mlp": {"negatives": "batch", "loss": "margin", "decoder": "mlp"},
    "exact evaluation": {"evaluation": "exact"},
    "in pieces": {"micro_batches": 3},
}
TURNS = {
    "migrate": MIGRATE,
    "migrate, partitioned": MIGRATE | {"topology": "partitioned", "gather": "step"},
    "leap, evened": plan("local", "local", slack=0.0, **HOME),
}
GRAPH_PLANS = {
    "halo": {"full_graph": True, "plan": "halo"},
    "push and cover": {"full_graph": True},
    "tp": {"full_graph": True, "plan": "tp"},
}
DECOUPLED = {"tp-decoupled": {"full_graph": True, "plan": "tp-decoupled"}}  # another model than PyG's
WHOLE = GRAPH_PLANS | DECOUPLED
PLACED = PLANS | TURNS | {name: plan("push", "cover", scope="graph", **HOME) for name in WHOLE}

# (model, plan, what is learned), without dropout and on all neighbours, as plain PyG does it.
EXACT = [
    *(("sage-mean", name, "plain") for name in (*PLANS, *TURNS)),
    *(("sage-mean", "split by cover", learned) for learned in LEARNED),
    *(("sage-mean", "gdp", learned) for learned in LEARNED),
    *(("sage-mean", "migrate", learned) for learned in ("margin", "in the batch", "mlp")),
    *((model, name, "mlp") for model in ("gcn", "gat") for name in ("snp", "split by cover", "nfp")),
    ("own", "dnp", "plain"),
    ("declared", "push, seeds spread", "margin"),
    *(("sage-mean", name, learned) for name in GRAPH_PLANS for learned in ("plain", "margin, in the batch, mlp")),
    ("gcn", "halo", "mlp"),
]
# Of these, those of the fast suite.
FAST = [
    *(("sage-mean", name, "plain") for name in ("gdp", "nfp", "push, seeds spread", "leap, evened", "migrate")),
    *(("sage-mean", name, "plain") for name in ("cover, partitioned", "split by host, cache", "halo")),
    *(("sage-mean", "split by cover", learned) for learned in LEARNED),
    *(("sage-mean", name, "margin, in the batch, mlp") for name in ("push and cover", "tp")),
    ("sage-mean", "migrate", "in the batch"),
    ("gcn", "snp", "mlp"),
    ("gat", "split by cover", "mlp"),
    ("own", "dnp", "plain"),
]
# With dropout and drawn neighbours, or of a model that PyG does not have, as one worker does it.
DRAWN = [("sage-mean", name, "mlp") for name in ("gdp", "split by cover", "nfp", "snp, partitioned", "leap, evened")]
DRAWN += [("gat", "split by cover", "in the batch")]
DRAWN += [(model, "tp-decoupled", learned) for model, learned in (("gcn", "margin"), ("gat", "in the batch"))]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """Self-loops, repeated edges, edges both ways, vertices without edges; whole, in parts, and with an empty part."""
    folder = tmp_path_factory.mktemp("graphs")
    plain = communities(folder / "made", vertices=240, edges=1200, width=7, classes=4, train=0.3)
    dst = np.repeat(np.arange(240), np.diff(plain.indptr))
    edges = np.stack([plain.indices, dst])
    edges = edges[:, (dst % 7 != 0) & (edges % 50 != 0).all(0)]
    loops = np.tile(np.arange(1, 240, 9), (2, 1))
    graph = Graph.from_arrays(
        np.concatenate([edges, edges[:, :100], edges[::-1, 50:200], loops], axis=1),
        features=plain.features,
        num_vertices=240,
    )
    write_partitioned(graph, allocate(graph, 1, "random", seed=3), 1, folder / "1")
    for parts, method in ((2, "metis"), (3, "random"), (4, "kaminpar")):
        write_partitioned(graph, allocate(graph, parts, method, seed=3), parts, folder / f"{parts}")
    uneven = np.zeros(240, dtype=np.int32)  # one owner holds nothing, another vertices that are in no link
    uneven[np.arange(0, 240, 50)] = 2
    write_partitioned(graph, uneven, 3, folder / "uneven")
    return folder


def case(graphs, model, name, learned, workers, fanouts=FULL, dropout=0.0):
    settings = WHOLE.get(name, {}) | LEARNED[learned]
    placed = {"model": model, "plan": PLACED[name], "settings": settings, "fanouts": fanouts, "batch_size": BATCH}
    return placed | {"graph": str(graphs / str(workers)), "dropout": dropout}


def by_one_worker(model, name, learned):
    """What one worker makes of the same model: by which plan makes no difference."""
    return model, name if name in DECOUPLED else "gdp", learned


def by_pyg(graph, case):
    """The slow, obvious version: the model on the whole graph for each batch, torch's losses, ranks one by one."""
    settings = link_settings(case, 1)
    objective, x = LinkObjective().setup(graph, settings), torch.from_numpy(np.array(graph.features)).double()
    messages, model = objective.graph, link_model(case["model"], graph.num_features, 0.0, settings)
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(messages.indptr))
    edge_index = torch.from_numpy(np.stack([messages.indices.astype(np.int64), dst]))
    optimizer, seen = torch.optim.Adam(model.parameters(), lr=0.01), []
    for epoch in range(EPOCHS):
        losses, terms = 0.0, 0
        model.train()
        for number, batch in enumerate(objective.batches(None if settings.sampling.full_graph else BATCH).of(epoch)):
            pairs = objective.pairs(batch, epoch, number)
            scores = model(x, edge_index, in_rows(pairs.heads, pairs.tails)).view(pairs.tails.shape)
            own, others = scores[:, :1], scores[:, 1:]
            if settings.task.loss == "bce":
                labels = torch.zeros_like(scores)
                labels[:, 0] = 1
                loss = F.binary_cross_entropy_with_logits(scores, labels)
            else:
                loss = F.margin_ranking_loss(
                    own.expand_as(others), others, torch.ones_like(others), settings.task.margin
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count = (scores if settings.task.loss == "bce" else others).numel()
            losses, terms = losses + float(loss.detach()) * count, terms + count
        model.eval()
        seen += [losses / terms, *figures(graph, settings, lambda pairs: model(x, edge_index, pairs).detach())]
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return {"losses": np.array(seen), "parameters": parameters}


def in_rows(heads, tails):
    return torch.from_numpy(np.stack([np.repeat(heads, tails.shape[1]), tails.ravel()]).astype(np.int64))


def figures(graph, settings, score):
    """MRR, Hits@k and AUC of the validation links, the slow way."""
    links = split_links(graph, settings.task.link_split, settings.optimisation.seed)
    held = links.parts["validation"]
    at = np.arange(len(held))
    heads, tails = held.ends(at)
    when = (settings.optimisation.seed, SPLITS["validation"])
    drawn = uniform_negatives(held, at, settings.task.eval_negatives, when, links.all, Stream.EVALUATE)
    scores = score(in_rows(heads, np.column_stack([tails, drawn]))).view(len(held), -1).numpy()
    ranks = [1 + (row[1:] > row[0]).sum() + (row[1:] == row[0]).sum() / 2 for row in scores]
    pairs = [(own > other) + (own == other) / 2 for own in scores[:, 0] for other in scores[:, 1]]
    return (
        np.mean([1 / rank for rank in ranks]),
        np.mean([rank <= settings.task.hits for rank in ranks]),
        np.mean(pairs),
    )


@pytest.fixture(scope="module")
def pyg(graphs):
    """What plain PyG makes of each model and what it learns."""
    found, graph = {}, Graph.open(graphs / "1")
    for model, name, learned in EXACT:
        key = model, learned, name in GRAPH_PLANS
        if key not in found:
            found[key] = by_pyg(graph, case(graphs, model, name, learned, 1))
    return found


@pytest.fixture(scope="module")
def alone(ranks, graphs):
    """What one worker makes of it with dropout and drawn neighbours, which plain PyG draws otherwise."""
    kinds = sorted({by_one_worker(*name) for name in DRAWN})
    cases = [case(graphs, *kind, 1, SAMPLED, 0.3) for kind in kinds]
    return dict(zip(kinds, run(ranks, cases, 1, train_links), strict=True))


def test_one_worker_is_pyg(ranks, graphs, pyg):
    names = [(model, "halo" if whole else "gdp", learned) for model, learned, whole in pyg]
    cases = [case(graphs, *name, 1) for name in names]
    compare(list(pyg.values()), run(ranks, cases, 1, train_links), names)


def check(ranks, graphs, pyg, alone, workers, exact):
    cases = [case(graphs, *name, workers) for name in exact]
    cases += [case(graphs, *name, workers, SAMPLED, 0.3) for name in DRAWN]
    wanted = [pyg[model, learned, name in GRAPH_PLANS] for model, name, learned in exact]
    wanted += [alone[by_one_worker(*name)] for name in DRAWN]
    compare(wanted, run(ranks, cases, 3 if workers == "uneven" else workers, train_links), [*exact, *DRAWN])


@pytest.mark.parametrize("workers", [pytest.param(4, marks=pytest.mark.slow), "uneven"])
def test_plans_are_pyg(ranks, graphs, pyg, alone, workers):
    """Some vertices have no edges; of the uneven workers one has no vertices, another none that is in a link."""
    check(ranks, graphs, pyg, alone, workers, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3, 4, "uneven"])
def test_every_plan_is_pyg(ranks, graphs, pyg, alone, workers):
    check(ranks, graphs, pyg, alone, workers, EXACT)


def test_what_is_learned_differs(pyg):
    """No comparison is between runs that ignore what they are told."""
    for kinds in (("plain", "margin", "in the batch"), ("mlp", "margin, in the batch, mlp")):
        found = [pyg[key]["parameters"] for key in pyg if key[0] == "sage-mean" and key[1] in kinds]
        for number, one in enumerate(found):
            assert all(np.abs(one - other).max() > 1e-6 for other in found[:number])


def test_vertices_without_features_of_their_own_rank_alike_under_every_plan(ranks, tmp_path):
    """Many have the same row in exact arithmetic, which each batch and each plan computes in another order."""
    made, found = communities(tmp_path / "made", vertices=800, edges=3000, width=6, classes=4, train=0.3), []
    dst = np.repeat(np.arange(800), np.diff(made.indptr))
    alike = Graph.from_arrays(
        np.stack([made.indices, dst]), features=np.ones((800, 4), dtype=np.float32), num_vertices=800
    )

    def figures_of(world, plan):
        graph = Graph.open(tmp_path / f"{world.size}")
        settings = Settings.of(
            task="link",
            plan=plan,
            fanouts=(4, 4),
            batch_size=480 // world.size,
            eval_batch_size=480 // world.size,
            eval_negatives=20,
            hits=3,
            threads=1,
        )
        with seeded(0):
            model = LinkPredictor(GraphSAGE(4, 16, num_layers=2), make_decoder("dot", 16, 0))
        trainer = Trainer(graph, model, settings, world=world)
        trainer.train_epoch(0)
        figures = trainer.measure("validation")
        trainer.close()
        return figures

    for workers, plans in ((1, ["gdp"]), (2, ["gdp", "dnp", "split"]), (3, ["snp", "split"])):
        write_partitioned(alike, allocate(alike, workers, "random", seed=1), workers, tmp_path / f"{workers}")
        found += [figures for plan in plans for figures in ranks(workers, figures_of, plan)]
    assert all(figures == found[0] for figures in found)


@pytest.mark.slow
def test_the_command_on_many_workers_and_resumed(weft, graphs, tmp_path):
    """By `weft train`: another number of workers goes on by another plan, and ends with the model of one worker."""
    flags = ["--task", "link", "--decoder", "mlp", "--hidden", "8", "--fanouts", "4,4", "--epochs", "2", "--lr", "0.01"]
    flags += ["--dtype", "float64", "--dropout", "0.2", "--threads", "1", "--eval-negatives", "7"]

    def train(graph, out, *more):
        done = weft("train", graphs / graph, *flags, "--out", tmp_path / out, *more, check=True)
        return load_file(tmp_path / out / "state.safetensors"), done.stdout

    alone, _ = train("1", "alone", "--batch-size", 120)
    keep = ["--checkpoint", tmp_path / "kept", "--checkpoint-every", 2, "--keep", 99]
    train("2", "a", "--workers", 2, "--plan", "split", "--batch-size", 60, *keep)
    for later in sorted((tmp_path / "kept").glob("step-*"))[2:]:  # as if it had been lost in the first epoch
        shutil.rmtree(later)
    model, told = train("3", "b", "--workers", 3, "--plan", "snp", "--batch-size", 40, *keep, "--resume")
    assert "going on from" in told
    assert "test  MRR" in told
    assert max(float((model[name] - alone[name]).abs().max()) for name in alone) < 1e-10
