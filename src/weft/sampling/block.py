"""Blocks: one layer's bipartite piece of a batch, destinations first; and the sample that stacks them."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor


@dataclass
class Block:
    """The edges into some destinations, as lists of sources by destination. Destination i is also source i."""

    indptr: Tensor  # [num_dst + 1] int64
    src: Tensor  # [num_edges] int32, local source ids
    num_src: int
    edge_ids: Tensor | None = None  # [num_edges] int64, positions in the graph's edge arrays; -1: an added self-loop
    degrees: Tensor | None = None  # [num_dst] int64, in-degree of each destination in the whole graph
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_dst(self) -> int:
        """How many destinations the block computes."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """How many edges the block holds."""
        return self.src.numel()

    def dst(self) -> Tensor:
        """The local destination of each edge, [num_edges] int32."""
        if "dst" not in self._cache:
            counts = self.indptr.diff()
            ids = torch.arange(self.num_dst, dtype=torch.int32, device=self.src.device)
            self._cache["dst"] = ids.repeat_interleave(counts, output_size=self.num_edges)
        return self._cache["dst"]

    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges by source, in edge order: indptr [num_src + 1] int64, then destinations and positions, int32."""
        if "transposed" not in self._cache:
            edges = torch.argsort(self.src, stable=True).int()
            counts = torch.bincount(self.src, minlength=self.num_src)
            indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            self._cache["transposed"] = (indptr, self.dst()[edges.long()], edges)
        return self._cache["transposed"]

    def with_self_loops(self) -> "Block":
        """The block with each destination among its own sources exactly once: existing self-loops are dropped first."""
        if "looped" not in self._cache:
            ids = torch.arange(self.num_dst, device=self.src.device)
            kept = self.src != self.dst()
            dst = torch.cat([self.dst()[kept].long(), ids])
            order = torch.argsort(dst, stable=True)
            src = torch.cat([self.src[kept], ids.int()])[order]
            counts = torch.bincount(dst, minlength=self.num_dst)
            indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            edge_ids = None
            if self.edge_ids is not None:
                edge_ids = torch.cat([self.edge_ids[kept], torch.full_like(ids, -1)])[order]
            self._cache["looped"] = Block(indptr, src, self.num_src, edge_ids, self.degrees)
        return self._cache["looped"]

    def to(self, device: torch.device | str) -> Self:
        """The block on a device, without its caches."""
        edge_ids = None if self.edge_ids is None else self.edge_ids.to(device)
        degrees = None if self.degrees is None else self.degrees.to(device)
        return type(self)(self.indptr.to(device), self.src.to(device), self.num_src, edge_ids, degrees)


@dataclass
class Sample:
    """What one batch needs of the graph: the rows to fetch, and per layer a block."""

    vertices: Tensor  # [rows] int32 | int64; the first blocks[l].num_dst of them are the destinations of layer l
    blocks: list[Block]  # blocks[0] is nearest the input; blocks[l].num_src == blocks[l - 1].num_dst
    keys: Tensor  # [rows] int64, original ids: the keys of the rows' randomness

    @property
    def num_seeds(self) -> int:
        """How many rows the last layer computes."""
        return self.blocks[-1].num_dst if self.blocks else self.vertices.numel()

    def to(self, device: torch.device | str) -> Self:
        """The sample on a device."""
        blocks = [block.to(device) for block in self.blocks]
        return type(self)(self.vertices.to(device), blocks, self.keys.to(device))
