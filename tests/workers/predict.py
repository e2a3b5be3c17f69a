"""What each worker of a test of predictions does: an epoch by each plan; bytes by stage come of it, predicted and sent."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GCN2Conv, SAGEConv, Sequential, TAGConv

from weft.graph import Graph
from weft.keys import seeded
from weft.nn import LinkPredictor
from weft.nn.links import DotProduct
from weft.plan import Plan, Settings
from weft.planner import KINDS, Cluster, Host
from weft.training import Trainer, make_model, planner_for


class GcnII(nn.Module):
    """A convolution for each layer, which is given the rows of the beginning, too."""

    def __init__(self, graph, layers=2):
        super().__init__()
        self.into, self.out = nn.Linear(graph.num_features, 8), nn.Linear(8, graph.num_classes)
        self.convs = nn.ModuleList(GCN2Conv(8, 0.3, 0.5, layer + 1) for layer in range(layers))

    def forward(self, x, edge_index):
        x = first = self.into(x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index).relu()
        return self.out(x)


def of_hops(graph, hops=2):
    layers = [(TAGConv(graph.num_features, 8, hops), "x, edge_index -> x"), nn.Linear(8, graph.num_classes)]
    return Sequential("x, edge_index", layers)


def headed(graph):
    """Links by rows that are wider behind the last convolution."""
    layers = [(SAGEConv(graph.num_features, 8), "x, edge_index -> x"), nn.Linear(8, 40)]
    return LinkPredictor(Sequential("x, edge_index", layers), DotProduct())


MADE = {"gcnii": GcnII, "gcnii of 3": lambda graph: GcnII(graph, 3)}
MADE |= {"tag": of_hops, "tag of 3": lambda graph: of_hops(graph, 3), "headed": headed}
WORK = dict.fromkeys(KINDS, 1e-6) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}


def predict(world, graph, models, plans, given):
    """(model, plan, bytes predicted, bytes sent) by stage, or instead of bytes why a plan can't be."""
    graph = Graph.open(graph)
    cluster = Cluster(tuple(Host(f"h{n + 1}", 1e8, 1e10) for n in range(world.size)), 1e-4, 1e-4, 1e9, WORK)
    told = []
    for model in models:
        options = {"wire": "float16"} if model == "gin" else {}
        named = {} if model in MADE else {"model": model, "hidden": 8}
        settings = Settings.of(threads=1, **given, **named, **options)
        options |= {} if settings.sampling.full_graph else {"prefetch": 0}
        make = MADE.get(model, lambda graph, settings=settings: make_model(settings, graph))
        with seeded(0):  # PyG's Sequential draws by Python's generator, which the threads share
            made = make(graph)
        trainer = Trainer(graph, made, settings, world=world)
        planner = planner_for(settings, graph, trainer.model, world)
        for fields in plans:
            plan = Plan.from_dict(fields | options)
            predicted = planner.predict(plan, cluster)
            if predicted.excluded:
                told.append([model, str(plan), predicted.excluded, {}])
                continue
            trainer.use(plan)
            if settings.sampling.full_graph:
                trainer.train_epoch(0)  # what is done once
            before = sent(world)
            trainer.train_epoch(1 if settings.sampling.full_graph else 0)
            stages = {stage: count - before.get(stage, 0) for stage, count in sent(world).items()}
            mine = torch.tensor([float(stages.get(stage, 0)) for stage in predicted.sent], dtype=torch.float64)
            whole = torch.stack(trainer.run.comm.gather(mine)).sum(0).tolist()
            told.append([model, str(plan), predicted.sent, dict(zip(predicted.sent, whole, strict=True))])
        answer = planner.answer(cluster)
        told.append([model, "best", answer.best.name, {}])
        trainer.close()
    return told


def default(world, graph, hosts, rows, given):
    """The plan that is chosen where links are slow and caches may hold a share of all rows; bytes an epoch by stage.

    The cache is filled by what the dry run read; epochs are other ones than that.
    """
    graph, settings = Graph.open(graph), Settings.of(model="sage", hidden=8, threads=1, epochs=1000, **given)
    machines = tuple(Host(f"h{n + 1}", 1e5, 1e10, hosts.count(n)) for n in sorted(set(hosts)))
    cluster, model = Cluster(machines, 1e-4, 1e-4, 1e9, WORK), make_model(settings, graph)
    room = 3 * rows * graph.features.nbytes
    tight = replace(cluster, hosts=tuple(replace(host, memory=room * host.workers) for host in machines))
    planner = planner_for(settings, graph, model, world, cluster=tight)
    best = planner.answer(cluster).best
    trainer = Trainer(graph, model, settings, world=world, plan=best.plan, reads=planner.space.reads)
    trainer.prepare()
    before, epochs = sent(world), (1, 2, 3)
    for epoch in epochs:
        trainer.train_epoch(epoch)
    stages = {stage: (count - before.get(stage, 0)) / len(epochs) for stage, count in sent(world).items()}
    mine = torch.tensor([float(stages.get(stage, 0)) for stage in best.sent], dtype=torch.float64)
    whole = torch.stack(trainer.run.comm.gather(mine)).sum(0).tolist()
    trainer.close()
    return str(best.plan), best.sent, dict(zip(best.sent, whole, strict=True))


def fill(world, graph, hosts, plans, given):
    """(plan, bytes predicted to go over the busiest link while its cache is filled, bytes that did)."""
    graph, settings = Graph.open(graph), Settings.of(model="rgcn", hidden=8, threads=1, **given)
    machines = tuple(Host(f"h{n + 1}", 1.0, 1e10, hosts.count(n)) for n in sorted(set(hosts)))
    cluster = Cluster(machines, 0.0, 0.0, 1e9, WORK | {"carry": 0.0})  # seconds are bytes
    trainer, told = Trainer(graph, make_model(settings, graph), settings, world=world), []
    planner = planner_for(settings, graph, trainer.model, world)
    for fields in plans:
        plan, before = Plan.from_dict(fields), world.traffic.sent().get("fetch", [0] * world.size)
        trainer.use(plan)
        mine = np.array(world.traffic.sent()["fetch"]) - before
        of_workers = torch.stack(trainer.run.comm.gather(torch.from_numpy(mine).double())).numpy()
        host = np.array(hosts)
        far = np.where(np.equal.outer(host, host), 0.0, of_workers)
        by_link = [far[host == one].sum() for one in set(hosts)] + [far[:, host == one].sum() for one in set(hosts)]
        told.append([str(plan), planner.space.filling(plan, cluster), max(by_link)])
    trainer.close()
    return told


def sent(world):
    return {stage: sum(by_peer) for stage, by_peer in world.traffic.sent().items()}
