"""What operations are given: lists of edges, and what attention's logits are made of."""

from typing import NamedTuple

from torch import Tensor

Saved = tuple[Tensor, ...]  # what gradients need of the way there


class Lists(NamedTuple):
    """Edges by row."""

    indptr: Tensor  # [rows + 1] int64, beginning with 0
    other: Tensor  # [edges] int32: the row at each edge's other end


class Turned(NamedTuple):
    """The same edges by their other end."""

    indptr: Tensor
    other: Tensor
    edge: Tensor  # [edges] int32: the number that each edge has in the lists as they were


class Terms(NamedTuple):
    """Attention's logits [edges, heads]: leaky(of_sources[source] + of_destinations[row]), or leaky(of_edges[edge])."""

    of_sources: Tensor | None
    of_destinations: Tensor | None
    of_edges: Tensor | None
    keep: Tensor | None  # [edges, heads]: what dropout leaves of the soft-max
    slope: float


class JoinedTerms(NamedTuple):
    """The second attention's: <vector, leaky(of_sources[source] + of_destinations[row])>, all by head and column."""

    of_sources: Tensor
    of_destinations: Tensor
    vector: Tensor  # [heads, columns]
    keep: Tensor | None
    slope: float


class Scores(NamedTuple):
    """Logits leaky(of_sources[source] + of_destinations[row]), of edges alone, or with one more of each row to itself.

    With these `loops`, edges of a row to itself count for nothing.
    """

    of_sources: Tensor
    of_destinations: Tensor
    keep: Tensor | None  # of edges,
    own_keep: Tensor | None  # and of own rows
    slope: float
    loops: bool
