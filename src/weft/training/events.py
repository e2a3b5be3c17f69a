"""The events of a run; report/ turns these into bars, tables, JSON lines. Recorded first, looked at later."""

from dataclasses import dataclass, field
from typing import Any

from weft.planner import Answer


@dataclass(frozen=True)
class Started:
    """The run is about to train."""

    plan: str  # and workers, device, model, in a line
    settings: dict[str, Any]  # by key
    epochs: int  # of the whole run
    batches: int  # of an epoch
    first_epoch: int  # of this process: not 0 in a run that goes on
    first_batch: int  # of that epoch
    highest_is_best: bool = True  # is the model kept that has the highest figure?


@dataclass(frozen=True)
class Planned:
    """A plan was chosen."""

    answer: Answer


@dataclass(frozen=True)
class Stepped:
    """One batch is done."""

    epoch: int
    batch: int  # how many of the epoch are done with it
    loss: float  # a term: of vertices, a seed
    seeds: int  # of all workers
    edges: int  # that were computed for it, by all workers


@dataclass(frozen=True)
class EpochEnded:
    """One epoch is done; `validation` is None where it was not evaluated."""

    epoch: int
    loss: float  # a term of all its batches
    seconds: float  # of its steps, without evaluation
    validation: float | None  # the figure that the kept model is chosen by, on the validation split
    best: bool  # is it the best one so far?
    figures: dict[str, float] = field(default_factory=dict)  # all that was measured on the validation split, by name
    plan: str = ""  # of its last batch
    stages: dict[str, float] = field(default_factory=dict)  # seconds by stage, of this worker
    rows: dict[str, int] = field(default_factory=dict)  # feature rows that it read, by where they were
    whole: bool = True  # were all its batches by that plan?


@dataclass(frozen=True)
class Notice:
    """Something that a person should know."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The end: metrics of the model that is kept, and where the time went."""

    epochs: int  # that were trained
    metric: str  # what `validation` and `test` are
    validation: float | None  # of the best epoch
    test: float | None  # likewise, on the test split
    best_epoch: int | None  # None: none was evaluated
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    rows: dict[str, int] = field(default_factory=dict)  # feature rows read, by where they were; of all workers
    homes: dict[str, float] = field(default_factory=dict)  # how even seeds at home were: largest, balanced, share moved
    figures: dict[str, float] = field(default_factory=dict)  # all that was measured on the test split, by name


Event = Started | Planned | Stepped | EpochEnded | Notice | Finished
