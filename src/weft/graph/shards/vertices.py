"""Pieces of the vertex table: looked at for ids, owners and classes first, then written as the arrays of a graph."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from weft.graph.checks import check_finite
from weft.graph.columns import cast, id_column, labels_of, owners_of, splits_of, vertex_feature_column, words_of
from weft.graph.csr import ranges, running_sum
from weft.graph.shards.names import sort_names, write_names
from weft.graph.shards.pieces import Piece
from weft.graph.shards.request import Job, Layout
from weft.graph.shards.work import TaskResult, Work, by_section, write_sections
from weft.graph.tables import feature_rows
from weft.graph.values import clean_labels, clean_split
from weft.graph.vertex_names import bytes_of_ids


def looked_at(work: Work, index: int, out: Path) -> TaskResult:
    """What must be known of all pieces before any is written: owners' counts, classes, and whether ids are positions."""
    job = Job.of(work)
    piece, label = job.node_pieces[index], job.labels[0] if job.label_words else None
    counts, words = np.zeros(job.groups, dtype=np.int64), set[str]()
    positions, size = not job.textual, 0
    for row, batch in piece.read([name for name in (job.id, label, job.owner) if name]):
        column = id_column(batch.column(job.id), f"{job.nodes}: column {job.id}", row)
        _, offsets = bytes_of_ids(column)
        size += int(offsets[-1] - offsets[0])
        positions = positions and np.array_equal(column.to_numpy(), np.arange(row, row + len(column)))
        if label:
            words.update(words_of(cast(batch.column(label), pa.string(), f"{job.nodes}: column {label}")))
        counts += np.bincount(_owners(job, batch), minlength=len(counts))
    return {"counts": counts.tolist(), "words": sorted(words), "positions": bool(positions), "bytes": size}


def written(work: Work, index: int, out: Path) -> TaskResult:
    """A piece's rows as arrays, those of an owner together; where ids are names, these by bucket with their numbers."""
    job, layout, piece = Job.of(work), Layout.of(work), Job.of(work).node_pieces[index]
    rows = _Rows(job, layout, piece)
    order, counts = by_section(rows.owners, job.groups)
    if rows.features is not None:
        _write(out / "features", rows.features, order)
    classes = 0
    if job.labels:
        values, names = labels_of(pa.Table.from_batches(rows.values), job.labels, str(job.nodes), layout.classes)
        labels, classes = clean_labels(values, names)
        assert labels is not None
        _write(out / "labels", labels, order)
    if job.split:
        split = clean_split(splits_of(pa.Table.from_batches(rows.values).column(job.split), str(job.nodes)))
        assert split is not None
        _write(out / "split", split, order)
    _write(out / "original_ids", np.arange(piece.first, piece.first + piece.rows), order)
    if layout.by_name or layout.keeps_names:
        number = np.empty(piece.rows, dtype=np.int64)
        number[order] = ranges(np.array(layout.runs[index]), counts)
        _write_names(work, index, rows, number, out)
    width = 0 if rows.features is None else rows.features.shape[1]
    return {"counts": counts.tolist(), "classes": classes, "width": width}


class _Rows:
    """The rows of a piece, a batch after the other."""

    def __init__(self, job: Job, layout: Layout, piece: Piece) -> None:
        self._job, self._piece = job, piece
        self.owners = np.zeros(piece.rows, dtype=np.int32)
        self.features: np.ndarray | None = None
        self._widths: dict[str, int] = {}  # of the columns of features
        self.values: list[pa.RecordBatch] = []  # labels and split
        self.texts: list[np.ndarray] = []  # the bytes of names
        self.lengths: list[np.ndarray] = []  # and how many each has
        learned = [*job.labels, *([job.split] if job.split else [])]
        wanted = [job.id, *job.features, *learned, *([job.owner] if job.owner else [])]
        for row, batch in piece.read(list(dict.fromkeys(wanted))):
            here = slice(row - piece.first, row - piece.first + len(batch))
            self.owners[here] = _owners(job, batch)
            if job.features:
                self._add_features(row, here, batch)
            self.values.append(batch.select(learned))
            if layout.by_name or layout.keeps_names:
                data, offsets = bytes_of_ids(id_column(batch.column(job.id), f"{job.nodes}: column {job.id}", row))
                self.texts.append(data[offsets[0] : offsets[-1]])
                self.lengths.append(np.diff(offsets))

    def _add_features(self, row: int, here: slice, batch: pa.RecordBatch) -> None:
        job = self._job
        values = feature_rows(batch, row, job.features, str(job.nodes), vertex_feature_column, self._widths)
        if self.features is None:
            self.features = np.empty((self._piece.rows, values.shape[1]), dtype=job.feature_dtype)
        with np.errstate(over="ignore"):  # too large is infinite, and that is refused
            self.features[here] = values
        if self.features.dtype != values.dtype:
            check_finite(self.features[here], row)


def _owners(job: Job, batch: pa.RecordBatch) -> np.ndarray:
    if job.owner is None:
        return np.zeros(len(batch), dtype=np.int32)
    return owners_of(batch.column(job.owner), f"{job.nodes}: column {job.owner}", job.groups)


def _write(file: Path, values: np.ndarray, order: np.ndarray) -> None:
    """Rows in an order, some at a time."""
    step = max(1, (1 << 24) // max(1, values[:1].nbytes))
    with open(file, "wb") as out:
        for first in range(0, len(order), step):
            some = values[order[first : first + step]]
            out.write(some.data.cast("B") if some.size else b"")


def _write_names(work: Work, index: int, rows: _Rows, number: np.ndarray, out: Path) -> None:
    job, layout = Job.of(work), Layout.of(work)
    data, offsets = np.concatenate(rows.texts), running_sum(np.concatenate(rows.lengths))
    if layout.keeps_names:
        before = sum(one["bytes"] for one in work.load("looked")[:index])
        write_names(job, data, offsets, before, out, last=index == len(job.node_pieces) - 1)
    if layout.by_name:
        order, counts = sort_names(data, offsets, job.buckets, out)
        write_sections(out / "number", number[order], counts)
