"""A plain PyG model, trained unchanged: python examples/train_pyg_model.py GRAPH"""

import sys

from torch_geometric.nn.models import GraphSAGE

import weft

graph = weft.Graph.open(sys.argv[1])
model = GraphSAGE(graph.num_features, 64, num_layers=2, out_channels=graph.num_classes, dropout=0.3)
result = weft.train(graph, model, fanouts=[10, 10], epochs=5)
print(f"test accuracy {result.test:.2%} with {sum(p.numel() for p in model.parameters()):,} parameters")
