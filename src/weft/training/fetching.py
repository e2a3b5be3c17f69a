"""A graph at an address comes to the hosts: the first worker of each fetches what its workers read, while others wait."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch_geometric.data import Data, HeteroData

from weft.errors import GraphFormatError, StorageError
from weft.exchange import Communicator, World
from weft.graph import Graph, RemoteGraph, is_address
from weft.training.meanwhile import meanwhile, nothing

_COULD_NOT = "get what its host needs of the graph"


def as_graph(graph: Graph | Data | HeteroData | str | Path, world: World, timeout: float) -> Graph:
    """A graph, wherever it comes from: a directory of Weft's, an address, or PyG. All workers call this together.

    Of an address its lists are here then; rows come once it is known which are read here (`fetch_rows`). `timeout`: seconds
    that an answer may take.
    """
    if isinstance(graph, Data | HeteroData):
        return Graph.from_pyg(graph)
    if isinstance(graph, Graph):
        return graph.checked()
    if not isinstance(graph, str | Path):
        raise GraphFormatError(
            f"{type(graph).__name__} is no graph that Weft reads: give a folder of one, an address, a weft.Graph, or PyG's "
            f"Data or HeteroData (of a data set: dataset[0]); the model comes behind it"
        )
    if not is_address(graph):
        return Graph.open(graph)
    comm = world.communicator()
    remote = meanwhile(comm, partial(RemoteGraph, graph, timeout), StorageError, _COULD_NOT)
    meanwhile(comm, remote.fetch_lists if _is_first(world) else nothing, StorageError, _COULD_NOT)
    comm.close()
    return Graph.of_remote(remote)


def graph_here(graph: Graph | Data | HeteroData | str | Path) -> Graph:
    """A graph for this process alone, wherever it comes from; of an address all its rows are here, too."""
    return Graph.open(graph) if isinstance(graph, str | Path) else as_graph(graph, World(), 0.0)


def fetch_rows(remote: RemoteGraph, ranges: Sequence[tuple[int, int]] | None, world: World, comm: Communicator) -> None:
    """Fetch the features of some ranges of vertices (None: of all), which this host's workers read.

    All workers call this together.
    """
    meanwhile(comm, partial(remote.fetch_rows, ranges) if _is_first(world) else nothing, StorageError, _COULD_NOT)


def _is_first(world: World) -> bool:
    """Is this worker the first of its host?"""
    return world.hosts.index(world.hosts[world.rank]) == world.rank
