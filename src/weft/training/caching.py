"""Which feature rows a worker holds besides its own: slices of all, or the rows that a dry run reads most."""

from collections.abc import Sequence

import numpy as np

from weft.features import FeatureStore, by_reads, edges_from, rooms
from weft.graph import Graph, out_degrees
from weft.keys import Stream
from weft.placements import ColumnSpan, placement_named
from weft.training.members import When
from weft.training.objectives import Examples
from weft.training.schedule import Schedule
from weft.training.team import TrainingTeam

_DRY_RUN = 8  # batches whose accesses decide what is cached


def fill_store(
    store: FeatureStore,
    graph: Graph,
    team: TrainingTeam,
    schedule: Schedule,
    batches: Sequence[Examples],
    reads: np.ndarray | None = None,
) -> None:
    """Set a store up for a plan. All workers call this together.

    `reads`: how often each vertex was reached in a dry run of some batches; None: find out now.
    """
    plan, features = team.plan, graph.features
    assert features is not None
    if placement_named(plan.layers[0]).only_first:
        columns = ColumnSpan(team.comm.rank, team.comm.size, graph.num_features)
        store.slices(*columns.span, columns.width)
        return

    def worth() -> np.ndarray:
        degrees = out_degrees(graph)
        if plan.cache_by == "degree":
            return degrees
        return by_reads(_reads(graph, team, schedule, batches) if reads is None else reads, degrees)

    team.fill(store, rooms(plan.cache, graph.num_vertices, features[:1].nbytes), worth)


def _reads(graph: Graph, team: TrainingTeam, schedule: Schedule, batches: Sequence[Examples]) -> np.ndarray:
    """How many of the edges that this worker draws for layer 1 in a dry run of some batches reach each vertex."""
    reads = np.zeros(graph.num_vertices, dtype=np.int64)
    for number, examples in enumerate(batches[:_DRY_RUN]):
        for part in range(schedule.count(examples)):
            program, _ = schedule.program(examples, part, team.members[0], When(0, number, Stream.SAMPLE))
            assert program.reached is not None and program.drawn is not None
            reads[program.reached.numpy()] += edges_from(program.drawn)
    return reads
