"""Who is likely to be linked with whom: python examples/link_prediction.py GRAPH

A twentieth of the graph's links each is held out for validation and for the test; the graph needs no labels.
"""

import sys

import torch
from torch_geometric.nn.models import GraphSAGE

import weft

graph = weft.Graph.open(sys.argv[1])
encoder = GraphSAGE(graph.num_features, 64, num_layers=2, out_channels=64)
result = weft.train(graph, encoder, task="link", hidden=64, decoder="mlp", fanouts=[15, 10], epochs=5, metric="auc")
print("test", {name: round(value, 4) for name, value in result.figures.items()})

# Rows of all vertices, over all edges of the graph; a vertex's best partners are those of the highest scores.
rows = torch.from_numpy(weft.infer(encoder, graph).outputs)
with torch.no_grad():
    scores = result.model.decoder(rows[:1], rows.unsqueeze(0))[0]
scores[0] = -torch.inf  # not itself
print("the likeliest links of vertex 0:", scores.topk(5).indices.tolist())
