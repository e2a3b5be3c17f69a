"""Models over typed vertices and edges by name: R-GCN and R-GAT, of PyG's own convolutions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import RGATConv, RGCNConv

from weft.errors import ConfigError


class TypeProjection(nn.Module):
    """A dense layer for each type of vertices, from its features to rows that all types have in common.

    Rows come padded with zeros to the widest type's; of each, as many columns are read as its type has. A type without
    features is one learned row.
    """

    def __init__(self, widths: Sequence[int], out_channels: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels = max(widths), out_channels
        self.lins = nn.ModuleList(nn.Linear(width, out_channels) if width else _Row(out_channels) for width in widths)
        self._widths = list(widths)

    def forward(self, x: Tensor, node_type: Tensor) -> Tensor:
        """Rows of equal width for rows of features and the type of each."""
        out = x.new_zeros(len(x), self.out_channels)
        for kind, (width, lin) in enumerate(zip(self._widths, self.lins, strict=True)):
            at = (node_type == kind).nonzero().flatten()
            out = out.index_copy(0, at, lin(x[at, :width]))
        return out


class _Row(nn.Module):
    """The same learned row for every vertex."""

    def __init__(self, out_channels: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.randn(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.row.expand(len(x), -1)


class RGCN(nn.Module):
    """R-GCN: a mean for each relation, by its matrix; ReLU and dropout in between; types of vertices are projected first."""

    def __init__(
        self,
        widths: Sequence[int],
        hidden: int,
        out_channels: int,
        layers: int,
        relations: int,
        *,
        bases: int = 0,
        blocks: int = 0,
        heads: int = 4,
        dropout: float = 0.0,
        norm: str | None = None,
    ) -> None:
        """`widths`: of each type's features; `bases`, `blocks`: how relations' matrices are made (0: each is its own)."""
        super().__init__()
        self.dropout, self.heads = dropout, heads
        self.project = TypeProjection(widths, hidden) if len(widths) > 1 else None
        sizes = [hidden if self.project else widths[0], *[hidden] * (layers - 1), out_channels]
        _check_blocks(sizes, blocks)
        options: dict[str, Any] = {"num_relations": relations, "num_bases": bases or None, "num_blocks": blocks or None}
        pairs = list(pairwise(sizes))
        self.convs = nn.ModuleList(self._conv(wide, out, **options) for wide, out in pairs[:-1])
        self.convs.append(self._conv(*pairs[-1], last=True, **options))
        self.norms = nn.ModuleList(_norm(norm, hidden) for _ in pairs[:-1])

    def _conv(self, wide: int, out: int, *, last: bool = False, **options: Any) -> nn.Module:
        return RGCNConv(wide, out, **options)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor | None = None, node_type: Tensor | None = None
    ) -> Tensor:
        """Rows of classes for rows of features."""
        if self.project is not None:
            x = F.dropout(self.project(x, node_type).relu(), p=self.dropout, training=self.training)
        for conv, norm in zip(self.convs, [*self.norms, None], strict=True):
            x = conv(x, edge_index, edge_type)
            if norm is not None:
                x = F.dropout(norm(x).relu(), p=self.dropout, training=self.training)
        return x


class RGAT(RGCN):
    """R-GAT: attention over the edges of all relations; the last layer's heads are averaged."""

    def _conv(self, wide: int, out: int, *, last: bool = False, **options: Any) -> nn.Module:
        of_head = out if last else out // self.heads
        conv = RGATConv(wide, of_head, heads=self.heads, concat=not last, dropout=self.dropout, **options)
        nn.init.constant_(conv.l2, 1 / of_head)  # which PyG leaves as memory happens to be
        return conv


def _norm(name: str | None, width: int) -> nn.Module:
    if name is None:
        return nn.Identity()
    return nn.LayerNorm(width) if name == "layer" else nn.BatchNorm1d(width)


def _check_blocks(sizes: list[int], blocks: int) -> None:
    bad = [size for size in sizes if blocks and size % blocks]
    if bad:
        raise ConfigError(
            f"blocks = {blocks} does not divide a width of {bad[0]} (layers are {', '.join(map(str, sizes))} wide): choose "
            f"another number, or share matrices by bases"
        )
