"""Whether a plan trains what one worker trains: losses and parameters of a few epochs, on simulated workers."""

import numpy as np
import torch
from torch_geometric.nn import GraphSAGE

from weft.graph import Graph, communities
from weft.keys import seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Plan, Settings
from weft.training import Trainer

HOME = {"seeds": "home"}


def make_parts(folder, method="metis"):
    """A small graph partitioned for 1 to 4 workers: folders by their number."""
    graph = communities(folder / "whole", vertices=500, edges=5000, width=6, classes=4, train=0.4, block=50)
    for parts in (1, 2, 3, 4):
        write_partitioned(graph, allocate(graph, parts, method, seed=3), parts, folder / str(parts))
    return {parts: folder / str(parts) for parts in (1, 2, 3, 4)}


def sage(width, classes):
    """A model for plans that are not about models."""
    return GraphSAGE(width, 8, 2, classes, dropout=0.3)


def trained(world, path, make_model, plan, settings):
    """Losses of two epochs, and the parameters after them, of one of the workers."""
    graph = Graph.open(path)
    with seeded(11):
        model = make_model(graph.num_features, graph.num_classes).double()
    usual = {
        "fanouts": (4, 3),
        "batch_size": 120 // world.size,
        "dtype": "float64",
        "lr": 0.01,
        "threads": 1,
        "seed": 5,
    }
    given = {name: value for name, value in (usual | settings).items() if value is not None}
    trainer = Trainer(graph, model, Settings.of(**given), world=world, plan=plan and Plan.from_dict(plan))
    losses = [trainer.train_epoch(epoch)[1] for epoch in range(2)]
    trainer.close()
    return np.array(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


def check_exact(ranks, parts, make_model, plans, **settings):
    """All plans on 2 to 4 workers train what one worker trains; gives that one's losses and parameters."""
    losses, parameters = ranks(1, trained, parts[1], make_model, None, settings)[0]
    for workers in (2, 3, 4):
        for name, plan in plans.items():
            got, other = ranks(workers, trained, parts[workers], make_model, plan, settings)[0]
            assert np.abs(got - losses).max() < 1e-10, f"{name} on {workers} workers"
            assert float((other - parameters).abs().max()) < 1e-10, f"{name} on {workers} workers"
    return losses, parameters
