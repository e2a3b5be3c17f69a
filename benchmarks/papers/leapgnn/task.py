"""What LeapGNN trains: fanouts of 10 in three hops on four servers, batches drawn from all training vertices."""

from collections.abc import Iterator

import numpy as np

from papers.bench import Bench
from papers.draws import Draws, count
from weft.sampling import NeighborSampler

GRAPHS = ("debian", "communities")
SERVERS = 4
SEEDS = 64  # a server, as much fewer than the paper's as the graphs are smaller
FANOUTS = (10, 10, 10)
BATCHES = 10  # of an epoch by the clock
DEEP = {"deepgcn": (2,) * 7, "film": (2,) * 10}  # as few neighbours a hop as Table 1 draws in so many layers


def fanouts_of(model: str) -> tuple[int, ...]:
    """Those that a model is trained with."""
    return DEEP.get(model, FANOUTS)


def draws(bench: Bench, graph: str) -> Draws:
    """Global batches of a graph."""
    return Draws(bench.graph(graph), FANOUTS, SEEDS * SERVERS, SERVERS, most=bench.fewer(16))


def micrographs(drawn: Draws, owners: np.ndarray) -> Iterator[list[list[np.ndarray]]]:
    """Of each batch: for each server and model, the rows that the model's seeds at home there read."""
    sampler = NeighborSampler(drawn.graph, drawn.fanouts)
    for number, seeds in enumerate(drawn.seeds()):
        homes, models = owners[seeds], np.arange(len(seeds)) % SERVERS
        found = []
        for server in range(SERVERS):
            each = [seeds[(homes == server) & (models == model)] for model in range(SERVERS)]
            found.append([sampler.sample(own, 0, number).vertices.numpy() for own in each])
        yield found


def missed(rows: np.ndarray, owners: np.ndarray, server: int) -> int:
    """How many rows are another server's."""
    return count(owners[rows] != server)
