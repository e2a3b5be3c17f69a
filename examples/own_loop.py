"""A training loop of one's own, on any number of workers and by any plan: it trains what `weft.train` trains, to the bit.

python examples/own_loop.py GRAPH PLAN
On four workers: weft partition GRAPH parts --parts 4, then torchrun --nproc-per-node 4 examples/own_loop.py parts split
"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GraphSAGE

import weft

graph = weft.Graph.open(sys.argv[1])
torch.manual_seed(0)
model = GraphSAGE(graph.num_features, 64, num_layers=2, out_channels=graph.num_classes, dropout=0.3)
loader = weft.Loader(graph, fanouts=[10, 10], batch_size=256, plan=sys.argv[2])
run = weft.parallel(model, loader)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for epoch in range(3):
    loss_sum = torch.zeros(())
    for batch in loader:
        optimizer.zero_grad()
        for part in batch:  # one, unless models migrate or a batch is computed in micro-batches
            loss = F.cross_entropy(run(part), part.y, reduction="sum") / batch.size  # of all workers' seeds
            loss.backward()
            loss_sum += loss.detach()
        run.sync()  # the gradients of all workers
        optimizer.step()
    loss = run.sum(loss_sum) / len(loader)
    if loader.world.rank == 0:
        print(f"epoch {epoch + 1}  loss {loss:.4f}")
