"""A graph at an address comes to the hosts: the first worker of each fetches what its workers read, while others wait."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch_geometric.data import Data, HeteroData

from weft.errors import GraphFormatError, StorageError
from weft.exchange import Communicator, World
from weft.graph import Graph, RemoteGraph, is_address

T = TypeVar("T")

_LOOK = 0.2  # seconds between looks at how others fare
_DONE, _AT_WORK, _FAILED = 0, 1, 2


def as_graph(graph: Graph | Data | HeteroData | str | Path, world: World, timeout: float) -> Graph:
    """A graph, wherever it comes from: a directory of Weft's, an address, or PyG. All workers call this together.

    Of an address its lists are here then; rows come once it is known which are read here (`fetch_rows`). `timeout`: seconds
    that an answer may take.
    """
    if isinstance(graph, Data | HeteroData):
        return Graph.from_pyg(graph)
    if isinstance(graph, Graph):
        return graph
    if not isinstance(graph, str | Path):
        raise GraphFormatError(
            f"{type(graph).__name__} is no graph that Weft reads: give a folder of one, an address, a weft.Graph, or PyG's "
            f"Data or HeteroData (of a data set: dataset[0]); the model comes behind it"
        )
    if not is_address(graph):
        return Graph.open(graph)
    comm = world.communicator()
    remote = _meanwhile(comm, partial(RemoteGraph, graph, timeout))
    _meanwhile(comm, remote.fetch_lists if _is_first(world) else _nothing)
    comm.close()
    return Graph.of_remote(remote)


def fetch_rows(remote: RemoteGraph, ranges: Sequence[tuple[int, int]] | None, world: World, comm: Communicator) -> None:
    """Fetch the features of some ranges of vertices (None: of all), which this host's workers read.

    All workers call this together.
    """
    _meanwhile(comm, partial(remote.fetch_rows, ranges) if _is_first(world) else _nothing)


def _is_first(world: World) -> bool:
    """Is this worker the first of its host?"""
    return world.hosts.index(world.hosts[world.rank]) == world.rank


def _nothing() -> None:
    """The other workers' part."""


def _meanwhile(comm: Communicator, work: Callable[[], T]) -> T:
    """Do what may take longer than workers wait for each other: they hear of each other meanwhile."""
    made: list[T] = []
    failed: list[Exception] = []

    def do() -> None:
        try:
            made.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=do, daemon=True, name="weft-fetching")
    thread.start()
    while True:
        thread.join(_LOOK)
        mine = _AT_WORK if thread.is_alive() else _FAILED if failed else _DONE
        states = [int(state) for state in comm.gather(torch.tensor([mine]))]
        if mine == _FAILED:
            raise failed[0]
        if _FAILED in states:
            raise StorageError(
                f"worker {states.index(_FAILED)} could not get what its host needs of the graph: see what it says"
            )
        if _AT_WORK not in states:
            return made[0]
