"""Planning again in the midst of a run: with links and processors as they are now, or with work at what its epochs took."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from weft.plan import Plan
from weft.planner import STAGES, Answer, Cluster, Observation, Planner, probe_cluster_again, refined, shared
from weft.training.planning import answer_for_all, told_by_all
from weft.training.trainer import Trainer

Keep = Callable[[Cluster], str]  # keeps what is known of the cluster for later runs, and says where; or nothing


class Replanner:
    """What a run knows of its cluster, and what the planner makes of it. What the dry run counted stays."""

    def __init__(self, trainer: Trainer, planner: Planner, cluster: Cluster, keep: Keep) -> None:
        self._trainer, self._planner, self._keep = trainer, planner, keep
        self._before, self._cluster, self._first = cluster, cluster, cluster
        self._seen: list[Observation] = []
        self.begin()

    def measured_again(self, left: int) -> Answer:
        """The answer for the cluster as it is now, for a run of so many more epochs. All workers call this together."""
        self._before, self._cluster = self._cluster, probe_cluster_again(self._trainer.world, self._cluster)
        return self._answer(left)

    def keep_tried(self, took: Mapping[Plan, float]) -> None:
        """Keep for later runs what plans took over what was predicted for the cluster as it is known now."""
        self._planner.space.earlier.tried(self._cluster).keep(took)

    @property
    def changes(self) -> str:
        """What was found to be different, in words."""
        return self._before.changes_to(self._cluster)

    def begin(self) -> None:
        """A plan's turn begins."""
        self._steps, self._seconds = 0, 0.0
        self._spent = [dict.fromkeys(STAGES, 0.0) for _ in range(2)]  # seconds, and the processor's
        self.mark()

    def mark(self) -> None:
        """What went on since the last batch is not to be learned from: it was something else."""
        meter = self._trainer.meter
        self._read = meter.seconds(), meter.processor()

    def stepped(self, seconds: float, counts: bool) -> None:
        """A batch took so long; is it one to learn from?"""
        before = self._read
        self.mark()
        if counts:
            self._steps, self._seconds = self._steps + 1, self._seconds + seconds
            for spent, now, old in zip(self._spent, self._read, before, strict=True):
                for stage in spent:
                    spent[stage] += now.get(stage, 0.0) - old.get(stage, 0.0)

    def refined(self, left: int) -> Answer:
        """The answer with work at what the batches took that counted, for so many more epochs. All workers call this."""
        self._seen.append(self._observed())
        comm, now = self._trainer.run.comm, None
        if comm.rank == 0:
            work = refined(replace(self._cluster, work=self._first.work), self._seen)
            now = replace(self._cluster, work=work, exchanging=0)  # its own exchanges' now
        self._cluster = shared(comm, now) or self._cluster
        return self._answer(left)

    def _observed(self) -> Observation:
        """An epoch by the plan in use, as the batches tell that counted."""
        whole = len(self._trainer.loader) / self._steps
        stages, processor = self._spent
        told = told_by_all(self._trainer.run.comm, self._seconds, stages, processor, whole)
        return Observation(self._planner, self._trainer.parallel, *told)

    def keep(self) -> str:
        """Keep what was learned for later runs; says where, or nothing."""
        work = self._cluster.work
        if self._trainer.run.threads > 1:  # what steps and layers take is kept as of one thread
            work = work | {kind: self._first.work[kind] for kind in ("step", "layers")}
        return self._keep(replace(self._cluster, work=work))

    def _answer(self, left: int) -> Answer:
        comm, present = self._trainer.run.comm, self._trainer.parallel
        return answer_for_all(self._planner, self._cluster, comm, present, left)
