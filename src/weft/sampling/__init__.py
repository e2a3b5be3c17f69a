"""Seeds to blocks: keyed sampling of neighbours."""

from weft.sampling.block import Block, Sample, Topology
from weft.sampling.choice import check_options, make_sampler
from weft.sampling.labor import LaborSampler
from weft.sampling.layers import LayerSampler
from weft.sampling.neighbors import NeighborSampler
from weft.sampling.sampler import Sampler

__all__ = [
    "Block",
    "LaborSampler",
    "LayerSampler",
    "NeighborSampler",
    "Sample",
    "Sampler",
    "Topology",
    "check_options",
    "make_sampler",
]
