"""graph -> owners: who holds which vertices, how good an allocation is, and graphs renumbered owner by owner."""

from weft.partition.methods import METHODS, Weighing, allocate
from weft.partition.quality import measure
from weft.partition.renumber import write_partitioned

__all__ = ["METHODS", "Weighing", "allocate", "measure", "write_partitioned"]
