"""The parts that tasks have written, as the files of a graph directory.

Each task copies a region that begins and ends with pages: hosts that write to one file on a network file system never share
a page.
"""

import bisect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.graph.csr import id_type, running_sum
from weft.graph.directory import HEADER, ArrayEntry
from weft.graph.shard_sums import ShardSums, ends_of, joined_sum, sums_of_shards
from weft.graph.shards.request import Job, Layout
from weft.graph.shards.work import TaskResult, Work

_REGION = 64 << 20  # bytes
_CHUNK = 1 << 22
_BY_RANGE = ("indices", "edge_weight", "edge_type")
_IMPORTED = ("indices", "edge_weight", "edge_type", "indptr", "features", "labels", "split")  # in `weft import`'s order
_PARTITIONED = ("indptr", "edge_weight", "edge_type", "indices", "features", "labels", "split", "original_ids")
_NAMES = ("names", "names_text", "names_offsets")

FilePart = tuple[str, int, int]  # a file in the job's folder, where in it, and how many bytes


@dataclass(frozen=True)
class _Array:
    """An array of the graph to be: its shape and type, and what it is made of, in order."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    parts: Sequence[FilePart]
    ends: Sequence[int] | None = None  # of each owner's shard, in bytes

    def entry(self, crc: int = 0, shards: tuple[int, ...] | None = None) -> ArrayEntry:
        return ArrayEntry(self.shape, self.dtype, crc, shards)

    @property
    def regions(self) -> int:
        return -(-(HEADER + self.entry().nbytes) // _REGION)


def prepared(work: Work, folder: Path) -> int:
    """Make the files that regions are copied into, as long as they will be; how many regions they have."""
    order = _IMPORTED if Job.of(work).parts is None else _PARTITIONED
    shapes = _shapes(work)
    arrays = [_made(work, name, *shapes[name]) for name in (*order, *_NAMES) if name in shapes]
    work.save("arrays", {"folder": str(folder), "arrays": [vars(array) for array in arrays]})
    for array in arrays:
        with open(folder / f"{array.name}.npy", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, HEADER + array.entry().nbytes)  # or the disk is full now
    return sum(array.regions for array in arrays)


def _shapes(work: Work) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and type of each array that the graph will have."""
    job, layout = Job.of(work), Layout.of(work)
    vertices, edges = layout.vertices, sum(one["edges"] for one in work.load("lists"))
    written = work.load("vertices") or []
    classes, width = (max((one[name] for one in written), default=0) for name in ("classes", "width"))
    there, several = bool(job.edge_pieces), len(job.labels) > 1
    labels: tuple[tuple[int, ...], str] = ((vertices, classes), "|u1") if several else ((vertices,), "<i4")
    shapes: dict[str, tuple[bool, tuple[int, ...], str]] = {
        "indptr": (True, (vertices + 1,), "<i8"),
        "indices": (True, (edges,), np.dtype(id_type(vertices)).str),
        "edge_weight": (there and job.weight is not None, (edges,), "<f4"),
        "edge_type": (there and job.type is not None, (edges,), "<i4"),
        "features": (bool(job.features), (vertices, width), np.dtype(job.feature_dtype).str),
        "labels": (bool(job.labels), *labels),
        "split": (job.split is not None, (vertices,), "|u1"),
        "original_ids": (job.parts is not None, (vertices,), "<i8"),
        "names": (layout.keeps_names and not job.textual, (vertices,), "<i8"),
        "names_offsets": (layout.keeps_names and job.textual, (vertices + 1,), "<i8"),
        "names_text": (layout.keeps_names and job.textual, (0,), "|u1"),  # as long as its parts are together
    }
    return {name: (shape, dtype) for name, (is_there, shape, dtype) in shapes.items() if is_there}


def _made(work: Work, name: str, shape: tuple[int, ...], dtype: str) -> _Array:
    """An array, of what tasks have made for it."""
    row = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
    parts, bounds = _parts(work, name, row), Layout.of(work).bounds
    size = sum(size for _, _, size in parts)
    ends = ends_of(np.array(bounds), row) if name == "features" and bounds is not None else None
    made = _Array(name, (size,) if name == "names_text" else shape, dtype, parts, ends)
    assert size == made.entry().nbytes, name
    return made


def _parts(work: Work, name: str, row: int) -> list[FilePart]:
    job, layout = Job.of(work), Layout.of(work)
    if name in _BY_RANGE:
        return _files(work, "lists", layout.ranges, name)
    if name == "indptr" or (name == "original_ids" and not job.node_pieces):
        return _files(work, "places", layout.ranges, name)
    if not job.node_pieces:
        return _files(work, "ranks", len(job.edge_pieces), name)
    if name in _NAMES:
        return _files(work, "vertices", len(job.node_pieces), name)
    return _runs(work, layout, name, row)


def _files(work: Work, stage: str, count: int, name: str) -> list[FilePart]:
    """The files of all tasks of a stage, one after another."""
    files = [work.place(stage, index) / name for index in range(count)]
    return [(str(f.relative_to(work.folder)), 0, f.stat().st_size) for f in files if f.exists()]


def _runs(work: Work, layout: Layout, name: str, row: int) -> list[FilePart]:
    """The rows of pieces of vertices, by owner and then in order."""
    found: list[tuple[int, FilePart]] = []
    for index, result in enumerate(work.load("vertices")):
        begins = running_sum(result["counts"]).tolist()
        for owner, count in enumerate(result["counts"]):
            if count:
                first = layout.runs[index][owner]
                found.append((first, (f"vertices/{index}/{name}", begins[owner] * row, count * row)))
    return [part for _, part in sorted(found)]


def copied(work: Work, index: int, out: Path) -> TaskResult:
    """Copy a region of an array, and tell the sums of its shards there."""
    folder, array, region = _region(work, index)
    low, high = max(0, region * _REGION - HEADER), min(array.entry().nbytes, (region + 1) * _REGION - HEADER)
    sums = ShardSums(array.ends, low)
    with open(folder / f"{array.name}.npy", "r+b") as file:
        if region == 0:
            file.write(array.entry().header)
        file.seek(HEADER + low)
        for data in _read(work.folder, array, low, high):
            sums.add(memoryview(data))
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"sums": [[shard, *sum_and_bytes] for shard, sum_and_bytes in sums.sums.items()]}


def entries_of(work: Work, copies: Sequence[TaskResult]) -> dict[str, ArrayEntry]:
    """What the manifest says of the arrays, once all regions are copied."""
    found, first = {}, 0
    for array in _kept(work)[1]:
        mine = copies[first : first + array.regions]
        first += array.regions
        sums = [(shard, (crc, count)) for one in mine for shard, crc, count in one["sums"]]
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for shard, of_region in sums:
            by_shard.setdefault(shard, []).append(of_region)
        joined = {shard: (joined_sum(some), 0) for shard, some in by_shard.items()}
        shards = None if array.ends is None else sums_of_shards(array.ends, joined)
        found[array.name] = array.entry(joined_sum([of_region for _, of_region in sums]), shards)
    return found


def _kept(work: Work) -> tuple[Path, list[_Array]]:
    """The folder that arrays are copied into, and the arrays."""
    kept = work.load("arrays")
    return Path(kept["folder"]), [_Array(**one | {"shape": tuple(one["shape"])}) for one in kept["arrays"]]


def _region(work: Work, index: int) -> tuple[Path, _Array, int]:
    folder, arrays = _kept(work)
    for array in arrays:
        if index < array.regions:
            return folder, array, index
        index -= array.regions
    raise AssertionError(index)


@lru_cache(maxsize=4)
def _begins(sizes: tuple[int, ...]) -> list[int]:
    return running_sum(sizes).tolist()


def _read(folder: Path, array: _Array, low: int, high: int) -> Any:
    """The bytes of an array from `low` to `high`, some at a time."""
    begins = _begins(tuple(size for _, _, size in array.parts))
    part = bisect.bisect_right(begins, low) - 1
    while low < high:
        name, offset, _ = array.parts[part]
        with open(folder / name, "rb", buffering=0) as file:
            file.seek(offset + low - begins[part])
            end = min(high, begins[part + 1])
            while low < end:
                data = file.read(min(_CHUNK, end - low))
                if not data:
                    raise OSError(f"{folder / name} is shorter than it was")
                yield data
                low += len(data)
        part += 1
