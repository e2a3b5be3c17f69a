"""A job as its tasks read it: the pieces, what is wanted of them, and once ids are looked at, where everything goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from weft.graph.csr import range_bounds
from weft.graph.shards.pieces import Piece
from weft.graph.shards.work import Work


@dataclass(frozen=True)
class Job:
    """All that tasks need to know from the beginning."""

    edges: str  # the tables, for errors
    nodes: str | None
    edge_pieces: tuple[Piece, ...]
    node_pieces: tuple[Piece, ...]
    src: str  # columns
    dst: str
    weight: str | None
    type: str | None
    id: str
    features: tuple[str, ...]
    labels: tuple[str, ...]
    split: str | None
    owner: str | None
    textual: bool  # are ids strings?
    label_words: bool  # are labels names of classes?
    names: str | None  # what integer ids are: positions, names, or what they look like
    vertices: int | None  # as told
    parts: int | None
    undirected: bool
    self_loops: str
    drop_duplicates: bool
    feature_dtype: str
    memory: int  # of a task, in bytes
    buckets: int

    @property
    def groups(self) -> int:
        """Into how many groups a piece of vertices is sorted: one an owner, or all together."""
        return (self.parts or 1) if self.owner else 1

    @staticmethod
    @lru_cache(maxsize=2)
    def of(work: Work) -> "Job":
        """The job of a folder."""
        kept = work.load("job")
        pieces = {name: _pieces(kept[name]) for name in ("edge_pieces", "node_pieces")}
        return Job(**kept | pieces | {name: tuple(kept[name]) for name in ("features", "labels")})


@dataclass(frozen=True)
class Layout:
    """How vertices are numbered, and which pieces of the vertex table go where."""

    vertices: int
    by_name: bool  # do edges name vertices otherwise than by their numbers?
    keeps_names: bool
    classes: tuple[str, ...] | None  # the words that labels are
    runs: tuple[tuple[int, ...], ...]  # of each piece of vertices: the first number of its rows, by owner
    bounds: tuple[int, ...] | None  # of the owners
    ranges: int  # of destinations, whose lists a task makes

    @staticmethod
    @lru_cache(maxsize=2)
    def of(work: Work) -> "Layout":
        """The layout of a job, once its ids were looked at."""
        kept = work.load("layout")
        lists = {name: None if kept[name] is None else tuple(kept[name]) for name in ("classes", "bounds")}
        return Layout(**kept | lists | {"runs": tuple(map(tuple, kept["runs"]))})

    @property
    def spans(self) -> np.ndarray:
        """Where each of these ranges begins and the last one ends."""
        return range_bounds(self.vertices, self.ranges)


def _pieces(kept: Sequence[dict[str, Any]]) -> tuple[Piece, ...]:
    return tuple(Piece(**one | {"groups": tuple(one["groups"])}) for one in kept)
