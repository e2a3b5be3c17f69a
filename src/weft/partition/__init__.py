"""graph -> owners: who holds which vertices, how good an allocation is, and graphs renumbered owner by owner."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.partition.allocation import allocate, equal_hosts
    from weft.partition.automatic import USUAL_MINUTES, MethodChoice, choose_method, too_large
    from weft.partition.checkpoints import CheckpointedSteps
    from weft.partition.goal import BalanceWeights, PartitionGoal, TrainingTask, part_limits, unheard
    from weft.partition.hypergraph import add_batch, expected_draws, rows_between_hosts
    from weft.partition.methods import PartitionMethod, make_method
    from weft.partition.quality import PartitionFigures, measure
    from weft.partition.renumber import check_disk, write_partitioned
    from weft.partition.simulator import ServerLinks, Traces, fit, seeds_of, usual_task
    from weft.partition.undirected import UndirectedGraph, undirected_graph
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["PartitionGoal", "PartitionMethod", "allocate", "write_partitioned"]
