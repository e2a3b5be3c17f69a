"""What each worker of the full graph's exactness test does: a trainer's epochs under each case's plan."""

import torch
from steps import model_for, open_graph
from torch_geometric.nn.models import GraphSAGE

from weft.keys import seeded
from weft.plan import Plan, Settings
from weft.training import Trainer

EPOCHS = 2


def full_model(name, width, classes, dropout, widths=()):
    """The model of a case; without dropout where plain PyG is to follow."""
    if name == "deep":
        with seeded(11):
            return GraphSAGE(width, 8, 4, classes, dropout=dropout).double()
    model = model_for(name, width, classes, widths).double()
    for module in model.modules():
        for name in ("p", "dropout", "drops"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, dropout)
    return model


def full_settings(case):
    return Settings.of(full_graph=True, seed=5, dtype="float64", lr=0.01, epochs=EPOCHS, **case.get("settings", {}))


def train_full(case, world):
    """By epoch the loss and the validation accuracy after it; and the parameters in the end."""
    graph = open_graph(case["graph"])
    model = full_model(case["model"], graph.num_features, graph.num_classes, case["dropout"], graph.feature_widths)
    plan = Plan.from_dict(case["plan"]) if case["plan"] else None
    trainer = Trainer(graph, model, full_settings(case), world=world, plan=plan)
    seen = []
    for epoch in range(case.get("epochs", EPOCHS)):
        seen += [trainer.train_epoch(epoch)[1], trainer.evaluate("validation")]
    trainer.close()
    return seen, torch.cat([p.detach().flatten() for p in model.parameters()])
