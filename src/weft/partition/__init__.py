"""graph -> owners: who holds which vertices, how good an allocation is, and graphs renumbered owner by owner."""

from weft.partition.aim import Aim, Training, Weighing
from weft.partition.choice import Choice, choose
from weft.partition.hosts import equal_hosts
from weft.partition.mesh import Mesh, mesh_of
from weft.partition.methods import METHODS, allocate
from weft.partition.quality import measure
from weft.partition.renumber import write_partitioned
from weft.partition.steps import Steps

__all__ = [
    "METHODS",
    "Aim",
    "Choice",
    "Mesh",
    "Steps",
    "Training",
    "Weighing",
    "allocate",
    "choose",
    "equal_hosts",
    "measure",
    "mesh_of",
    "write_partitioned",
]
