"""Blocks: one layer's bipartite piece of a batch, destinations first; and the sample that stacks them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.devices import Movable
from weft.errors import ConfigError
from weft.graph import Importance, SelfLoops
from weft.operations import Turned

T = TypeVar("T")
_MOST_EDGES = np.iinfo(np.int32).max  # that can be numbered where blocks are turned around


class Topology(Protocol):
    """What sampling and convolutions need of a graph: in-neighbour lists, and what depends on their edges."""

    @property
    def indptr(self) -> np.ndarray: ...
    @property
    def indices(self) -> np.ndarray: ...
    @property
    def edge_weight(self) -> np.ndarray | None: ...
    @property
    def edge_type(self) -> np.ndarray | None: ...
    @property
    def edge_features(self) -> np.ndarray | None: ...
    @property
    def original_ids(self) -> np.ndarray | None: ...
    @property
    def self_loops(self) -> SelfLoops: ...
    @property
    def importance(self) -> Importance: ...


@dataclass
class Block(Movable):
    """The edges into some destinations, as lists of sources by destination. Destination i is also source i."""

    stays: ClassVar[frozenset[str]] = frozenset({"edge_ids", "_cache"})

    indptr: Tensor  # [num_dst + 1] int64
    src: Tensor  # [num_edges] int32, local source ids
    num_src: int
    edge_ids: Tensor | None = None  # [num_edges] int64, positions in the graph's edge arrays; -1: an added self-loop
    positions: Tensor | None = None  # [num_edges] int64, places in the destinations' lists; None: the lists are whole
    values: dict[str, Tensor] = field(default_factory=dict, repr=False)  # edge values that came with the edges
    _cache: dict[str, object] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_dst(self) -> int:
        """How many destinations."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """How many edges."""
        return len(self.src)

    def dst(self) -> Tensor:
        """The local destination of each edge, [num_edges] int32."""
        return self.remembered("dst", lambda: _destinations(self))

    def transposed(self) -> Turned:
        """The edges by source, in edge order."""
        if self.num_edges > _MOST_EDGES:
            raise ConfigError(
                f"a layer has {self.num_edges:,} edges on one worker, more than gradients can be sent back by: use smaller "
                f"batches or fanouts, or, on the full graph, plan = 'halo' on several workers"
            )
        return self.remembered("transposed", lambda: turned(self))

    def relabelled(self, place: np.ndarray, num_src: int) -> "Block":
        """The same edges, source i now at place[i]."""
        src = torch.from_numpy(place[self.src.numpy()])
        return Block(self.indptr, src, num_src, self.edge_ids, self.positions, self.values)

    def with_self_loops(self) -> "Block":
        """The block with each destination last among its own sources, once: existing self-loops are dropped."""
        return self.worked_out("looped", _self_loops)

    def remembered(self, name: str, make: Callable[[], T]) -> T:
        """What is made of the block alone, under a name: made once, however often the block is gone over."""
        if name not in self._cache:
            self._cache[name] = make()
        return cast(T, self._cache[name])

    def worked_out(self, name: str, make: Callable[["Block"], T]) -> T:
        """The same, made of the block in host memory."""
        return self.remembered(name, lambda: self.from_host(make))

    def places(self) -> Tensor:
        """Each edge's place in its destination's whole list, [num_edges] int64."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.num_edges, device=self.src.device) - self.indptr[self.dst().long()]

    def ranges(self, bounds: tuple[int, ...]) -> "list[BlockRange]":
        """The block in ranges of its destinations; the whole block, where there is one range."""
        if len(bounds) == 2:
            return [BlockRange(self, slice(0, self.num_dst), slice(0, self.num_edges))]

        return self.worked_out(f"ranges {bounds}", lambda block: [_range(block, *ends) for ends in pairwise(bounds)])

    def forget(self) -> None:
        """Drop what is remembered: the block is as it was when it was drawn."""
        self._cache = {}

    def arrived(self) -> None:
        self.forget()


@dataclass(frozen=True)
class BlockRange(Movable):
    """The edges into a range of a block's destinations, from all of its sources; a destination is no source here."""

    block: Block
    rows: slice  # of the whole block's destinations
    edges: slice


@dataclass
class Sample:
    """What one batch needs of the graph: the rows to fetch, and per layer a block."""

    vertices: Tensor  # [rows] int32 | int64; the first blocks[l].num_dst of them are the destinations of layer l
    blocks: list[Block]  # blocks[0] is nearest the input; blocks[l].num_src == blocks[l - 1].num_dst
    keys: Tensor  # [rows] int64, original ids: the keys of the rows' randomness
    graph: Topology | None = None  # where degrees and edge values are looked up
    weighted: bool = False  # were neighbours drawn by weight?
    source_weights: list[Tensor | None] | None = None  # by block, [num_src] float64: what an edge from each counts for

    @property
    def num_seeds(self) -> int:
        """How many rows the last layer computes."""
        return self.blocks[-1].num_dst if self.blocks else self.vertices.numel()

    def edge_values(self, name: str, block: Block) -> Tensor:
        """The weights or types of a block's edges."""
        return edge_values(self.graph, name, block)


def turned(block: Block, new: Callable[..., Tensor] = torch.empty) -> Turned:
    """A block's edges by source, in edge order; `new` makes room for them in host memory."""
    if not block.src.is_cpu:
        src, edge = torch.sort(block.src, stable=True)
        ends = torch.arange(block.num_src + 1, dtype=src.dtype, device=src.device)
        return Turned(torch.searchsorted(src, ends), block.dst()[edge], edge.int())
    indptr = new((block.num_src + 1,), dtype=torch.int64)
    dst, edge = (new(block.src.shape, dtype=torch.int32) for _ in range(2))
    arrays = (block.indptr.numpy(), block.src.numpy(), indptr.numpy(), dst.numpy(), edge.numpy())
    _kernels.transpose(*arrays, torch.get_num_threads())
    return Turned(indptr, dst, edge)


def edge_values(graph: Topology | None, name: str, block: Block) -> Tensor:
    """The weights, types or features of a block's edges: those that came with them, or the graph's."""

    def look_up(block: Block) -> Tensor:
        values = getattr(graph, name)
        assert values is not None and block.edge_ids is not None, f"the sample carries no {name}"
        return torch.from_numpy(values[block.edge_ids.numpy()])

    return block.values[name] if name in block.values else block.from_host(look_up)


def are_few(pairs: int, edges: int) -> bool:
    """Is a table of all possible pairs, such as relations times vertices, worth its memory for so many edges?

    If not, those that there are edges of are to be found by sorting.
    """
    return pairs <= max(8 * edges, 1 << 20)


def keys_of(graph: Topology, vertices: np.ndarray) -> Tensor:
    """Original ids, the keys of all randomness."""
    ids = graph.original_ids
    return torch.from_numpy(vertices.astype(np.int64) if ids is None else np.asarray(ids[vertices]))


def _range(block: Block, first: int, end: int) -> BlockRange:
    indptr = block.indptr[first : end + 1]
    edges = slice(int(indptr[0]), int(indptr[-1]))
    return BlockRange(Block(indptr - indptr[0], block.src[edges], block.num_src), slice(first, end), edges)


def _destinations(block: Block) -> Tensor:
    if not block.src.is_cpu:
        ids = torch.arange(block.num_dst, dtype=torch.int32, device=block.src.device)
        return ids.repeat_interleave(block.indptr.diff(), output_size=block.num_edges)
    dst = torch.empty_like(block.src)
    _kernels.edge_destinations(block.indptr.numpy(), dst.numpy(), torch.get_num_threads())
    return dst


def _self_loops(block: Block) -> Block:
    room = block.num_edges + block.num_dst
    indptr, src = torch.empty_like(block.indptr), torch.empty(room, dtype=torch.int32)
    ids = None if block.edge_ids is None else torch.empty(room, dtype=torch.int64)
    old_ids, new_ids = (None if t is None else t.numpy() for t in (block.edge_ids, ids))
    edges = _kernels.add_self_loops(
        block.indptr.numpy(), block.src.numpy(), old_ids, indptr.numpy(), src.numpy(), new_ids
    )
    return Block(indptr, src[:edges], block.num_src, None if ids is None else ids[:edges])
