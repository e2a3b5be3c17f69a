"""Mt-KaHyPar, by a file in METIS's text format."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from weft.graph import Graph, vertex_ranges
from weft.partition.goal import PartitionGoal
from weft.partition.libraries import SEEDS, folder_for, import_library, most_a_part, scaled_to
from weft.partition.methods import PartitionMethod
from weft.partition.undirected import UndirectedGraph, undirected_graph
from weft.stopping import computing

_CHUNK = 1 << 22  # edges at a time


class MtkahyparMethod(PartitionMethod):
    """Mt-KaHyPar's deterministic preset: the same seed gives the same allocation.

    It runs on as many threads as its first call in a process was given.
    """

    name = "mtkahypar"
    help = "few edges cut, by Mt-KaHyPar's deterministic preset"
    reads = frozenset({"draws"})
    library = "mtkahypar"

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        undirected = _narrow(undirected_graph(graph, goal))
        module, start, context = _context(undirected.vertices, goal)
        with folder_for(24 * undirected.num_vertices + 16 * len(undirected.neighbours)) as folder:
            file = folder / "graph.metis"
            write_metis(file, undirected)
            del undirected
            with computing():
                loaded = start.graph_from_file(str(file), context, module.FileFormat.METIS)
            file.unlink()
        with computing():
            owners = loaded.partition(context).get_partition()
        return np.asarray(owners, dtype=np.int32)


def _context(weights: np.ndarray, goal: PartitionGoal) -> tuple[ModuleType, Any, Any]:
    """The module, what makes its graphs, and its settings."""
    module = import_library("mtkahypar", "Mt-KaHyPar")
    start = module.initialize(goal.threads, print_warnings=False)
    module.set_seed(goal.seed & SEEDS)
    context = start.context_from_preset(module.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(goal.parts, goal.balance.imbalance, module.Objective.CUT)
    context.logging = False
    limits = most_a_part(weights, goal)
    if limits is not None:
        context.set_individual_target_block_weights(limits)
    return module, start, context


def _narrow(undirected: UndirectedGraph) -> UndirectedGraph:
    """The undirected graph with weights whose sums fit 32 bits."""
    edges = None if undirected.edges is None else scaled_to(undirected.edges, SEEDS // 2)
    return replace(undirected, edges=edges, vertices=scaled_to(undirected.vertices, SEEDS // 2))


def write_metis(file: Path, undirected: UndirectedGraph) -> None:
    """METIS's text format: a line a vertex, with its weight and its neighbours (from 1 on), each with its edge's weight."""
    width = 1 if undirected.edges is None else 2
    with open(file, "w") as out:
        out.write(f"{undirected.num_vertices} {undirected.num_edges} {'010' if undirected.edges is None else '011'}\n")
        for first, end in vertex_ranges(undirected.offsets, _CHUNK):
            here = slice(undirected.offsets[first], undirected.offsets[end])
            words = undirected.neighbours[here].astype(np.int64) + 1
            if undirected.edges is not None:
                words = np.stack([words, undirected.edges[here]], axis=1).ravel()
            begins = width * (undirected.offsets[first : end + 1] - undirected.offsets[first])
            words = np.insert(words, begins[:-1], undirected.vertices[first:end])
            out.write(_lines(words, begins + np.arange(end - first + 1)))


def _lines(words: np.ndarray, bounds: np.ndarray) -> str:
    """Numbers as text: those between two bounds on a line."""
    import pyarrow as pa  # only here, as it takes long to load
    from pyarrow import compute

    lines = compute.binary_join(
        pa.ListArray.from_arrays(bounds.astype(np.int32), pa.array(words).cast(pa.string())), " "
    )
    return compute.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py() + "\n"
