"""Seeds to blocks: keyed sampling of neighbours."""

from weft.sampling.block import Block, Sample, Topology
from weft.sampling.neighbors import NeighborSampler

__all__ = ["Block", "NeighborSampler", "Sample", "Topology"]
