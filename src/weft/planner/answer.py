"""What the planner says of a plan, and of all plans: plain data that tables, pages and JSON show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from weft.plan import Plan

LIMITS = ("processors", "links", "training", "preparing", "copies")  # what may hold an epoch up; the last: of devices
STAGES = ("sample", "fetch", "exchange", "compute", "sync")


@dataclass(frozen=True)
class OnDevice:
    """What a plan takes of workers' devices, of the one with most."""

    memory: float  # bytes at the peak
    room: float  # of so many
    copied: float  # bytes an epoch that are copied there from host memory
    cache: float = 0.0  # bytes of its memory that keep feature rows
    met: float = 0.0  # the share of input rows, of all workers, that are read in a device's cache
    lent: float = 0.0  # likewise, by another device of the host
    lists: float = 0.0  # bytes of neighbour lists, if they are drawn from there
    measured: bool = False  # is it known of such a device what drawing takes, or estimated?


@dataclass(frozen=True)
class Prediction:
    """An epoch by one plan, on the workers of one cluster."""

    name: str  # gdp, split, ...; or its placements, such as pull+push+local
    plan: Plan
    seconds: float  # an epoch
    stages: dict[str, float]  # seconds an epoch by stage (STAGES), of the worker with most; prefetching overlaps some
    limits: dict[str, float]  # seconds an epoch if only this held it up (LIMITS)
    sent: dict[str, float]  # bytes an epoch that all workers send, by stage
    memory: float  # bytes at the peak, of the worker that comes nearest to its limit
    room: float  # that worker's limit
    excluded: str | None = None  # why it can't be used here; None: it can
    once: float = 0.0  # seconds besides its epochs, once: its cache is filled
    device: OnDevice | None = None  # what it takes of devices, if workers compute there

    @classmethod
    def none(cls, name: str, plan: Plan, why: str) -> "Prediction":
        """Of a plan that can't be."""
        nothing = dict.fromkeys(STAGES, 0.0)
        return cls(name, plan, 0.0, nothing, dict.fromkeys(LIMITS, 0.0), nothing, 0.0, 0.0, why)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A prediction from plain data."""
        device = data["device"] and OnDevice(**data["device"])
        return cls(**{**data, "plan": Plan.from_dict(data["plan"]), "device": device})

    def over(self, epochs: int) -> float:
        """Seconds an epoch, with its part of what filling the cache takes, if there are so many."""
        return self.seconds + self.once / epochs

    @property
    def limit(self) -> str:
        """What holds the epoch up most."""
        return max(self.limits, key=lambda name: self.limits[name])


@dataclass(frozen=True)
class Sweep:
    """Predictions along one axis: seconds an epoch by plan, with its part of what filling a cache takes, at each value."""

    axis: str  # link (bytes a second of the slowest host), hidden, hosts
    values: list[float]
    seconds: dict[str, list[float]]  # by plan's name; NaN: it can't be used there
    here: float | None = None  # the value that holds here
    best: list[str] = field(default_factory=list)  # the fastest plan's name, at each value
    ideal: list[float] = field(default_factory=list)  # how fast it could be at best, next to the others; empty: unknown


@dataclass(frozen=True)
class Answer:
    """The planner's choice, with its reasons."""

    title: str  # the task in one line: graph, model, fanouts, batches
    best: Prediction  # the plan that is chosen
    predictions: list[Prediction]  # named plans and runners-up, the best too: fastest first, excluded ones last
    reasons: list[str]  # sentences
    batches: int  # of an epoch
    looked_at: int  # batches of the dry run
    error: float  # of its mean rows: standard error, as a share
    took: float  # seconds of planning
    timed: float | None = None  # how many seconds ago an earlier run timed the layers; None: this one did
    off: float = 0.0  # how far predictions may be off beside each other, as a share
    sweeps: list[Sweep] = field(default_factory=list)  # by link, width, hosts
    measured: dict[str, dict[str, float]] = field(default_factory=dict)  # by plan's name: seconds, and by stage

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """An answer from plain data."""
        predictions = [Prediction.from_dict(one) for one in data["predictions"]]
        sweeps = [Sweep(**one) for one in data["sweeps"]]
        best = Prediction.from_dict(data["best"])
        return cls(**{**data, "best": best, "predictions": predictions, "sweeps": sweeps})

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
