"""One worker of the full graph's exactness test: a trainer's epochs under each case's plan.

python full_steps.py RANK SIZE PORT CASES.json OUT — started by test_full_graph.py, once for each number of workers.
"""

import torch
from steps import main, model_for
from torch_geometric.nn.models import GraphSAGE

from weft.graph import Graph
from weft.training import Settings, Trainer

EPOCHS = 4


def full_model(name, width, classes, dropout):
    """The model of a case; without dropout where plain PyG is to follow."""
    if name == "deep":
        torch.manual_seed(11)
        return GraphSAGE(width, 8, 4, classes, dropout=dropout).double()
    model = model_for(name, width, classes).double()
    for module in model.modules():
        for name in ("p", "dropout", "drops"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, dropout)
    return model


def full_settings(case):
    return Settings(full_graph=True, seed=5, dtype="float64", lr=0.01, epochs=EPOCHS, **case.get("settings", {}))


def train(case, world):
    """By epoch the loss and the validation accuracy after it; and the parameters in the end."""
    graph = Graph.open(case["graph"])
    model = full_model(case["model"], graph.num_features, graph.num_classes, case["dropout"])
    named = {} if "plan" in case.get("settings", {}) else {"plan": case["file"]}
    case = case | {"settings": case.get("settings", {}) | named}
    trainer = Trainer(graph, model, full_settings(case), world=world)
    seen = []
    for epoch in range(EPOCHS):
        seen += [trainer.train_epoch(epoch)[1], trainer.evaluate("validation")]
    trainer.close()
    return seen, torch.cat([p.detach().flatten() for p in model.parameters()])


if __name__ == "__main__":
    main(train)
