"""What a placement is: where one layer's edges are computed. One file each; those from outside use the same door.

A placement turns a drawn hop into this worker's layer (`build`), and counts what that would move without moving it
(`count`): the planner prices it, and allocations are made for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from weft import plugins
from weft.placements.layer import Layer
from weft.placements.moves import Moves, View
from weft.placements.team import INPUT, Held, Hop, Position, Team


class Placement(ABC):
    """Where one layer's edges are computed, and whose rows come or go."""

    name: ClassVar[str]
    help: ClassVar[str]  # a line for tables and `--help`
    takes: ClassVar[frozenset[Held]]  # how the rows below it may be held; INPUT: it may be the first layer
    leaves: ClassVar[frozenset[Held]]  # how the rows that it makes may be
    pulls: ClassVar[bool] = True  # do source rows of others come, but for inputs?
    splits: ClassVar[bool] = False  # are edges computed apart from their destinations, so that convolutions must split?
    fetches: ClassVar[bool] = True  # as the first layer: may it need inputs of other workers?
    by_columns: ClassVar[bool] = False  # does each worker have a slice of the columns of all inputs, in place of rows?
    by_cost: ClassVar[bool] = False  # does what it builds depend on what rows and partial rows cost?

    @abstractmethod
    def build(self, hop: Hop, position: Position, team: Team) -> tuple[Layer, np.ndarray]:
        """This worker's layer for the destinations of a hop, and the ids whose rows it needs here.

        All workers of the team call this together, each with its own hop.
        """

    @abstractmethod
    def count(self, view: View, position: Position) -> Moves:
        """What `build` would move for the hop of a worker, without moving it: plans are priced by it."""

    @property
    def only_first(self) -> bool:
        """Is it for the first layer alone?"""
        return self.takes == {INPUT}

    def of_whole_graph(self, build: Callable[[], tuple[Layer, np.ndarray]], team: Team) -> tuple[Layer, np.ndarray]:
        """This worker's layer for all vertices that it owns, with all their neighbours; and the ids that it needs here.

        `build`: as for a batch, with the whole graph as one hop.
        """
        return build()


_ONES: dict[type[Placement], Placement] = {}


def placement_named(name: str) -> Placement:
    """The placement of a name; there is one of each, for all threads: plans' layers are the same by it."""
    kind = plugins.PLACEMENTS.get(name)
    return _ONES[kind] if kind in _ONES else _ONES.setdefault(kind, kind())


def all_placements() -> list[Placement]:
    """One of each, those that come with Weft first."""
    return [placement_named(name) for name in plugins.PLACEMENTS.names()]
