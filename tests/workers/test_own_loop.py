"""A loop of one's own trains what `weft.train` trains: the same bits, on one worker and on several, by every plan."""

import json
import os
import re
from functools import cache, partial
from itertools import islice
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from launcher import anew, ran
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import weft
from weft.errors import ConfigError, InputError
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import NAMED, OF_GRAPH, Settings
from weft.training import Trainer
from weft.training.evaluation import measure

EPOCHS = 2
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    whole = communities(folder / "1", vertices=500, edges=5000, width=6, classes=4, train=0.4, block=50)
    write_partitioned(whole, allocate(whole, 3, "metis", seed=3), 3, folder / "3")
    write_partitioned(whole, allocate(whole, 2, "metis", seed=3), 2, folder / "2")
    return folder


def make_model(graph):
    with seeded(11):
        return GraphSAGE(graph.num_features, 8, 2, graph.num_classes, dropout=0.3)


def settings_of(world, options):
    batches = {} if "full_graph" in options else {"fanouts": (4, 3), "batch_size": 60 // world.size}
    return {"seed": 5, "threads": 1} | batches | options


def by_weft(world, folder, options):
    """The model after some epochs of a trainer."""
    graph = open_graph(folder / str(world.size))
    trainer = Trainer(graph, make_model(graph), Settings.of(lr=0.01, **settings_of(world, options)), world=world)
    losses = [trainer.train_epoch(epoch)[1] for epoch in range(EPOCHS)]
    trainer.close()
    return losses, trainer.model.state_dict()


def fitted(world, folder, options, **given):
    """The model after a whole run, as `weft.train` makes it. `given`: how it optimises."""
    graph = open_graph(folder / str(world.size))
    settings = Settings.of(lr=0.01, epochs=EPOCHS, evaluate_every=0, **given, **settings_of(world, options))
    trainer = Trainer(graph, make_model(graph), settings, world=world)
    result = trainer.fit()
    return [epoch["loss"] for epoch in result.history], trainer.model.state_dict()


def by_hand(world, folder, options, make_optimizer=torch.optim.Adam, clip_norm=0.0, rates=(1.0,) * 100):
    """The same, as anyone would write it. `rates`: the learning rate of each step, as a share of the usual one."""
    graph = open_graph(folder / str(world.size))
    model, losses, steps = make_model(graph), [], iter(rates)
    loader = weft.Loader(graph, world=world, **settings_of(world, options))
    run = weft.parallel(model, loader)
    optimizer = make_optimizer(run.model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        total, seeds = 0.0, 0
        for batch in loader:
            optimizer.zero_grad()
            own = 0.0
            for part in batch:
                loss = F.cross_entropy(run(part), part.y, reduction="sum")
                (loss / batch.size).backward()
                own += float(loss.detach())
            (of_all,) = run.sync(own)
            if clip_norm:
                assert torch.nn.utils.clip_grad_norm_(run.model.parameters(), clip_norm) > clip_norm
            optimizer.param_groups[0]["lr"] = 0.01 * next(steps)
            optimizer.step()
            total, seeds = total + of_all, seeds + batch.size
        losses.append(total / seeds)
    run.close()
    return losses, run.model.state_dict()


CASES = [{"plan": name} for name in NAMED] + [{"plan": name, "full_graph": True} for name in OF_GRAPH]
CASES += [{"plan": "gdp", "micro_batches": 3}, {"plan": "push,push", "sampler": "labor"}]


@pytest.mark.parametrize("options", CASES, ids=lambda options: " ".join(map(str, options.values())))
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bits(ranks, parts, workers, options):
    wanted, got = (ranks(workers, train, parts, options) for train in (by_weft, by_hand))
    for (losses, model), (other_losses, other) in zip(wanted, got, strict=True):
        assert losses == other_losses
        assert model.keys() == other.keys()
        assert all(torch.equal(model[name], other[name]) for name in model)


SGD, AdamW, Adam = torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam
HALF_A_WAVE = (1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987)
OPTIMISED = [  # what Weft is given, and what is written by hand
    ({"optimizer": "sgd"}, {"make_optimizer": partial(SGD, momentum=0.9)}),
    (
        {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.1},
        {"make_optimizer": partial(SGD, momentum=0.5, weight_decay=0.1)},
    ),
    ({"optimizer": "adamw", "weight_decay": 0.1}, {"make_optimizer": partial(AdamW, weight_decay=0.1)}),
    ({"weight_decay": 0.1}, {"make_optimizer": partial(Adam, weight_decay=0.1)}),
    (
        {"optimizer": "sgd", "clip_norm": 0.02},
        {"make_optimizer": partial(SGD, momentum=0.9), "clip_norm": 0.02},
    ),
    ({"schedule": "linear"}, {"rates": (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125)}),
    ({"schedule": "cosine", "warmup": 0.5}, {"rates": (1 / 3, 2 / 3, *HALF_A_WAVE)}),
]


@pytest.mark.parametrize("workers", [1, 2])
def test_optimisers_and_rates_are_those_of_torch(ranks, parts, workers):
    """Two epochs of four steps; each setting counts."""
    usual = ranks(workers, by_hand, parts, {"plan": "split"})[0][1]
    for given, written in OPTIMISED:
        wanted, got = (
            ranks(workers, partial(train, **how), parts, {"plan": "split"})
            for train, how in ((by_hand, written), (fitted, given))
        )
        for (losses, model), (other_losses, other) in zip(wanted, got, strict=True):
            assert other_losses == pytest.approx(losses, rel=1e-5), given
            for name, found in other.items():
                torch.testing.assert_close(found, model[name], rtol=1e-4, atol=1e-6, msg=f"{name}, {given}")
        assert any((model[name] - one).abs().max() > 1e-4 for name, one in usual.items()), given


def test_batches_have_seeds_rows_labels_and_blocks(ranks, parts):
    def look(world):
        graph = open_graph(parts / str(world.size))
        loader = weft.Loader(graph, [4, 3], 60 // world.size, "split", world=world, seed=5, threads=1)
        run, seen = weft.parallel(make_model(graph), loader), []
        for batch in loader:
            assert batch.size == (60 if batch.index + 1 < len(loader) else 200 % 60)
            assert torch.equal(batch.y, torch.from_numpy(graph.labels)[batch.seeds].long())
            assert batch.x.shape == (len(batch.part.program.vertices[0]), 6)
            assert [block.num_dst for block in batch.blocks][-1] == len(batch.seeds) == len(run(batch))
            seen.append(
                batch.seeds if graph.original_ids is None else torch.from_numpy(graph.original_ids)[batch.seeds]
            )
        assert len(seen) == len(loader) == 4
        return seen

    alone = ranks(1, look)[0]
    three = ranks(3, look)
    for number, seeds in enumerate(alone):
        assert torch.cat([of[number] for of in three]).sort()[0].tolist() == seeds.sort()[0].tolist()
    assert len(set(torch.cat(alone).tolist())) == 200


def test_a_loader_goes_on_in_the_middle_of_an_epoch(ranks, parts):
    def go_on(world):
        graph = open_graph(parts / str(world.size))

        def made():
            loader = weft.Loader(graph, [4, 3], 60 // world.size, "leap", world=world, seed=5, threads=1)
            return loader, weft.parallel(make_model(graph), loader)

        loader, run = made()
        whole = [(batch.epoch, batch.index, run(batch).detach()) for _ in range(2) for batch in loader]
        run.close()
        loader, run = made()
        begun = [(batch.epoch, batch.index, run(batch).detach()) for _ in range(1) for batch in islice(loader, 3)]
        begun += [
            (batch.epoch, batch.index, run(batch).detach()) for batch in loader
        ]  # the rest, after a loop was left
        begun += [(batch.epoch, batch.index, run(batch).detach()) for batch in islice(loader, 1)]
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 1)
        run.close()
        loader, run = made()
        loader.load_state_dict(state)
        begun += [(batch.epoch, batch.index, run(batch).detach()) for batch in loader]
        with pytest.raises(ConfigError, match="a loader with seed = 5, here it is 6"):
            weft.Loader(graph, [4, 3], 60 // world.size, world=world, seed=6).load_state_dict(state)
        seeds = graph.seeds("train")
        other_seeds = [*seeds[:-1], next(at for at in range(graph.num_vertices) if at not in seeds)]
        others = {"fanouts": [4, 2], "replace": True, "sampler": "labor", "seeds": other_seeds}
        for name, other in others.items():
            given = {"fanouts": [4, 3], "seed": 5, name: other}
            loader_of_others = weft.Loader(graph, batch_size=60 // world.size, world=world, **given)
            said = {"seeds": "examples"}.get(name, name)
            with pytest.raises(ConfigError, match=f"a loader with {said} = .*, here it is "):
                loader_of_others.load_state_dict(state)
        run.close()
        assert [one[:2] for one in whole] == [one[:2] for one in begun]
        assert all(torch.equal(one[2], other[2]) for one, other in zip(whole, begun, strict=True))

    ranks(1, go_on)
    ranks(3, go_on)


def test_a_loader_that_is_left_anywhere_gives_each_batch_once(ranks, parts):
    def go_on(world):
        graph = open_graph(parts / str(world.size))

        def made():
            loader = weft.Loader(graph, [4, 3], 48 // world.size, world=world, seed=5, threads=1)  # of five batches
            return loader, weft.parallel(make_model(graph), loader)

        def rows(batches):
            return [(batch.epoch, batch.index, run(batch).detach()) for batch in batches]

        def same(some, others):
            assert [one[:2] for one in some] == [one[:2] for one in others]
            assert all(torch.equal(one[2], other[2]) for one, other in zip(some, others, strict=True))

        loader, run = made()
        fresh, first, second = loader.state_dict(), rows(loader), rows(loader)
        run.close()
        for count in range(1, len(loader) + 1):  # the next epoch's batches are begun before the last one is given
            loader, run = made()
            left = rows(islice(loader, count))
            same([*left, *(rows(loader) if count < len(loader) else []), *rows(loader)], first + second)
            run.close()
        loader, run = made()
        rows(loader), rows(islice(loader, 3))
        middle = loader.state_dict()
        loader.load_state_dict(fresh)
        rows(loader)
        loader.load_state_dict(middle)  # forward, when its epoch was begun from its first batch on
        same(rows(loader), second[3:])
        loader.load_state_dict(middle)  # and back
        same(rows(loader), second[3:])
        with pytest.raises(ConfigError, match=f"of batch 99 of an epoch, here one has {len(loader)} batches"):
            loader.load_state_dict(fresh | {"batch": 99})
        run.close()

    ranks(1, go_on)
    ranks(3, go_on)


def test_a_script_that_goes_on_trains_the_epochs_that_are_left(ranks, parts):
    """Whichever batch it was saved behind, an epoch's last one too."""
    epochs, batches = 2, 4

    def seen(world, state=None, stop=None):
        graph, found, saved = open_graph(parts / str(world.size)), [], None
        loader = weft.Loader(graph, [4, 3], 60 // world.size, world=world, seed=5, threads=1)
        run = weft.parallel(make_model(graph), loader)
        if state is not None:
            loader.load_state_dict(state)
        for epoch in range(loader.stands_at[0], epochs):
            for batch in loader:
                found.append((batch.epoch, batch.index, batch.seeds.tolist()))
                assert epoch == batch.epoch and loader.in_hand == (epoch, batch.index + 1)
                if len(found) == stop:
                    saved = loader.state_dict()
        run.close()
        return found, saved

    whole, _ = ranks(1, seen)[0]
    for stop in range(1, len(whole) + 1):
        _, state = ranks(1, partial(seen, stop=stop))[0]
        assert (state["epoch"], state["batch"]) == divmod(stop, batches)
        assert ranks(1, partial(seen, state=state))[0][0] == whole[stop:]
    older = state | {"epoch": 0, "batch": batches}  # as states were that were saved behind an epoch's last batch
    assert ranks(1, partial(seen, state=older))[0][0] == whole[batches:]


def test_chosen_vertices_and_evaluation(ranks, parts):
    graph = open_graph(parts / "1")
    chosen = torch.zeros(500, dtype=torch.bool)
    chosen[::7] = True
    loader = weft.Loader(graph, [-1, -1], 20, seeds=chosen)
    run = weft.parallel(make_model(graph).eval(), loader)
    assert torch.cat([batch.seeds for batch in loader]).sort()[0].tolist() == list(range(0, 500, 7))
    rows = torch.cat([run(batch).detach() for batch in loader.over("validation")])
    seeds = torch.cat([batch.seeds for batch in loader.over("validation")])
    assert seeds.tolist() == graph.seeds("validation").tolist()
    exact = weft.infer(run.model, graph).outputs
    torch.testing.assert_close(rows, torch.from_numpy(exact[seeds.numpy()]), rtol=1e-4, atol=1e-5)
    run.close()


def test_batches_to_evaluate_by_are_made_once_and_gone_over_after_each_epoch(ranks, parts):
    """Whatever model and plan their loader has by then."""

    def evaluated(world):
        graph = open_graph(parts / str(world.size))
        loader = weft.Loader(graph, batch_size=60 // world.size, world=world, seed=5, threads=1)
        validation = loader.over("validation")
        assert len(validation) == 1 and repr(validation) == "BatchesOver(60 vertices in 1 batches)"
        with pytest.raises(ConfigError, match="this loader has no model yet"):
            next(iter(validation))
        run, seen = weft.parallel(make_model(graph).eval(), loader), []
        for _ in range(2):
            for batch in loader:
                run(batch)
            seen.append(torch.cat([run(batch).detach() for batch in validation]))
        assert torch.equal(*seen)
        assert int(run.sum(len(seen[0]))) == 60
        with seeded(11):
            model = GraphSAGE(6, 8, 3, 4).eval()
        deeper = weft.parallel(model, loader)
        assert int(run.sum(sum(len(deeper(batch)) for batch in validation))) == 60
        batch = next(going := iter(validation))
        assert len(batch.blocks) == 3
        deeper.use("gdp")
        with pytest.raises(ConfigError, match="has got another plan or model, while a loop goes over vertices by it"):
            next(going)
        assert int(run.sum(sum(len(batch.seeds) for batch in validation))) == 60
        deeper.close()
        run.close()

    ranks(1, evaluated)
    ranks(3, evaluated)


def test_what_would_have_no_effect_is_refused(parts):
    graph, learned = open_graph(parts / "1"), weft.VertexObjective()
    settings, chosen = Settings.of(fanouts=(4, 3), batch_size=50, threads=1), [1, 2, 3]
    with pytest.raises(ConfigError, match="fanouts, batch_size, seed would have no effect beside settings"):
        weft.Loader(graph, [4, 3], 10, seed=9, settings=settings)
    beside = [
        ({"objective": learned, "seeds": chosen}, "objective and seeds"),
        ({"objective": learned, "task": "link"}, "objective and task = 'link'"),
        ({"task": "link", "split": "validation"}, "task = 'link' and split = 'validation'"),
        ({"seeds": chosen, "split": "validation"}, "seeds and split = 'validation'"),
    ]
    for both, named in beside:
        with pytest.raises(ConfigError, match=f"^{named} both say what the batches are of: give one of them"):
            weft.Loader(graph, [4, 3], **both)
    with pytest.raises(ConfigError, match="plan='snp seeds=home'"):
        weft.Loader(graph, [4, 3], 10, "snp", seeds="home")
    loader = weft.Loader(graph, [4, 3], 10, "split wire=float16", dtype="float64")
    with pytest.raises(ConfigError, match="wire=float16 would have no effect on rows of float64"):
        weft.parallel(make_model(graph), loader)
    model, one = make_model(graph), {"fanouts": [4, 3], "epochs": 1}
    with pytest.raises(ConfigError, match="objective and loss are both given"):
        weft.train(graph, model, objective=learned, loss=F.cross_entropy, **one)
    with pytest.raises(ConfigError, match="task = 'link' has no effect beside a function as loss, which is of rows"):
        weft.train(graph, model, task="link", loss=F.cross_entropy, **one)
    with pytest.raises(ConfigError, match="task = 'link' has no effect beside objective"):
        weft.train(graph, model, task="link", objective=learned, **one)


def test_held_out_links_are_measured_in_a_loop_of_ones_own(ranks, parts):
    """As docs/training.md does."""

    def measured(world):
        graph = open_graph(parts / str(world.size))
        told = {"task": "link", "threads": 1, "eval_negatives": 20, "seed": 5}
        loader = weft.Loader(graph, [4, 3], 60, "split", world=world, **told)
        run = weft.parallel(make_model(graph), loader)
        run.model.eval()
        with torch.no_grad():
            vertices = loader.objective.vertices("validation")
            outputs = ((batch.seeds.cpu().numpy(), run(batch)) for batch in loader.over(vertices))
            figures = loader.objective.measure(run.model, "validation", outputs, loader.comm)
        wanted = measure(run, "validation")
        run.close()
        assert figures == wanted and [*figures] == ["MRR", "Hits@10", "AUC"]
        return figures

    assert ranks(3, measured)[2] == pytest.approx(ranks(1, measured)[0])


@pytest.mark.parametrize("whose", ["all", "the model's", "the model's, frozen", "all, loaded", "all, by turns"])
def test_a_decoder_that_no_optimizer_moves_is_told_of_once(parts, whose):
    graph, told = open_graph(parts / "1"), []
    made = {"task": "link", "decoder": "mlp", "hidden": 4, "threads": 1, "notify": told.append}  # hidden: the decoder's
    loader, model = weft.Loader(graph, [2, 2], 600, **made), make_model(graph)
    run = weft.parallel(model, loader)
    before = [one.detach().clone() for one in run.model.decoder.parameters()]
    for one in model.parameters() if "frozen" in whose else ():
        one.requires_grad_(False)
    if "loaded" in whose:
        model.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam((run.model if whose != "the model's" else model).parameters(), lr=0.01)
    for batch in islice(loader, 5):
        for one in run.model.decoder.parameters() if "by turns" in whose else ():
            one.requires_grad_(batch.index % 2 == 1)
        optimizer.zero_grad()
        (loader.objective.loss(run.model, run(batch), batch.part.targets) / batch.terms).backward()
        run.sync()
        optimizer.step()
    run.close()
    moved = [not torch.equal(*pair) for pair in zip(before, run.model.decoder.parameters(), strict=True)]
    assert all(moved) == (whose != "the model's") and any(moved) == all(moved)
    names = "decoder.first.weight, decoder.first.bias, decoder.second.weight"
    wanted = f"{names} are trained with the model, but the optimizer .* give it run.model.parameters"
    assert len(told) == (whose == "the model's") and all(re.match(wanted, text) for text in told)


def test_plans_change_between_loops(parts):
    loader = weft.Loader(open_graph(parts / "1"), [4, 3], 60)
    run = weft.parallel(make_model(loader.graph), loader)
    for batch in loader:
        with pytest.raises(ConfigError, match="the plan can't change while a loop goes over the loader"):
            run.use(None)
        assert len(run(batch)) == len(batch.seeds)
        break
    run.use(None)
    assert [batch.index for batch in loader] == [1, 2, 3]
    run.close()


def test_each_is_shown_in_a_line(parts):
    graph = open_graph(parts / "1")
    model = make_model(graph)
    result = weft.train(graph, model, epochs=3, fanouts=[2, 2], log="none", threads=1)
    assert re.fullmatch(
        r"Result\(GraphSAGE, 3 epochs, best_epoch \d, validation [01]\.\d{4}, test [01]\.\d{4}\)", repr(result)
    )
    loader = weft.Loader(graph, [4, 3], 60, threads=1, device="cpu")
    assert repr(loader) == "Loader(4 batches of 60, at batch 0 of epoch 0, 1 workers)"
    run = weft.parallel(model, loader)
    batch = next(iter(loader))
    plan = "plan local+local seeds=spread"
    assert repr(loader) == f"Loader(4 batches of 60, at batch 1 of epoch 0, 1 workers, {plan})"
    assert repr(run) == f"Run(GraphSAGE, {plan}, 1 workers, on cpu)"
    assert repr(batch) == "Batch(epoch 0, index 0, size 60, 1 parts)"
    assert repr(batch.part) == f"Part(60 seeds, {len(batch.x)} input rows of 6, 2 layers)"
    run.close()


def test_mistakes(parts):
    graph = open_graph(parts / "1")
    loader = weft.Loader(graph, [4, 3], micro_batches=2)
    with pytest.raises(ConfigError, match=r"no model yet, on which its plan depends: call run = weft.parallel"):
        next(iter(loader))
    run = weft.parallel(make_model(graph), loader)
    with pytest.raises(ConfigError, match=r"in 2 parts .*compute each of them, as in `for part in batch"):
        run(next(iter(loader)))
    run.close()
    with pytest.raises(ConfigError, match=r"device 'cuda:7' is not here \(.*\): choose device = 'cpu'"):
        weft.Loader(graph, [4, 3], device="cuda:7")
    with pytest.raises(ConfigError, match=r"device 'meta' is not here \(.*\): choose device = 'cpu'"):
        weft.Loader(graph, [4, 3], device="meta")
    with pytest.raises(ConfigError, match="seeds run from 3 to 500, but there are 500 vertices"):
        weft.Loader(graph, [4, 3], seeds=torch.tensor([3, 500]))
    with pytest.raises(ConfigError, match="Loader: there is no setting 'fanout'; did you mean 'fanouts'"):
        weft.Loader(graph, fanout=3)


STARTS = pytest.mark.parametrize("start", [ran, pytest.param(anew, marks=pytest.mark.slow)])


def run_script(folder, name, *arguments, workers=1, start=ran):
    """What a script prints; what PyG and torchrun leave in the temporary directory comes into a folder."""
    program = ["torchrun", "--nproc-per-node", workers] if workers > 1 else ["python"]
    done = start([*program, EXAMPLES / name, *arguments], os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def example(folder, name, *arguments, **how):
    """Losses that an example prints."""
    lines = run_script(folder, name, *arguments, **how).splitlines()
    return [float(line.split()[3]) for line in lines if line.startswith("epoch ")]


@STARTS
def test_the_example_on_one_worker_and_under_torchrun(parts, tmp_path, start):
    losses = example(tmp_path, "own_loop.py", parts / "1", "gdp", start=start)
    assert losses[-1] < losses[0]
    two = example(tmp_path, "own_loop.py", parts / "2", "split", workers=2, start=start)
    assert two == pytest.approx(losses, abs=2e-4)


def test_the_other_examples_run(tmp_path):
    """On a graph so small that the one that stops by itself does so soon."""
    communities(tmp_path / "graph", vertices=100, edges=700, width=6, classes=2, train=0.4, block=20)
    for name, told, given in (
        ("train_pyg_model.py", r"test accuracy \d+\.\d\d% with [\d,]+ parameters", True),
        ("custom_convolution.py", r"\n0\.\d+\n", True),
        ("full_graph.py", r"test accuracy \d+\.\d\d% after \d+ updates", True),
        ("link_prediction.py", r"the likeliest links of vertex 0: \[\d+(, \d+){4}\]", True),
        ("hetero_data.py", r"test accuracy \d+\.\d%", False),
    ):
        said = run_script(tmp_path, name, *[tmp_path / "graph"][: int(given)])
        assert re.search(told, said), f"{name}: {said}"


BITS = """
import hashlib, json, os, sys
from pathlib import Path
import torch, weft
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

graph = weft.Graph.open(sys.argv[1])


def made():
    torch.manual_seed(0)
    return GraphSAGE(graph.num_features, 8, num_layers=2, out_channels=graph.num_classes, dropout=0.3)


def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]


def own_loop(options):
    model = made()
    loader = weft.Loader(graph, **options)
    run = weft.parallel(model, loader)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:
                loss = F.cross_entropy(run(part), part.y, reduction="sum") / batch.size
                loss.backward()
            run.sync()
            optimizer.step()
    run.close()
    return digest(model)


def by_weft(options):
    model = made()
    weft.train(graph, model, epochs=2, lr=0.01, evaluate_every=0, log="json", **options)
    return digest(model)


bits = []
for options in json.loads(sys.argv[3]):
    options |= {"seed": 5, "threads": 1} | ({} if "full_graph" in options else {"fanouts": [4, 3], "batch_size": 30})
    bits.append([own_loop(options), by_weft(options), digest(made())])
(Path(sys.argv[2]) / f"{os.environ['RANK']}.json").write_text(json.dumps(bits))
"""


@pytest.mark.parametrize(
    "cases", [CASES[::3], pytest.param(CASES, marks=pytest.mark.slow)], ids=["some plans", "every plan"]
)
def test_the_same_bits_under_torchrun(parts, tmp_path, cases):
    """A plan's loop and `weft.train`, in processes that torchrun starts; both workers end with the same parameters."""
    (tmp_path / "bits.py").write_text(BITS)
    run_script(tmp_path, tmp_path / "bits.py", parts / "2", tmp_path, json.dumps(cases), workers=2)
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert one == other
    assert [own == by_weft != before for own, by_weft, before in one] == [True] * len(cases)


SEVERAL = """
import sys, torch, weft
from torch_geometric.nn import GraphSAGE

graph = weft.Graph.open(sys.argv[1])
torch.manual_seed(0)
model = GraphSAGE(graph.num_features, 8, 2, graph.num_classes)
for split in ("train", "validation"):
    loader = weft.Loader(graph, [4, 3], 50, "gdp", split=split)
    run = weft.parallel(model, loader)
    seeds = run.sum(torch.tensor([sum(len(run(batch)) for batch in loader)]))
    if loader.world.rank == 0:
        print("epoch", split, "seeds", int(seeds), flush=True)
for _ in range(2):
    weft.train(graph, model, fanouts=[4, 3], epochs=1, plan="gdp", log="json")
"""


@STARTS
def test_a_script_may_have_several_loaders_and_runs(parts, tmp_path, start):
    """Under torchrun too, where workers can meet only once."""
    (tmp_path / "several.py").write_text(SEVERAL)
    assert example(tmp_path, tmp_path / "several.py", parts / "2", workers=2, start=start) == [200, 60]


@STARTS
def test_a_pyg_script_ports_by_its_loader(parts, tmp_path, start):
    graph = open_graph(parts / "1")
    dst = torch.arange(500).repeat_interleave(torch.from_numpy(graph.indptr[1:] - graph.indptr[:-1]))
    edges = torch.stack([torch.from_numpy(graph.indices).long(), dst])
    data = Data(x=torch.from_numpy(graph.features), y=torch.from_numpy(graph.labels).long(), edge_index=edges)
    split = torch.from_numpy(graph.split)
    data.train_mask, data.val_mask, data.test_mask = (split == number for number in range(3))
    torch.save(data, tmp_path / "data.pt")
    for workers in (1, 2):
        losses = example(tmp_path, "port_from_pyg.py", tmp_path / "data.pt", workers=workers, start=start)
        assert len(losses) == 5 and losses[-1] < 0.9 * losses[0]


def test_calls_as_in_pyg_are_told_what_to_do_here(parts):
    """What PyG's users write first, each with the words to write in its place."""
    graph = open_graph(parts / "1")
    model, loader = make_model(graph), weft.Loader(graph, [4, 3], 60, threads=1)
    run = weft.parallel(model, loader)
    batch, data = next(iter(loader)), Data(x=torch.ones(3, 2), edge_index=torch.zeros(2, 1, dtype=torch.int64))
    for said, call in {
        r"takes a loader of Weft, not a Data: loader = weft.Loader\(": lambda: weft.parallel(model, data),
        r"run\(batch\), not run\(x, edge_index\)": lambda: run(batch.x, batch.blocks),
        "takes a batch of its loader": lambda: run(batch.x),
        r"Graph.from_pyg\(data\) makes a graph": lambda: Graph.open(data),
        r"not of a list: take one, as dataset\[0\]": lambda: Graph.from_pyg([data]),
        "'shuffle'; training batches always are": lambda: weft.Loader(graph, shuffle=True),
        "'input_nodes'; weft.Loader takes seeds=": lambda: weft.Loader(graph, input_nodes=[1]),
        "'num_workers'; did you mean 'loaders'": lambda: weft.Loader(graph, num_workers=1),
    }.items():
        with pytest.raises((ConfigError, InputError), match=said):
            call()
    with pytest.raises(
        AttributeError, match=r"a batch has no edge_index: run\(batch\) computes the rows of batch.seeds"
    ):
        _ = batch.edge_index
    assert not hasattr(batch, "n_id")
    with pytest.raises(AttributeError, match=r"a run has no parameters: .* the model's own, .*: model\.parameters"):
        run.parameters()
    run.close()
