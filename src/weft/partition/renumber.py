"""A graph renumbered by owner: each owner's vertices are contiguous, so that the owner map is a handful of bounds.

The order inside each neighbour list stays, and original ids stay the keys of all randomness: the same positions mean the
same neighbours, and training draws the same from the renumbered graph.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft import _kernels
from weft.graph import (
    DirectoryWriter,
    Graph,
    HeteroFeatures,
    ProgressCallback,
    arrays_of,
    arrays_of_names,
    as_stored,
    check_free,
    edge_arrays,
    ranges,
    read_manifest,
    running_sum,
    shard_rows,
    vertex_ranges,
)
from weft.partition.goal import normalised_shares, unheard
from weft.partition.quality import check_owners

_CHUNK = 1 << 22  # edges, or values of theirs, at a time
_BYTES = 1 << 26  # of features at a time


def check_disk(graph: Graph, out: Path) -> None:
    """Refuse a place for a graph, renumbered, where it has no room, before anything long is computed for it."""
    assert graph.path is not None
    need = sum(entry.nbytes for entry in read_manifest(graph.path).arrays.values())
    need += 8 * graph.num_vertices if graph.original_ids is None else 0
    check_free("the partitioned graph", need, out, out.resolve())


def write_partitioned(
    graph: Graph,
    owners: np.ndarray,
    parts: int,
    out: Path,
    *,
    shares: Sequence[float] | None = None,
    overwrite: bool = False,
    threads: int = 1,
    progress: ProgressCallback = unheard,
) -> None:
    """Write the graph renumbered, with its owners' bounds, as a graph directory.

    `shares`: what each owner is to do, in any unit, where that is not the same for all; training goes by it.
    """
    graph, owners = as_stored(graph), check_owners(graph, owners, parts)
    narrow = owners.astype(np.uint16) if parts < 1 << 16 else owners  # which sort in linear time
    order = np.argsort(narrow, kind="stable")  # new id -> old id
    bounds = running_sum(np.bincount(owners, minlength=parts))
    with DirectoryWriter(out, overwrite=overwrite) as directory:
        types = graph.features.types[order] if isinstance(graph.features, HeteroFeatures) else None
        directory.cuts = shard_rows(bounds, arrays_of(graph.features), types)
        _write_lists(graph, order, directory, threads, progress)
        _write_features(graph, narrow, directory, progress)
        of_vertices = {name: getattr(graph, name) for name in ("labels", "split", "vertex_type")}
        directory.add(**{name: values[order] for name, values in of_vertices.items() if values is not None})
        directory.add(original_ids=order if graph.original_ids is None else graph.original_ids[order], bounds=bounds)
        if shares is not None and min(shares) < max(shares):
            directory.add(shares=normalised_shares(parts, shares))
        directory.add(**arrays_of_names(graph.names))
        directory.facts = graph.facts


def _write_lists(
    graph: Graph, order: np.ndarray, directory: DirectoryWriter, threads: int, progress: ProgressCallback
) -> None:
    new_ids = np.empty(len(order), dtype=graph.indices.dtype)
    new_ids[order] = np.arange(len(order), dtype=graph.indices.dtype)
    indptr = running_sum(np.diff(graph.indptr)[order])
    directory.add(indptr=indptr)
    of_edges = edge_arrays(graph)
    writers = {name: directory.array(name, array.dtype, array.shape[1:]) for name, array in of_edges.items()}
    indices = directory.array("indices", graph.indices.dtype)
    for first, end in vertex_ranges(indptr, _CHUNK):
        begins, here = indptr[first : end + 1], order[first:end]
        piece = np.empty(int(begins[-1] - begins[0]), dtype=graph.indices.dtype)
        _kernels.renumber_lists(graph.indptr, graph.indices, here, new_ids, begins, piece, threads)
        indices.append(piece)
        if writers:
            positions = ranges(graph.indptr[here], np.diff(begins))
        for name, writer in writers.items():
            rows = max(1, _CHUNK // (graph.num_edge_features if name == "edge_features" else 1))
            for begin in range(0, len(positions), rows):
                writer.append(of_edges[name][positions[begin : begin + rows]])
        progress("renumbering", end, len(order))


def _write_features(graph: Graph, owners: np.ndarray, directory: DirectoryWriter, progress: ProgressCallback) -> None:
    """Rows are read once, in their order, and written where their owners' are: they need not fit into memory."""
    features, done, whose = graph.whole().features, 0, [owners]
    if isinstance(features, HeteroFeatures):
        whose = [owners[features.types == kind] for kind in range(len(features.tables))]
    for (name, table), owners_there in zip(arrays_of(features).items(), whose, strict=False):  # none: no tables
        writer = directory.array(name, table.dtype, table.shape[1:])
        rows = max(1, _BYTES // max(1, table.shape[1] * table.itemsize))
        for first in range(0, len(table), rows):
            some = slice(first, first + rows)
            writer.spread(np.array(table[some]), owners_there[some])
            progress("copying features", done + min(first + rows, len(table)), len(owners))
        done += len(table)
