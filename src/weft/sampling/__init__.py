"""Seeds to blocks: keyed sampling of neighbours."""

from weft.sampling.block import Block, Sample
from weft.sampling.neighbors import NeighborSampler

__all__ = ["Block", "NeighborSampler", "Sample"]
