"""A graph directory at an address, and what this host has fetched of it: lists whole, features by owner.

It is kept in the user's cache, as a graph directory whose files of features have holes where shards are that nobody
needed here. A shard counts once it is whole, flushed and of the sum that the manifest names: then it has a mark.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from weft.errors import ConfigError, GraphFormatError, StorageError, WeftError
from weft.graph.directory import HEADER, MANIFEST, ArrayEntry, check_array, manifest_of, map_array, parsed_manifest
from weft.graph.hetero_features import shard_rows
from weft.graph.remote_folder import RemoteFolder
from weft.graph.storage import cache_folder, named_errors, sum_of, why_no_cache, written_beside

_MARKS = "shards"
_KEEP_SIZE_PUNCH_HOLE = 3  # of Linux's fallocate


class RemoteGraph:
    """A graph at an address, whose manifest is sound; `path`: this host's copy."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        """`timeout`: seconds that an answer may take."""
        cache = cache_folder()
        if cache is None:
            raise ConfigError(
                f"{url}: what is fetched must be kept somewhere, and {why_no_cache()}: name a folder in WEFT_CACHE"
            )
        self.url, self._there = url, RemoteFolder(url, timeout)
        self._text = self._there.text(MANIFEST)
        where = f"{self._there.url}/{MANIFEST}"
        self._arrays = manifest_of(parsed_manifest(self._text, where)).arrays
        owners = self._arrays["bounds"].shape[0] - 1 if "bounds" in self._arrays else 0
        if any(entry.shards is not None and len(entry.shards) != owners for entry in self._arrays.values()):
            raise GraphFormatError(f"{where} is damaged (it has not one sum for each owner): partition the graph again")
        self._tables = {name: entry for name, entry in self._arrays.items() if entry.shards is not None}
        name = re.sub(r"[^\w.-]", "_", self._there.url.rpartition("/")[2])[:40]
        key = hashlib.sha256(f"{self._there.url}\n{self._text}".encode()).hexdigest()[:16]
        self.path = cache / "graphs" / f"{name}-{key}"
        self._sound: set[tuple[str, int]] = set()  # shards that are known to be whole
        self.fetched = 0  # bytes

    @property
    def in_shards(self) -> bool:
        """Can features be fetched by owner?"""
        return bool(self._tables)

    @property
    def sums(self) -> str:
        """What the manifest says of the tables of features, behind what it says of the order of their rows."""
        entry = self._arrays.get("original_ids")
        tables = sorted((name, entry.crc32) for name, entry in self._tables.items())
        return f"shards.{0 if entry is None else entry.crc32:08x}:{zlib.crc32(repr(tables).encode()):08x}"

    def fetch_lists(self) -> None:
        """Fetch all but features that come by owner, unless they are here and of their sums; all or nothing."""
        with self._alone():
            if self._lists_are_here():
                return
            with written_beside(self.path) as beside:
                (beside / _MARKS).mkdir(parents=True)
                (beside / MANIFEST).write_text(self._text)
                for name, entry in self._arrays.items():
                    file = beside / f"{name}.npy"
                    with named_errors(file, "writing"), open(file, "wb") as out:
                        out.write(self._header(name, entry))
                        if name in self._tables:
                            out.truncate(HEADER + entry.nbytes)
                        else:
                            self._fetch(name, (0, entry.nbytes), entry.crc32, out.write)
            self._sound.clear()

    def fetch_rows(self, ranges: Sequence[tuple[int, int]] | None = None) -> None:
        """Fetch the features of owners of some ranges of vertices (None: of all), unless they are here."""
        with self._alone():
            bounds = np.array(map_array(self.path, "bounds", self._arrays["bounds"])) if self._tables else None
            typed = "features_0" in self._tables
            types = map_array(self.path, "vertex_type", self._arrays["vertex_type"]) if typed else None
            for name, rows in shard_rows(bounds, self._tables, types).items():
                assert bounds is not None
                for shard, (first, end) in enumerate(pairwise(bounds.tolist())):
                    wanted = ranges is None or any(low < end and first < high for low, high in ranges)
                    if wanted and rows[shard] < rows[shard + 1]:
                        self._fetch_shard(name, shard, (int(rows[shard]), int(rows[shard + 1])))

    def _fetch_shard(self, name: str, shard: int, rows: tuple[int, int]) -> None:
        entry, mark = self._tables[name], self.path / _MARKS / f"{name}-{shard}"
        assert entry.shards is not None
        a_row, file = entry.nbytes // entry.shape[0], self.path / f"{name}.npy"
        start, end = rows[0] * a_row, rows[1] * a_row
        if (name, shard) in self._sound or start == end:
            return
        with named_errors(file, "writing"):
            if not mark.exists() or sum_of(file, HEADER + start, HEADER + end) != entry.shards[shard]:
                mark.unlink(missing_ok=True)
                try:
                    self._fill(file, name, (start, end), entry.shards[shard])
                except BaseException:
                    _give_back(file, HEADER + start, end - start)
                    raise
                mark.touch()
        self._sound.add((name, shard))

    def _fill(self, file: Path, name: str, span: tuple[int, int], wanted: int) -> None:
        with open(file, "r+b") as out:
            os.posix_fallocate(out.fileno(), HEADER + span[0], span[1] - span[0])  # or the disk is full now
            out.seek(HEADER + span[0])
            self._fetch(name, span, wanted, out.write)
            out.flush()
            os.fsync(out.fileno())

    def _fetch(self, name: str, span: tuple[int, int], wanted: int, write: Callable[[bytes], object]) -> None:
        """Bytes of an array's data, which must have a sum."""
        crc = 0
        for piece in self._there.pieces(f"{name}.npy", HEADER + span[0], HEADER + span[1]):
            crc = zlib.crc32(piece, crc)
            self.fetched += len(piece)
            write(piece)
        if crc != wanted:
            raise GraphFormatError(
                f"{self._there.url}/{name}.npy is damaged, or was on the way: its checksum differs from the manifest's; "
                f"try again, or copy the graph there again"
            )

    def _header(self, name: str, entry: ArrayEntry) -> bytes:
        header = b"".join(self._there.pieces(f"{name}.npy", 0, HEADER))
        if header != entry.header:
            raise GraphFormatError(
                f"{self._there.url}/{name}.npy is damaged: its header does not have the shape and type that the manifest "
                f"names; copy the graph there again"
            )
        return header

    def _lists_are_here(self) -> bool:
        """Are they whole, and of the manifest's sums?"""
        try:
            for name, entry in self._arrays.items():
                map_array(self.path, name, entry)
                if name not in self._tables:
                    check_array(self.path, name, entry)
        except WeftError:
            return False
        return (self.path / _MARKS).is_dir()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process of this host fetches this graph meanwhile."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            with named_errors(lock, "writing"):
                lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = open(lock, "w")  # noqa: SIM115
                fcntl.flock(file, fcntl.LOCK_EX)
        except StorageError as error:
            raise StorageError(f"{error}; or name another folder in WEFT_CACHE") from None
        with file:
            yield


def _give_back(file: Path, start: int, count: int) -> None:
    """Make a hole in a file, where the system can."""
    with suppress(AttributeError), open(file, "r+b") as out:
        fallocate = ctypes.CDLL(None).fallocate
        fallocate(out.fileno(), _KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(count))
