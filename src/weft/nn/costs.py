"""What it costs to pull a source's row, or to push a destination's partial result, for each layer of a model."""

from torch import nn
from torch_geometric.nn import MessagePassing

from weft.nn.block_model import walk
from weft.nn.conv import convolution_of

# Besides values, ids travel: a source's for a pull; for a push a destination's, and a source and a place an edge.
_PULL_IDS, _PUSH_IDS = 1, 4
_TYPES = 2  # and an edge's type, and how many edges of it there are


def crossing_costs(model: nn.Module, width: int | None = None) -> list[tuple[float, float]]:
    """(pull, push) in floats, forward and backward, by layer; inputs need no gradient and are pulled as they are."""
    costs: list[tuple[float, float]] = []
    for depth, (conv, wide, out) in sorted(walk(model, width).items()):
        pull, push = _costs(conv, wide, out, first=depth == 1)
        costs.append((pull + _PULL_IDS, push + _PUSH_IDS + _TYPES * convolution_of(conv).typed))
    return costs


def row_costs(model: nn.Module, width: int | None = None) -> list[tuple[float, float]]:
    """The same where ids are known: routes that stay, on the full graph."""
    found = walk(model, width)
    return [_costs(*found[depth], first=depth == 1) for depth in sorted(found)]


def _costs(conv: MessagePassing, wide: int, out: int, first: bool) -> tuple[float, float]:
    pull, push = convolution_of(conv).costs(wide, out, wide if first else 2 * wide)
    return (wide if first else pull), push
