"""What is to be trained, and by whom, as the planner needs to know it: all that a plan may not change."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch

from weft.errors import ModelError
from weft.exchange import Communicator, Owners

Options = Mapping[str, Any]  # fields of Plan, besides its layers,
Choices = Mapping[str, tuple[Any, ...]]  # and the values that they may have, the preferred one first


class PlannedExamples(Protocol):
    """What is learned from in a batch."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def roots(self) -> np.ndarray:
        """A vertex of each."""

    @property
    def vertices(self) -> np.ndarray:
        """Whose rows they need."""

    @property
    def needed(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Vertices, and for each another one whose row travels to where this one is computed; None: none do."""

    def take(self, chosen: np.ndarray) -> Self:
        """Some of them: a mask."""


@dataclass(frozen=True)
class Sampling:
    """How mini-batches are drawn and prepared."""

    fanouts: tuple[int, ...]  # from the seeds outwards
    batch_size: int  # seeds of all workers that are computed at once,
    parts: int = 1  # so many times for each step
    sampler: str = "neighbor"
    replace: bool = False
    weighted: bool = False
    seed: int = 0
    loaders: int = 2  # threads that prepare batches


@dataclass(frozen=True, kw_only=True)
class Task:
    """A training run without its plan."""

    title: str = ""  # in one line
    sampling: Sampling | None = None  # None: all vertices with all their neighbours are the one batch
    dtype: str = "float32"
    epochs: int = 1
    memory: float | None = None  # bytes that a worker may use; None: what its host has for it
    on_device: bool = False  # do workers compute on devices?
    halves: bool = True  # may rows travel in half precision, if that is allowed?
    labels: float = 0.0  # bytes of all vertices' labels, which each device has
    sample_on: str = "cpu"  # where these draw neighbours: the cpu, the device, or auto: there, if lists fit
    threads: int = 1  # that each worker trains with; 0: as many as its host has processors for it
    anew: bool = False  # are layers to be timed, though an earlier run may have kept what they cost?
    examples: Sequence[Callable[..., PlannedExamples]] = ()  # of each batch, in the first epoch or a given one
    choices: Choices = field(default_factory=dict)  # what is decided of the plan; the planner chooses other fields


@dataclass(frozen=True)
class Workers:
    """All workers, wherever this process is: one of them, or one that counts for all of them."""

    owners: Owners
    hosts: Sequence[int]  # of each worker
    comm: Communicator | None = None  # to all; None: none of them is here
    comm_of_host: Communicator | None = None  # to those of this one's host
    memory: float = math.inf  # bytes of each where its cache is, as far as they are known before plans are priced
    device: torch.device = torch.device("cpu")  # on which layers are timed,
    threads: int = 1  # and with so many besides one: what these spare is found
    here: Sequence[int] = field(init=False)  # those that this process counts for
    near: Sequence[frozenset[int]] = field(init=False)  # of each: the workers of its host

    def __post_init__(self) -> None:
        every = range(len(self.hosts))
        mates = {host: frozenset(one for one in every if self.hosts[one] == host) for host in set(self.hosts)}
        object.__setattr__(self, "near", [mates[host] for host in self.hosts])
        object.__setattr__(self, "here", every if self.comm is None else [self.comm.rank])

    def gather(self, mine: np.ndarray) -> np.ndarray:
        """Rows of figures of the workers that this process counts for, those of all workers together."""
        return mine if self.comm is None else torch.cat(self.comm.gather(torch.from_numpy(mine), "sample")).numpy()


def shared_out(
    runs: Sequence[Callable[[], Any]], comm: Communicator | None, sizes: Sequence[float] | None = None
) -> list[Any]:
    """What some runs find, as plain data. Workers share them out, by their sizes; what one refuses, all do."""
    if comm is None:
        return json.loads(json.dumps([run() for run in runs], default=asdict))
    turns, refused, mine = dealt(sizes or [1] * len(runs), comm.size), "", list[Any]()
    try:
        mine = [runs[at]() for at in turns[comm.rank]]
    except ModelError as error:
        refused = str(error)
    found: list[Any] = [None] * len(runs)
    said = comm.told(json.dumps([refused, mine], default=asdict))
    for turn, (refusal, some) in zip(turns, map(json.loads, said), strict=True):
        if refusal:
            raise ModelError(refusal)
        for at, one in zip(turn, some, strict=True):
            found[at] = one
    return found


def dealt(sizes: Sequence[float], workers: int) -> list[list[int]]:
    """Runs of these sizes for each of some workers: the largest first, each to one that has least until then."""
    of_each, loads = [list[int]() for _ in range(workers)], [0.0] * workers
    for run in sorted(range(len(sizes)), key=lambda run: -sizes[run]):
        least = loads.index(min(loads))
        of_each[least].append(run)
        loads[least] += sizes[run]
    return of_each
