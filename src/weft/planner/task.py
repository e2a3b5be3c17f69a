"""What is to be trained, as the planner needs to know it: the batches, and what a plan may not change."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A training run without its plan."""

    fanouts: tuple[int, ...]  # from the seeds outwards
    batch_size: int  # seeds of all workers that are computed at once
    sampler: str = "neighbor"
    replace: bool = False
    weighted: bool = False
    seed: int = 0
    dtype: str = "float32"
    cache: float = 0.0  # what a worker may keep of others' rows: a share of all (up to 1), or bytes
    cache_by: str = "reads"
    wire: str = "float32"  # float32, float16, or (auto) as is best
    slack: float = 0.1
    loaders: int = 2
    prefetch: int = 2
    seeds: str = "auto"  # spread, home, or as is best
    group: str = "auto"  # all, host, or as is best
    topology: str = "auto"  # replicated, partitioned, or as is best
