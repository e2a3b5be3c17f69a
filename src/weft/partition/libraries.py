"""Allocations by other people's partitioners, which are installed apart: METIS, KaMinPar, Mt-KaHyPar."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from weft.errors import ConfigError
from weft.graph import Graph, vertex_ranges
from weft.partition.aim import Aim
from weft.partition.aim import limits as aim_limits
from weft.partition.mesh import Mesh, mesh_of

_SEEDS = 0x7FFFFFFF  # libraries take 31 bits
_CHUNK = 1 << 22  # edges at a time
_LARGE = 1 << 21  # edges, from where KaMinPar works on a compressed graph and in its fast way: half the memory, as good
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
    return weights if total <= most else np.maximum(1, np.floor(weights * (room / total))).astype(np.int64)


def kaminpar(graph: Graph, aim: Aim) -> np.ndarray:
    """KaMinPar: its default way, or its fast one for large graphs.

    On one thread the same seed gives the same allocation; on more, each run gives another one, as good.
    """
    return ForKaminpar.load(graph, aim).owners(aim)


@dataclass(frozen=True)
class ForKaminpar:
    """A graph as KaMinPar holds it, to be allocated as often as wanted."""

    library: ModuleType
    loaded: Any
    weights: np.ndarray  # [vertices] int64: what each weighs in the balance
    large: bool

    @classmethod
    def load(cls, graph: Graph, aim: Aim) -> Self:
        """The mesh of a graph in KaMinPar's hands."""
        library = _library("kaminpar", "KaMinPar")
        mesh = mesh_of(graph, aim)
        weights, large = mesh.vertices, mesh.num_edges > _LARGE
        with _folder(8 * len(mesh.offsets) + 16 * len(mesh.neighbours)) as folder:
            file = folder / "graph.parhip"
            write_parhip(file, mesh)
            del mesh
            loaded = library.load_graph(str(file), library.GraphFileFormat.PARHIP, compress=large)
            file.unlink()
        return cls(library, loaded, weights, large)

    def owners(self, aim: Aim) -> np.ndarray:
        """The part of each vertex, [vertices] int32."""
        library, limits = self.library, most_a_part(self.weights, aim)
        library.reseed(aim.seed & _SEEDS)
        instance = library.KaMinPar(aim.threads, library.fast_context() if self.large else library.default_context())
        if limits is None:
            owners = instance.compute_partition(self.loaded, aim.parts, aim.weighing.imbalance)
        else:
            owners = instance.compute_partition(self.loaded, max_block_weights=limits)
        return np.asarray(owners, dtype=np.int32)


def most_a_part(weights: np.ndarray, aim: Aim) -> list[int] | None:
    """What each part may weigh at most; None: equal parts."""
    if aim.shares is None:
        return None
    return np.ceil(aim_limits(weights, aim.targets, aim.weighing.imbalance)).astype(int).tolist()


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
        mesh.neighbours.view(id_type).tofile(out)
        mesh.vertices.tofile(out)
        if mesh.edges is not None:
            mesh.edges.tofile(out)


def mtkahypar(graph: Graph, aim: Aim) -> np.ndarray:
    """Mt-KaHyPar's deterministic preset: the same seed gives the same allocation.

    It runs on as many threads as its first call in a process asked for.
    """
    mesh = _narrow(mesh_of(graph, aim))
    library, start, context = _mtkahypar(mesh.vertices, aim)
    with _folder(24 * mesh.num_vertices + 16 * len(mesh.neighbours)) as folder:
        file = folder / "graph.metis"
        write_metis(file, mesh)
        del mesh
        loaded = start.graph_from_file(str(file), context, library.FileFormat.METIS)
        file.unlink()
    return np.asarray(loaded.partition(context).get_partition(), dtype=np.int32)


def _mtkahypar(weights: np.ndarray, aim: Aim) -> tuple[ModuleType, Any, Any]:
    """The library, what makes its graphs, and what it is told."""
    library = _library("mtkahypar", "Mt-KaHyPar")
    start = library.initialize(aim.threads, print_warnings=False)
    library.set_seed(aim.seed & _SEEDS)
    context = start.context_from_preset(library.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(aim.parts, aim.weighing.imbalance, library.Objective.CUT)
    context.logging = False
    limits = most_a_part(weights, aim)
    if limits is not None:
        context.set_individual_target_block_weights(limits)
    return library, start, context


def _narrow(mesh: Mesh) -> Mesh:
    """The mesh with weights whose sums fit 32 bits."""
    edges = None if mesh.edges is None else _fitting(mesh.edges, _SEEDS // 2)
    return replace(mesh, edges=edges, vertices=_fitting(mesh.vertices, _SEEDS // 2))


def write_metis(file: Path, mesh: Mesh) -> None:
    """METIS's text format: a line a vertex, with its weight and its neighbours (from 1 on), each with its edge's weight."""
    width = 1 if mesh.edges is None else 2
    with open(file, "w") as out:
        out.write(f"{mesh.num_vertices} {mesh.num_edges} {'010' if mesh.edges is None else '011'}\n")
        for first, end in vertex_ranges(mesh.offsets, _CHUNK):
            here = slice(mesh.offsets[first], mesh.offsets[end])
            words = mesh.neighbours[here].astype(np.int64) + 1
            if mesh.edges is not None:
                words = np.stack([words, mesh.edges[here]], axis=1).ravel()
            begins = width * (mesh.offsets[first : end + 1] - mesh.offsets[first])
            words = np.insert(words, begins[:-1], mesh.vertices[first:end])
            out.write(_lines(words, begins + np.arange(end - first + 1)))


def _lines(words: np.ndarray, bounds: np.ndarray) -> str:
    """Numbers as text: those between two bounds on a line."""
    from pyarrow import compute  # only here, as it takes long to load

    lines = compute.binary_join(
        pa.ListArray.from_arrays(bounds.astype(np.int32), pa.array(words).cast(pa.string())), " "
    )
    return compute.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py() + "\n"


@contextmanager
def _folder(size: int) -> Iterator[Path]:
    """A folder for so many bytes: in memory where that has ample room, else on disk."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ample = _MEMORY_FOLDER.is_dir() and size < min(shutil.disk_usage(_MEMORY_FOLDER).free, memory) // 4
    prefix = f"weft-{os.getpid()}-"  # so that one can see whose memory it is
    with tempfile.TemporaryDirectory(prefix=prefix, dir=_MEMORY_FOLDER if ample else None) as folder:
        yield Path(folder)


def _library(name: str, title: str) -> ModuleType:
    if find_spec(name) is None:
        package = name if name == "mtkahypar" else "'weft-gnn[partition]'"
        raise ConfigError(f"{title} is not installed: pip install {package}, or choose --method random")
    return import_module(name)
