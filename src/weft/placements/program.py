"""The program: what one worker does for one batch: rows to fetch, then its part of each layer."""

from dataclasses import dataclass, field

from torch import Tensor

from weft.exchange import Communicator
from weft.placements.layer import Layer, Merge, WholeLayer
from weft.sampling import Block, Sample, Topology, edge_values, keys_of
from weft.threads import cached_property


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

    @classmethod
    def of(cls, sample: Sample) -> "Program":
        """A sample as the program of a worker alone."""
        sizes = [len(sample.vertices), *(block.num_dst for block in sample.blocks)]
        layers: list[Layer] = []
        for block, weights in zip(sample.blocks, sample.source_weights or [None] * len(sample.blocks), strict=True):
            layer = WholeLayer(block)
            layers.append(layer if weights is None else layer.weigh(block, weights, weights.__getitem__))
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

    def fetched(self, rows: Tensor, merge: Merge | None = None) -> None:
        """The inputs have come; they are merged now, if it is known how the model merges them first of all."""
        self.layers[0].inputs.fetched(rows)
        if merge is not None:
            self.layers[0].merge_ahead(merge)

    @property
    def asked(self) -> Merge | None:
        """How the model merged its inputs, as they came; None: it did not."""
        return self.layers[0].inputs.asked

    def descend(self, x: Tensor, depth: int, to: int) -> Tensor:
        """Rows of one depth, those of a deeper one's vertices, where those are held."""
        for layer in self.layers[depth:to]:
            x = layer.own(x)
        return x

    def source_keys(self, depth: int) -> Tensor:
        """The keys of the sources, where rows of a depth go into a layer."""
        return self.layers[depth].source_keys(self.keys[depth], self._keys)

    def edge_values(self, name: str, block: Block) -> Tensor:
        """The weights or types of a block's edges."""
        return edge_values(self.graph, name, block)

    def _keys(self, vertices: Tensor) -> Tensor:
        assert self.graph is not None
        return keys_of(self.graph, vertices.numpy())
