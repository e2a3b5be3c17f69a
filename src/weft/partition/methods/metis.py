"""METIS, by pymetis."""

from types import ModuleType
from typing import Any

import numpy as np

from weft.errors import ClusterError, ConfigError
from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.partition.libraries import SEEDS, import_library, printing_on_stderr, scaled_to
from weft.partition.methods import PartitionMethod
from weft.partition.undirected import UndirectedGraph, undirected_graph
from weft.stopping import computing


class MetisMethod(PartitionMethod):
    """METIS, k-way, on one thread: the same seed gives the same allocation."""

    name = "metis"
    help = "few edges cut"
    reads = frozenset({"draws"})
    library = "pymetis"
    by_draws = True
    seconds = (0.1, 1.5)
    memory = (115.0, 100.0)  # as measured on 54.5 million edges

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        pymetis = import_library(self.library, "METIS")
        options = pymetis.Options(seed=goal.seed & SEEDS, ufactor=max(1, round(goal.balance.imbalance * 1000)))
        wanted = None if goal.shares is None else goal.targets.tolist()
        inputs = _inputs(pymetis, undirected_graph(graph, goal))
        try:
            with printing_on_stderr(), computing():  # such as that a part is to have no vertices
                _, owners = pymetis.part_graph(goal.parts, **inputs, tpwgts=wanted, recursive=False, options=options)
        except RuntimeError as error:  # it takes SIGTERM for one of its own
            raise ClusterError(
                f"METIS stopped without a result, by SIGTERM or an error of its own ({error}): run it again, or choose "
                f"--method kaminpar"
            ) from error
        return np.asarray(owners, dtype=np.int32)


def _inputs(pymetis: ModuleType, undirected: UndirectedGraph) -> dict[str, Any]:
    """The graph in METIS's integers, which may have 32 bits: the weights are then scaled so that their sums fit."""
    kind = pymetis.zero_copy_dtype()
    most = np.iinfo(kind).max // 2
    if max(len(undirected.neighbours), undirected.num_vertices) > most:
        raise ConfigError(
            f"this METIS counts in {kind.itemsize * 8} bits, too few for {undirected.num_edges:,} edges: choose --method "
            f"kaminpar"
        )
    neighbours = undirected.neighbours.astype(kind, copy=False)
    return {
        "adjacency": pymetis.CSRAdjacency(undirected.offsets.astype(kind), neighbours),
        "vweights": scaled_to(undirected.vertices, most).astype(kind, copy=False),
        "eweights": None if undirected.edges is None else scaled_to(undirected.edges, most).astype(kind, copy=False),
    }
