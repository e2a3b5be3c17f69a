"""KaMinPar, on a compressed graph where that is large."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np

from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.partition.libraries import SEEDS, folder_for, import_library, most_a_part
from weft.partition.methods import PartitionMethod
from weft.partition.undirected import UndirectedGraph, undirected_graph
from weft.stopping import computing

_LARGE = 1 << 21  # edges, from where KaMinPar works on a compressed graph and in its fast way: half the memory, as good


class KaminparMethod(PartitionMethod):
    """KaMinPar: its default way, or its fast one for large graphs.

    On one thread the same seed gives the same allocation; on more, each run gives another one, as good.
    """

    name = "kaminpar"
    help = "fewest edges cut"
    reads = frozenset({"draws"})
    library = "kaminpar"
    by_draws = True
    seconds = (0.1, 0.5)
    memory = (14.0, 60.0)  # as measured on 300 million edges

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        return KaminparGraph.load(graph, goal).owners(goal)


@dataclass(frozen=True)
class KaminparGraph:
    """A graph as KaMinPar holds it, to be allocated as often as wanted."""

    module: ModuleType
    loaded: Any
    weights: np.ndarray  # [vertices] int64: what each weighs in the balance
    large: bool

    @classmethod
    def load(cls, graph: Graph, goal: PartitionGoal) -> Self:
        """The undirected graph of a graph in KaMinPar's hands."""
        module = import_library("kaminpar", "KaMinPar")
        undirected = undirected_graph(graph, goal)
        weights, large = undirected.vertices, undirected.num_edges > _LARGE
        with folder_for(8 * len(undirected.offsets) + 16 * len(undirected.neighbours)) as folder:
            file = folder / "graph.parhip"
            write_parhip(file, undirected)
            del undirected
            with computing():
                loaded = module.load_graph(str(file), module.GraphFileFormat.PARHIP, compress=large)
            file.unlink()
        return cls(module, loaded, weights, large)

    def owners(self, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex, [vertices] int32."""
        module, limits = self.module, most_a_part(self.weights, goal)
        module.reseed(goal.seed & SEEDS)
        instance = module.KaMinPar(goal.threads, module.fast_context() if self.large else module.default_context())
        with computing():
            if limits is None:
                owners = instance.compute_partition(self.loaded, goal.parts, goal.balance.imbalance)
            else:
                owners = instance.compute_partition(self.loaded, max_block_weights=limits)
        return np.asarray(owners, dtype=np.int32)


def write_parhip(file: Path, undirected: UndirectedGraph) -> None:
    """The ParHiP binary format: header, offsets in bytes, neighbours, weights of vertices (64 bits) and edges (32 bits)."""
    narrow = undirected.neighbours.dtype == np.int32
    no_edge_weights, narrow_ids, narrow_edge_weights = undirected.edges is None, 8 * narrow, 32
    id_type = np.dtype(np.uint32 if narrow else np.uint64)
    base = 8 * 3 + 8 * len(undirected.offsets)
    with open(file, "wb") as out:
        kind = no_edge_weights | narrow_ids | narrow_edge_weights
        np.array([kind, undirected.num_vertices, len(undirected.neighbours)], dtype=np.uint64).tofile(out)
        (base + undirected.offsets.astype(np.uint64) * np.uint64(id_type.itemsize)).tofile(out)
        undirected.neighbours.view(id_type).tofile(out)
        undirected.vertices.tofile(out)
        if undirected.edges is not None:
            undirected.edges.tofile(out)
