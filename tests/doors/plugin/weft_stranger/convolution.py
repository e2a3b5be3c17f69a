"""PyG's ResGatedGraphConv, said edge by edge, so that its edges may be computed wherever a placement puts them."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import ResGatedGraphConv

from weft import MessageConvolution


class ResidualGated(MessageConvolution):
    """A sum of neighbours' values, each behind a gate that source and destination open together (Bresson and Laurent)."""

    module: ClassVar[type] = ResGatedGraphConv

    @classmethod
    def serves(cls, conv: Any) -> bool:
        """Options that are not served leave the module as it is, where whole neighbourhoods meet."""
        return isinstance(conv.in_channels, int) and conv.edge_dim is None and conv.aggr in ("add", "sum")

    def prepare(self, x: Tensor) -> Tensor:
        return torch.cat([self.conv.lin_query(x), self.conv.lin_value(x)], 1)

    def describe(self, own: Tensor) -> Tensor:
        return self.conv.lin_key(own)

    def message(self, source: Tensor, destination: Tensor) -> Tensor:
        query, value = source.chunk(2, 1)
        return self.conv.act(destination + query) * value

    def finish(self, merged: Tensor, own: Tensor) -> Tensor:
        out = merged + self.conv.lin_skip(own) if self.conv.root_weight else merged
        return out if self.conv.bias is None else out + self.conv.bias
