"""A layer on one worker: the edges that it computes, and how what they need comes and what they make goes.

Each kind of layer is a class: `WholeLayer` (whole neighbourhoods meet here: local, pull), `SplitLayer` (some edges are
computed at the owners of their sources: push, cover), `ColumnLayer` (every worker has all edges and a slice of the rows'
columns), `SliceLayer` (the same over the full graph). A convolution says by a `Merge` what it makes of its edges, and a
layer runs it: neither asks of which kind the other is. A `Program` is a worker's layers for one batch.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from weft.devices import Movable
from weft.exchange import ColumnSpan, Communicator, Route
from weft.operations import linear, linear_of_two, linear_pair
from weft.placements.merge import ColumnEdges, Edges, Merge, OthersEdges
from weft.sampling import Block, Sample, Topology, edge_values, keys_of

_Made = tuple[tuple[Tensor, ...], list[int]]  # rows, and their versions when they were made


@dataclass
class Inputs:
    """Of the first layer: the rows that were fetched, and what is made of them, as they are, without parameters."""

    rows: Tensor | None = None
    version: int = 0
    asked: Merge | None = None  # how the model merged them; None: it did not
    merged: tuple[Hashable, Tensor, int] | None = None  # a merge that was made ahead, by its key; and its version then
    kept: dict[str, _Made] | None = None  # where they stay for all epochs: what was made of them, by name
    making: bool = False  # is something of them being made, once?

    def fetched(self, rows: Tensor) -> None:
        """These rows have come."""
        self.rows, self.version = rows, rows._version

    def are(self, x: Tensor) -> bool:
        """Are these the rows that were fetched, as they are? Known without looking at them, where there are none too."""
        return (
            self.rows is not None
            and x.dtype == self.rows.dtype
            and x.is_set_to(self.rows)
            and x._version == self.version
        )

    def stay(self, x: Tensor) -> bool:
        """Are these rows the inputs, as they are, the same in every epoch?"""
        return self.kept is not None and self.are(x) and not x.requires_grad

    def once(self, name: str, x: Tensor, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What `make` gives of rows x, without anything that is learned: where they stay, made in the first epoch only.

        And again, where the model has written into it.
        """
        if self.kept is None or not self.stay(x):
            return make()
        if name not in self.kept or self.kept[name][1] != _versions(self.kept[name][0]):
            self.making = True
            with torch.no_grad():
                rows = make()
            self.making, self.kept[name] = False, (rows, _versions(rows))
        return self.kept[name][0]


def _versions(rows: tuple[Tensor, ...]) -> list[int]:
    return [of._version for of in rows]


class Layer(Movable, ABC):
    """One layer on one worker: who computes which edges is settled. All workers call the same methods in the same order."""

    stays: ClassVar[frozenset[str]] = frozenset({"src_ids", "inputs"})
    whole_rows: ClassVar[bool] = True  # are the rows here whole, or slices of their columns?
    own_among: bool = False  # if rows travel, do the destinations' own rows come among the sources?
    pulls: Route | None = None  # rows here -> the sources of the edges into destinations here; None: these are
    owns: Route | None = None  # rows here -> the destinations' own; None: the first are

    def __init__(
        self, parts: list[Edges], degrees: Tensor, src_ids: Tensor, comm: Communicator | None, crosses: bool
    ) -> None:
        """`parts`: all edges that are computed here, first those into destinations whose rows this worker holds.

        `degrees`: [destinations] all edges drawn, here or elsewhere. `crosses`: do rows or partial results travel in it?
        """
        self.parts, self.here, self.degrees, self.crosses = parts, parts[0], degrees, crosses
        self.src_ids = src_ids  # [sources here] vertices
        self.comm, self.inputs = comm or Communicator(), Inputs()
        self.num_dst = len(self.here.block.indptr) - 1  # rows that this worker holds after the layer
        self.num_edges = sum(len(edges.block.src) for edges in parts)  # that this worker computes

    @abstractmethod
    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        """Rows x (those here) merged into each destination."""

    @abstractmethod
    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows."""

    def sources(self, x: Tensor) -> Tensor:
        """The sources of the edges into destinations here, from the rows here."""
        return x if self.pulls is None else self.pulls.pull(x, self.comm)

    def own(self, x: Tensor) -> Tensor:
        """The destinations' own rows, from the rows here."""
        return x[: self.num_dst] if self.owns is None else self.owns.pull(x, self.comm)

    def merge_and_map(
        self, merge: Merge, name: str, x: Tensor, matrices: tuple[Tensor, Tensor], bias: Tensor | None
    ) -> Tensor:
        """Merged rows and own rows, each times its matrix, plus a bias; mapped first where narrower rows travel for it.

        The merge is linear in rows. Merged inputs that stay are merged once, by the name of what is made of them.
        """
        left, right = matrices
        if not self.maps_first(x, *left.shape):
            merged, own = self.inputs.once(name, x, lambda: self.merge_with_own(merge, x))
            return linear_of_two(merged, left, own, right, bias)
        if self.owns is not None:
            return self.map_and_merge(merge, x, left, bias) + self.own(linear(x, right))
        mapped, own = linear_pair(x, left, right, self.num_dst, bias)
        return self.merge(merge, mapped) + own

    def map_and_merge(self, merge: Merge, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        """Products with a matrix, merged, plus a bias."""
        out = self.merge(merge, linear(x, matrix))
        return out if bias is None else out + bias

    def maps_first(self, x: Tensor, out: int, wide: int) -> bool:
        """Are rows better mapped before they are merged, as narrower ones travel then?"""
        return self.crosses and not self.own_among and self.cheaper_mapped(x, out, wide)

    def merge_mapped(self, merge: Merge, x: Tensor) -> Tensor:
        """As `merge`, of rows that were multiplied with `share`s of matrices."""
        return self.merge(merge, x)

    def merge_ahead(self, merge: Merge) -> None:
        """Merge the inputs as the model will, if that can be done by a thread that prepares batches."""
        return

    def for_inputs(self) -> "Layer | None":
        """The same edges where the rows here are inputs, which are fetched to wherever edges need them; None: not so."""
        return None

    def cheaper_mapped(self, x: Tensor, out: int, wide: int) -> bool:
        """Would rows (or sums of them) that travel cost less behind a dense layer? What needs no gradient travels once."""
        return 2 * out < wide * (2 if x.requires_grad else 1) and not self.inputs.stay(x)

    def share(self, matrix: Tensor) -> Tensor:
        """The part of a matrix that rows here are multiplied with; its second dimension is theirs."""
        return matrix

    def real(self, x: Tensor) -> Tensor:
        """Rows without the padding that slices have."""
        return x

    def weigh(self, drawn: Block, of_drawn: Tensor, of: Callable[[Tensor], Tensor]) -> Self:
        """Let each edge count for what its source's weight says; `drawn` are all edges, wherever they are computed."""
        at, weights = drawn.dst().long(), of_drawn[drawn.src.long()]
        self.degrees = weights.new_zeros(drawn.num_dst).index_add_(0, at, weights)
        of_sources = of(self.src_ids)
        for edges in self.parts:
            edges.drawn = of_sources[edges.block.src.long()]
        return self

    def arrived(self) -> None:
        self.inputs = Inputs(kept=None if self.inputs.kept is None else {})

    def again(self) -> Self:
        """The same layer, of other rows."""
        other = copy.copy(self)
        other.inputs = Inputs()
        return other


class WholeLayer(Layer):
    """Whole neighbourhoods meet here; sources that others hold have come (inputs), or come by a route."""

    def __init__(
        self,
        block: Block,
        src_ids: Tensor | None = None,
        sources: Route | None = None,
        own: Route | None = None,
        comm: Communicator | None = None,
    ) -> None:
        """`sources`: rows here -> the block's sources; None: these are. `own`: -> destinations' own; None: the first."""
        src_ids = torch.arange(block.num_src) if src_ids is None else src_ids
        super().__init__([Edges(block)], block.indptr.diff(), src_ids, comm, crosses=sources is not None)
        self.pulls, self.owns, self.own_among = sources, own, own is not None

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        return merge.whole(self.here, self.sources(x))

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, unless that was done ahead; and the destinations' own rows."""
        if merge.key is not None and not x.requires_grad and self.inputs.are(x):
            self.inputs.asked = merge
            ahead = self.inputs.merged
            if ahead is not None and ahead[0] == merge.key and ahead[1]._version == ahead[2]:  # it is as it was made
                return ahead[1], x[: self.num_dst]
        return merge.whole_with_own(self.here, self.sources(x))

    def merge_ahead(self, merge: Merge) -> None:
        if self.inputs.rows is not None and self.inputs.rows.is_cpu:  # a device merges as it computes
            rows = merge.ahead(self.here, self.inputs.rows)
            self.inputs.merged = merge.key, rows, rows._version

    def for_inputs(self) -> "WholeLayer":
        other = self.again()
        other.pulls = other.owns = None
        other.crosses = other.own_among = False
        return other


class SplitLayer(Layer):
    """A layer with edges of destinations that others hold (`there`): their partial rows go to the holders."""

    def __init__(
        self,
        here: Edges,
        there: OthersEdges,
        degrees: Tensor,
        src_ids: Tensor,
        home: Route,
        pulls: Route | None = None,
        own: Route | None = None,
        comm: Communicator | None = None,
    ) -> None:
        """`home`: destinations here -> partial rows of them, where these are computed; it brings sums back by its push."""
        super().__init__([here, there], degrees, src_ids, comm, crosses=True)
        self.there, self.home, self.pulls, self.owns = there, home, pulls, own

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        return merge.split(self, x)

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        return merge.split_with_own(self, x)

    def to_others(self, rows: Tensor) -> Tensor:
        """Rows of the destinations here -> of the partial rows here, whose destinations others hold."""
        return self.home.pull(rows, self.comm)

    def summed(self, partial: Tensor) -> Tensor:
        """Partial rows of others' destinations -> the sums of those that belong to the destinations here."""
        return self.home.push(partial, self.comm)

    def carried(self, partial: Tensor) -> Tensor:
        """Partial rows of others' destinations -> those of the destinations here (`home.send`), each by itself."""
        return self.home.carry(partial, self.comm)


class ColumnLayer(Layer):
    """A layer whose rows are slices of columns: edges of the destinations here, and (`there`) of all others'."""

    whole_rows: ClassVar[bool] = False
    here: ColumnEdges

    def __init__(
        self,
        here: ColumnEdges,
        there: ColumnEdges,
        home: Route,
        columns: ColumnSpan,
        comm: Communicator | None = None,
    ) -> None:
        """`home`: destinations here -> those that others compute a slice of."""
        super().__init__([here, there], here.block.indptr.diff(), here.src_ids, comm, crosses=False)
        self.here, self.there, self.home, self.columns = here, there, home, columns

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        return merge.columns(self, x)

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        return merge.columns_with_own(self, x)

    def merge_mapped(self, merge: Merge, x: Tensor) -> Tensor:
        return merge.shares(self, x)

    def merge_and_map(
        self, merge: Merge, name: str, x: Tensor, matrices: tuple[Tensor, Tensor], bias: Tensor | None
    ) -> Tensor:
        """Products are added up where they are narrower than slices of the rows, else slices are put together first."""
        if len(matrices[0]) >= self.columns.width:
            return super().merge_and_map(merge, name, x, matrices, bias)
        left, right = map(self.share, matrices)
        here, there = (
            linear_of_two(self.real(merge.whole(edges, x)), left, self.real(x[edges.own_at]), right, None)
            for edges in (self.here, self.there)
        )
        total = self.added_up(here, there)
        return total if bias is None else total + bias

    def own(self, x: Tensor) -> Tensor:
        (own,) = self.put_together([x[self.here.own_at]], [x[self.there.own_at]])
        return own

    def share(self, matrix: Tensor) -> Tensor:
        first, end = self.columns.span(self.columns.rank)
        return matrix[:, first:end]

    def real(self, x: Tensor) -> Tensor:
        first, end = self.columns.span(self.columns.rank)
        return x[:, : end - first]

    def put_together(self, here: list[Tensor], there: list[Tensor]) -> list[Tensor]:
        """Whole rows of the destinations here, from slices of all destinations' rows: of several kinds in one message."""
        theirs = self.home.carry(torch.cat(there, 1), self.comm).chunk(len(there), 1)
        return [self.columns.join(mine, others) for mine, others in zip(here, theirs, strict=True)]

    def added_up(self, here: Tensor, there: Tensor) -> Tensor:
        """Rows of the destinations here, from shares of all destinations' rows."""
        return here + self.home.push(there, self.comm)


@dataclass
class Program(Movable):
    """What one worker does for one batch: rows to fetch, then its part of each layer."""

    stays: ClassVar[frozenset[str]] = frozenset({"vertices", "graph", "comm", "reached", "drawn"})

    layers: list[Layer]  # layers[0] is nearest the input
    vertices: list[Tensor]  # by depth: whose rows are here; vertices[0] are fetched, vertices[-1] are the seeds
    keys: list[Tensor]  # by depth: original ids, the keys of the rows' randomness
    graph: Topology | None = None
    weighted: bool = False
    comm: Communicator = field(default_factory=Communicator)
    made_up: bool = False  # is it to be measured only, with edges that no graph has?
    here: bool = False  # are all rows to fetch this worker's own, or in its cache?
    reached: Tensor | None = None  # the sources of the first layer's edges before it was settled who computes what,
    drawn: Block | None = None  # and these edges

    @classmethod
    def of(cls, sample: Sample) -> "Program":
        """A sample as the program of a worker alone."""
        sizes = [len(sample.vertices), *(block.num_dst for block in sample.blocks)]
        layers: list[Layer] = []
        for block, weights in zip(sample.blocks, sample.source_weights or [None] * len(sample.blocks), strict=True):
            layer = WholeLayer(block)
            layers.append(layer if weights is None else layer.weigh(block, weights, weights.__getitem__))
        vertices, keys = ([of_all[:size] for size in sizes] for of_all in (sample.vertices, sample.keys))
        return cls(layers, vertices, keys, sample.graph, sample.weighted)

    def fetched(self, rows: Tensor, merge: Merge | None = None) -> None:
        """The inputs have come; they are merged now, if it is known how the model merges them first of all."""
        self.layers[0].inputs.fetched(rows)
        if merge is not None:
            self.layers[0].merge_ahead(merge)

    def keep(self, rows: Tensor, depth: int) -> None:
        """Rows of a depth are made of inputs that stay, and stay themselves: so does what is made of them alone."""
        if depth < len(self.layers) and self.layers[depth].inputs.rows is not rows:
            layer = self.layers[depth] = self.layers[depth].again()
            layer.inputs.kept = {}
            layer.inputs.fetched(rows)

    def descend(self, x: Tensor, depth: int, to: int) -> Tensor:
        """Rows of one depth, those of a deeper one's vertices, where those are held."""
        for layer in self.layers[depth:to]:
            x = layer.own(x)
        return x

    def source_keys(self, depth: int) -> Tensor:
        """The keys of the sources, where rows of a depth go into a layer of whole neighbourhoods."""
        layer, graph = self.layers[depth], self.graph
        if graph is None or not layer.crosses:  # they are the rows here
            return self.keys[depth]
        return self.from_host(lambda _: keys_of(graph, layer.src_ids.numpy()))

    def edge_values(self, name: str, block: Block) -> Tensor:
        """The weights or types of a block's edges."""
        return edge_values(self.graph, name, block)
