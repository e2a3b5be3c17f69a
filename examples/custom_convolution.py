"""A convolution of one's own: python examples/custom_convolution.py GRAPH

Weft runs it as a black box, with the model around it unchanged: residual connections work, dropout is keyed.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import weft


class GatedConv(MessagePassing):
    """Neighbours are averaged, each gated by how it agrees with the destination."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="mean")
        self.value, self.gate = nn.Linear(width, width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j], dim=-1))) * self.value(x_j)


class Model(nn.Module):
    """Two gated convolutions with residual connections."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.encode = nn.Linear(in_channels, 32)
        self.convs = nn.ModuleList([GatedConv(32), GatedConv(32)])
        self.head = nn.Linear(32, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.encode(x).relu()
        for conv in self.convs:
            x = x + F.dropout(conv(x, edge_index), 0.2, self.training)
        return self.head(x)


if __name__ == "__main__":
    graph = weft.Graph.open(sys.argv[1])
    print(weft.train(graph, Model(graph.num_features, graph.num_classes), fanouts=[10, 10], epochs=5).test)
