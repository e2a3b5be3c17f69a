"""Allocations by other people's partitioners, which are installed apart: METIS and KaMinPar."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.partition.aim import Aim
from weft.partition.mesh import Mesh, mesh_of

_SEEDS = 0x7FFFFFFF  # libraries take 31 bits
_MEMORY_FOLDER = Path("/dev/shm")


def metis(graph: Graph, aim: Aim) -> np.ndarray:
    """METIS, k-way, on one thread: the same seed gives the same allocation."""
    pymetis = _library("pymetis", "METIS")
    options = pymetis.Options(seed=aim.seed & _SEEDS, ufactor=max(1, round(aim.weighing.imbalance * 1000)))
    wanted = None if aim.shares is None else aim.targets.tolist()
    inputs = _as_metis_reads(pymetis, mesh_of(graph, aim))
    _, owners = pymetis.part_graph(aim.parts, **inputs, tpwgts=wanted, recursive=False, options=options)
    return np.asarray(owners, dtype=np.int32)


def _as_metis_reads(pymetis: ModuleType, mesh: Mesh) -> dict[str, Any]:
    """The mesh in METIS's integers, which may have 32 bits: the weights are then scaled so that their sums fit."""
    kind = pymetis.zero_copy_dtype()
    most = np.iinfo(kind).max // 2
    if max(len(mesh.neighbours), mesh.num_vertices) > most:
        raise ConfigError(
            f"this METIS counts in {kind.itemsize * 8} bits, too few for {mesh.num_edges:,} edges: choose --method kaminpar"
        )
    return {
        "adjacency": pymetis.CSRAdjacency(mesh.offsets.astype(kind), mesh.neighbours.astype(kind, copy=False)),
        "vweights": _fitting(mesh.vertices, most).astype(kind, copy=False),
        "eweights": None if mesh.edges is None else _fitting(mesh.edges, most).astype(kind, copy=False),
    }


def _fitting(weights: np.ndarray, most: int) -> np.ndarray:
    """The weights, smaller in proportion where their sum would exceed `most`."""
    total = int(weights.sum(dtype=np.int64))
    room = most - len(weights)  # each may be rounded up to 1
    return weights if total <= most else np.maximum(1, np.floor(weights * (room / total)))


def kaminpar(graph: Graph, aim: Aim) -> np.ndarray:
    """KaMinPar. On one thread the same seed gives the same allocation; on more, the threads' timing moves some vertices."""
    library = _library("kaminpar", "KaMinPar")
    mesh = mesh_of(graph, aim)
    limits = most_a_part(mesh.vertices, aim)
    with _folder(8 * len(mesh.offsets) + 16 * len(mesh.neighbours)) as folder:
        file = folder / "graph.parhip"
        write_parhip(file, mesh)
        del mesh
        loaded = library.load_graph(str(file), library.GraphFileFormat.PARHIP, compress=True)
        file.unlink()
    library.reseed(aim.seed & _SEEDS)
    instance = library.KaMinPar(aim.threads, library.default_context())
    if limits is None:
        owners = instance.compute_partition(loaded, aim.parts, aim.weighing.imbalance)
    else:
        owners = instance.compute_partition(loaded, max_block_weights=limits)
    return np.asarray(owners, dtype=np.int32)


def most_a_part(weights: np.ndarray, aim: Aim) -> list[int] | None:
    """What each part may weigh at most; None: equal parts."""
    if aim.shares is None:
        return None
    exact = aim.targets * int(weights.sum())
    return np.ceil(np.maximum(exact * (1 + aim.weighing.imbalance), exact + int(weights.max()))).astype(int).tolist()


def write_parhip(file: Path, mesh: Mesh) -> None:
    """The ParHiP binary format: header, offsets in bytes, neighbours, weights of vertices (64 bits) and edges (32 bits)."""
    narrow = mesh.neighbours.dtype == np.int32
    no_edge_weights, narrow_ids, narrow_edge_weights = mesh.edges is None, 8 * narrow, 32
    id_type = np.dtype(np.uint32 if narrow else np.uint64)
    base = 8 * 3 + 8 * len(mesh.offsets)
    with open(file, "wb") as out:
        kind = no_edge_weights | narrow_ids | narrow_edge_weights
        np.array([kind, mesh.num_vertices, len(mesh.neighbours)], dtype=np.uint64).tofile(out)
        (base + mesh.offsets.astype(np.uint64) * np.uint64(id_type.itemsize)).tofile(out)
        mesh.neighbours.astype(id_type, copy=False).tofile(out)
        mesh.vertices.tofile(out)
        if mesh.edges is not None:
            mesh.edges.tofile(out)


@contextmanager
def _folder(size: int) -> Iterator[Path]:
    """A folder for so many bytes: in memory where that has ample room, else on disk."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ample = _MEMORY_FOLDER.is_dir() and size < min(shutil.disk_usage(_MEMORY_FOLDER).free, memory) // 4
    with tempfile.TemporaryDirectory(prefix="weft-", dir=_MEMORY_FOLDER if ample else None) as folder:
        yield Path(folder)


def _library(name: str, title: str) -> ModuleType:
    if find_spec(name) is None:
        raise ConfigError(f"{title} is not installed: pip install 'weft-gnn[partition]', or choose --method random")
    return import_module(name)
