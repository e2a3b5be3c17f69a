"""Seeds to blocks: keyed sampling of neighbours."""

from weft.sampling.block import Block, Sample, Topology
from weft.sampling.loops import SelfLoops
from weft.sampling.neighbors import NeighborSampler

__all__ = ["Block", "NeighborSampler", "Sample", "SelfLoops", "Topology"]
