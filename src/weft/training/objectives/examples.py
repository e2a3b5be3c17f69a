"""The examples of a batch: what an objective learns from, dealt to the workers that compute the rows they need.

All workers make the same examples of a batch and agree on who computes which vertices. A worker's targets say which of the
rows that its model computes are those of its own examples.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Communicator, Owners


class Targets(ABC):
    """This worker's examples of a part of a batch, and which rows are theirs."""

    ids: Tensor  # [n] int64: the vertices of the examples here

    @abstractmethod
    def rows(self, out: Tensor, comm: Communicator) -> Tensor:
        """What a loss is made of, from the model's rows here. All workers of the comm call this together."""


class Examples(ABC):
    """Some examples of a batch, of all workers."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def roots(self) -> np.ndarray:
        """A vertex of each: where that is at home, the example is at home."""

    @abstractmethod
    def take(self, chosen: np.ndarray) -> Self:
        """Some of them: by place, or by a mask."""

    @abstractmethod
    def vertices(self) -> np.ndarray:
        """The vertices whose rows they need, each once."""

    @abstractmethod
    def dealt(self, workers: np.ndarray, comm: Communicator) -> Targets:
        """This worker's share, where each of `vertices()` is computed by one of the workers; all call it together."""

    @abstractmethod
    def owned(self, owners: Owners, comm: Communicator) -> Targets:
        """All of them, where every worker computes the vertices it owns, and these are the ones whose roots this one owns.

        All workers of the comm call this together.
        """


@dataclass(frozen=True)
class VertexTargets(Targets):
    """Vertices computed here."""

    ids: Tensor
    at: Tensor | None = None  # [n] int64, their places among the model's rows; None: all of these, in order

    def rows(self, out: Tensor, comm: Communicator) -> Tensor:
        """A row for each vertex."""
        return out if self.at is None else out[self.at]


@dataclass(frozen=True)
class VertexExamples(Examples):
    """Vertices, each an example."""

    seeds: np.ndarray

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def roots(self) -> np.ndarray:
        """The vertices themselves."""
        return self.seeds

    def take(self, chosen: np.ndarray) -> "VertexExamples":
        """Some of them."""
        return VertexExamples(self.seeds[chosen])

    def vertices(self) -> np.ndarray:
        """The vertices themselves."""
        return self.seeds

    def dealt(self, workers: np.ndarray, comm: Communicator) -> VertexTargets:
        """The vertices that are computed here."""
        return VertexTargets(_ids(self.seeds[workers == comm.rank]))

    def owned(self, owners: Owners, comm: Communicator) -> VertexTargets:
        """All of them; the model's rows are those of a range of vertices."""
        ids = _ids(self.seeds)
        return VertexTargets(ids, ids - int(owners.bounds[comm.rank]))


def _ids(vertices: np.ndarray) -> Tensor:
    return torch.from_numpy(vertices.astype(np.int64))
