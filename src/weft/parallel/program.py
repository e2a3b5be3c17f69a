"""The program: what one worker does for one batch. Rows to fetch, then for each layer rows in, a block, partial sums out."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft.exchange import Background, Communicator, Route, SliceLayout
from weft.parallel.pairs import Ends
from weft.sampling import Block, Sample, Topology, edge_values, keys_of
from weft.threads import cached_property


@dataclass
class Pushed:
    """Edges whose destinations others hold: computed here, from rows here, into a partial row a (destination, holder)."""

    block: Block  # its destinations are partial rows
    route: Route  # holders' destinations -> partial rows here; its push brings the sums home
    carry: Route  # the same partial rows as they arrive at the holders, before they are summed
    at: Tensor  # [partial rows that arrive here] int64: the destinations here that they belong to
    dst_vertices: Tensor | None  # [partial rows here] vertex ids, where they are needed
    dst_keys: Tensor | None  # and their original ids
    dst_at: Tensor | None = None  # by columns: where the rows here hold them, int64


@dataclass(frozen=True)
class Columns:
    """Which columns of all rows a worker holds; slices have equal widths, the last ones padded with zeros."""

    rank: int
    size: int
    total: int

    @property
    def width(self) -> int:
        """The columns of a slice."""
        return -(-self.total // self.size)

    @property
    def span(self) -> tuple[int, int]:
        """The real columns of this worker's slice."""
        return min(self.rank * self.width, self.total), min((self.rank + 1) * self.width, self.total)

    def join(self, own: Tensor, others: Tensor) -> Tensor:
        """Whole rows from this worker's slice of them and, worker by worker, the others'."""
        parts = list(others.reshape(self.size - 1, len(own), own.shape[1]))
        parts.insert(self.rank, own)
        return torch.cat(parts, 1)[:, : self.total]


@dataclass(frozen=True)
class Slices:
    """A layer over the whole graph: rows by owner go in and come out, between that each worker has columns of all rows."""

    bounds: tuple[int, ...]  # worker p owns vertices bounds[p] to bounds[p + 1]
    rank: int
    keys: Tensor  # [all vertices] int64, original ids
    to_all: Route  # own rows -> everyone's, in order
    chunks: tuple[int, ...]  # bounds of the ranges that destinations are gone through in
    rounds: int = 1  # that sums go in, so that what travels does so while something else is computed
    background: Background | None = None  # by whom; None: when it is asked for, by the communicator of the call

    @property
    def size(self) -> int:
        """The workers."""
        return len(self.bounds) - 1

    @property
    def num_own(self) -> int:
        """How many rows this worker owns."""
        return self.bounds[self.rank + 1] - self.bounds[self.rank]

    def spread(self, columns: int) -> SliceLayout:
        """Who holds what of rows of so many columns."""
        return SliceLayout(self.bounds, self.rank, self.size, columns)

    def share(self, edges: int) -> int:
        """This worker's part of the edges, for it computes all of them on its columns; the parts add up."""
        return edges * (self.rank + 1) // self.size - edges * self.rank // self.size


@dataclass
class Layer:
    """One layer on one worker. The block's edges are computed here; `pushed` are other workers' edges."""

    block: Block
    degrees: Tensor  # [destinations]: all edges drawn, here or pushed; with weights their sum, float64
    sources: Route | None = None  # rows here -> the block's sources; None: the rows here are the sources
    own: Route | None = None  # rows here -> the destinations' own rows; None: the first rows here
    pushed: Pushed | None = None
    columns: "Columns | None" = None  # are the rows here slices of columns, and all workers' edges computed on them?
    slices: Slices | None = None  # is the block the whole graph's, gone over by all workers on slices of the columns?
    dst_at: Tensor | None = None  # by columns: where the rows here hold the destinations, int64
    src_vertices: Tensor | None = None  # [block.num_src] vertex ids
    dst_vertices: Tensor | None = None
    inputs: tuple[Tensor, int] | None = None  # of layer 1: the fetched rows, and their version
    asked: str | None = None  # of layer 1: how the model merged the fetched rows as they are; None: it did not
    merged: tuple[str, Tensor] | None = None  # of layer 1: a merge of the fetched rows that was made ahead
    kept: dict[str, tuple[Tensor, ...]] | None = None  # of layer 1, where inputs stay: what was made of them, by name
    weight: Tensor | None = None  # [block's edges] float64: what each counts for, as it was drawn; None: all the same
    push_weight: Tensor | None = None  # [pushed edges] float64, likewise

    @classmethod
    def whole(cls, block: Block) -> "Layer":
        """A layer that needs nobody else."""
        return cls(block, block.indptr.diff())

    def weigh(self, drawn: Block, of_drawn: Tensor, of_sources: Tensor) -> None:
        """Let each edge count for what its source's weight says; `drawn` are all edges, before some were pushed."""
        at, weights = drawn.dst().long(), of_drawn[drawn.src.long()]
        self.degrees = weights.new_zeros(drawn.num_dst).index_add_(0, at, weights)
        self.weight = of_sources[self.block.src.long()]
        if self.pushed is not None:
            self.push_weight = of_sources[self.pushed.block.src.long()]

    def fetched(self, x: Tensor) -> bool:
        """Are these the rows that were fetched, as they are? Known without looking at them, where there are none too."""
        if self.inputs is None:
            return False
        rows, version = self.inputs
        return x.dtype == rows.dtype and x.is_set_to(rows) and x._version == version

    def self_edges(self) -> Tensor:
        """Which of the block's edges join a vertex to itself."""
        if self.columns is None and (self.own is None or self.sources is not None):
            return self.block.src == self.block.dst()
        assert self.src_vertices is not None and self.dst_vertices is not None
        return self.src_vertices[self.block.src.long()] == self.dst_vertices[self.block.dst().long()]

    def pushed_self_edges(self) -> Tensor:
        """Which of the pushed edges join a vertex to itself."""
        assert self.pushed is not None and self.src_vertices is not None
        block = self.pushed.block
        if self.pushed.dst_vertices is None:  # destinations at their owners: their loops are never pushed
            return torch.zeros(block.num_edges, dtype=torch.bool)
        return self.src_vertices[block.src.long()] == self.pushed.dst_vertices[block.dst().long()]

    @property
    def num_dst(self) -> int:
        """How many rows this worker holds after the layer."""
        return self.block.num_dst if self.slices is None else self.slices.num_own

    @property
    def num_edges(self) -> int:
        """How many edges this worker computes."""
        if self.slices is not None:
            return self.slices.share(self.block.num_edges)
        return self.block.num_edges + (0 if self.pushed is None else self.pushed.block.num_edges)

    def gather(self, x: Tensor, comm: Communicator) -> Tensor:
        """The block's sources, from the rows here."""
        return x if self.sources is None else self.sources.pull(x, comm)

    def own_rows(self, x: Tensor, comm: Communicator) -> Tensor:
        """The destinations' own rows, from the rows here."""
        if self.columns is not None:
            assert self.pushed is not None
            theirs = self.pushed.carry.push(x[self.pushed.dst_at], comm)
            return self.columns.join(x[self.dst_at], theirs)
        if self.own is not None:
            return self.own.pull(x, comm)
        return x[: self.num_dst]


@dataclass
class Program:
    """One worker's part of a batch."""

    layers: list[Layer]  # layers[0] is nearest the input
    vertices: list[Tensor]  # by depth: whose rows are here; vertices[0] are fetched, vertices[-1] are the seeds
    keys: list[Tensor]  # by depth: original ids, the keys of the rows' randomness
    graph: Topology | None = None
    weighted: bool = False
    comm: Communicator = field(default_factory=Communicator)
    here: bool = False  # are all rows to fetch this worker's own, or in its cache?
    reached: Tensor | None = None  # the sources of the first layer's edges before it was settled who computes what,
    drawn: Block | None = None  # and these edges
    ends: Ends | None = None  # where links are learned: the pairs that this worker scores

    @classmethod
    def of(cls, sample: Sample) -> "Program":
        """A sample as the program of a worker alone."""
        sizes = [len(sample.vertices), *(block.num_dst for block in sample.blocks)]
        layers = [Layer.whole(block) for block in sample.blocks]
        for layer, weights in zip(layers, sample.source_weights or [None] * len(layers), strict=True):
            if weights is not None:
                layer.weigh(layer.block, weights, weights)
        return cls(
            layers,
            [sample.vertices[:size] for size in sizes],
            [sample.keys[:size] for size in sizes],
            sample.graph,
            sample.weighted,
        )

    @property
    def num_edges(self) -> int:
        """How many edges this worker computes."""
        return sum(layer.num_edges for layer in self.layers)

    @cached_property
    def sizes(self) -> list[int]:
        """How many rows are here at each depth."""
        return [len(vertices) for vertices in self.vertices]

    def descend(self, x: Tensor, depth: int, to: int) -> Tensor:
        """Rows of one depth, those of a deeper one's vertices, where those are held."""
        for layer in self.layers[depth:to]:
            x = layer.own_rows(x, self.comm)
        return x

    def source_keys(self, depth: int) -> Tensor:
        """The keys of the block's sources, where rows of a depth go into a layer."""
        layer = self.layers[depth]
        if layer.sources is None:
            return self.keys[depth]
        assert layer.src_vertices is not None and self.graph is not None
        return keys_of(self.graph, layer.src_vertices.numpy())

    def edge_values(self, name: str, block: Block) -> Tensor:
        """The weights or types of a block's edges."""
        return edge_values(self.graph, name, block)
