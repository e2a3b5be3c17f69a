"""Sums of gradients: of a table, of which a batch reads few rows, only these are sent, and the bits are the same."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

import weft
from weft.errors import TrainingError
from weft.graph import Graph
from weft.keys import seeded
from weft.training import gradients
from weft.training.gradients import GradientSum, GradientSync, sum_gradients

ROWS, WIDTH = 3000, 8


@pytest.fixture(params=[True, False], ids=["few", "whole"])
def few(request, monkeypatch):
    """Are rows of tables as small as these sent by themselves?"""
    if request.param:
        monkeypatch.setattr(gradients, "_ROWS", 100)
        monkeypatch.setattr(gradients, "_NUMBERS", 1000)
    return request.param


def summed(world, filled, alone=False):
    """The sums over workers of which each has so many rows (None: no gradient), and the bytes that were sent."""
    table, other = nn.Parameter(torch.zeros(ROWS, WIDTH)), nn.Parameter(torch.zeros(3))
    draws = torch.Generator().manual_seed(world.rank)
    if (count := filled[world.rank]) is not None:
        table.grad = torch.zeros(ROWS, WIDTH)
        table.grad[torch.randperm(ROWS, generator=draws)[:count]] = torch.randn(count, WIDTH, generator=draws) / 3
        other.grad = torch.randn(3, generator=draws)
    before = sum(map(sum, world.traffic.sent().values()))
    (told,) = sum_gradients([table] if alone else [other, table], world.communicator(), float(world.rank))
    assert told == sum(range(world.size))
    return table.grad, other.grad, sum(map(sum, world.traffic.sent().values())) - before


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("filled", [(40, 90, 0), (None, 50, 30), (3000, 20, 20), (None, None, None)])
def test_sums_are_those_of_whole_gradients(ranks, few, filled, alone):
    found = ranks(3, summed, filled, alone)
    if filled[1] is None:
        assert all(table is None and other is None for table, other, _ in found)
        return
    parts = []
    for rank, count in enumerate(filled):
        draws, part = torch.Generator().manual_seed(rank), torch.zeros(ROWS, WIDTH)
        part[torch.randperm(ROWS, generator=draws)[: count or 0]] = torch.randn(count or 0, WIDTH, generator=draws) / 3
        parts.append(part)
    wanted = (parts[0] + parts[1]) + parts[2]
    assert all(torch.equal(table, wanted) for table, _, _ in found)
    sent = max(sent for _, _, sent in found)
    assert (sent < 20_000) == (few and sum(count or 0 for count in filled) < ROWS)


@pytest.mark.filterwarnings("error")
def test_a_loss_is_summed_without_a_warning_of_its_gradient(ranks):
    def work(world):
        learned = nn.ParameterList([torch.ones(3)])
        loss = learned[0].square().sum()
        loss.backward()
        return GradientSync(nn.ModuleList([learned]), world.communicator(), lambda: (0, 0))(loss)

    assert ranks(1, work) == [[3.0]] and ranks(2, work) == [[6.0]] * 2


def test_a_sparse_one_of_a_table_is_refused(ranks, few):
    def work(world):
        table = nn.Embedding(ROWS, WIDTH, sparse=True)
        table(torch.tensor([1, 2])).sum().backward()
        with pytest.raises(TrainingError, match="a gradient is sparse"):
            sum_gradients([table.weight], world.communicator())

    ranks(2, work)


# Which of three parameters has a gradient in each step: on all workers, or (1) on the second one alone.
STEPS = [
    [None, None, "all"],  # 0 is frozen
    [None, None, "all"],
    ["all", None, "all"],  # no more
    [1, 1, "all"],
    [None, None, None],
    ["all", 1, None],
    [None, 1, "all"],
]


def test_those_that_nobody_has_are_not_sent_until_somebody_has_one(ranks):
    def work(world):
        every = [nn.Parameter(torch.zeros(size)) for size in (40_000, 3, 5)]
        every[0].requires_grad_(False)
        total, found, sent = GradientSum(every, world.communicator()), [], []
        for step, which in enumerate(STEPS):
            for parameter, who in zip(every, which, strict=True):
                has = who in ("all", world.rank)
                parameter.grad = torch.full_like(parameter, 10.0 * step + world.rank) if has else None
            before = sum(map(sum, world.traffic.sent().values()))
            assert total(float(world.rank), 0.5) == [3, 1.5]
            sent.append(sum(map(sum, world.traffic.sent().values())) - before)
            found.append([None if one.grad is None else one.grad.unique().item() for one in every])
        return found, [one > 100_000 for one in sent]

    sums = {"all": [30.0 * step + 3 for step in range(7)], 1: [10.0 * step + 1 for step in range(7)]}
    wanted = [[who and sums[who][step] for who in which] for step, which in enumerate(STEPS)]
    large = [False, False, True, True, True, True, True]  # in a step after one, too
    assert ranks(3, work) == [(wanted, large)] * 3


def test_gradients_that_are_summed_are_plain(ranks, few):
    """Whether they have gradients themselves (create_graph), or are summed together with a loss, which has one."""

    def work(world):
        table, other = nn.Parameter(torch.ones(ROWS, WIDTH)), nn.Parameter(torch.ones(3))
        loss = table[:5].square().sum() * other.square().sum()
        loss.backward(create_graph=True)
        assert sum_gradients([other, table], world.communicator(), loss) == [240]
        assert table.grad.sum() == 480 and other.grad.tolist() == [160] * 3
        torch.optim.SGD([table, other], lr=1.0).zero_grad(set_to_none=False)

    ranks(2, work)


@pytest.mark.parametrize("plan, aggr", [("split", "mean"), ("split", "max"), ("halo", "mean"), ("tp", "mean")])
def test_rows_in_half_precision_have_gradients_of_a_loss_that_is_small(ranks, plan, aggr):
    """As one is that is divided by as many examples as large graphs have: of float16, nothing would be left of it."""
    draws = torch.Generator().manual_seed(7)
    graph = Graph.from_arrays(
        torch.randint(0, 200, (2, 1200), generator=draws).numpy(),
        features=torch.randn(200, 6, generator=draws).numpy(),
        labels=torch.randint(0, 3, (200,), generator=draws).numpy(),
        split=torch.zeros(200, dtype=torch.int).numpy(),
    )
    how = {"full_graph": True} if plan in ("halo", "tp") else {"fanouts": [3, 3], "batch_size": 100}

    def gradient(world, wire):
        with seeded(3):
            model = GraphSAGE(6, 8, 2, 3, aggr=aggr)
        run = weft.parallel(model, weft.Loader(graph, world=world, threads=1, seed=5, plan=plan, wire=wire, **how))
        for part in next(iter(run.loader)):
            (nn.functional.cross_entropy(run(part), part.y, reduction="sum") / 1e10).backward()
        run.sync()
        run.close()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    exact, half = (ranks(2, gradient, wire)[0] for wire in ("float32", "float16"))
    assert 0 < (half - exact).norm() < 0.01 * exact.norm()


def test_more_sources_may_share_a_maximum_at_another_worker_than_half_precision_has_numbers(ranks):
    many = 70_000
    graph = Graph.from_arrays(
        np.stack([np.arange(many, 2 * many), np.zeros(many, dtype=np.int64)]),
        num_vertices=2 * many,
        features=np.ones((2 * many, 2), dtype=np.float32),
        labels=np.arange(2 * many) % 2,
        split=np.where(np.arange(2 * many) < 10, 0, 3),
    )

    def gradient(world, wire):
        with seeded(3):
            model = GraphSAGE(2, 4, 2, 2, aggr="max")
        loader = weft.Loader(graph, world=world, threads=1, full_graph=True, plan="push+push", wire=wire)
        run = weft.parallel(model, loader)
        for batch in loader:
            (nn.functional.cross_entropy(run(batch), batch.y, reduction="sum") / batch.size).backward()
        run.sync()
        run.close()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    exact, half = (ranks(2, gradient, wire)[0] for wire in ("float32", "float16"))
    assert (half - exact).norm() < 0.01 * exact.norm()


class ById(nn.Module):
    """The rows of vertices are learned, by their numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.model = nn.Embedding(ROWS, WIDTH), GraphSAGE(WIDTH, 8, 2, 3)

    def forward(self, x, edge_index):
        return self.model(self.table(x[:, 0].long()), edge_index)


def test_a_run_trains_what_one_worker_trains(ranks, few):
    draws = torch.Generator().manual_seed(7)
    graph = Graph.from_arrays(
        torch.randint(0, ROWS, (2, 6000), generator=draws).numpy(),
        features=torch.arange(ROWS)[:, None].numpy(),
        labels=torch.randint(0, 3, (ROWS,), generator=draws).numpy(),
        split=torch.where(torch.arange(ROWS) < 60, 0, 3).numpy(),
    )

    def losses(world):
        with seeded(3):
            model = ById().double()
        given = {"batch_size": 30 // world.size, "dtype": "float64", "threads": 1, "seed": 5, "plan": "gdp"}
        loader = weft.Loader(graph, [3, 3], world=world, **given)
        run = weft.parallel(model, loader)
        optimizer, found = torch.optim.Adam(model.parameters(), lr=0.05), []
        for _ in range(3):
            for batch in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(run(batch), batch.y, reduction="sum") / batch.size
                loss.backward()
                found += run.sync(loss)
                optimizer.step()
        run.close()
        return found

    alone = ranks(1, losses)[0]
    assert alone[-1] < alone[0]
    for each in ranks(3, losses):
        assert each == pytest.approx(alone, abs=1e-12)
