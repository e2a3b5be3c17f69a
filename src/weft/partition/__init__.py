"""graph -> owners: who holds which vertices, how good an allocation is, and graphs renumbered owner by owner."""

from weft.partition.allocation import allocate
from weft.partition.automatic import USUAL_MINUTES, MethodChoice, choose_method, too_large
from weft.partition.checkpoints import CheckpointedSteps
from weft.partition.goal import BalanceWeights, PartitionGoal, TrainingTask
from weft.partition.hierarchy import equal_hosts
from weft.partition.hypergraph import add_batch, expected_draws, rows_between
from weft.partition.methods import PartitionMethod, make_method
from weft.partition.quality import measure
from weft.partition.renumber import write_partitioned
from weft.partition.simulator import ServerLinks, Traces, fit, seeds_of
from weft.partition.undirected import UndirectedGraph, undirected_graph

__all__ = [
    "USUAL_MINUTES",
    "BalanceWeights",
    "CheckpointedSteps",
    "MethodChoice",
    "PartitionGoal",
    "PartitionMethod",
    "ServerLinks",
    "Traces",
    "TrainingTask",
    "UndirectedGraph",
    "add_batch",
    "allocate",
    "choose_method",
    "equal_hosts",
    "expected_draws",
    "fit",
    "make_method",
    "measure",
    "rows_between",
    "seeds_of",
    "too_large",
    "undirected_graph",
    "write_partitioned",
]
