"""The two-layer GCN of Kipf and Welling, as anyone would write it in PyG; Weft trains it unchanged.

weft train GRAPH --model examples/kipf_gcn.py:make_model --fanouts full
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv


class GCN(nn.Module):
    """Rows of features scaled to sum one, dropout before each convolution."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(in_channels, hidden), GCNConv(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x / x.sum(dim=-1, keepdim=True).clamp(min=1)
        x = self.first(F.dropout(x, 0.5, self.training), edge_index).relu()
        return self.second(F.dropout(x, 0.5, self.training), edge_index)


def make_model(in_channels: int, out_channels: int) -> nn.Module:
    """What `weft train --model` calls."""
    return GCN(in_channels, 16, out_channels)
