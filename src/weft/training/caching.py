"""Which feature rows a worker holds besides its own: slices of all, or the rows that a dry run reads most."""

from collections.abc import Sequence

import numpy as np

from weft.features import FeatureStore, by_reads, edges_from, hottest, rooms
from weft.graph import Graph, out_degrees
from weft.keys import Stream
from weft.placements import ColumnSpan
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
    plan = team.plan
    if plan.layers[0] == "columns":
        columns = ColumnSpan(team.comm.rank, team.comm.size, graph.num_features)
        store.slices(*columns.span, columns.width)
        return
    features = graph.features
    assert features is not None
    room = rooms(plan.cache, graph.num_vertices, features[:1].nbytes)
    if not room or team.sharing is None:
        return
    worth = out_degrees(graph)
    if plan.cache_by == "reads":
        worth = by_reads(_reads(graph, team, schedule, batches) if reads is None else reads, worth)
    kept = hottest(worth, team.owners, team.sharing.near, room).astype(graph.indices.dtype)
    store.keep(kept)
    team.cached(kept)


def _reads(graph: Graph, team: TrainingTeam, schedule: Schedule, batches: Sequence[Examples]) -> np.ndarray:
    """How many of the edges that this worker draws for layer 1 in a dry run of some batches reach each vertex."""
    reads = np.zeros(graph.num_vertices, dtype=np.int64)
    for number, examples in enumerate(batches[:_DRY_RUN]):
        for part in range(schedule.count(examples)):
            program, _ = schedule.program(examples, part, team.members[0], When(0, number, Stream.SAMPLE))
            assert program.reached is not None and program.drawn is not None
            reads[program.reached.numpy()] += edges_from(program.drawn)
    team.forget()
    return reads
