"""Modules beside the model (heads, losses): on several workers, or by pieces of a batch, as on one, or refused by name."""

from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm
from torch_geometric.nn import GraphSAGE

import weft
from weft.errors import ModelError
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned

NUMBERS = {"dtype": "float64", "threads": 1, "seed": 5}
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    whole = communities(folder / "1", vertices=300, edges=2400, width=6, classes=4, train=0.6, block=50)
    write_partitioned(whole, allocate(whole, 3, "metis", seed=3), 3, folder / "3")
    return folder


class Head(nn.Module):
    """Of what a row is multiplied by."""

    def __init__(self):
        super().__init__()
        self.last, self.calls = nn.Linear(4, 4), 0
        self.register_buffer("kept", torch.ones(4))


class Counting(Head):
    def forward(self, rows):
        self.calls += 1
        return self.last(rows) * (1.0 if self.calls <= 5 else 2.0)


class Sharper(Head):
    def forward(self, rows):
        self.kept.mul_(1.1)
        return self.last(rows) * self.kept


class OneNumber(Head):
    def forward(self, rows):
        return self.last(rows) * (1 + torch.rand((), dtype=rows.dtype))


class InPlace(Head):
    def forward(self, rows):
        return self.last(rows.add_(1).relu_())


class Several(Head):
    """Its rows are followed by what counts nothing."""

    def forward(self, rows):
        return self.last(rows), rows.argmax(1), {"rows": len(rows)}


class MixesInTraining(Head):
    def forward(self, rows):
        return self.last(rows - rows.mean(0) if self.training else rows)


class MixesInEvaluation(Head):
    def forward(self, rows):
        return self.last(rows if self.training else rows - rows.mean(0))


class Centre(Head):
    def forward(self, rows):
        out = self.last(rows - self.kept)
        if self.training:
            self.kept = 0.5 * self.kept + 0.5 * rows.detach().mean(0)
        return out


class CentreInPlace(Head):
    def forward(self, rows):
        out = self.last(rows - self.kept.clone())
        self.kept.lerp_(rows.detach().mean(0), 0.001)
        return out


class Noisy(Head):
    def forward(self, rows):
        return self.last(rows + 0.1 * torch.randn_like(rows))


class DropsPairs(Head):
    """Dropout of what has no row of its own."""

    def forward(self, rows):
        return F.dropout(self.last(rows).view(-1, 2), 0.5, self.training).view(-1, 4)


class GoesByAVariable(Head):
    times = torch.zeros(1)

    def forward(self, rows):
        type(self).times += 1
        return self.last(rows) * (1 + self.times)


class Contrast(nn.Module):
    """A supervised contrastive loss with a temperature that is learned."""

    def __init__(self):
        super().__init__()
        self.heat = nn.Parameter(torch.zeros(()))

    def forward(self, rows, *, y):
        unit, apart = F.normalize(rows, dim=1), torch.eye(len(rows), dtype=rows.dtype)
        same = (y[:, None] == y).to(rows.dtype) - apart
        chance = (unit @ unit.t() * self.heat.exp() - 1e9 * apart).log_softmax(1)
        return -(same * chance).sum(1).div(same.sum(1).clamp(min=1)).sum()


class Prototypes(nn.Module):
    """A sum over rows, and what each of them is told by; or their mean."""

    def __init__(self, mean=False, penalty=0.0):
        super().__init__()
        self.of_class, self.mean, self.penalty = nn.Parameter(torch.eye(4)), mean, penalty

    def forward(self, rows, *, y):
        each = F.cross_entropy(rows @ self.of_class, y, reduction="none")
        return (each.mean() if self.mean else each.sum()) + self.penalty * self.of_class.square().sum(), each


def weighed_mean():
    return nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0, 4.0]))


def train(world, folder, made, plan=None, **options):
    """What is learned, and what the module keeps, behind a loop of two epochs."""
    graph = open_graph(folder / str(world.size))
    with seeded(1):
        model, beside = GraphSAGE(graph.num_features, 8, 2, 4), made()
    loader = weft.Loader(graph, [4, 3], 60 // world.size, plan, world=world, **(NUMBERS | options))
    run = weft.parallel(model, loader, beside)
    optimizer = torch.optim.SGD([*model.parameters(), *beside.parameters()], 0.1)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:
                rows = run(part)
                if isinstance(beside, Contrast | Prototypes):
                    told = beside(rows, y=part.y)
                    loss = told[0] if isinstance(told, tuple) else told
                elif isinstance(beside, nn.CrossEntropyLoss):
                    loss = beside(rows, part.y)
                else:
                    told = beside(rows)
                    loss = F.cross_entropy(told[0] if isinstance(told, tuple) else told, part.y, reduction="sum")
                mean = isinstance(beside, nn.CrossEntropyLoss) or getattr(beside, "mean", False)
                (loss * (len(rows) if mean else 1) / batch.size).backward()
            run.sync()
            optimizer.step()
    run.close()
    kept = [torch.as_tensor(getattr(beside, "calls", 0)), *(b for n, b in beside.named_buffers() if "running" not in n)]
    learned = [*model.parameters(), *beside.parameters()]
    return torch.cat([one.detach().double().flatten() for one in (*learned, *kept)])


WAYS = {
    "gdp": (3, {"plan": "gdp"}),
    "split": (3, {"plan": "split"}),
    "migrate": (3, {"plan": "migrate"}),
    "pieces": (1, {"micro_batches": 3}),
}
THE_SAME = {
    "counts": Counting,
    "steps": Sharper,
    "spectral": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "spectral by hooks": lambda: spectral_norm(nn.Linear(4, 4)),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.2)),
    "in place": InPlace,
    "several": Several,
    "sum": Prototypes,
    "mean": partial(Prototypes, mean=True),
    "mean with a penalty": partial(Prototypes, mean=True, penalty=0.1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", THE_SAME)
def test_what_is_beside_the_model_is_as_on_one_worker(ranks, parts, kind, way):
    workers, options = WAYS[way]
    (alone,) = ranks(1, train, parts, THE_SAME[kind])
    for found in ranks(workers, partial(train, **options), parts, THE_SAME[kind]):
        assert (found - alone).abs().max() < 1e-10


def test_a_head_that_has_its_parameters_when_rows_come_is_taken_by_pieces(ranks, parts):
    def late():
        return nn.Sequential(nn.LazyLinear(4))

    (alone,), (found,) = ranks(1, train, parts, late), ranks(1, partial(train, micro_batches=3), parts, late)
    assert (found - alone).abs().max() < 1e-10


def of_one_number(world, folder, plan, **options):
    return train(world, folder, OneNumber, plan, **options)


def test_a_number_that_all_workers_draw_alike_is_taken(processes, parts):
    (alone,) = processes(1, of_one_number, parts, None)
    assert all((found - alone).abs().max() < 1e-10 for found in processes(3, of_one_number, parts, "gdp"))
    (found,) = processes(1, partial(of_one_number, micro_batches=3), parts, None)
    assert (found - alone).abs().max() < 1e-10


REFUSED = {
    MixesInTraining: "MixesInTraining mixes the rows of different vertices",
    MixesInEvaluation: "MixesInEvaluation mixes the rows of different vertices",
    Centre: r"Centre keeps something of its rows by which the next ones are told \(a running centre\)",
    CentreInPlace: "CentreInPlace keeps something of its rows",
    Noisy: "draws random numbers by torch.randn_like",
    DropsPairs: "draws random numbers by torch.*dropout",
    GoesByAVariable: "GoesByAVariable gives other numbers for the same rows each time",
    Contrast: r"Contrast gives [\d.]+ for \d+ rows, and [\d.]+ and [\d.]+ for the halves of them",
    weighed_mean: r"CrossEntropyLoss gives .* let it be a sum over rows \(as with reduction='sum'\)",
    partial(Prototypes, penalty=0.1): "Prototypes gives",
}


@pytest.mark.parametrize("way", ["split", "pieces"])
@pytest.mark.parametrize("made", REFUSED)
def test_what_hangs_on_which_rows_are_together_is_refused(ranks, parts, made, way):
    workers, options = WAYS[way]
    with pytest.raises(ModelError, match=REFUSED[made]):
        ranks(workers, partial(train, **options), parts, made)
    ranks(1, train, parts, made)


def test_batch_normalisation_beside_the_model_is_served(ranks, parts):
    """Over the rows of each worker, or piece, all of which its averages count."""
    for made in (lambda: nn.BatchNorm1d(4), lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))):
        for workers, options in (WAYS[way] for way in ("gdp", "split", "pieces")):
            assert all(found.isfinite().all() for found in ranks(workers, partial(train, **options), parts, made))
    (alone,) = ranks(1, train, parts, lambda: nn.BatchNorm1d(4))
    (found,) = ranks(1, partial(train, micro_batches=3), parts, lambda: nn.BatchNorm1d(4))
    assert (alone[-1], found[-1]) == (6, 18)  # batches, and pieces


class CentreOfAll(Head):
    """A running centre of all workers' rows."""

    def forward(self, rows, sums=None, size=1):
        out = self.last(rows - self.kept)
        if sums is not None:
            self.kept = 0.5 * self.kept + 0.5 * sums(rows.detach().sum(0)) / size
        return out


class Two(nn.Module):
    """Runs another one that is beside the model, too."""

    def __init__(self, first):
        super().__init__()
        self.first, self.last = first, nn.Linear(4, 4)

    def forward(self, rows):
        return self.last(self.first(rows))


@pytest.mark.parametrize("kind", ["centre", "two"])
def test_heads_that_talk_or_run_each_other_are_taken(ranks, parts, kind):
    def loop(world, folder, plan):
        graph = open_graph(folder / str(world.size))
        with seeded(1):
            model = GraphSAGE(graph.num_features, 8, 2, 4)
            first = CentreOfAll() if kind == "centre" else nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
            head = Two(first)
        loader = weft.Loader(graph, [4, 3], 60 // world.size, plan, world=world, **NUMBERS)
        run = weft.parallel(model, loader, head, first)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)
        for batch in loader:
            optimizer.zero_grad()
            rows = run(batch)
            out = first(rows, run.sum, batch.size) if kind == "centre" else head(rows)
            (F.cross_entropy(out, batch.y, reduction="sum") / batch.size).backward()
            run.sync()
            optimizer.step()
        run.close()
        return torch.cat([p.detach().flatten() for p in (*model.parameters(), *head.parameters(), *head.buffers())])

    (alone,) = ranks(1, loop, parts, None)
    for found in ranks(3, loop, parts, "gdp"):
        assert (found - alone).abs().max() < 1e-10
