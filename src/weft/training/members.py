"""What a worker computes of a batch, as a member of the group that shares it: programs, and the examples they are for."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from weft.exchange import Communicator
from weft.keys import Stream
from weft.placements import Cooperation, Program
from weft.sampling import Sampler, SeedBalance, dealt
from weft.training.objectives.examples import Examples, Targets


class When(NamedTuple):
    """The pass and the batch: what all of its random numbers depend on."""

    epoch: int
    batch: int
    stream: Stream


class Member(ABC):
    """Makes this worker's programs, in one thread."""

    @abstractmethod
    def share(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """This worker's share of all workers' examples. All workers call this together."""

    @abstractmethod
    def alone(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """Examples that are all this worker's. All workers call this together, each with its own."""

    @property
    @abstractmethod
    def evenness(self) -> SeedBalance:
        """How even the seeds at home were so far."""


class Single(Member):
    """The only worker: all examples are its own."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def share(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """All of them."""
        return self.alone(examples, when)

    def alone(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """All of them."""
        vertices = examples.vertices()
        program = Program.of(self._sampler.sample(vertices, *when))
        program.here = True
        return program, examples.dealt(np.zeros(len(vertices), dtype=np.int64), Communicator())

    @property
    def evenness(self) -> SeedBalance:
        """Nothing is uneven."""
        return SeedBalance()


class Cooperating(Member):
    """One of a group of workers, which shares its part of each batch and draws it together."""

    def __init__(self, cooperation: Cooperation, comm: Communicator, group: int, shares: np.ndarray) -> None:
        """`comm`: to the group's other workers. `group`: its place among all groups, which have these shares of a batch."""
        self.cooperation, self._comm, self._group, self._shares = cooperation, comm, group, shares

    def share(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """Examples are dealt to groups; within this one, their vertices to whoever is to compute them."""
        of_group = examples.take(dealt(len(examples), self._shares) == self._group)
        vertices = of_group.vertices()
        workers = self.cooperation.workers(vertices, *when)
        program = self.cooperation.program(vertices[workers == self._comm.rank], *when)
        return program, of_group.dealt(workers, self._comm)

    def alone(self, examples: Examples, when: When) -> tuple[Program, Targets]:
        """Others may still be asked for neighbours."""
        vertices = examples.vertices()
        program = self.cooperation.program(vertices, *when)
        return program, examples.dealt(np.zeros(len(vertices), dtype=np.int64), Communicator())

    @property
    def evenness(self) -> SeedBalance:
        """How even the seeds at home were so far."""
        return self.cooperation.evenness
