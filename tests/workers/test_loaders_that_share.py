"""Loops that share something: a head of two runs, a loader of two loops, seeds, a parameter that few vertices have."""

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import SAGEConv

import weft
from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned

PLANS = ["gdp", "split", "leap", "migrate"]
open_graph = cache(Graph.open)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    whole = communities(folder / "1", vertices=200, edges=1500, width=6, classes=4, train=0.4, block=50)
    write_partitioned(whole, allocate(whole, 3, "random", seed=1), 3, folder / "3")
    return folder


class Model(nn.Module):
    """Few vertices make use of one of its parameters."""

    def __init__(self):
        super().__init__()
        self.conv, self.rare = SAGEConv(6, 4), nn.Parameter(torch.zeros(4))

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + self.rare * (x[:, :1] > 0.8).to(x.dtype)


def loader_of(world, folder, plan, seeds=None, batch=12):
    graph = open_graph(folder / str(world.size))
    seeds = None if seeds is None else graph.renumbered(seeds)
    return weft.Loader(
        graph, [3], batch // world.size, plan, seeds=seeds, dtype="float64", seed=5, threads=1, world=world
    )


def model_of():
    with seeded(1):
        return Model().double()


def backward(run, batch, head=lambda rows: rows):
    """This worker's part of the batch's loss."""
    total = torch.zeros((), dtype=torch.float64)
    for part in batch:
        loss = F.cross_entropy(head(run(part)), part.y, reduction="sum") / batch.size
        loss.backward()
        total += loss.detach()
    return total


def agree(ranks, parts, plan, loop):
    (alone,) = ranks(1, loop, parts, "gdp")
    for each in ranks(3, loop, parts, plan):
        assert (each - alone).abs().max() < 1e-10


@pytest.mark.parametrize("plan", PLANS)
def test_gradients_add_up_that_only_some_workers_have(ranks, parts, plan):
    def loop(world, folder, plan):
        loader, model = loader_of(world, folder, plan, batch=6), model_of()
        run = weft.parallel(model, loader)
        for batch in loader:
            backward(run, batch)
            run.sync()
            if batch.index == 4:
                break
        run.close()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("plan", ["gdp", "split", "leap"])
def test_a_head_of_two_runs_drops_by_the_rows_that_came_last(ranks, parts, plan):
    def loop(world, folder, plan):
        loader, model = loader_of(world, folder, plan), model_of()
        other = loader_of(world, folder, plan, np.arange(60))
        with seeded(2):
            head = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).double()
        run, second = weft.parallel(model, loader, head), weft.parallel(model, other, head)
        losses = []
        for batch, more in zip(loader, other, strict=False):
            losses += [run.sum(backward(run, batch, head)), second.sum(backward(second, more, head))]
            losses += [run.sum(backward(run, batch, head))]
        run.close()
        second.close()
        return torch.stack(losses)

    agree(ranks, parts, plan, loop)


@pytest.mark.parametrize("of", ["seeds", "over"])
@pytest.mark.parametrize("sizes", [(30, 30, 30), (30, 20, 40)])
def test_workers_that_give_a_share_of_vertices_each_are_refused(ranks, parts, of, sizes):
    def loop(world, folder):
        first = sum(sizes[: world.rank])
        mine = np.arange(first, first + sizes[world.rank])
        loader = loader_of(world, folder, "gdp", mine if of == "seeds" else None)
        run = weft.parallel(model_of(), loader)
        try:
            loader.over(mine)
        finally:
            run.close()

    said = "seeds" if of == "seeds" else "vertices to go over"
    other = "others" if sizes[1] == 30 else "20"
    with pytest.raises(ConfigError, match=f"{said}: worker 1 was given {other}, worker 0 30: give all of them to each"):
        ranks(3, loop, parts)


def test_a_loop_takes_over_from_one_that_was_not_ended(ranks, parts):
    def loop(world, folder):
        loader = loader_of(world, folder, "gdp")
        run = weft.parallel(model_of(), loader)
        older = iter(loader)
        assert next(older).index == 0
        with pytest.raises(ConfigError, match="leave it before the loader goes on elsewhere"):
            loader.load_state_dict(loader.state_dict())
        newer = iter(loader)
        assert next(newer).index == 1
        with pytest.raises(ConfigError, match="another loop goes over it by now"):
            next(older)
        with pytest.raises(ConfigError, match="the plan can't change while a loop goes over"):
            run.use("split")
        assert [batch.index for batch in newer] == [*range(2, len(loader))]
        assert [batch.index for batch in loader] == [*range(len(loader))]
        last = iter(loader)
        next(last)
        run.close()
        with pytest.raises(ConfigError, match="this loop's loader was closed"):
            next(last)

    ranks(1, loop, parts)


@pytest.mark.parametrize("epoch", [-3, 1.5, "x", None])
def test_a_state_that_makes_no_sense_is_refused(ranks, parts, epoch):
    def loop(world, folder):
        loader = loader_of(world, folder, "gdp")
        with pytest.raises(ConfigError, match=r"this is no state of a loader: epoch = .*: give what state_dict"):
            loader.load_state_dict(loader.state_dict() | {"epoch": epoch})

    ranks(1, loop, parts)
