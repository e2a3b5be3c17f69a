"""Ids of any kind to numbers, in order of appearance, by tables that each hold the names of one bucket.

Pieces sort their names by bucket; a bucket's table sees those of all pieces, in order. If there is a table of vertices, its
rows say the numbers. Otherwise a name is numbered where it comes first: buckets say which these are, and pieces how many.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from weft import _kernels
from weft.errors import InputError
from weft.graph.csr import running_sum
from weft.graph.shards.request import Job
from weft.graph.shards.work import TaskResult, Work, by_section, read_section, write_sections
from weft.graph.vertex_names import look_up, text_column, text_of
from weft.keys import mix64_array

_HASHED = 1 << 16  # names at a time
_KEY = 0x5EED


def sort_names(data: np.ndarray, offsets: np.ndarray, buckets: int, out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write names by bucket, with their lengths; the order that they come in, and how many each bucket has."""
    order, counts = by_section(_buckets(data, offsets, buckets), buckets)
    lengths = np.diff(offsets)[order]
    ends = running_sum(lengths)[running_sum(counts)]
    text, places = taken(data, offsets, order)
    write_sections(out / "text", text[places[0] : places[-1]], np.diff(ends))
    write_sections(out / "lengths", lengths.astype(np.int32), counts)
    write_sections(out / "local", order.astype(np.int32), counts)
    return order, counts


def taken(data: np.ndarray, offsets: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some of the names, in some order."""
    return text_of(text_column(data, offsets).take(pa.array(order)))


def known_names(work: Work, bucket: int, out: Path) -> TaskResult:
    """Where there is a table of vertices: its names of this bucket, and the numbers of those that pieces of edges have."""
    job, table = Job.of(work), _kernels.NameTable()
    numbers: list[np.ndarray] = []
    twice = -1
    for piece in range(len(job.node_pieces)):
        place, known = work.place("vertices", piece), len(table)
        found = look_up(table, *_section(place, bucket), add=True)
        numbers.append(read_section(place / "number", bucket, np.int64))
        again = np.flatnonzero(found != known + np.arange(len(found)))
        if len(again):
            rows = job.node_pieces[piece].first + read_section(place / "local", bucket, np.int32).astype(np.int64)
            twice = int(rows[again].min())
            break
    return {
        "twice": twice,
        "missing": [] if twice >= 0 else _numbered(work, table, np.concatenate(numbers), bucket, out),
    }


def _numbered(work: Work, table: _kernels.NameTable, numbers: np.ndarray, bucket: int, out: Path) -> list[int]:
    """Write the numbers of each piece's names; the piece and the first of its names that is not known."""
    found, counts = [], []
    missing: list[int] = []
    for piece in range(len(Job.of(work).edge_pieces)):
        place = work.place("ends", piece)
        at = look_up(table, *_section(place, bucket), add=False)
        if not missing and (at < 0).any():
            missing = [piece, int(read_section(place / "local", bucket, np.int32)[at < 0].min())]
        found.append(numbers[at] if len(numbers) else at)
        counts.append(len(at))
    write_sections(out / "number", _joined(found), counts)
    return missing


def first_names(work: Work, bucket: int, out: Path) -> TaskResult:
    """Which names of this bucket come first in which piece of the edges, and how many bytes they have."""
    table, found, firsts = _kernels.NameTable(), [], []
    bytes_: list[int] = []
    for piece in range(len(Job.of(work).edge_pieces)):
        place, known = work.place("ends", piece), len(table)
        data, offsets = _section(place, bucket)
        found.append(look_up(table, data, offsets, add=True))
        new = found[-1] >= known
        firsts.append(read_section(place / "local", bucket, np.int32)[new])
        bytes_.append(int(np.diff(offsets)[new].sum()))
    write_sections(out / "found", _joined(found), [len(some) for some in found])
    write_sections(out / "local", _joined(firsts, np.int32), [len(some) for some in firsts])
    return {"counts": [len(some) for some in firsts], "bytes": bytes_}


def ranked_names(work: Work, piece: int, out: Path) -> TaskResult:
    """The numbers of the names that come first in this piece, by bucket, and these names in order."""
    job, place = Job.of(work), work.place("ends", piece)
    counts = np.array([one["counts"] for one in work.load("firsts")], dtype=np.int64)  # [buckets, pieces]
    sizes = np.array([one["bytes"] for one in work.load("firsts")], dtype=np.int64)
    local, texts, lengths = [], [], []
    for bucket in range(job.buckets):
        local.append(read_section(work.place("firsts", bucket) / "local", piece, np.int32))
        data, offsets = _section(place, bucket)
        is_first = np.isin(read_section(place / "local", bucket, np.int32), local[-1], assume_unique=True)
        text, places = taken(data, offsets, np.flatnonzero(is_first))
        texts.append(text[places[0] : places[-1]])
        lengths.append(np.diff(places))
    order = np.argsort(_joined(local, np.int32))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = counts[:, :piece].sum() + np.arange(len(order))
    write_sections(out / "number", number, counts[:, piece])
    data, offsets = taken(_joined(texts, np.uint8), running_sum(_joined(lengths)), order)
    write_names(job, data, offsets, int(sizes[:, :piece].sum()), out, last=piece == len(job.edge_pieces) - 1)
    return {}


def appeared_names(work: Work, bucket: int, out: Path) -> TaskResult:
    """The numbers of the names that pieces have, in order of appearance."""
    pieces, place = len(Job.of(work).edge_pieces), work.place("firsts", bucket)
    numbers = _joined(
        [read_section(work.place("ranks", piece) / "number", bucket, np.int64) for piece in range(pieces)]
    )
    found = [read_section(place / "found", piece, np.int64) for piece in range(pieces)]
    write_sections(out / "number", numbers[_joined(found)], [len(some) for some in found])
    return {}


def write_names(job: Job, data: np.ndarray, offsets: np.ndarray, before: int, out: Path, *, last: bool) -> None:
    """Names as a graph directory has them: numbers; or bytes, and where each begins after so many others' (and the end)."""
    if not job.textual:
        (out / "names").write_bytes(data[offsets[0] : offsets[-1]].tobytes())
        return
    (out / "names_text").write_bytes(data[offsets[0] : offsets[-1]].tobytes())
    places = offsets - offsets[0] + before
    (out / "names_offsets").write_bytes((places if last else places[:-1]).tobytes())


def missing_name(work: Work, piece: int, local: int) -> InputError:
    """An edge's end that no row of the vertex table has, and where it is."""
    job, place = Job.of(work), work.place("ends", piece)
    ends = np.fromfile(place / "ends", np.int32)
    at = int(np.argmax(ends == local))
    row, side = job.edge_pieces[piece].first + at // 2, (job.src, job.dst)[at % 2]
    for bucket in range(job.buckets):
        here = np.flatnonzero(read_section(place / "local", bucket, np.int32) == local)
        if len(here):
            data, offsets = _section(place, bucket)
            name = data[offsets[here[0]] : offsets[here[0] + 1]].tobytes()
            shown = repr(name.decode()) if job.textual else str(np.frombuffer(name, np.int64)[0])
    return InputError(f"{job.edges}, row {row}: {side} {shown} is not in the vertex table: add it, or drop the edge")


def _section(place: Path, bucket: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = read_section(place / "lengths", bucket, np.int32)
    return read_section(place / "text", bucket, np.uint8), running_sum(lengths)


def _joined(parts: list[np.ndarray], dtype: type = np.int64) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _buckets(data: np.ndarray, offsets: np.ndarray, buckets: int) -> np.ndarray:
    """The bucket of each name, by its bytes alone."""
    found = np.empty(len(offsets) - 1, dtype=np.int64)
    for first in range(0, len(found), _HASHED):
        places = offsets[first : first + _HASHED + 1]
        text = data[places[0] : places[-1]].astype(np.uint64)
        lengths = np.diff(places)
        within = np.arange(len(text)) - np.repeat(places[:-1] - places[0], lengths)
        terms = (text + np.uint64(1)) * mix64_array(_KEY, np.arange(int(lengths.max(initial=0))))[within]
        sums = np.add.reduceat(terms, places[:-1] - places[0])
        mixed = mix64_array(_KEY, sums.view(np.int64))
        found[first : first + len(places) - 1] = (mixed % np.uint64(buckets)).astype(np.int64)
    return found
