"""What each worker of an exactness test does: some steps under each case's plan; losses and parameters come of it."""

from functools import cache
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GraphConv, MessagePassing
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from weft.graph import Graph
from weft.keys import seeded
from weft.nn import Split, build
from weft.plan import Plan, Settings
from weft.sampling import Batches
from weft.training import Loader, Trainer, parallel


class OwnConv(MessagePassing):
    """A user's convolution, which only its own code can run."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * width, out)
        self.drops = 0.2

    def forward(self, x, edge_index):
        return self.lin(torch.cat([x, self.propagate(edge_index, x=x)], 1))

    def message(self, x_j):
        return torch.nn.functional.dropout(x_j.tanh(), self.drops, self.training)


class DeclaredConv(OwnConv):
    """The same, said as a split."""

    def weft_split(self):
        def source(x):
            return x.tanh()

        def finish(merged, own):
            return nn.functional.dropout(self.lin(torch.cat([own, merged], 1)), self.drops, self.training)

        return Split(finish, source, "mean")

    def forward(self, x, edge_index):
        merged = self.propagate(edge_index, x=x)
        return self.weft_split().finish(merged, x)

    def message(self, x_j):
        return x_j.tanh()


class Own(nn.Module):
    """A user's model with a residual connection."""

    def __init__(self, width, out, kind):
        super().__init__()
        self.convs = nn.ModuleList([kind(width, width), kind(width, out)])

    def forward(self, x, edge_index):
        x = x + self.convs[0](x, edge_index).relu()
        return self.convs[1](x, edge_index)


class Graphs(nn.Module):
    """A mean and a sum by the weights of edges."""

    def __init__(self, width, hidden, out):
        super().__init__()
        self.first, self.second = GraphConv(width, hidden, "mean"), GraphConv(hidden, out)
        self.drops = nn.Dropout(0.3)

    def forward(self, x, edge_index, edge_weight):
        return self.second(self.drops(self.first(x, edge_index, edge_weight).relu()), edge_index, edge_weight)


open_graph = cache(Graph.open)  # workers that are threads share it


def run(launch, cases, workers, train):
    """Losses and parameters of each case, by the first of so many workers; `launch`: the fixture ranks, or processes."""
    hosts = [rank // 2 for rank in range(workers)]  # as if two workers shared a host
    return launch(workers, train_all, train, cases, hosts=hosts)[0]


def train_all(world, train, cases):
    """What `train(case, world)` gives for each case."""
    found = []
    for case in cases:
        try:
            losses, parameters = train(case, world)
        except Exception as error:
            error.add_note(f"in the case {case}")
            raise
        found.append({"losses": np.array(losses), "parameters": parameters.cpu().numpy()})
    return found


def model_for(name, width, classes, widths=()):
    """A model by the name of its case; always the same parameters."""
    with seeded(11):
        return make_model(name, width, classes, widths)


def make_model(name, width, classes, widths):
    if name.startswith(("rgcn", "rgat")):
        kind, _, option = name.partition("-")
        shared = {"bases": {"bases": 2}, "blocks": {"blocks": 2}}.get(option, {})
        options = {"relations": 4, "heads": 2, "dropout": 0.3, **shared}
        return build(kind, width, 8, classes, 2, widths=widths, **options).double()
    common = {"in_channels": width, "hidden_channels": 8, "num_layers": 2, "out_channels": classes, "dropout": 0.3}
    if name.startswith("sage"):
        aggr, _, option = name.removeprefix("sage-").partition("-")
        return GraphSAGE(**common, aggr=aggr, **({"project": True} if option else {}))
    if name == "narrow":  # its products are narrower than slices of the inputs
        return GraphSAGE(**common | {"hidden_channels": 2}, aggr="mean")
    if name == "jk":
        return GraphSAGE(**common, jk="cat")
    models = {"gcn": lambda: GCN(**common), "gin": lambda: GIN(**common), "gcn-weights": lambda: GCN(**common)}
    models["gat"] = lambda: GAT(**common, heads=2)
    models["gatv2"] = lambda: GAT(**common, heads=2, v2=True)
    models["graph-weights"] = lambda: Graphs(width, 8, classes)
    models["graph-narrow-weights"] = lambda: Graphs(width, 2, classes)
    models["own"] = lambda: Own(width, classes, OwnConv)
    models["declared"] = lambda: Own(width, classes, DeclaredConv)
    for deep in ("film", "deepgcn"):
        models[deep] = lambda deep=deep: build(deep, width, 8, classes, layers=2, dropout=0.2)
    return models[name]().double()


def train(case, world):
    """Losses, and the parameters after them: of some steps, or of a trainer's epochs where the case has settings."""
    return (train_epochs if "settings" in case else train_steps)(case, world)


def train_steps(case, world):
    """Losses by step, and the parameters after them: a loop of one's own."""
    graph = open_graph(case["graph"])
    model = model_for(case["model"], graph.num_features, graph.num_classes, graph.feature_widths).double()
    options = {"seed": case.get("seed", 5), "dtype": "float64", **case.get("sampling", {})}
    plan = Plan.from_dict(case["plan"])
    loader = Loader(graph, case["fanouts"], plan=plan, world=world, **options)
    loader.mode.order = Batches(graph.seeds("train"), graph.original_ids, case["batch_size"], 5)
    run = parallel(model, loader)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for batch in islice(loader, case.get("steps", 3)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(batch), batch.y, reduction="sum") / batch.size
        loss.backward()
        run.sync()
        losses.append(float(run.sum(loss.detach().clone())))
        optimizer.step()
    run.close()
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


def train_epochs(case, world):
    """Losses by epoch, and the parameters after them, of a trainer: for what goes through a batch in turns."""
    graph = open_graph(case["graph"])
    model = model_for(case["model"], graph.num_features, graph.num_classes, graph.feature_widths)
    settings = Settings.of(
        seed=5,
        dtype="float64",
        lr=0.01,
        batch_size=case["batch_size"] // world.size,
        fanouts=tuple(case["fanouts"]),
        **case["settings"],
    )
    trainer = Trainer(graph, model, settings, world=world, plan=Plan.from_dict(case["plan"]))
    losses = [trainer.train_epoch(epoch)[1] for epoch in range(case.get("epochs", 3))]
    trainer.close()
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])
