"""What a placement is: where one layer's edges are computed. One file each; a stranger's uses the same door.

A placement turns a drawn hop into this worker's layer (`build`), and counts what that would move without moving it
(`count`): the planner prices it, and allocations are made for it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.placements.hops import Hop
from weft.placements.layer import Layer
from weft.placements.team import Team

# How rows are held between two layers: by their owners, each once; or where they were asked for.
OWNER, REQUEST = "owner", "request"


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    index: int  # 0: nearest the inputs
    above: str  # how the rows that it makes are held: OWNER or REQUEST
    below: str  # how the rows that it takes are; inputs are fetched wherever they are needed

    @property
    def first(self) -> bool:
        """Does it take the inputs?"""
        return self.index == 0


class Placement(ABC):
    """Where one layer's edges are computed, and whose rows come or go."""

    name: ClassVar[str]
    help: ClassVar[str]  # a line for tables and `--help`
    takes: ClassVar[frozenset[str]]  # how the rows below it may be held
    leaves: ClassVar[frozenset[str]]  # how the rows that it makes may be
    only_first: ClassVar[bool] = False  # is it for the first layer alone, for it takes slices of the inputs' columns?
    pulls: ClassVar[bool] = True  # do source rows of others come, but for inputs?
    splits: ClassVar[bool] = False  # are edges computed apart from their destinations, so that convolutions must split?
    fetches: ClassVar[bool] = True  # as the first layer: may it need inputs of other workers?
    by_cost: ClassVar[bool] = False  # does what it builds depend on what rows and partial rows cost?

    @abstractmethod
    def build(self, hop: Hop, position: Position, team: Team) -> tuple[Layer, np.ndarray]:
        """This worker's layer for the destinations of a hop, and the ids whose rows it needs here.

        All workers of the team call this together, each with its own hop.
        """

    def once_more(self, layer: Layer, first: bool) -> Layer | None:
        """On the full graph: the layer below one that is placed alike, whose vertices are the same; None: to be built anew.

        `first`: its inputs are fetched.
        """
        return None if first else layer
