"""Training on the full graph, an update an epoch: python examples/full_graph.py GRAPH

On four workers: weft partition GRAPH parts --parts 4, then torchrun --nproc-per-node 4 examples/full_graph.py parts
"""

import sys

from torch_geometric.nn.models import GraphSAGE

import weft

graph = weft.Graph.open(sys.argv[1])
model = GraphSAGE(graph.num_features, 64, num_layers=2, out_channels=graph.num_classes, dropout=0.5)
result = weft.train(graph, model, full_graph=True, epochs=100, lr=0.01, weight_decay=5e-4, patience=20)
print(f"test accuracy {result.test:.2%} after {len(result.history)} updates")
