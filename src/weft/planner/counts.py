"""What a dry run counts: for each layer, way of holding its destinations and cache, rows and edges by worker."""

from dataclasses import dataclass

import numpy as np

# How a layer's destinations are held: by request, for seeds that were spread or are at home; or by their owners.
SPREAD, HOME, OWNER = "spread", "home", "owner"
STATES = (SPREAD, HOME, OWNER)

Key = tuple[int, str, bool]  # the layer (0: nearest the inputs), how destinations are held, and are inputs cached?


@dataclass(frozen=True)
class Cell:
    """One layer of a batch, its destinations held in one way. Of [worker, other]: what a worker wants of another."""

    destinations: np.ndarray  # distinct destinations, by who answers for them
    sources: np.ndarray  # distinct sources, destinations among them, likewise; cached ones are the worker's own
    lists: np.ndarray  # edges, by who answers for their destination
    pairs: np.ndarray  # partial rows that those who answer for sources would push
    pushed: np.ndarray  # their edges
    cover_sources: np.ndarray  # where vertices are pulled or pushed as is cheaper: rows pulled,
    cover_pairs: np.ndarray  # partial rows,
    cover_pushed: np.ndarray  # and their edges
    inputs: np.ndarray  # sources that are in no cache, by the worker that stores them
    cover_inputs: np.ndarray  # those of them that a cover pulls
    cached: np.ndarray  # [workers, 1]: sources of others that are in the cache

    @property
    def edges(self) -> np.ndarray:
        """Edges that each worker draws."""
        return self.lists.sum(1)


@dataclass(frozen=True)
class Counts:
    """A dry run's figures, of a mean batch."""

    cells: dict[Key, Cell]
    held: np.ndarray  # [workers, workers]: inputs that each worker holds under owners, by the worker that stores them
    cache_rows: np.ndarray  # [workers]: the most rows that a worker's cache holds
    uneven: float  # seeds of homes that are too full, of a batch
    batches: int  # how many it looked at
    of_epoch: int
    error: float  # standard error of the rows that a batch reaches, as a share of their mean
    seeds: float  # of a batch, all workers'
    each: tuple[tuple[float, "Counts"], ...] = ()  # of each batch alone, with its share of the mean
