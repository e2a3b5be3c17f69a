"""Random models on random graphs under random plans train what plain PyG trains, in float64 to 1e-9.

A case is all drawn from its seed, which its name tells.
"""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quick import some
from torch import nn
from torch_geometric import nn as gnn

import weft
import weft.nn  # before the first convolution is made: PyG would leave files that it generates
from weft.graph import Graph
from weft.keys import seeded
from weft.partition import write_partitioned
from weft.sampling import Batches, WholeBatch

FAST = {
    "gcn": lambda r, i, o: gnn.GCNConv(i, o, improved=r.random() < 0.3, add_self_loops=r.random() < 0.7),
    "sage": lambda r, i, o: gnn.SAGEConv(i, o, r.choice(["mean", "sum", "max"]), root_weight=r.random() < 0.7),
    "gat": lambda r, i, o: gnn.GATConv(i, o, r.choice([1, 2, 3]), concat=False, add_self_loops=r.random() < 0.7),
    "gatv2": lambda r, i, o: gnn.GATv2Conv(i, o, r.choice([1, 2]), concat=False, share_weights=r.random() < 0.5),
    "gin": lambda r, i, o: gnn.GINConv(nn.Sequential(nn.Linear(i, o), nn.Tanh()), train_eps=r.random() < 0.5),
    "film": lambda r, i, o: gnn.FiLMConv(i, o),
    "graph": lambda r, i, o: gnn.GraphConv(i, o, r.choice(["add", "mean"]), bias=r.random() < 0.7),
}
BLACK = {
    "graph by max": lambda r, i, o: gnn.GraphConv(i, o, "max"),
    "transformer": lambda r, i, o: gnn.TransformerConv(i, o, r.choice([1, 2]), concat=False, beta=r.random() < 0.5),
    "general": lambda r, i, o: gnn.GeneralConv(i, o, attention=r.random() < 0.5),
    "gen": lambda r, i, o: gnn.GENConv(i, o, norm="layer"),
    "edge": lambda r, i, o: gnn.EdgeConv(nn.Linear(2 * i, o), r.choice(["max", "mean"])),
    "several": lambda r, i, o: gnn.SAGEConv(i, o, r.choice([["mean", "max"], "softmax", "min"])),
}
WEIGHED = ("gcn", "graph", "graph by max")


class Net(nn.Module):
    """Convolutions, and what people write between them."""

    def __init__(self, r, kinds, width, out, dropout):
        super().__init__()
        hidden = r.choice([2, 3, 5, 8])
        self.kinds, self.dropout = kinds, dropout
        self.style = r.choice(["plain", "residual", "jk-cat", "jk-max", "inputs", "shared", "branch"])
        self.weighed, self.norm = r.random() < 0.5, r.random() < 0.3
        self.before = nn.Linear(width, hidden) if self.style in ("residual", "shared") or r.random() < 0.2 else None
        first = width if self.before is None else hidden
        makers = [(FAST | BLACK)[kind] for kind in kinds]
        more = width if self.style == "inputs" else 0
        self.convs = nn.ModuleList([make(r, hidden + more if n else first, hidden) for n, make in enumerate(makers)])
        if self.style == "shared":
            self.convs, self.kinds = nn.ModuleList([self.convs[0]] * len(kinds)), kinds[:1] * len(kinds)
        self.jk = gnn.JumpingKnowledge(self.style[3:]) if self.style.startswith("jk") else None
        self.side = gnn.SAGEConv(first, hidden) if self.style == "branch" else None
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in kinds])
        self.end = nn.Linear(hidden * (len(kinds) if self.style == "jk-cat" else 1), out)

    def forward(self, x, edge_index, edge_weight=None):
        inputs, seen = x, []
        x = x if self.before is None else self.before(x)
        for n, (kind, conv) in enumerate(zip(self.kinds, self.convs, strict=True)):
            given = torch.cat([x, inputs], 1) if n and self.style == "inputs" else x
            h = conv(given, edge_index, edge_weight) if self.weighed and kind in WEIGHED else conv(given, edge_index)
            h = h + self.side(x, edge_index) if not n and self.side is not None else h
            h = F.dropout(F.elu(self.norms[n](h) if self.norm else h), self.dropout, self.training)
            x = h + x if self.style == "residual" else h
            seen.append(x)
        return self.end(x if self.jk is None else self.jk(seen))


class Case:
    """All that is drawn from a seed."""

    def __init__(self, seed):
        r, rng = random.Random(seed), np.random.default_rng(seed)
        self.seed, n = seed, r.choice([1, 2, 3, 9, 40, 60])
        edges = rng.integers(0, n, (2, r.choice([0, 1, 2, 4, 8]) * n))
        edges = r.choice(
            [
                lambda: edges,
                lambda: np.where([[False], [True]] & (rng.random(edges.shape[1]) < 0.5), 0, edges),  # a hub
                lambda: edges[:, (edges % 3 != 0).all(0)],  # vertices without edges
                lambda: np.concatenate([edges, edges[:, ::2], edges[::-1]], 1),
                lambda: np.concatenate([edges, np.tile(rng.integers(0, n, n), (2, 1))], 1),  # loops, some twice
            ]
        )()
        classes, several = r.choice([1, 2, 3, 7]), r.random() < 0.3
        labels = rng.integers(0, 2, (n, classes + 1)) if several else rng.integers(0, classes, n)
        split = rng.choice(4, n, p=(0.6, 0.2, 0.1, 0.1))
        split[0], labels[0] = 0, classes - 1 if not several else labels[0]
        width, weights = r.choice([1, 2, 5, 7]), (rng.random(edges.shape[1]) + 0.1).astype(np.float32)
        given = {"labels": labels, "split": split, "edge_weight": weights if r.random() < 0.5 else None}
        features = rng.standard_normal((n, width)).astype(np.float32)
        self.graph = Graph.from_arrays(edges, num_vertices=n, features=features, **given)
        self.workers, self.whole, black = r.choice([1, 2, 3]), r.random() < 0.5, r.random() < 0.3
        self.kinds = r.choices([*FAST, *(BLACK if black else ())], k=r.choice([1, 2, 3]))
        self.black = any(kind in BLACK for kind in self.kinds)
        self.dropout = r.choice([0.0, 0.0, 0.4])  # with it, or with drawn neighbours, one worker says what is due
        self.owners = r.choice(
            [
                rng.integers(0, self.workers, n),
                np.full(n, self.workers - 1),  # all are with one
                (rng.random(n) ** 3 * self.workers).astype(int),
            ]
        )
        self.shares = r.choice([None, list(range(1, self.workers + 1))])
        depth, options = len(self.kinds), {"seed": 5, "dtype": "float64", "threads": 1}
        if self.whole:
            self.common = options | {"full_graph": True}
            self.drawn = False
        else:
            self.drawn = self.dropout > 0 or r.random() < 0.4
            self.common = options | {"fanouts": [r.choice([1, 2, 3]) if self.drawn else -1 for _ in range(depth)]}
            self.size = r.choice([6, 12, 600])
        self.plan = self._plan(r, depth) if self.workers > 1 else {}
        turns = self.plan.get("plan") == "migrate"  # whose pieces of a batch come once
        self.optimizer = r.choice(["SGD", "RMSprop", *([] if turns else ["LBFGS"])])
        self.every, self.clip = (1 if self.optimizer == "LBFGS" else r.choice([1, 1, 2])), r.choice([0, 0.5])
        self.state = r.getstate()

    def _plan(self, r, depth):
        some = ["pull"] if self.black else ["pull", "push", "cover"]
        if self.whole:
            mixed = "+".join(r.choices(some, k=depth))
            name = r.choice(["halo", mixed, *([] if self.black else ["tp", "tp"])])
            if name == "tp":
                return {"plan": name, "chunks": r.choice([0, 1, 3, 50]), "overlap": r.random() < 0.5}
            topology = r.choice(["replicated", "partitioned"])
            first = name == "halo" and not self.black and topology == "replicated"
            return {"plan": name, "topology": topology} | ({"replicate": True} if first and r.random() < 0.5 else {})
        cut = r.randrange(depth + 1)
        mixed = "+".join([*r.choices(some, k=cut), *["local"] * (depth - cut)])
        name = r.choice(["gdp", "leap", "dnp", "migrate", mixed, *([] if self.black else ["snp", "split"])])
        found = {"plan": name, "topology": r.choice(["replicated", "partitioned"]), "prefetch": r.choice([0, 2])}
        return found | ({"cache": 0.5} if name != "migrate" and r.random() < 0.3 else {})

    def model(self):
        r = random.Random()
        r.setstate(self.state)
        out = self.graph.num_classes
        with seeded(self.seed):
            return Net(r, self.kinds, self.graph.num_features, out, self.dropout).double()

    def loss(self, rows, labels):
        if self.graph.multi_label:
            return F.binary_cross_entropy_with_logits(rows, labels.double(), reduction="sum")
        return F.cross_entropy(rows, labels.long(), reduction="sum")

    def __str__(self):
        g = self.graph
        sizes = f"{g.num_vertices} vertices, {g.num_edges} edges, {g.num_features} features, {self.workers} workers"
        return (
            f"{self.seed}: {sizes}, {self.kinds}, dropout {self.dropout}, {self.common}, {self.plan}, {self.optimizer}"
        )


def steps(case, model, epochs, sync):
    """Losses and parameters of some epochs; `epochs`: of each, for each batch, a function that gives its parts' losses."""
    kind, losses = getattr(torch.optim, case.optimizer), []
    optimizer = kind(model.parameters(), lr=0.02, **({"max_iter": 3} if case.optimizer == "LBFGS" else {}))
    for batches in epochs:
        for number, losses_of in enumerate(batches):

            def closure(losses_of=losses_of, first=number % case.every == 0):
                if first:
                    optimizer.zero_grad()
                own = 0.0
                for loss in losses_of():
                    loss.backward()
                    own += float(loss.detach())
                (value,) = sync(own)
                return torch.tensor(value, dtype=torch.float64)

            if case.optimizer == "LBFGS":
                losses.append(float(optimizer.step(closure)))
                continue
            losses.append(float(closure()))
            if (number + 1) % case.every == 0:
                if case.clip:
                    nn.utils.clip_grad_norm_(model.parameters(), case.clip)
                optimizer.step()
    return np.array(losses), torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


def by_weft(world, case, graph, plan):
    size = {} if case.whole else {"batch_size": case.size // world.size}
    loader, model = weft.Loader(graph, world=world, **case.common, **plan, **size), case.model()
    run = weft.parallel(model, loader)
    epochs = ((lambda b=b: (case.loss(run(part), part.y) / b.size for part in b) for b in loader) for _ in range(2))
    found = steps(case, model, epochs, run.sync)
    run.close()
    return found


def by_pyg(case):
    graph, model = case.graph, case.model()
    x = torch.from_numpy(np.array(graph.features)).double()
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
    weights = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight).double()
    seeds, labels = graph.seeds("train"), torch.from_numpy(np.array(graph.labels))
    order = WholeBatch(seeds) if case.whole else Batches(seeds, None, case.size, 5)

    def loss_of(batch):
        at = torch.from_numpy(batch.astype(np.int64))
        yield case.loss(model(x, edges, weights)[at], labels[at]) / len(at)

    epochs = ((lambda b=b: loss_of(b) for b in order.of(epoch)) for epoch in range(2))
    return steps(case, model, epochs, lambda value: (value,))


def check(case, ranks, folder):
    graph = case.graph
    if case.workers > 1:
        write_partitioned(graph, case.owners.astype(np.int32), case.workers, folder / "parts", shares=case.shares)
        graph = Graph.open(folder / "parts")
    drawn = case.drawn or case.dropout
    wanted = ranks(1, by_weft, case, case.graph, {})[0] if drawn else by_pyg(case)
    for found in ranks(case.workers, by_weft, case, graph, case.plan):
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape and (abs(one - other) <= 1e-9 * np.maximum(1, abs(other))).all(), str(case)


@pytest.mark.parametrize("seed", some(range(200), *range(16)))
def test_random_runs(ranks, tmp_path, seed):
    check(Case(seed), ranks, tmp_path)
