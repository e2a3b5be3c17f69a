"""The models that Weft knows by name, built of PyG's own classes and initialised by a seed."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import DeepGCNLayer, FiLMConv, GCNConv, RGATConv, RGCNConv
from torch_geometric.nn import models as pyg

from weft.errors import ConfigError
from weft.keys import Stream, seeded

# How many convolutions each model has unless set otherwise: shallow ones as usual, deep ones as LeapGNN trains them.
DEFAULT_LAYERS = {"gcn": 3, "sage": 3, "gat": 3, "gatv2": 3, "gin": 3, "deepgcn": 7, "film": 10, "rgcn": 2, "rgat": 2}
RELATIONAL = ("rgcn", "rgat")
_ATTENTION = ("gat", "gatv2", "rgat")


def build(
    name: str,
    in_channels: int,
    hidden: int,
    out_channels: int,
    layers: int | None = None,
    *,
    heads: int = 4,
    dropout: float = 0.0,
    norm: str | None = None,
    jk: str | None = None,
    seed: int = 0,
    relations: int = 0,
    widths: Sequence[int] = (),
    bases: int = 0,
    blocks: int = 0,
) -> nn.Module:
    """A model by name (gcn sage gat gatv2 gin deepgcn film rgcn rgat); the same seed gives the same parameters.

    `hidden` is the width between layers; attention models divide it among their heads. Of rgcn and rgat: how many
    `relations` there are, `widths` of several vertex types' features, and how relations' matrices are made (`bases`
    that they share, or `blocks` along the diagonal; 0: each is its own).
    """
    if name not in DEFAULT_LAYERS:
        raise ConfigError(f"model {name!r} is not known by name: choose one of {', '.join(DEFAULT_LAYERS)}")
    layers = DEFAULT_LAYERS[name] if layers is None else layers
    if name in _ATTENTION and hidden % heads:
        raise ConfigError(
            f"hidden = {hidden} can't be divided among {heads} heads: use hidden = {-(-hidden // heads) * heads}"
        )
    if jk == "none":
        jk = None
    if name in RELATIONAL and not relations:
        raise ConfigError(
            f"model {name!r} needs types of edges, and this graph has none: import them (--type, edge_type.npy, a "
            f"HeteroData), or choose another model"
        )
    with seeded(Stream.INIT, seed):
        if name == "deepgcn":
            return DeepGCN(in_channels, hidden, out_channels, layers, dropout=dropout)
        if name == "film":
            return FiLM(in_channels, hidden, out_channels, layers, dropout=dropout)
        if name in RELATIONAL:
            kind = RGCN if name == "rgcn" else RGAT
            options = {"bases": bases, "blocks": blocks, "heads": heads}
            return kind(
                widths or [in_channels], hidden, out_channels, layers, relations, dropout=dropout, norm=norm, **options
            )
        return _basic(name, in_channels, hidden, out_channels, layers, heads=heads, dropout=dropout, norm=norm, jk=jk)


def _basic(
    name: str, in_channels: int, hidden: int, out_channels: int, layers: int, heads: int, **options: Any
) -> nn.Module:
    """One of PyG's own models, as it is."""
    makers = {"gcn": pyg.GCN, "sage": pyg.GraphSAGE, "gin": pyg.GIN, "gat": pyg.GAT, "gatv2": pyg.GAT}
    if name in ("gat", "gatv2"):
        options |= {"heads": heads, "v2": name == "gatv2"}
    if options["norm"] == "layer":  # by vertex: PyG's default would normalise over all vertices of the batch
        options["norm_kwargs"] = {"mode": "node"}
    return makers[name](in_channels, hidden, layers, out_channels, **options)


class DeepGCN(nn.Module):
    """A residual GCN (res+): each layer normalises, activates, convolves and adds to what came before."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, layers: int = 7, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.encoder = nn.Linear(in_channels, hidden)
        self.layers = nn.ModuleList(
            DeepGCNLayer(GCNConv(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU(), block="res+", dropout=dropout)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Rows of classes for rows of features."""
        first, *others = self.layers
        x = cast(DeepGCNLayer, first).conv(self.encoder(x), edge_index, edge_weight)
        for layer in others:
            x = layer(x, edge_index, edge_weight)
        x = F.dropout(self.norm(x).relu(), p=self.dropout, training=self.training)
        return self.head(x)


class FiLM(nn.Module):
    """GNN-FiLM: messages are scaled and shifted by what their destination makes of itself."""

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, layers: int = 10, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = [in_channels, *[hidden] * (layers - 1)]
        self.convs = nn.ModuleList(FiLMConv(width, hidden) for width in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.head = nn.Linear(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Rows of classes for rows of features."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.dropout(norm(conv(x, edge_index)), p=self.dropout, training=self.training)
        return self.head(x)


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
