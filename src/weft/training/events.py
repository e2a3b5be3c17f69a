"""The events of a run; report/ turns these into bars, tables, JSON lines. Recorded first, looked at later."""

from dataclasses import dataclass, field
from typing import Any

from weft.planner import Answer


@dataclass(frozen=True)
class Started:
    """The run is about to train."""

    plan: str
    settings: dict[str, Any]
    epochs: int
    batches: int
    first_epoch: int
    first_batch: int
    highest_is_best: bool = True  # is the model kept that has the highest figure?


@dataclass(frozen=True)
class Planned:
    """A plan was chosen."""

    answer: Answer


@dataclass(frozen=True)
class Stepped:
    """One batch is done."""

    epoch: int
    batch: int
    loss: float
    seeds: int
    edges: int


@dataclass(frozen=True)
class EpochEnded:
    """One epoch is done; `validation` is None where it was not evaluated."""

    epoch: int
    loss: float
    seconds: float
    validation: float | None
    best: bool
    figures: dict[str, float] = field(default_factory=dict)  # all that was measured on the validation split, by name
    plan: str = ""  # of its last batch, and
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

    epochs: int
    metric: str
    validation: float | None
    test: float | None
    best_epoch: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # feature rows read, by where they were; of all workers
    homes: dict[str, float] = field(default_factory=dict)  # how even seeds at home were: largest, balanced, share moved
    figures: dict[str, float] = field(default_factory=dict)  # all that was measured on the test split, by name


Event = Started | Planned | Stepped | EpochEnded | Notice | Finished
