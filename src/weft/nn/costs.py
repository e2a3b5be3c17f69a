"""What a model's layers cost: rows of theirs that cross between workers, and memory under tp.

A row that crosses is a source's that is pulled, or a destination's partial result that is pushed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weft.errors import ConfigError
from weft.graph import Features, Graph, edge_arrays
from weft.nn.block_model import Met
from weft.quantities import as_setting, as_size
from weft.sampling import are_few

# Besides values, ids travel: a source's for a pull; for a push a destination's, and a source and a place an edge.
_PULL_IDS, _PUSH_IDS = 1, 4
_TYPES = 2  # and an edge's type, and how many edges of it there are
_MOST = 1 << 12


def crossing_costs(layers: Sequence[Met], features: Features | None) -> list[tuple[float, float]]:
    """(pull, push) in the model's numbers, forward and backward, by layer; inputs need no gradient.

    They are pulled as they are stored: of `features` in half precision a number is half of one.
    """
    return [
        (pull + _PULL_IDS, push + _PUSH_IDS + _TYPES * layer.convolution.typed)
        for layer, (pull, push) in zip(layers, row_costs(layers, features), strict=True)
    ]


def row_costs(layers: Sequence[Met], features: Features | None) -> list[tuple[float, float]]:
    """The same where ids are known: routes that stay, on the full graph."""
    costs: list[tuple[float, float]] = []
    for depth, (convolution, wide, out, *_) in enumerate(layers):
        pull, push = convolution.costs(wide, out, 2 * wide if depth else wide)
        stored = 1.0 if features is None else features.itemsize / layers[0].dtype.itemsize
        costs.append((pull if depth else wide * stored, push))
    return costs


@dataclass(frozen=True)
class Needs:
    """Bytes that a worker holds at the peak of an epoch under tp.

    Destinations can be gone through in ranges. These make smaller what attention keeps an edge; all else is there whatever
    their number: the graph's lists, slices of all rows, and what this worker's own rows leave behind for gradients.
    """

    lists: int
    slices: int
    rows: int
    edges: int  # of all destinations at once

    def within(self, budget: float) -> int:
        """The fewest ranges that fit."""
        fixed = self.lists + self.slices + self.rows
        count = max(-(-self.edges // max(int(budget) - fixed, 1)), 1)
        if fixed > budget or count > _MOST:
            text = ", ".join(f"{name} {as_size(size)}" for name, size in vars(self).items())
            raise ConfigError(
                f"memory = {as_size(budget)} is too little for a worker under tp: it needs {text} (edges' part can be "
                f"divided); set memory = '{as_setting(fixed - -self.edges // _MOST)}' or more, use more workers, or plan = "
                f"'tp-decoupled', which keeps less in memory"
            )
        return count


def kept_of_edges(layers: Sequence[Met], number: int) -> list[int]:
    """Bytes that each layer keeps an edge for its gradient, where rows are whole: attention's."""
    kept = (convolution.sliced(wide, out) for convolution, wide, out, *_ in layers)
    return [number * held.of_edge * held.heads for held in kept]


def bytes_an_edge(layers: Sequence[Met], graph: Graph, number: int) -> int:
    """What lists keep an edge besides its ends: its number, if it has values; where sums weigh edges, by what, both ways.

    Sums by degrees look which edges are self-loops, and give these no weight.
    """
    values, summed = edge_arrays(graph), [one.convolution.conv for one in layers if one.convolution.takes_columns]
    found, weighed = 8 if values else 0, bool(summed) and "edge_weight" in values
    looks = any(getattr(conv, "normalize", False) and getattr(conv, "add_self_loops", False) for conv in summed)
    if weighed or looks:
        found += 4 + (2 * number if weighed or graph.self_loops.there_are else 0)
    return found


def pairs_of(layers: Sequence[Met], graph: Graph, bounds: Sequence[int]) -> tuple[int, int]:
    """Pairs of a relation and a vertex with edges of it that layers hold rows of: the most that a worker owns, and all.

    Those with edges from the vertex or into it, whichever are more.
    """
    types = graph.edge_type
    if types is None or not len(types) or not any(layer.convolution.sliced(*layer[1:3]).pairs for layer in layers):
        return 0, 0
    destinations = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    most = []
    for ends in (graph.indices, destinations):
        counts = _relations_of_each(ends, types, graph.num_vertices)
        most.append((max(int(counts[first:end].sum()) for first, end in pairwise(bounds)), int(counts.sum())))
    return max(own for own, _ in most), max(every for _, every in most)


def _relations_of_each(ends: np.ndarray, types: np.ndarray, vertices: int) -> np.ndarray:
    """How many relations each vertex has edges of at that end; of very many possible pairs, how many edges."""
    relations = int(types.max()) + 1
    if not are_few(relations * vertices, len(ends)):
        return np.bincount(ends, minlength=vertices)
    there = np.zeros((vertices, relations), dtype=bool)
    there[ends, types] = True
    return there.sum(1)


def needs(
    layers: Sequence[Met],
    edges: int,
    bounds: Sequence[int],
    number: int,
    of_edge: int = 0,
    pairs: tuple[int, int] = (0, 0),
) -> Needs:
    """Of a model of these layers, with numbers of so many bytes; workers own vertices between bounds.

    `of_edge`: `bytes_an_edge`; `pairs`: `pairs_of`.
    """
    workers, vertices = len(bounds) - 1, bounds[-1]
    own = max(end - first for first, end in pairwise(bounds))
    lists = 3 * 8 * (vertices + 1) + (12 + of_edge) * edges  # by destination and by source, with the edges' numbers
    rows, kept, widest, of_heads, others = layers[0].wide, 0, 0, 0, 0
    for convolution, wide, out, *_ in layers:
        held = convolution.sliced(wide, out)
        merged, times = held.columns, held.slices
        width = -(-merged // workers)
        kept, widest = kept + times * width, max(widest, width)
        of_slice = -(-held.heads // workers) + 1 if held.heads else 0
        of_heads = max(of_heads, held.of_edge * of_slice)
        others = max(others, held.heads - of_slice if convolution.drops_edges else 0)  # dropout is drawn for all heads
        rows += 2 * (wide + max(out, merged) + held.rows)
    if of_heads:
        lists += 12 * (edges + vertices)  # with self-loops
        lists += 8 * (vertices + 1)  # of one range by source, at a time
    slices = number * vertices * (kept + 2 * widest)
    of_lists, by_slice, whole = _needs_of_pairs(layers, workers, vertices, pairs)
    lists, slices = lists + of_lists * edges, slices + number * by_slice
    return Needs(lists, slices, number * (own * rows + whole), number * (of_heads + others) * edges)


def _needs_of_pairs(layers: Sequence[Met], workers: int, vertices: int, pairs: tuple[int, int]) -> tuple[int, int, int]:
    """Bytes an edge of lists, and numbers of slices and of own rows, by pairs: `pairs`, own ones and all.

    Beside what stays, rows of one layer pass by, with their gradients.
    """
    lists, slices, rows, widest = 0, 0, 0, 0
    (own, every), everywhere = pairs, 0
    for convolution, wide, out, *_ in layers:
        held = convolution.sliced(wide, out)
        if held.pairs is None:
            continue
        width = max(wide, out, held.columns)
        lists, widest = max(lists, held.pairs.of_edge), max(widest, width)
        slices += held.pairs.slices * -(-held.columns // workers)
        rows, everywhere = rows + held.pairs.rows, everywhere + held.pairs.of_vertex
    return lists, every * (slices + 2 * -(-widest // workers)) + vertices * everywhere, own * (rows + 2 * widest)
