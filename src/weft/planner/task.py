"""What is to be trained, as the planner needs to know it: all that a plan may not change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sampling:
    """How mini-batches are drawn and prepared."""

    fanouts: tuple[int, ...]  # from the seeds outwards
    batch_size: int  # seeds of all workers that are computed at once
    sampler: str = "neighbor"
    replace: bool = False
    weighted: bool = False
    seed: int = 0
    loaders: int = 2  # threads that prepare batches


@dataclass(frozen=True, kw_only=True)
class Task:
    """A training run without its plan."""

    sampling: Sampling | None = None  # None: all vertices with all their neighbours are the one batch
    dtype: str = "float32"
    epochs: int = 1
    memory: float | None = None  # bytes that a worker may use; None: what its host has for it
    # What is decided of the plan: for fields of Plan the values that they may have, the preferred one first. Fields that are
    # not named are the planner's to choose.
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
