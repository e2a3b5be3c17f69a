"""Seeds to blocks: keyed sampling of neighbours. One file a sampler; `ListSampler` is the base class for others'."""

from weft.sampling.balance import SeedBalance, balance_seeds, count_misses, of_full_homes, seed_limits
from weft.sampling.batches import Batches, WholeBatch, dealt
from weft.sampling.block import Block, BlockRange, Sample, Topology, edge_values, keys_of
from weft.sampling.labor import LaborSampler
from weft.sampling.layer import LayerSampler
from weft.sampling.lists import ListSampler, counted
from weft.sampling.negatives import VerticesByType, batch_negatives, uniform_negatives
from weft.sampling.neighbor import NeighborSampler
from weft.sampling.numbering import Numbering
from weft.sampling.sampler import Sampler, check_options, make_sampler

__all__ = [
    "Batches",
    "Block",
    "BlockRange",
    "LaborSampler",
    "LayerSampler",
    "ListSampler",
    "NeighborSampler",
    "Numbering",
    "Sample",
    "Sampler",
    "SeedBalance",
    "Topology",
    "VerticesByType",
    "WholeBatch",
    "balance_seeds",
    "batch_negatives",
    "check_options",
    "count_misses",
    "counted",
    "dealt",
    "edge_values",
    "keys_of",
    "make_sampler",
    "of_full_homes",
    "seed_limits",
    "uniform_negatives",
]
