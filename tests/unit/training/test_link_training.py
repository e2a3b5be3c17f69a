"""Training on links end to end: it learns, ranks as a slow loop does, resumes to the same bits, and leaks nothing."""

import copy
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn.models import GraphSAGE

import weft
from weft import cli
from weft.errors import ConfigError
from weft.exchange import Communicator, Owners
from weft.graph import communities, split_links
from weft.keys import seeded
from weft.nn import BlockModel, LinkPredictor
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.planner import Sampling, Workers
from weft.planner.counts import Key
from weft.planner.dry_run import DryRun
from weft.training import EpochEnded, Finished, Started, Stepped, Trainer, make_model
from weft.training.objectives import links as module
from weft.training.objectives.links import LinkObjective, auc, ranks
from weft.training.objectives.pairs import PairTargets
from weft.training.planning import task_of

sys.path.insert(0, str(Path(__file__).parents[1] / "exchange"))
from test_communicator import comms
from test_connections import meshed, together


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph of small blocks without labels, so that features tell who is linked."""
    folder = tmp_path_factory.mktemp("graph")
    made = communities(folder / "made", vertices=1000, edges=12_000, width=12, classes=20, block=50, signal=1.0)
    weft.Graph(made.indptr, made.indices, features=made.features).save(folder / "graph")
    return folder / "graph"


@pytest.fixture(scope="module")
def graph(folder):
    return weft.Graph.open(folder)


def settings(**given):
    usual = {"task": "link", "hidden": 16, "epochs": 2, "threads": 1, "eval_negatives": 20, "metric": "auc", "lr": 0.01}
    batches = {} if given.get("full_graph") else {"fanouts": (5, 5), "batch_size": 512}
    return Settings.of(**usual | batches | given)


def run(graph, **given):
    chosen, events = settings(**given), []
    return Trainer(graph, make_model(chosen, graph), chosen, events.append).fit(), events


def same_bits(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_pairs_that_are_given_are_scored_behind_training(graph):
    """As docs/training.md does with OGB's: nothing is held out of the graph."""
    with seeded(3):
        encoder = GraphSAGE(graph.num_features, 8, 2, 8)
    few = {"fanouts": [5, 5], "epochs": 4, "lr": 0.01, "threads": 1, "log": "none"}
    result = weft.train(graph, encoder, task="link", link_split="100/0/0", **few)
    assert result.validation is None and result.test is None
    rows = torch.from_numpy(weft.infer(result.model, graph).outputs)
    loader = weft.Loader(graph, [5, 5], task="link", link_split="100/0/0")
    with pytest.raises(
        ConfigError, match=r"^no link is in the split 'validation', so there are no figures of it: .*link_split$"
    ):
        loader.objective.measure(result.model, "validation", [], loader.comm)
    heads = torch.from_numpy(np.array(graph.indices[:500])).long()
    tails = torch.from_numpy(np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))[:500])
    with torch.no_grad():
        scores, others = (result.model.score(rows[heads], rows[to].unsqueeze(1))[:, 0] for to in (tails, tails.flip(0)))
    assert scores.shape == (500,) and (scores > others).float().mean() > 0.6


@pytest.mark.parametrize(
    "given",
    [
        {"epochs": 6},
        {"epochs": 6, "decoder": "mlp", "model": "gcn"},
        {"epochs": 6, "loss": "margin", "negatives": "batch", "num_negatives": 3},
        {"epochs": 40, "full_graph": True, "layers": 2},
        {"epochs": 4, "evaluation": "exact", "micro_batches": 2},
    ],
)
def test_links_are_learned(graph, given):
    result, _ = run(graph, **given)
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert result.figures["AUC"] == result.test > 0.8
    assert 0 < result.figures["MRR"] <= 1
    assert result.figures["Hits@10"] > 0.6  # of 21 pairs; by chance 0.48


def test_pairs_go_with_their_batch(graph, monkeypatch):
    """Those of all batches, on every worker, were more than the graph at an epoch's end."""
    made, examples = [], LinkObjective.examples

    def noted(*given):
        made.append(examples(*given))
        return made[-1]

    monkeypatch.setattr(LinkObjective, "examples", noted)
    chosen = settings()
    loader = weft.Loader(graph, settings=chosen)
    weft.parallel(make_model(chosen, graph), loader)
    links = sum(len(batch.part.targets) for batch in loader)
    assert links == len(loader.objective._links.parts["train"])
    assert made and not any({"roots", "pairs", "vertices", "needed"} & vars(one).keys() for one in made)


def test_events_tell_the_story(graph):
    result, events = run(graph, hits=3, metric="hits")
    started, finished = events[0], events[-1]
    links = split_links(graph, "90/5/5", 0).parts["train"]
    assert isinstance(started, Started)
    assert f"{len(links):,} links with 1 negative each (uniform), dot, bce in" in started.plan
    stepped = [event for event in events if isinstance(event, Stepped)]
    assert sum(event.seeds for event in stepped) == 2 * len(links)
    assert all(0 < event.loss < 3 for event in stepped)
    ended = [event for event in events if isinstance(event, EpochEnded)]
    assert [event.validation for event in ended] == [event.figures["Hits@3"] for event in ended]
    assert isinstance(finished, Finished)
    assert (finished.metric, finished.test) == ("Hits@3", result.figures["Hits@3"])
    assert finished.figures == result.figures


def test_runs_repeat_and_resume_to_the_same_bits(graph, tmp_path):
    whole, _ = run(graph, epochs=3, checkpoint=tmp_path / "whole", checkpoint_every=7, keep=99, decoder="mlp")
    steps = sorted((tmp_path / "whole").glob("step-*"))
    for step in steps[len(steps) // 2 :]:
        shutil.rmtree(step)
    resumed, events = run(
        graph, epochs=3, checkpoint=tmp_path / "whole", checkpoint_every=7, keep=99, decoder="mlp", resume=True
    )
    assert any("going on from" in getattr(event, "text", "") for event in events)
    assert same_bits(whole.model, resumed.model)
    assert resumed.history == whole.history
    assert resumed.figures == whole.figures
    assert not same_bits(whole.model, run(graph, epochs=3, decoder="mlp", seed=1)[0].model)


def test_a_users_model_is_trained_in_place(graph):
    encoder = GraphSAGE(graph.num_features, 16, 2, 16)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    result = weft.train(graph, encoder, task="link", fanouts=[5, 5], epochs=1, eval_negatives=5, log="json")
    assert isinstance(result.model, LinkPredictor)
    assert result.model.encoder is encoder
    assert np.array_equal(weft.infer(result.model, graph).outputs, weft.infer(encoder, graph).outputs)
    assert not any(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


@pytest.mark.parametrize("full", [False, True])
def test_no_message_goes_over_a_link_that_is_held_out(graph, full, monkeypatch):
    """Neither in training nor in evaluation, by either mode."""
    split, seen, original = split_links(graph, "90/5/5", 0), [], BlockModel.__call__

    def watch(self, x, program, key=None):
        seen.append(program)
        return original(self, x, program, key)

    monkeypatch.setattr(BlockModel, "__call__", watch)
    run(graph, epochs=1, **({"full_graph": True, "layers": 2} if full else {}))
    edges = 0
    for program in seen:
        for layer, vertices in zip(program.layers, program.vertices[:-1], strict=True):
            src, dst = (
                vertices.numpy()[ends.numpy()].astype(np.int64)
                for ends in (layer.here.block.src, layer.here.block.dst())
            )
            edges += len(src)
            for name in ("validation", "test"):
                assert not split.parts[name].join(src, dst).any()
            assert (split.parts["train"].join(src, dst) | (src == dst)).all()
    assert edges


def test_pieces_of_scores_are_as_good_as_all_at_once(graph, monkeypatch):
    whole = run(graph, full_graph=True, layers=2, decoder="mlp", dtype="float64")[0]
    monkeypatch.setattr(module, "_SCORES", 300)
    pieces = run(graph, full_graph=True, layers=2, decoder="mlp", dtype="float64")[0]
    one, other = (torch.cat([p.flatten() for p in result.model.parameters()]) for result in (whole, pieces))
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert whole.figures == pytest.approx(pieces.figures)


def test_pieces_of_scores_grow_with_the_graph(graph, monkeypatch):
    """Back from each it is gone over all rows: of equal pieces, time would grow with links times rows."""
    spans, loss_of = [], LinkObjective._loss_of

    def noted(self, *given):
        spans.append(given[-2:])
        return loss_of(self, *given)

    monkeypatch.setattr(module, "_SCORES", 60)
    monkeypatch.setattr(LinkObjective, "_loss_of", noted)
    run(graph, full_graph=True, layers=2, epochs=1)
    assert max(end - first for first, end in spans) == graph.num_vertices // 4  # of two pairs each


def test_a_worker_with_all_rows_scores_and_copies_some_at_a_time(graph, monkeypatch):
    """As the first one does where evaluation is exact, however many workers there are."""
    objective, scored, copied = LinkObjective().setup(graph, settings()), [], []
    model, vertices = make_model(settings(decoder="mlp"), graph).requires_grad_(False), objective.vertices("test")
    rows = torch.randn(len(vertices), 16)
    score, copy_rows = LinkPredictor.score, PairTargets.rows

    def noted_score(self, heads, tails):
        scored.append(len(heads))
        return score(self, heads, tails)

    def noted_rows(self, out, comm):
        there = copy_rows(self, out, comm)
        copied.append(len(there))
        return there

    alone = objective.measure(model, "test", [(vertices, rows)], Communicator())
    monkeypatch.setattr(module, "_SCORES", 21 * 20)
    monkeypatch.setattr(LinkPredictor, "score", noted_score)
    monkeypatch.setattr(PairTargets, "rows", noted_rows)
    with meshed(4) as (sockets, _):
        made = comms(sockets)
        held = [[(vertices, rows)], [], [], []]
        got = together(lambda rank: objective.measure(copy.deepcopy(model), "test", held[rank], made[rank]), 4)
    assert max(scored) == 20 and sum(scored) == objective.count("test")
    assert max(copied) <= 20 * 22 < len(vertices)
    assert all(figures == pytest.approx(alone) for figures in got)


def test_no_negative_is_drawn_to_see_that_all_vertices_are_ends(graph, monkeypatch):
    given = settings(eval_negatives=200)
    objective = LinkObjective().setup(graph, given)
    monkeypatch.setattr(module, "_SURE", np.inf)
    drawn = LinkObjective().setup(graph, given).vertices("test")
    monkeypatch.undo()
    objective.evaluated = None
    assert np.array_equal(objective.vertices("test"), drawn)


def test_batches_are_the_same_for_any_partition(graph, tmp_path):
    write_partitioned(graph, allocate(graph, 3, "metis"), 3, tmp_path / "parts")
    parts = weft.Graph.open(tmp_path / "parts")
    for negatives in ("uniform", "batch"):
        one, other = (
            LinkObjective().setup(of, settings(negatives=negatives, num_negatives=2)) for of in (graph, parts)
        )
        for number, (mine, theirs) in enumerate(zip(one.batches(200).of(1), other.batches(200).of(1), strict=True)):
            assert np.array_equal(mine, theirs)
            here, there = one.pairs(mine, 1, number), other.pairs(theirs, 1, number)
            assert np.array_equal(here.heads, parts.original_ids[there.heads])
            assert np.array_equal(here.tails, parts.original_ids[there.tails])
            some = np.array([7, 3])
            assert np.array_equal(one.pairs(mine, 1, number, some).tails, here.tails[some])
        assert np.array_equal(one.vertices("test"), parts.original_ids[other.vertices("test")])


def test_figures_by_slow_loops():
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.integers(0, 6, (30, 8)).astype(np.float64))  # with ties
    for got, row in zip(ranks(scores).tolist(), scores.tolist(), strict=True):
        above, same = (
            sum(1 for other in row[1:] if compare(other, row[0])) for compare in (float.__gt__, float.__eq__)
        )
        assert got == 1 + above + same / 2
    assert ranks(torch.tensor([[float("nan"), 1.0, 2.0], [1.0, float("nan"), 0.0]])).tolist() == [3, 2]
    assert ranks(torch.tensor([[1.0, float("inf"), 0.0], [float("inf"), float("inf"), 1.0]])).tolist() == [2, 1.5]
    assert auc(np.array([1.0, np.inf]), np.array([0.0, np.inf])) == (1 / 2 + 3 / 4) / 2
    links, others = scores[:, 0].numpy(), scores[:, 1].numpy()
    wins = [1.0 if link > other else 0.5 if link == other else 0.0 for link in links for other in others]
    assert auc(links, others) == pytest.approx(np.mean(wins))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("around", [0.0, 5.0])
def test_ties_that_are_rounded_apart_are_ties(dtype, around):
    """As scores of vertices with the same inputs are, each of which a plan computes in another order."""
    rng = np.random.default_rng(1)
    exact = torch.from_numpy(around + rng.integers(-3, 4, (40, 9)) / 8.0).to(dtype)
    noise = torch.from_numpy(rng.integers(-6, 7, exact.shape)).to(dtype) * torch.finfo(dtype).eps
    rounded = exact + noise * (1 + around)
    assert not torch.equal(exact, rounded)
    assert ranks(rounded).tolist() == ranks(exact).tolist()
    (links, others), (links_too, others_too) = ([*scores[:, :2].double().numpy().T] for scores in (exact, rounded))
    assert auc(links_too, others_too, dtype) == auc(links, others, dtype) == auc(links, others)


def test_the_command(folder, tmp_path, capsys):
    flags = ["--task", "link", "--fanouts", "5,5", "--hidden", "16", "--epochs", "2", "--decoder", "mlp"]
    flags += ["--eval-negatives", "20", "--threads", "1"]
    assert cli.main(["train", str(folder), *flags, "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().out
    assert "validation MRR" in told
    assert "test  MRR" in told
    assert "AUC" in told
    assert cli.main(["train", str(folder), *flags, "--log", "json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(records[-1]["figures"]) == {"MRR", "Hits@10", "AUC"}
    embed = ["embed", str(folder), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "rows.npy")]
    assert cli.main(embed) == 0
    assert np.load(tmp_path / "rows.npy").shape == (1000, 16)
    assert cli.main([*embed, "--what", "predictions", "--overwrite"]) == 2
    assert "a model of links predicts no classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"task": "vertex", "decoder": "mlp"}, "decoder means nothing to task = 'vertex'"),
        ({"task": "vertex", "eval_negatives": 3}, "eval_negatives means nothing to task = 'vertex'"),
        ({"task": "link", "margin": 0.5}, "margin means nothing to loss = 'bce'"),
        ({"task": "link", "hits": 500}, "hits = 500 is more than eval_negatives = 100"),
        ({"task": "link", "metric": "hits", "eval_negatives": 5}, "every link would be a hit: lower hits"),
    ],
)
def test_contradictions(given, match):
    with pytest.raises(ConfigError, match=match):
        Settings.of(**given)


def test_the_dry_run_walks_from_the_ends_of_links(graph, tmp_path):
    """Its batches are the vertices that each batch of links computes, drawn over messages alone."""
    write_partitioned(graph, allocate(graph, 2, "random"), 2, tmp_path / "parts")
    parts = weft.Graph.open(tmp_path / "parts")
    objective = LinkObjective().setup(parts, settings())
    ends = [objective.pairs(batch, 0, n).ends() for n, batch in enumerate(objective.batches(300).of(0))]
    examples = objective.first_epoch(300)
    sampling = Sampling((-1, -1), 300)
    owners, costs = Owners(parts.bounds), [(1.0, 1.0)] * 2
    found = DryRun(objective.graph, sampling, Workers(owners, [0, 1]), costs, examples).run()
    assert found.of_epoch == len(ends)
    assert found.batch.seeds == pytest.approx(np.mean([len(batch) for batch in ends]), rel=0.03)
    degrees = np.diff(objective.graph.indptr)
    lists = np.mean([degrees[batch].sum() for batch in ends])
    assert found.batch.drawn[Key(1, "spread")].lists.sum() == pytest.approx(
        lists, rel=0.03
    )  # of the batches it looked at


@pytest.mark.parametrize("given", [{}, {"negatives": "batch", "micro_batches": 2}])
def test_planning_draws_the_negatives_of_those_batches_alone_that_it_looks_at(graph, given):
    chosen, drawn = settings(**given), []
    objective = LinkObjective().setup(graph, chosen)
    made = objective.pairs

    def pairs(batch, epoch, number, places):
        drawn.append((number, len(places)))
        return made(batch, epoch, number, places)

    objective.pairs = pairs
    task = task_of(chosen, 2, 128, objective, workers=2)
    parts = given.get("micro_batches", 1)
    assert sum(of_batch().size for of_batch in task.examples) == objective.count("train") and not drawn
    owners = Owners(np.array([0, 500, 1000]))
    costs, workers = [(1.0, 1.0)] * 2, Workers(owners, [0, 1])
    found = DryRun(objective.graph, task.sampling, workers, costs, task.examples).run(3)
    assert len(found.each) < found.of_epoch // 2
    assert drawn[:2] == [(number // parts, 128 // parts) for number in range(2)]
    assert len(drawn) == len(found.each)
    ends = [len(task.examples[number]().vertices) for number in range(3)]
    assert found.batch.seeds == pytest.approx(np.mean(ends), rel=0.02) and found.batch.seeds > 2 * 128 / parts


def test_what_workers_hold_is_told_in_the_type_of_ids(graph):
    told = []

    class Of(Communicator):
        def gather_arrays(self, own, stage):
            told.extend(own)
            return [[*own, np.array([1, 2], dtype=np.int32)]]

    links = LinkObjective()
    links.graph = graph
    holders = links._holders(np.array([0, 3]), Of(0, 2))
    assert holders[:4].tolist() == [0, 1, 1, 0]
    assert [array.dtype for array in told] == [np.int32]
