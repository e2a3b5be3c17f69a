"""Loops of one's own as they are written elsewhere, on one worker and on several: what is computed is the same."""

import copy
from dataclasses import replace
from functools import cache, partial
from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCN, GATConv, GCNConv, GINConv, GraphSAGE, SAGEConv, SuperGATConv

import weft
from weft.errors import ConfigError, ModelError, TrainingError
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer

PLANS = ["gdp", "split", "migrate"]
NUMBERS = {"dtype": "float64", "threads": 1, "seed": 5}
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    whole = communities(folder / "1", vertices=200, edges=1500, width=6, classes=4, train=0.6, block=50)
    write_partitioned(whole, allocate(whole, 3, "metis", seed=3), 3, folder / "3")
    return folder


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.last = GATConv(width, 4, heads=2), GCNConv(8, 8), nn.Linear(8, 4)

    def forward(self, x, edge_index):
        return self.last(self.second(self.first(x, edge_index).relu(), edge_index).tanh())


def made(world, folder, plan, seed=3, beside=(), **options):
    """A loader, a model and what runs it."""
    graph = open_graph(folder / str(world.size))
    options = NUMBERS | options
    loader = weft.Loader(graph, [-1, -1], 36 // world.size, plan, world=world, **options)
    with seeded(seed):
        model = Model(graph.num_features).to(getattr(torch, options["dtype"]))
    return loader, model, weft.parallel(model, loader, *beside)


def loss_of(run, part, batch):
    return F.cross_entropy(run(part), part.y, reduction="sum") / batch.size


def backward(run, batch):
    for part in batch:
        loss_of(run, part, batch).backward()


def train(run, loader, optimizer):
    """An epoch."""
    for batch in loader:
        optimizer.zero_grad()
        backward(run, batch)
        run.sync()
        optimizer.step()


def flat(*modules):
    return torch.cat([p.detach().flatten() for module in modules for p in module.parameters()])


def agree(ranks, parts, plan, loop):
    """A loop's parameters on three workers are those on one, where it is plain PyTorch."""
    (alone,) = ranks(1, loop, parts, None)
    for each in ranks(3, loop, parts, plan):
        assert (each - alone).abs().max() < 1e-10


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_were_summed_are_added_to(ranks, parts, plan, to_none):
    """Several batches make a step, and all workers sum after each, or twice."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            backward(run, batch)
            run.sync()
            if batch.index % 2:
                run.sync()
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        run.close()
        return flat(model)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("to_none", [True, False])
def test_two_runs_of_one_model(ranks, parts, plan, to_none):
    """Each with batches of its own, as of labels and of something else, whose gradients make a step together."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        other = weft.Loader(loader.graph, [3, 3], 18 // world.size, "gdp", world=world, **NUMBERS)
        second = weft.parallel(model, other)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch, more in zip(loader, other, strict=False):
            backward(run, batch)
            run.sync()
            backward(second, more)
            second.sync()
            if batch.index % 3 != 1:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        run.close()
        second.close()
        return flat(model)

    agree(ranks, parts, plan, loop)


class Drops(Model):
    """Edges, by their places in whole lists."""

    def __init__(self, width):
        super().__init__(width)
        self.first = GATConv(width, 4, heads=2, dropout=0.5)


class Sums(Model):
    def __init__(self, width):
        super().__init__(width)
        self.first = GCNConv(width, 8)


@pytest.mark.parametrize("kinds", [(Drops, Sums), (Sums, Drops)])
@pytest.mark.parametrize("plan", [*PLANS, "snp"])
def test_two_models_run_the_same_batches(ranks, parts, plan, kinds):
    """Which have what either needs, whichever the loader got last."""

    def loop(world, folder, plan):
        graph = open_graph(folder / str(world.size))
        loader = weft.Loader(graph, [-1, -1], 36 // world.size, plan, world=world, **NUMBERS)
        with seeded(3):
            models = [kind(graph.num_features).double() for kind in kinds]
        runs = [weft.parallel(model, loader) for model in models]
        optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], 0.5)
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:
                sum(loss_of(run, part, batch) for run in runs).backward()
            for run in runs:
                run.sync()
            optimizer.step()
        loader.close()
        return flat(*models)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("plan", ["halo", "tp", "tp-decoupled"])
def test_two_models_run_on_the_full_graph(ranks, parts, plan):
    def loop(world, folder, plan):
        loader = weft.Loader(open_graph(folder / str(world.size)), full_graph=True, plan=plan, world=world, **NUMBERS)
        with seeded(3):
            models = [kind(6, 8, 3, 4).double() for kind in (GCN, GraphSAGE)]
        runs = [weft.parallel(model, loader) for model in models]
        optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], 0.5)
        for batch in (batch for _ in range(3) for batch in loader):
            optimizer.zero_grad()
            sum(loss_of(run, batch, batch) for run in runs).backward()
            for run in runs:
                run.sync()
            optimizer.step()
        for run in runs:
            run.close()
        return flat(*models)

    (alone,) = ranks(1, loop, parts, plan if plan == "tp-decoupled" else None)
    for each in ranks(3, loop, parts, plan):
        assert (each - alone).abs().max() < 1e-10


@pytest.mark.parametrize("kinds", [("black", "fast"), ("fast", "black")])
def test_a_plan_that_nobody_named_suits_all_models_of_a_loader(ranks, parts, kinds):
    def loop(world, folder):
        graph = open_graph(folder / str(world.size))
        loader = weft.Loader(graph, [-1, -1], 36 // world.size, world=world, **NUMBERS)
        for kind in kinds:
            model = (Attends if kind == "black" else Model)(graph.num_features).double()
            run = weft.parallel(model, loader)
        layers = loader.plan.layers
        run.close()
        return layers

    assert ranks(3, loop, parts) == [("local", "local")] * 3


class Counts(Model):
    calls = 0

    def forward(self, x, edge_index):
        self.calls += 1
        return super().forward(x, edge_index)


def test_what_two_models_count_steps_once_a_batch(parts):
    """However many parts that has."""
    graph = open_graph(parts / "1")
    loader = weft.Loader(graph, [-1, -1], 36, micro_batches=2, **NUMBERS)
    models = [Counts(graph.num_features).double() for _ in range(2)]
    runs = [weft.parallel(model, loader) for model in models]
    for batch in loader:
        for part in batch:
            sum(loss_of(run, part, batch) for run in runs).backward()
    assert [model.calls for model in models] == [len(loader)] * 2
    loader.close()


class Means(Model):
    def __init__(self, width):
        super().__init__(width)
        self.first = SAGEConv(width, 8)


@pytest.mark.parametrize("kind", [Model, Sums, Means])
@pytest.mark.parametrize("how", ["full graph", "no prefetch", "ahead"])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_was_looked_at_in_inference_mode_is_trained_on(ranks, parts, kind, how, workers):
    """A baseline before the first step, and a teacher's rows of each batch: they leave nothing in what is kept."""

    def loop(world, folder, looks):
        graph = open_graph(folder / str(world.size))
        batches = {"fanouts": [-1, -1], "batch_size": 36, **({"prefetch": 0} if how == "no prefetch" else {})}
        options = NUMBERS | ({"full_graph": True} if how == "full graph" else batches)
        loader = weft.Loader(graph, world=world, **options)
        with seeded(3):
            model = kind(graph.num_features).double()
        run, optimizer = weft.parallel(model, loader), torch.optim.SGD(model.parameters(), 0.5)

        @torch.inference_mode()
        def look(batches):
            model.eval()
            found = [run(batch) for batch in batches]
            model.train()
            assert all(len(rows) == len(batch.seeds) for rows, batch in zip(found, batches, strict=True))

        if looks:
            look([*loader.over(np.arange(50))])
        for batch in loader:
            if looks:
                look([batch])
            optimizer.zero_grad()
            backward(run, batch)
            run.sync()
            optimizer.step()
        run.close()
        return flat(model)

    for looked, plain in zip(ranks(workers, loop, parts, True), ranks(workers, loop, parts, False), strict=True):
        assert torch.equal(looked, plain)


@pytest.mark.parametrize("scale", [1, 21])
def test_vertices_numbers_that_travel_as_other_ones_are_told_of(ranks, parts, scale):
    """As float16 has 2,048 and 2,050."""

    def told(world, folder, wire):
        graph = open_graph(folder / str(world.size))
        graph = replace(graph, features=scale * np.arange(200, dtype=np.float32)[:, None])
        texts = []
        plan = f"gdp wire={wire}"
        loader = weft.Loader(graph, [2, 2], 12, plan, world=world, threads=1, notify=texts.append)
        weft.parallel(Model(1), loader).close()
        return [text for text in texts if text.startswith("features hold whole numbers that float16 has not")]

    assert [len(texts) for texts in ranks(3, told, parts, "float16")] == [scale > 1] * 3
    assert ranks(3, told, parts, "float32") == [[]] * 3


@pytest.mark.parametrize("closed", [False, True])
def test_a_new_run_adds_to_what_another_summed(ranks, parts, closed):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        backward(run, next(iter(loader)))
        run.sync()
        if closed:
            run.close()
        del run
        other = weft.Loader(loader.graph, [3, 3], 18 // world.size, "gdp", world=world, **NUMBERS)
        second = weft.parallel(model, other)
        backward(second, next(iter(other)))
        second.sync()
        torch.optim.SGD(model.parameters(), 0.5).step()
        second.close()
        return flat(model)

    agree(ranks, parts, "split", loop)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_thrown_away_do_not_count(ranks, parts, to_none):
    """As of two models that are trained against each other."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            run(batch).square().sum().backward()
            optimizer.zero_grad(set_to_none=to_none)
            backward(run, batch)
            run.sync()
            optimizer.step()
        run.close()
        return flat(model)

    agree(ranks, parts, "gdp", loop)


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_added_to_summed_gradients_is_there(ranks, parts, plan):
    """As of a penalty on weights, which all workers have alike, once: before the step, and before gradients are clipped."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            optimizer.zero_grad()
            backward(run, batch)
            run.sync()
            for parameter in (model.last.weight, *model.parameters()):
                parameter.square().sum().mul(1e-2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            optimizer.step()
        run.close()
        return flat(model)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("clips", [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_])
@pytest.mark.parametrize("early", [True, False])
def test_gradients_that_are_clipped_before_they_are_summed_are_told_of_once(ranks, parts, clips, early):
    """As in a loop that is ported: each worker would clip its own."""

    def loop(world, folder, plan):
        told = []
        loader, model, run = made(world, folder, plan, notify=told.append)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            optimizer.zero_grad(set_to_none=batch.index % 2 == 0)
            backward(run, batch)
            if early:
                clips(model.parameters(), 0.2)
            run.sync()
            if not early:
                clips(model.parameters(), 0.2)
            optimizer.step()
        run.close()
        return told

    said = ["gradients are changed between loss.backward() and run.sync()"]
    assert [[text[: len(said[0])] for text in told] for told in ranks(3, loop, parts, "gdp")] == [said * early] * 3
    assert ranks(1, loop, parts, None) == [[]]


def test_gradients_that_are_clipped_before_all_of_them_are_summed_are_refused(ranks, parts):
    def loop(world, folder):
        loader, model, run = made(world, folder, "gdp")
        for batch in islice(loader, 2):
            backward(run, batch)
            run.sync()
        backward(run, next(iter(loader)))
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        with pytest.raises(TrainingError, match=r"changed \(clipped\?\) .* call run.sync\(\) before"):
            run.sync()

    ranks(3, loop, parts)


def test_steps_by_gradients_that_were_not_summed_are_refused(ranks, parts):
    """Not those of other models, nor after what went backward was thrown away, nor on one worker."""

    def loop(world, folder):
        loader, model, run = made(world, folder, "split")
        optimizer, other = torch.optim.Adam(model.parameters()), nn.Linear(2, 2)
        for batch in loader:
            backward(run, batch)
            other(torch.ones(2)).sum().backward()
            torch.optim.SGD(other.parameters(), 0.1).step()
            if batch.index == 0 and world.size > 1:
                with pytest.raises(TrainingError, match=r"call run.sync\(\) between loss.backward\(\) and"):
                    optimizer.step()
            if batch.index == 0:
                optimizer.zero_grad(set_to_none=False)
            if batch.index > 1:
                run.sync() if world.size > 1 else None
                optimizer.step()
        run.close()

    for workers in (1, 3):
        ranks(workers, loop, parts)


@pytest.mark.parametrize("way", ["frozen", "no_grad", "detached", "head frozen at first"])
def test_a_head_alone_is_not_stepped_by_what_was_not_summed(ranks, parts, way):
    """Though it is not seen to be trained on rows; what all workers have alike may be added behind a sync."""

    def loop(world, folder):
        graph = open_graph(folder / str(world.size))
        with seeded(3):
            model, head = Model(graph.num_features).double(), nn.Linear(4, 4).double()
        model.requires_grad_(way != "frozen")
        head.requires_grad_(way != "head frozen at first")
        loader = weft.Loader(
            graph, [-1, -1], 36 // world.size, "gdp" if world.size > 1 else None, world=world, **NUMBERS
        )
        run = weft.parallel(model, loader, head)
        head.requires_grad_(True)
        optimizer = torch.optim.SGD(head.parameters(), 0.5)
        for batch in islice(loader, 4):
            optimizer.zero_grad()
            with torch.set_grad_enabled(way != "no_grad"):
                rows = run(batch)
            rows = rows.detach() if way == "detached" else rows
            (F.cross_entropy(head(rows), batch.y, reduction="sum") / batch.size).backward()
            if world.size > 1:
                with pytest.raises(TrainingError, match=r"call run.sync\(\) between loss.backward\(\) and"):
                    optimizer.step()
            run.sync()
            head.weight.square().sum().mul(0.01).backward()
            optimizer.step()
        run.close()
        return flat(head)

    alone = ranks(1, loop, parts)[0]
    for found in ranks(3, loop, parts):
        assert (found - alone).abs().max() < 1e-10


@pytest.mark.parametrize("plan", PLANS)
def test_parts_may_go_backward_together(ranks, parts, plan):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            optimizer.zero_grad()
            sum(loss_of(run, part, batch) for part in batch).backward()
            run.sync()
            optimizer.step()
        run.close()
        return flat(model)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("kind", ["pairs", "rows", "mixes", "draws", "objective"])
def test_heads_of_links(ranks, parts, kind):
    """By links dropout is the same under all plans; by rows, of which others are on each worker, it is refused."""

    class Mixes(nn.Module):
        def forward(self, x):
            return x - x.mean(0)

    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    def loop(world, folder, plan):
        graph = open_graph(folder / str(world.size))
        with seeded(3):
            model, head = Model(graph.num_features).double(), nn.Linear(4, 4).double()
        between = {"mixes": Mixes(), "draws": Noisy()}.get(kind, nn.Dropout(0.5))
        head = nn.Sequential(head, between)
        loader = weft.Loader(graph, [-1, -1], 36 // world.size, plan, world=world, **(NUMBERS | {"task": "link"}))
        run = weft.parallel(model, loader, head)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)
        for batch in islice(loader, 3):
            optimizer.zero_grad()
            for part in batch:
                rows, targets = run(part), part.targets
                with pytest.raises(ConfigError, match="a batch of links has no y"):
                    _ = part.y
                if kind == "objective":
                    loader.objective.loss(run.model, rows, targets).div(batch.terms).backward()
                    continue
                heads, tails = targets.of(rows if kind == "pairs" else head(rows), 0, len(targets))
                heads = head(heads) if kind == "pairs" else heads
                F.softplus(-(heads[:, None] * tails).sum(-1)).sum().div(batch.size).backward()
            run.sync()
            optimizer.step()
        run.close()
        return flat(model, head)

    said = {"rows": "dropout of vertices' rows in a module beside", "mixes": "mixes the rows", "draws": "randn_like"}
    if kind not in said:
        for plan in PLANS:
            agree(ranks, parts, plan, loop)
        return
    ranks(1, loop, parts, None)
    with pytest.raises(ModelError, match=said[kind]):
        ranks(3, loop, parts, "split")


@pytest.mark.parametrize("way", ["by hand", "in place", "decayed", "looked at"])
def test_gradients_that_all_workers_have_otherwise_are_stepped_by(ranks, parts, way):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer, parameters = torch.optim.SGD(model.parameters(), 0.5), list(model.parameters())
        for batch in loader:
            backward(run, batch)
            if way == "looked at":  # and thrown away, as all workers then have something else alike
                optimizer.zero_grad(set_to_none=False)
                sum(parameter.square().sum() for parameter in parameters).backward()
            elif way == "decayed":
                run.sync()
                sum(parameter.square().sum() for parameter in parameters).backward()
            for parameter in parameters if way == "by hand" else ():
                parameter.grad = run.sum(parameter.grad)
            for parameter in parameters if way == "in place" else ():
                parameter.grad.copy_(run.sum(parameter.grad))
            optimizer.step()
            for parameter in parameters:
                parameter.grad = None if way in ("by hand", "in place") else parameter.grad.mul_(0.5)
        run.close()
        return flat(model)

    agree(ranks, parts, "gdp", loop)


@pytest.mark.parametrize("way", ["metrics", "probe", "detached", "two stages", "closes another", "scaled", "reentrant"])
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_grow_are_summed_however_they_come(ranks, parts, way, to_none):
    """With metrics summed between, by heads of frozen models, in passes of their own, with another run closed meanwhile."""

    def passes(way, run, model, head, part, batch):
        rows = run(part)
        if way == "two stages":
            leaf = rows.detach().requires_grad_()
            (F.cross_entropy(head(leaf), part.y, reduction="sum") / batch.size).backward()
            return rows.backward(leaf.grad)
        if way == "detached":
            (F.cross_entropy(head(rows.detach()), part.y, reduction="sum") / batch.size).backward()
        out = checkpoint(head, rows, use_reentrant=True) if way == "reentrant" else head(rows)
        return (F.cross_entropy(out, part.y, reduction="sum") / batch.size).backward()

    def loop(world, folder, plan):
        with seeded(4):
            head = nn.Linear(4, 4).double()
        loader, model, run = made(world, folder, plan, beside=(head,))
        model.requires_grad_(way != "probe")
        learned = [*model.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD([p for p in learned if p.requires_grad], 0.5)
        for batch in loader:
            for part in batch:
                passes(way, run, model, head, part, batch)
            if way == "metrics":
                run.sum(torch.ones(2))
            elif way == "closes another":
                weft.parallel(model, weft.Loader(loader.graph, [3, 3], 9, "gdp", world=world, **NUMBERS)).close()
            elif way == "scaled":
                for parameter in optimizer.param_groups[0]["params"]:
                    parameter.grad.mul_(0.5)
            run.sync()
            if way == "scaled" or batch.index % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        run.close()
        return flat(model, head)

    agree(ranks, parts, "split", loop)


def test_a_run_that_is_closed_leaves_gradients_alone(ranks, parts):
    def loop(world, folder):
        loader, model, run = made(world, folder, "gdp")
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        backward(run, next(iter(loader)))
        run.close()
        sum(parameter.square().sum() for parameter in model.parameters()).backward()
        optimizer.step()

    ranks(3, loop, parts)


def test_layers_that_are_frozen_at_first(ranks, parts):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        model.first.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for epoch in range(2):
            for batch in loader:
                backward(run, batch)
                run.sync()
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                if batch.index == 2:
                    optimizer.zero_grad()
            schedule.step()
            model.first.requires_grad_(epoch == 0)
        run.close()
        assert not any(p._backward_hooks for p in model.parameters())
        return flat(model)

    agree(ranks, parts, "split", loop)


def test_derivatives_of_summed_gradients_are_refused(ranks, parts):
    def loop(world, folder):
        loader, _, run = made(world, folder, "gdp")
        batch = next(iter(loader))
        backward(run, batch)
        run.sync()
        with pytest.raises(TrainingError, match=r"create_graph.* call optimizer.zero_grad\(\) before"):
            loss_of(run, batch.part, batch).backward(create_graph=True)

    ranks(3, loop, parts)


def test_gradients_that_are_only_asked_for_leave_those_that_were_summed(ranks, parts):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for batch in loader:
            optimizer.zero_grad()
            rows = run(batch)
            (F.cross_entropy(rows, batch.y, reduction="sum") / batch.size).backward(retain_graph=True)
            run.sync()
            torch.autograd.grad(rows.square().sum(), list(model.parameters()))
            optimizer.step()
        run.close()
        return flat(model)

    agree(ranks, parts, "gdp", loop)


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


class Drawing(Model):
    def __init__(self, width, by):
        super().__init__(width)
        self.by = by

    def forward(self, x, edge_index):
        return self.by(super().forward(self.by(x), edge_index))


@pytest.mark.parametrize(
    ("by", "named"),
    [
        (lambda: nn.AlphaDropout(0.5), r"by \(AlphaDropout\)"),
        (nn.RReLU, r"by \(RReLU\)"),
        (lambda: nn.Dropout1d(0.5), r"by \(Dropout1d\)"),
        (Noise, "torch.randn_like"),
    ],
)
def test_random_numbers_that_workers_would_draw_otherwise_are_refused(ranks, parts, by, named):
    def loop(world, folder):
        graph = open_graph(folder / str(world.size))
        loader = weft.Loader(graph, [-1, -1], 36 // world.size, world=world, threads=1)
        if world.size == 1:
            run = weft.parallel(Drawing(graph.num_features, by()), loader)
            assert not torch.equal(*map(run, [next(iter(loader))] * 2))
            run.close()
        else:
            with pytest.raises(ModelError, match=rf"draws random numbers by {named}, .*: take nn.Dropout"):
                weft.parallel(Drawing(graph.num_features, by()), loader)

    ranks(1, loop, parts)
    ranks(3, loop, parts)


def test_random_numbers_within_a_convolution_are_refused_in_the_first_batch(ranks, parts):
    def loop(world):
        loader = weft.Loader(open_graph(parts / "3"), [-1], 12, world=world, threads=1)
        with seeded(3):
            model = GINConv(nn.Sequential(nn.Linear(6, 4), nn.AlphaDropout(0.5)))
        run, batch = weft.parallel(Only(model), loader), next(iter(loader))
        run.model.eval()
        run(batch)  # nothing is drawn
        run.model.train()
        with pytest.raises(
            ModelError, match=r"draws random numbers by only\.nn\.1 \(AlphaDropout\), .*: take nn.Dropout"
        ):
            run(batch)
        run.close()

    ranks(3, loop)


class Only(nn.Module):
    def __init__(self, only):
        super().__init__()
        self.only = only

    def forward(self, x, edge_index):
        return self.only(x, edge_index)


class DropConnect(Model):
    """Zeroes some of a layer's weights, the same ones for all rows of a batch."""

    def forward(self, x, edge_index):
        rows = self.second(self.first(x, edge_index).relu(), edge_index).tanh()
        return F.linear(rows, F.dropout(self.last.weight, 0.5, self.training), self.last.bias)


def test_weights_that_are_zeroed_are_the_same_in_each_micro_batch(ranks, parts):
    def loop(world, folder, options):
        graph = open_graph(folder / "1")
        loader = weft.Loader(graph, [-1, -1], 36, dtype="float64", threads=1, seed=5, **options)
        with seeded(3):
            model = DropConnect(graph.num_features).double()
        run, optimizer = weft.parallel(model, loader), torch.optim.SGD(model.parameters(), 0.5)
        train(run, loader, optimizer)
        run.close()
        return flat(model)

    ((whole,), (parted,)) = (ranks(1, loop, parts, options) for options in ({}, {"micro_batches": 2}))
    assert (parted - whole).abs().max() < 1e-10


@pytest.mark.parametrize("plan", PLANS)
def test_modules_beside_the_model_are_trained_along(ranks, parts, plan):
    """However each worker made them, all begin with the values of the first one."""

    def loop(world, folder, plan):
        with seeded(20 + world.rank):
            head = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False).eval()).double()
        loader, model, run = made(world, folder, plan, seed=40 + world.rank, beside=[head])
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.5)
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:
                (F.cross_entropy(head(run(part)), part.y, reduction="sum") / batch.size).backward()
            run.sync()
            optimizer.step()
        run.close()
        return flat(model, head)

    agree(ranks, parts, plan, loop)


def test_a_module_beside_the_model_may_have_no_rows_of_a_batch(ranks, parts):
    """Where a worker owns none of the seeds, or one."""

    def loop(world, folder):
        with seeded(20):
            head = nn.Linear(4, 4).double()
        loader, model, run = made(world, folder, "leap", beside=[head], seeds=[0])
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.5)
        for batch in loader:
            F.cross_entropy(head(run(batch)), batch.y, reduction="sum").backward()
            run.sync()
            optimizer.step()
        run.close()
        return flat(model, head), batch.size

    ((alone, seeds),) = ranks(1, loop, parts)
    assert seeds == 1
    for found, _ in ranks(3, loop, parts):
        assert (found - alone).abs().max() < 1e-10


def test_models_of_other_shapes_are_refused(ranks, parts):
    def loop(world, folder):
        head = nn.Linear(4, 4 + world.rank // 2)
        with pytest.raises(ModelError, match="worker 2 has another model than worker 0"):
            made(world, folder, "gdp", beside=[head])

    ranks(3, loop, parts)


def test_a_sum_leaves_what_is_summed(ranks, parts):
    def loop(world, folder):
        loader, _, run = made(world, folder, "gdp")
        seen = torch.zeros(())
        for batch in loader:
            seen += len(batch.seeds)
            assert int(run.sum(seen)) == sum(min(36, 120 - 36 * index) for index in range(batch.index + 1))
        assert float(run.sum(0.5)) == world.size / 2
        assert run.sum(torch.tensor([True, False])).tolist() == [world.size, 0]
        assert int(run.sum(torch.tensor(200, dtype=torch.uint8))) == 200 * world.size
        run.close()

    ranks(1, loop, parts)
    ranks(3, loop, parts)


def gradients(world, folder, go):
    loader, model, run = made(world, folder, "gdp" if world.size > 1 else None, dtype="float32")
    go(run, loader)
    run.sync()
    run.close()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def at_once(run, loader):
    for batch in loader:
        backward(run, batch)


def at_the_end(run, loader):
    sum(loss_of(run, batch, batch) for batch in loader).backward()


def from_a_list(run, loader):
    for batch in list(loader):
        backward(run, batch)


def halves_of_twice(run, loader):
    for batch in loader:
        for _ in range(2):
            for part in batch:
                (loss_of(run, part, batch) / 2).backward()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("go", [at_the_end, from_a_list, halves_of_twice])
def test_batches_stay_for_as_long_as_they_are_used(ranks, parts, workers, go):
    """Losses of several batches that go backward together, batches in a list, and a closure that computes one twice."""
    wanted, got = (ranks(workers, gradients, parts, one)[0] for one in (at_once, go))
    assert (wanted - got).abs().max() < 1e-6 * wanted.abs().max()


def test_rows_stay_for_as_long_as_somebody_has_them(parts):
    loader = weft.Loader(open_graph(parts / "1"), [4, 3], 7)
    weft.parallel(Model(6), loader)
    kept = [(batch.x, batch.x.clone()) for batch in loader]
    assert len(kept) > 10 and all(torch.equal(x, before) for x, before in kept)


def test_micro_batches_come_once(parts):
    loader = weft.Loader(open_graph(parts / "1"), [-1, -1], 36, micro_batches=2)
    weft.parallel(Model(6), loader)
    for batch in loader:
        assert sum(len(part.seeds) for part in batch) == batch.size
        with pytest.raises(ConfigError, match=r"the parts of batch 0 were gone through: .* they come once"):
            next(iter(batch))
        break
    kept = list(loader)
    with pytest.raises(ConfigError, match="the parts of batch 1 were gone through"):
        next(iter(kept[0]))


class Head(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.last, self.how = nn.Linear(4, 4), how

    def forward(self, x):
        if self.how == "mixes":
            x = x - x.mean(0)
        if self.how == "draws" and self.training:
            x = x + torch.randn_like(x)
        return self.last(F.dropout(x, 0.5, self.training))


def with_head(how):
    def loop(world, parts, plan):
        with seeded(7):
            head = Head(how).double()
        loader, model, run = made(world, parts, plan, beside=[head])
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.3)
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:  # two passes, of which each drops others
                first, second = head(run(part)), head(run(part))
                loss = F.cross_entropy(first, part.y, reduction="sum") + (first - second).square().sum()
                (loss / batch.size).backward()
            run.sync()
            optimizer.step()
        return flat(model, head)

    return loop


@pytest.mark.parametrize("plan", PLANS)
def test_a_head_with_dropout_is_the_same_on_all_workers(ranks, parts, plan):
    agree(ranks, parts, plan, with_head("drops"))


@pytest.mark.parametrize(("how", "said"), [("mixes", "Head mixes the rows"), ("draws", "draws random numbers")])
def test_a_head_that_looks_at_other_rows_is_refused_on_several_workers(ranks, parts, how, said):
    with pytest.raises(ModelError, match=said):
        ranks(3, with_head(how), parts, "gdp")
    ranks(1, with_head(how), parts, None)


def test_a_copy_of_a_head_is_not_in_the_run(ranks, parts):
    def work(world):
        head = Head("drops").double()
        loader, _, run = made(world, parts, None, beside=[head])
        rows = run(next(iter(loader)))
        torch.manual_seed(0)
        copied = copy.deepcopy(head)
        dropped = [copied(rows), copied(rows), head(rows), head(rows)]
        run.close()
        return dropped, len(head._forward_hooks) + len(head._forward_pre_hooks)

    ((one, other, first, second), hooks) = ranks(1, work)[0]
    assert not torch.equal(one, other)
    assert not torch.equal(first, second)
    assert not torch.equal(one, first)
    assert hooks == 0


def test_a_batch_that_is_run_again_drops_others(ranks, parts):
    class Drops(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.only = GCNConv(width, 4)

        def forward(self, x, edge_index):
            return self.only(F.dropout(x, 0.5, self.training), edge_index)

    def work(world):
        loader = weft.Loader(open_graph(parts / str(world.size)), [-1], 36, world=world, plan="gdp", threads=1)
        with seeded(3):
            run = weft.parallel(Drops(6), loader)
        batch = next(iter(loader))
        twice = [run(batch).detach(), run(batch).detach()]
        loader.abandon()
        return batch.seeds, twice

    (_, (first, second)) = ranks(1, work)[0]
    assert not torch.equal(first, second)


def test_a_number_is_summed_with_all_its_digits(ranks, parts):
    found = ranks(3, lambda world: float(made(world, parts, "gdp")[2].sum(0.1)))
    assert found == pytest.approx([0.3] * 3, abs=1e-15)


class Penalised(Model):
    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        self.penalty = h.abs().sum()
        return self.last(self.second(h.relu(), edge_index))


def keeps_hidden_rows(world, folder, kind):
    graph = open_graph(folder / str(world.size))
    loader = weft.Loader(graph, [-1, -1], 36 // world.size, "gdp", world=world, **NUMBERS)
    run, warned = weft.parallel(kind(graph.num_features).double(), loader), []
    loader.notify = warned.append
    for batch in loader:
        backward(run, batch)
    return warned


def test_losses_of_hidden_rows_are_warned_of_on_several_workers(ranks, parts):
    for warned in ranks(3, keeps_hidden_rows, parts, Penalised):
        (text,) = warned
        assert text.startswith("the model keeps penalty, which has a gradient") and "hangs on the plan" in text
    assert ranks(1, keeps_hidden_rows, parts, Penalised) == [[]]  # each row is there once
    assert ranks(3, keeps_hidden_rows, parts, Model) == [[]] * 3


class Attends(Model):
    def __init__(self, width):
        super().__init__(width)
        self.first = SuperGATConv(width, 4, heads=2, is_undirected=False, edge_sample_ratio=1.0)


def test_so_is_what_a_convolution_of_pyg_keeps(ranks, parts):
    for warned in ranks(3, keeps_hidden_rows, parts, Attends):
        assert [text for text in warned if text.startswith("the model keeps first.att_x, which has a gradient")]


LOOP_DRAWS = {
    "noise": lambda h, head, again: h + torch.randn_like(h),
    "dropout": lambda h, head, again: F.dropout(h, 0.3),
    "head": lambda h, head, again: head(h),
    "again": lambda h, head, again: h + again(),
    "nothing": lambda h, head, again: h,
}


def warned_of_draws(world, folder):
    """What each loop is warned of."""
    found = {}
    for how, does in LOOP_DRAWS.items():
        head = nn.Dropout(0.3)
        loader, _, run = made(world, folder, "gdp", beside=[head])
        loader.notify = run._loop._tell = (warned := []).append
        other = weft.parallel(copy.deepcopy(run.model), loader)

        def again(run, part):
            with torch.no_grad():
                return run(part)

        for batch in islice(loader, 2):
            for part in batch:
                rows = does(run(part), head, partial(again, run, part)) + other(part)
                F.cross_entropy(rows, part.y, reduction="sum").backward()
            run.sync()
            other.sync()
            torch.rand(3)  # behind the sum it is the loop's own
        loader.abandon()
        run.close()
        other.close()
        found[how] = warned
    return found


def test_random_numbers_of_the_loop_itself_are_warned_of_on_several_workers(processes, parts):
    for found in processes(3, warned_of_draws, parts):
        for how in ("noise", "dropout"):
            (text,) = found.pop(how)
            assert text.startswith("the loop draws random numbers behind run(batch)")
        assert found == {"head": [], "again": [], "nothing": []}
    (alone,) = processes(1, warned_of_draws, parts)
    assert not any(alone.values())


def test_a_head_takes_the_type_of_the_models_numbers(parts):
    graph = open_graph(parts / "1")
    loader, head = weft.Loader(graph, [-1, -1], 36, **NUMBERS), nn.Linear(4, 4)
    run = weft.parallel(Model(graph.num_features), loader, head)
    head(run(next(iter(loader)))).sum().backward()
    assert head.weight.dtype == head.weight.grad.dtype == torch.float64
    run.close()


def a_new_head(model):
    model.last = nn.Linear(8, 4).double()


def other_values(model):
    model.load_state_dict(model.state_dict(), assign=True)


def a_hook_that_mixes(model):
    model.first.register_forward_hook(lambda module, given, out: out - out.mean(0))


def a_hook_of_messages(model):
    model.second.register_message_forward_hook(lambda module, given, out: 2 * out)


CHANGES = {
    a_new_head: r"has got new parameters \(last.weight, last.bias\) since .*: call weft.parallel",
    other_values: r"has got new parameters \(first.att_src, .* since .*: call weft.parallel",
    a_hook_that_mixes: r"first .*mixes the rows of different vertices",
    a_hook_of_messages: r"GCNConv\(8, 8\) was given hooks of its message passing, .* after weft.parallel",
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_model_that_is_trained_by_several_are_seen(ranks, parts, change):
    """As between epochs: a worker's parameter that is not summed would be another than the others'."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        for epoch in range(2):
            if epoch:
                change(model)
            for batch in loader:
                backward(run, batch)
                run.sync()

    with pytest.raises((ModelError, TrainingError), match=CHANGES[change]):
        ranks(3, loop, parts, "split")


def test_hooks_of_parameters_are_told_of_where_gradients_come_in_parts(ranks, parts):
    def told(world, **options):
        _, model, run = made(world, parts, "gdp" if world.size > 1 else None, **options)
        model.last.weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        model.last.bias.register_post_accumulate_grad_hook(lambda bias: bias.grad.clamp_(-1e-3, 1e-3) and None)
        said = "hooks of parameters' gradients (last.weight, last.bias) get what each"
        return [text for text in run.notices() if said in text]

    assert ranks(3, told)[0] and ranks(1, partial(told, micro_batches=2))[0]
    assert not ranks(1, told)[0]


@pytest.mark.parametrize("plan", [*PLANS, "snp"])
def test_changes_that_do_not_matter_are_taken(ranks, parts, plan):
    """A hook that is linear, weights that are zeroed, a hook of each row by itself, a parameter that is not learned."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for epoch in range(2):
            if epoch:
                model.last.weight.register_hook(lambda gradient: gradient * (torch.arange(8) > 2))
                model.first.register_forward_hook(lambda module, given, out: 2 * out)
                prune.l1_unstructured(model.second.lin, "weight", 0.3)
                model.scale = nn.Parameter(torch.ones(()), requires_grad=False)
            train(run, loader, optimizer)
        run.close()
        return flat(model)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("plan", [*PLANS, "snp"])
def test_inputs_may_have_gradients(ranks, parts, plan):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        total = torch.zeros(())
        for batch in loader:
            for part in batch:
                part.x.requires_grad_()
                loss_of(run, part, batch).backward()
                total = total + part.x.grad.sum()
            run.sync()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        run.close()
        return torch.cat([gradients, run.sum(total).view(1)])

    agree(ranks, parts, plan, loop)


class Checkpointed(Model):
    def forward(self, x, edge_index):
        h = self.second(self.first(x, edge_index).relu(), edge_index).tanh()
        return checkpoint(lambda h: self.last(F.dropout(h, 0.5 * self.drops, self.training)), h, use_reentrant=False)


@pytest.mark.parametrize("beside", [False, True])
def test_dropout_that_would_be_drawn_anew_for_gradients_is_refused(parts, beside):
    """As in what torch.utils.checkpoint computes again."""
    loader = weft.Loader(open_graph(parts / "1"), [-1, -1], 36, **NUMBERS)
    head, model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4)), Checkpointed(6).double()
    model.drops = not beside
    run = weft.parallel(model, loader, head)
    rows = run(next(iter(loader)))
    loss = (checkpoint(head, rows, use_reentrant=False) if beside else rows).sum()
    with pytest.raises(ModelError, match=r"computed again for gradients \(torch.utils.checkpoint\)"):
        loss.backward()
    run.close()


def test_rows_that_a_model_keeps_may_be_dropped_after_its_forward(parts):
    class Keeps(Model):
        def forward(self, x, edge_index):
            self.hidden = self.first(x, edge_index)
            return self.last(self.second(self.hidden.relu(), edge_index).tanh())

    loader, model = weft.Loader(open_graph(parts / "1"), [-1, -1], 36, **NUMBERS), Keeps(6).double()
    run = weft.parallel(model, loader)
    batch = next(iter(loader))
    rows = run(batch)
    (rows.sum() + F.dropout(model.hidden, 0.5).sum()).backward()
    assert model.first.lin.weight.grad.isfinite().all()
    run.close()


def test_what_is_computed_again_without_dropout_is_the_same(ranks, parts):
    def loop(world, folder, plan):
        graph = open_graph(folder / str(world.size))
        loader = weft.Loader(graph, [-1, -1], 36 // world.size, plan, world=world, **NUMBERS)
        with seeded(3):
            model = (Checkpointed if plan else Model)(graph.num_features).double()
        model.drops = False
        run = weft.parallel(model, loader)
        for batch in loader:
            backward(run, batch)
            run.sync()
        run.close()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    agree(ranks, parts, "split", loop)


class InPlace(Model):
    """Writes into the rows that it is given."""

    def forward(self, x, edge_index):
        x *= 0.5
        return super().forward(x, edge_index)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("plan", [None, "split"])
def test_a_model_that_writes_into_its_inputs_is_not_run_on_them_again(ranks, parts, plan, whole):
    """Another answer would come of the same batch."""

    def loop(world):
        graph = open_graph(parts / str(world.size))
        batches = {"full_graph": True} if whole else {"fanouts": [4, 3], "batch_size": 18, "plan": plan}
        loader = weft.Loader(graph, world=world, **batches, **NUMBERS)
        with seeded(3):
            model = InPlace(graph.num_features).double()
        run = weft.parallel(model, loader)
        batch, *others = islice(loader, 3)
        assert len(run(batch)) == len(batch.seeds)
        again = "changes its inputs in place, but is run on them again, .* make new rows of them"
        for other in others:
            assert len(run(other)) == len(other.seeds)
        with pytest.raises(ModelError, match=again):
            run(batch)
        if whole:
            for later in (*islice(loader, 1), *loader.over("validation")):
                with pytest.raises(ModelError, match=again):
                    run(later)
        run.close()

    ranks(1 if plan is None else 3, loop)


def test_rows_that_the_loop_itself_changes_are_run_again(parts):
    """As for a view of a batch whose features are masked."""
    loader = weft.Loader(open_graph(parts / "1"), [4, 3], 18, **NUMBERS)
    with seeded(3):
        model = Model(loader.graph.num_features).double().eval()
    run = weft.parallel(model, loader)
    batch = next(iter(loader))
    whole = run(batch)
    batch.x[:, ::2] = 0
    masked = run(batch)
    assert not torch.allclose(whole, masked) and torch.equal(masked, run(batch))
    run.close()


def a_state_that_differs(world, loader, model, run):
    if world.rank:
        state = loader.state_dict()
        loader.load_state_dict(state | {"epoch": state["epoch"] + 1})


def an_epoch_more(world, loader, model, run):
    if world.rank:
        list(loader)


def a_batch_that_is_left_out(world, loader, model, run):
    taken = iter(loader)
    if world.rank:
        next(taken)
    train(run, taken, torch.optim.SGD(model.parameters(), run.rate))


def a_mode_that_differs(world, loader, model, run):
    if world.rank:
        model.eval()


def a_rate_that_differs(world, loader, model, run):
    run.rate = 0.06 if world.rank else 0.05


MISTAKES = {
    a_state_that_differs: "this worker is at another batch than others are: let all go over the same",
    an_epoch_more: "this worker is at another batch than others are",
    a_batch_that_is_left_out: "this worker is at another batch than others are",
    a_mode_that_differs: r"this worker's model is (not )?in training mode, and another one's is otherwise",
    a_rate_that_differs: "workers' parameters have come to differ: let all step alike",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_workers_that_do_not_do_the_same_are_told(ranks, parts, mistake):
    """Under gdp nothing else would: each would add gradients of something else."""

    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        run.rate = 0.05
        for epoch in range(3):
            if epoch == 1:
                mistake(world, loader, model, run)
            optimizer = torch.optim.SGD(model.parameters(), run.rate)
            train(run, loader, optimizer)

    with pytest.raises(TrainingError, match=MISTAKES[mistake]):
        ranks(3, loop, parts, "gdp")


def test_one_epoch_is_enough_for_that(ranks, parts):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        train(run, loader, torch.optim.Adam(model.parameters(), 0.011 if world.rank == 1 else 0.01))

    with pytest.raises(TrainingError, match="workers' parameters have come to differ"):
        ranks(3, loop, parts, "split")


@pytest.mark.parametrize("kind", [torch.optim.Adam, partial(torch.optim.LBFGS, max_iter=3)])
def test_steps_by_closures_that_were_not_summed_are_refused(ranks, parts, kind):
    def loop(world, folder, plan, synced=True, named=False):
        loader, model, run = made(world, folder, plan)
        optimizer = kind(model.parameters(), 0.01)
        for batch in loader:

            def closure(batch=batch):
                optimizer.zero_grad()
                losses = [loss_of(run, part, batch) for part in batch]
                sum(losses).backward()
                return run.sync(sum(losses).detach())[0] if synced else sum(losses)

            optimizer.step(closure=closure) if named else optimizer.step(closure)
        run.close()
        return flat(model)

    every = ranks(3, loop, parts, "split")
    assert all(torch.equal(each, every[0]) for each in every)
    for named in (False, True):
        with pytest.raises(TrainingError, match=r"or at the end of its closure, which sums those of all workers"):
            ranks(3, lambda *given, named=named: loop(*given, synced=False, named=named), parts, "split")


def test_models_that_were_built_otherwise_are_refused(ranks, parts):
    def loop(world, folder, plan):
        loader, model, _ = made(world, folder, plan)
        model.first.dropout = 0.1 * world.rank
        weft.parallel(model, loader)

    with pytest.raises(ModelError, match=r"another model than worker 0 \(layers of the same shape"):
        ranks(3, loop, parts, "gdp")


def test_models_of_which_other_parameters_are_frozen_are_refused(ranks, parts):
    def loop(world, folder):
        head = nn.Linear(4, 4).requires_grad_(world.rank != 1)
        with pytest.raises(ModelError, match=r"worker 1 has another model than worker 0 \(other frozen parameters"):
            made(world, folder, "gdp", beside=[head])

    ranks(3, loop, parts)


class Fourier(Model):
    """Random features that stay as they are, as people write them."""

    def __init__(self, width, how):
        super().__init__(8)
        table = torch.randn(width, 8, dtype=torch.float64)
        self.how, self.scale, self.where = how, float(torch.rand(())) if how == "number" else 1.0, torch.initial_seed()
        self.seen = []
        self.table = {"array": table.numpy(), "list": {"a": [table]}, "number": table * 0 + 1}.get(how, table)

    def forward(self, x, edge_index):
        self.seen.append(float(x.detach().sum()))
        table = self.table["a"][0] if self.how == "list" else torch.as_tensor(self.table)
        return super().forward((x @ table).sin() * self.scale, edge_index)


def fourier_loop(world, folder, how, alike):
    """What random features are trained to, twice over one model."""
    loader = weft.Loader(
        open_graph(folder / str(world.size)), [-1, -1], 36 // world.size, "gdp", world=world, **NUMBERS
    )
    with seeded(1 if alike else 1 + world.rank):
        model = Fourier(loader.graph.num_features, how).double()
    for _ in range(2):
        run = weft.parallel(model, loader)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in loader:
            optimizer.zero_grad()
            backward(run, batch)
            run.sync()
            optimizer.step()
        run.close()
    return flat(model)


@pytest.mark.parametrize("how", ["tensor", "number", "array", "list"])
def test_what_workers_build_at_random_is_the_first_ones_or_refused(ranks, parts, how):
    (alone,) = ranks(1, fourier_loop, parts, how, True)
    for found in ranks(3, fourier_loop, parts, how, True):
        assert (found - alone).abs().max() < 1e-10
    if how in ("array", "list"):
        told = (
            r"worker 1 has another model than worker 0 \(table of the model with other numbers\): build the same on all"
        )
        with pytest.raises(ModelError, match=told):
            ranks(3, fourier_loop, parts, how, False)
        return
    for found in ranks(3, fourier_loop, parts, how, False):
        assert (found - alone).abs().max() < 1e-10


def test_what_an_objective_is_built_with_at_random_is_refused(ranks, parts):
    class Nearest(weft.VertexObjective):
        def __init__(self, alike):
            with seeded(1 if alike else id(self)):
                self.points = torch.randn(4, 4, dtype=torch.float64)

        def loss(self, model, rows, targets):
            return F.cross_entropy(rows @ self.points, self.labels_at(targets.ids), reduction="sum")

    def train(world, alike):
        graph, own = open_graph(parts / str(world.size)), {**NUMBERS, "plan": "gdp", "epochs": 1}
        settings = Settings.of(fanouts=(2, 2), batch_size=36 // world.size, **own)
        with seeded(1):
            model = Model(graph.num_features).double()
        return Trainer(graph, model, settings, world=world, objective=Nearest(alike)).fit().history

    assert len({str(history[0]["loss"]) for history in ranks(3, train, True)}) == 1
    with pytest.raises(ModelError, match=r"worker 1 has another model than worker 0 \(points of the objective with"):
        ranks(3, train, False)


@pytest.mark.parametrize("plan", ["gdp", "split"])
def test_a_worker_may_leave_out_a_part_without_seeds_and_look_at_others_between(ranks, parts, plan):
    def loop(world, folder, plan):
        loader, model, run = made(world, folder, plan)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad()
                if plan != "gdp" or batch.index != 1 or not world.rank:
                    backward(run, batch)
                run.sync()
                optimizer.step()
                with torch.no_grad():
                    model.eval()
                    for other in loader.over(torch.arange(6)):
                        run(other)
                    model.train()
        run.close()
        return flat(model)

    every = ranks(3, loop, parts, plan)
    assert all(torch.equal(each, every[0]) for each in every)
