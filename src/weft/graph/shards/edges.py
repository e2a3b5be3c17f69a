"""Pieces of the edge table: their ends numbered, the edges sent to ranges of destinations, and lists made there."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from weft import _kernels
from weft.errors import InputError
from weft.graph.columns import id_column, numbers_of
from weft.graph.csr import id_type, running_sum
from weft.graph.edges_to_csr import EdgeChunk, lists_of
from weft.graph.shards.names import sort_names
from weft.graph.shards.request import Job, Layout
from weft.graph.shards.work import TaskResult, Work, by_section, read_section, write_sections
from weft.graph.tables import edge_ends, edge_kinds, ends_in_order, highest_end
from weft.graph.values import check_weights, checked_types
from weft.graph.vertex_names import bytes_of_ids, look_up

_OPTIONAL = (("weight", np.float32), ("type", np.int32))


def highest(work: Work, index: int, out: Path) -> TaskResult:
    """The highest id of a piece's edges, which are positions."""
    job = Job.of(work)
    ends = [job.src, job.dst]
    return {"highest": highest_end(job.edge_pieces[index].read(ends), ends, job.edges)}


def named(work: Work, index: int, out: Path) -> TaskResult:
    """A piece's names by bucket, and its edges between them as they are numbered here, in order of appearance."""
    job, table = Job.of(work), _kernels.NameTable()
    with open(out / "ends", "wb") as ends:
        for row, batch in job.edge_pieces[index].read([job.src, job.dst]):
            src, dst = (
                id_column(batch.column(name), f"{job.edges}: column {name}", row) for name in (job.src, job.dst)
            )
            ends.write(look_up(table, *bytes_of_ids(ends_in_order(src, dst)), add=True).astype(np.int32).data)
    offsets = np.empty(len(table) + 1, dtype=np.int64)
    table.offsets(offsets)
    sort_names(np.frombuffer(table.text(), np.uint8), offsets, job.buckets, out)
    return {}


def sent(work: Work, index: int, out: Path) -> TaskResult:
    """A piece's edges, by the range that their destination is in; of undirected ones, both ends'."""
    job, layout = Job.of(work), Layout.of(work)
    ends = _numbered_ends(work, index) if layout.by_name else _positions(job, layout, index)
    ids = np.dtype(id_type(layout.vertices))
    src, dst = ends[0].astype(ids), ends[1].astype(ids)
    bounds = layout.spans
    ranges, edge = np.searchsorted(bounds, dst, side="right") - 1, np.arange(len(dst))
    if job.options.undirected:
        back = np.searchsorted(bounds, src, side="right") - 1
        there = np.flatnonzero(back != ranges)  # else the range has the edge already, and makes both of it
        ranges, edge = np.concatenate([ranges, back[there]]), np.concatenate([edge, there])
        order = np.lexsort((edge, ranges))
        counts = np.bincount(ranges, minlength=layout.ranges)
    else:
        order, counts = by_section(ranges, layout.ranges)
    order = edge[order]
    write_sections(out / "src", src[order], counts)
    write_sections(out / "dst", dst[order], counts)
    weight, kind = _values(job, index)
    for name, values in (("weight", weight), ("type", kind)):
        if values is not None:
            write_sections(out / name, values[order], counts)
    return {}


def listed(work: Work, index: int, out: Path) -> TaskResult:
    """The neighbour lists of a range of destinations: a part of the graph's arrays."""
    job, layout = Job.of(work), Layout.of(work)
    first, end = layout.spans[index : index + 2].tolist()
    made = lists_of(partial(_edges_to, work, index), layout.vertices, (first, end), job.options, job.memory // 2)
    names, edges = ("lengths", "indices", "edge_weight", "edge_type"), 0
    for arrays in made:
        for name, values in zip(names, arrays, strict=True):
            if values is not None:
                with open(out / name, "ab") as file:
                    file.write(values.data.cast("B") if values.size else b"")
        edges += len(arrays[1])
        del arrays, values
    return {"edges": edges}


def placed(work: Work, index: int, out: Path) -> TaskResult:
    """Where a range's lists begin among all edges; and, for owners, which vertices these are."""
    job, layout = Job.of(work), Layout.of(work)
    before = sum(one["edges"] for one in work.load("lists")[:index])
    first, end = layout.spans[index : index + 2].tolist()
    lengths = work.place("lists", index) / "lengths"
    ends = before + running_sum(np.fromfile(lengths, np.int64) if lengths.exists() else [])
    (out / "indptr").write_bytes(ends[0 if index == 0 else 1 :].tobytes())
    if not job.node_pieces:
        (out / "original_ids").write_bytes(np.arange(first, end).tobytes())
    return {}


def _edges_to(work: Work, index: int) -> Iterator[EdgeChunk]:
    """The edges that pieces have sent to a range, in order."""
    job, ids = Job.of(work), id_type(Layout.of(work).vertices)
    for piece in range(len(job.edge_pieces)):
        place = work.place("sent", piece)
        some = [read_section(place / name, index, dtype) if getattr(job, name) else None for name, dtype in _OPTIONAL]
        yield EdgeChunk(read_section(place / "src", index, ids), read_section(place / "dst", index, ids), *some)


def _numbered_ends(work: Work, index: int) -> tuple[np.ndarray, np.ndarray]:
    job, place = Job.of(work), work.place("ends", index)
    local = [read_section(place / "local", bucket, np.int32) for bucket in range(job.buckets)]
    stage = "known" if job.node_pieces else "numbers"
    numbers = np.empty(sum(map(len, local)), dtype=np.int64)
    for bucket, some in enumerate(local):
        numbers[some] = read_section(work.place(stage, bucket) / "number", index, np.int64)
    ends = np.fromfile(place / "ends", np.int32)
    return numbers[ends[::2]], numbers[ends[1::2]]


def _positions(job: Job, layout: Layout, index: int) -> tuple[np.ndarray, np.ndarray]:
    piece = job.edge_pieces[index]
    src, dst = np.empty(piece.rows, dtype=np.int64), np.empty(piece.rows, dtype=np.int64)
    for row, batch in piece.read([job.src, job.dst]):
        at = slice(row - piece.first, row - piece.first + len(batch))
        src[at], dst[at] = (edge_ends(batch.column(name), None, job.edges, row, name) for name in (job.src, job.dst))
    for ends in (src, dst):
        wrong = (ends < 0) | (ends >= layout.vertices)
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise InputError(
                f"edge {piece.first + bad} goes from {src[bad]} to {dst[bad]}, but vertex ids are 0 to "
                f"{layout.vertices - 1}: correct the edge, or give the right number of vertices"
            )
    return src, dst


def _values(job: Job, index: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Weights and types of a piece's edges."""
    piece = job.edge_pieces[index]
    weight = np.empty(piece.rows, dtype=np.float32) if job.weight else None
    kind = np.empty(piece.rows, dtype=np.int32) if job.type else None
    wanted = [name for name in (job.weight, job.type) if name]
    for row, batch in piece.read(list(dict.fromkeys(wanted))) if wanted else ():
        at = slice(row - piece.first, row - piece.first + len(batch))
        if weight is not None and job.weight:
            weight[at] = numbers_of(batch.column(job.weight), f"{job.edges}: column {job.weight}")
        if kind is not None and job.type:
            kind[at] = checked_types("edge", edge_kinds(batch.column(job.type), f"{job.edges}: column {job.type}"))
    if weight is not None:
        check_weights(weight, piece.first)
    return weight, kind
