"""What it costs to pull a source's row, or to push a destination's partial result, for each layer of a model."""

from typing import Any

from torch import nn
from torch_geometric.nn import FiLMConv, GATConv, GATv2Conv, GCNConv, RGATConv, RGCNConv, SAGEConv

from weft.nn.block_model import walk

# Besides values, ids travel: a source's for a pull; for a push a destination's, and a source and a place an edge.
_PULL_IDS, _PUSH_IDS = 1, 4
_TYPES = 2  # and an edge's type, and how many edges of it there are


def crossing_costs(model: nn.Module, width: int | None = None) -> list[tuple[float, float]]:
    """(pull, push) in floats, forward and backward, by layer; inputs need no gradient and are pulled as they are."""
    costs = []
    for depth, found in sorted(walk(model, width).items()):
        pull, push = _costs(*found, first=depth == 1)
        told = _TYPES if isinstance(found[0], RGCNConv | RGATConv) else 0
        costs.append((pull + _PULL_IDS, push + _PUSH_IDS + told))
    return costs


def row_costs(model: nn.Module, width: int | None = None) -> list[tuple[float, float]]:
    """The same where ids are known: routes that stay, on the full graph."""
    found = walk(model, width)
    return [_costs(*found[depth], first=depth == 1) for depth in sorted(found)]


def _costs(conv: Any, wide: int, out: int, first: bool) -> tuple[float, float]:
    raw = wide if first else 2 * wide
    heads = getattr(conv, "heads", 1)
    rows = heads * conv.out_channels if isinstance(conv, GATConv | GATv2Conv | RGATConv) else out
    parts = 2 * (rows + heads)  # a part's rows, and the log of its sum of exponentials
    if isinstance(conv, GATConv):
        pull, push = 2 * rows, parts + 2 * heads
    elif isinstance(conv, GATv2Conv):
        pull, push = 2 * rows, parts + 2 * rows
    elif isinstance(conv, RGATConv):
        pull, push = raw, parts + 2 * heads * conv.num_relations
    elif isinstance(conv, RGCNConv):
        pull, push = raw, 2 * rows
    elif isinstance(conv, FiLMConv):
        pull, push = 2 * rows, 2 * rows + 4 * rows
    elif isinstance(conv, GCNConv) or (isinstance(conv, SAGEConv) and conv.aggr != "max" and not conv.project):
        pull = push = min(raw, 2 * rows)
    else:
        pull = push = raw
    return (wide if first else pull), push
