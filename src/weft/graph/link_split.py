"""Link splits: the distinct pairs of joined vertices, split by key, and the graph without those that are held out.

A link is a pair of joined vertices, whichever way its edges point and however many they are. All its edges are held out
together, so that none gives away a link that is to be predicted. Its head is the source of its edges; where there are edges
both ways, it is the vertex of the lower id. A pair's split is a function of (seed, original ids) alone: the same for any
partition and number of workers. A self-loop is no link; such edges always stay.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.errors import ConfigError, InputError
from weft.graph.csr import running_sum, vertex_ranges
from weft.graph.graph import SPLITS, Graph, edge_arrays
from weft.graph.importing import split_shares
from weft.keys import Stream, hashes

_CHUNK = 1 << 22  # edges
_HELD = ("validation", "test")


@dataclass(frozen=True)
class Links:
    """Some links of a graph, in the order of their original ids. All ids here are original ones."""

    vertices: int  # of the whole graph
    codes: np.ndarray  # [links] int64, rising: (lower id x vertices + higher id) x 2, + 1 if the head is the higher one

    def __len__(self) -> int:
        return len(self.codes)

    def ends(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The heads and the tails of the links at some places, [n] int64 each."""
        codes = self.codes[at]
        low: np.ndarray = (codes >> 1) // self.vertices
        high: np.ndarray = (codes >> 1) % self.vertices
        turned = (codes & 1).astype(bool)
        heads, tails = low.copy(), high.copy()
        heads[turned], tails[turned] = high[turned], low[turned]
        return heads, tails

    def join(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Which vertices of two arrays are linked, pair by pair."""
        wanted = _pairs(one, other, self.vertices).ravel() * 2
        order = np.argsort(wanted)  # so that the search goes through memory once
        places = np.searchsorted(self.codes, wanted[order])
        found = np.zeros(len(wanted), dtype=bool)
        inside = places < len(self.codes)
        found[order[inside]] = self.codes[places[inside]] >> 1 == wanted[order[inside]] >> 1
        return found.reshape(np.shape(one))


@dataclass(frozen=True)
class LinkSplit:
    """All links of a graph, those of each split, and the graph that messages go over: without those that are held out."""

    all: Links
    parts: dict[str, Links]  # train, validation, test
    messages: Graph


def split_links(graph: Graph, shares: str, seed: int) -> LinkSplit:
    """The links of a graph, split by `shares` (train/validation/test in per cent) and the seed."""
    if graph.num_vertices >= 1 << 31:
        raise InputError(
            f"links of {graph.num_vertices:,} vertices can't be numbered: predict labels, or use a part of it"
        )
    parts_of_one = split_shares(shares)
    if abs(sum(parts_of_one) - 1) > 1e-9:
        raise ConfigError(
            f"link_split = {shares!r} is not possible: give train/validation/test in per cent, together 100, such as 90/5/5"
        )
    ends = np.cumsum(parts_of_one)
    codes = _all_codes(graph)
    if not len(codes):
        raise InputError(
            f"the graph has no links: none of its {graph.num_edges:,} edges joins two vertices (a loop joins none): use one "
            f"that has some"
        )
    pieces = [_part(codes[first : first + _CHUNK] >> 1, ends, seed) for first in range(0, len(codes), _CHUNK)]
    part = np.concatenate(pieces)
    parts = {name: Links(graph.num_vertices, codes[part == SPLITS[name]]) for name in ("train", *_HELD)}
    if not len(parts["train"]):
        raise InputError(
            f"none of the graph's {len(codes)} links (pairs of joined vertices) is in the training split: raise its share "
            f"(link_split = {shares!r}), or use a graph with more edges"
        )
    held = sum(len(parts[name]) for name in _HELD)
    return LinkSplit(Links(graph.num_vertices, codes), parts, _without_held(graph, ends, seed) if held else graph)


def _pairs(one: np.ndarray, other: np.ndarray, vertices: int) -> np.ndarray:
    """A number for each pair of ids, whichever way round it is given."""
    one, other = one.astype(np.int64, copy=False), other.astype(np.int64, copy=False)
    return np.minimum(one, other) * vertices + np.maximum(one, other)


def _part(pairs: np.ndarray, ends: np.ndarray, seed: int) -> np.ndarray:
    """The split of each pair, as SPLITS numbers them."""
    drawn = (hashes(pairs, Stream.LINKS, seed) >> np.uint64(11)) * 2.0**-53
    return np.minimum(np.searchsorted(ends, drawn, side="right"), SPLITS["test"]).astype(np.uint8)


def _edges(graph: Graph, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Original ids of the sources and destinations of all edges into a range of vertices."""
    src = graph.indices[graph.indptr[first] : graph.indptr[end]]
    lengths = np.diff(graph.indptr[first : end + 1])
    if graph.original_ids is None:
        return src.astype(np.int64), np.repeat(np.arange(first, end), lengths)
    return graph.original_ids[src], np.repeat(graph.original_ids[first:end], lengths)


def _all_codes(graph: Graph) -> np.ndarray:
    """The codes of all links, rising."""
    pieces = [np.empty(0, dtype=np.int64)]
    for first, end in vertex_ranges(graph.indptr, _CHUNK):
        src, dst = _edges(graph, first, end)
        codes = _pairs(src, dst, graph.num_vertices) * 2 + (src > dst)
        pieces.append(np.unique(codes[src != dst]))
    codes = np.concatenate(pieces)
    pieces.clear()
    codes.sort()
    pairs, new = codes >> 1, np.ones(len(codes), dtype=bool)
    np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
    del pairs
    return codes[new]  # of both ways, the one from the lower id is first


def _without_held(graph: Graph, ends: np.ndarray, seed: int) -> Graph:
    """The graph without the edges of links that are held out; the others keep their order."""
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("indices", *edge_arrays(graph))}
    lengths = []
    for first, end in vertex_ranges(graph.indptr, _CHUNK):
        src, dst = _edges(graph, first, end)
        stays = (src == dst) | (_part(_pairs(src, dst, graph.num_vertices), ends, seed) == SPLITS["train"])
        span = slice(int(graph.indptr[first]), int(graph.indptr[end]))
        for name, arrays in kept.items():
            arrays.append(getattr(graph, name)[span][stays])
        before = running_sum(stays)
        lengths.append(np.diff(before[graph.indptr[first : end + 1] - span.start]))
    joined: dict[str, Any] = {name: np.concatenate(arrays) for name, arrays in kept.items()}
    return replace(graph, indptr=running_sum(np.concatenate(lengths)), **joined)
