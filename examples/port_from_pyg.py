"""PyG's example of neighbour sampling, and what becomes of it with Weft: python examples/port_from_pyg.py GRAPH.pt

On several workers, the same: torchrun --nproc-per-node 2 examples/port_from_pyg.py GRAPH.pt. The lines that change are
marked; the model and the optimiser stay. In PyG they were:

    train_loader = NeighborLoader(data, input_nodes=data.train_mask, num_neighbors=[25, 10], batch_size=64, shuffle=True)
    ...
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import weft

# A torch_geometric.data.Data with train_mask and test_mask, from a file of one's own: such a load runs code that is in it.
data = torch.load(sys.argv[1], weights_only=False)
train_loader = weft.Loader(data, fanouts=[25, 10], batch_size=64, seeds=data.train_mask)  # was NeighborLoader(...)
model = GraphSAGE(data.num_features, hidden_channels=64, num_layers=2, out_channels=int(data.y.max()) + 1)
parallel_model = weft.parallel(model, train_loader)  # new: the same model, on a batch's blocks
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train() -> float:
    model.train()
    total_loss = 0.0
    for batch in train_loader:
        optimizer.zero_grad()
        out = parallel_model(batch)  # was model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y, reduction="sum") / batch.size  # the mean over all workers' seeds
        loss.backward()
        (loss,) = parallel_model.sync(loss.detach())  # new: sums gradients, and losses, over all workers
        optimizer.step()
        total_loss += loss * batch.size
    return total_loss / int(data.train_mask.sum())


@torch.no_grad()
def test() -> float:
    model.eval()
    out = model(data.x, data.edge_index)  # PyG on the whole graph: the model is PyG's own, before and after
    return float((out.argmax(1) == data.y)[data.test_mask].float().mean())


for epoch in range(1, 6):
    loss, accuracy = train(), test()
    if train_loader.world.rank == 0:
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
