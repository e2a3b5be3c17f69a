"""Other rows that a convolution is given besides those that it convolves, such as `x_0` of GCN2Conv, or positions.

They go beside these, as one row of each vertex: what brings rows to where edges are computed, trims them, or holds them back
for inference, does so for all of a vertex at once. Where the convolution runs they are taken apart again.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError


class Alongside(NamedTuple):
    """Stands for an argument of a convolution: some columns of its rows."""

    first: int
    end: int
    before_edges: bool  # as in forward(x, x_0, edge_index)


def put_alongside(
    conv: MessagePassing, x: Tensor, others: Mapping[str, object], before: int
) -> tuple[Tensor, dict[str, Alongside]]:
    """Rows with others beside them, and where these are; so many of the others stand before the edges."""
    rows, found, wide = [x], dict[str, Alongside](), x.shape[-1]
    for name, other in others.items():
        if not (_is_of_numbers(x) and isinstance(other, Tensor) and _is_of_numbers(other)):
            both = [f"{[*t.shape]} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__ for t in (x, other)]
            raise ModelError(
                f"{conv} is given other rows besides those that it convolves ({name}, {both[1]}, beside {both[0]}): what "
                f"comes with its edges' sources must be lists of floating-point numbers, one a vertex: make such rows before"
            )
        rows.append(other)
        found[name] = Alongside(wide, wide + other.shape[1], len(found) < before)
        wide += other.shape[1]
    return torch.cat(rows, 1), found


def _is_of_numbers(rows: Tensor) -> bool:
    return rows.dim() == 2 and rows.is_floating_point()


def apart(x: Tensor, given: Mapping[str, object]) -> tuple[Tensor, dict[str, object]]:
    """The rows that are convolved, and all other arguments, of which some went beside them."""
    if not any(isinstance(value, Alongside) for value in given.values()):
        return x, {**given}
    options = {
        name: x[:, value.first : value.end] if isinstance(value, Alongside) else value for name, value in given.items()
    }
    return x[:, : own_columns(x.shape[1], given)], options


def own_columns(columns: int, given: Mapping[str, object]) -> int:
    """Of the columns of rows with others alongside, how many are those of the rows that are convolved: the first ones."""
    return min((value.first for value in given.values() if isinstance(value, Alongside)), default=columns)


def own_forward(conv: MessagePassing, x: Tensor, edge_index: Tensor, given: Mapping[str, object]) -> object:
    """The forward of a convolution's class, on rows with others beside them."""
    x, options = apart(x, given)
    places = {name: value for name, value in given.items() if isinstance(value, Alongside)}
    if places:  # its own code may ask for rows in one piece
        x, options = x.contiguous(), options | {name: cast(Tensor, options[name]).contiguous() for name in places}
    leading = [options.pop(name) for name, place in places.items() if place.before_edges]
    return type(conv).forward(conv, x, *leading, edge_index, **options)
