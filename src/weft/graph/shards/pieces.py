"""Parquet tables wherever fsspec reaches, and the pieces of them that tasks read: some rows, whatever the row groups."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet

from weft.errors import InputError, StorageError, reason_of
from weft.graph.remote_folder import RemoteFile

_SUFFIXES = (".parquet", ".pq")
_LOCAL = "file://"
_BATCH = 1 << 16  # rows in memory as Arrow has them
_SAMPLE = 1 << 12  # rows by which the size of all is estimated
# Of what file systems tell of a file, what changes with what it holds: of disks and Google's store, S3, Azure's, HTTP.
_CHANGES = (
    *("mtime", "ETag", "LastModified", "etag", "last_modified", "Last-Modified", "Content-MD5", "Digest"),
    *("modify", "modificationTime", "sha"),  # FTP, WebHDFS, GitHub
)


@dataclass(frozen=True)
class Piece:
    """Some rows of a file: of a range of its row groups, so many after so many others."""

    url: str
    groups: tuple[int, int]
    skip: int
    rows: int
    first: int  # among all rows of the table

    def read(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of some columns, a batch at a time, each with the number of its first row."""
        at, end = 0, self.skip + self.rows
        with _errors(self.url), _opened(self.url) as file:
            for batch in file.iter_batches(_BATCH, row_groups=list(range(*self.groups)), columns=list(columns)):
                low, high = max(self.skip, at), min(end, at + len(batch))
                if low < high:
                    yield self.first + low - self.skip, batch.slice(low - at, high - low)
                at += len(batch)
                if at >= end:
                    return


class ParquetTable:
    """A table of one file, or of all Parquet files of a folder in the order of their names."""

    def __init__(self, url: str) -> None:
        self.url, self.files = url, _files(url)
        self._groups: list[list[int]] = []  # the rows of each file's row groups
        schema: pa.Schema | None = None
        for file in self.files:
            with _errors(file), _opened(file) as parquet:
                found = parquet.schema_arrow.remove_metadata()
                if schema is not None and found != schema:
                    raise InputError(
                        f"{file} has other columns or types than {self.files[0]}: a table has the same in all"
                    )
                schema = found
                meta = parquet.metadata
                self._groups.append([meta.row_group(group).num_rows for group in range(meta.num_row_groups)])
        assert schema is not None
        self.schema = schema
        self.rows = sum(map(sum, self._groups))

    def identity(self) -> list[Any] | None:
        """What differs where the files do; None: of one of them nothing is told but its size, which others have, too."""
        told = [_info(file) for file in self.files]
        if not all(any(info.get(key) for key in _CHANGES) for info in told):
            return None
        pairs = zip(self.files, told, strict=True)
        return [[file, *(str(info.get(key)) for key in ("size", *_CHANGES))] for file, info in pairs]

    def bytes_a_row(self, columns: Sequence[str]) -> float:
        """About how much memory a row of these columns takes, by the first ones."""
        for file in self.files:
            with _errors(file), _opened(file) as parquet:
                for batch in parquet.iter_batches(_SAMPLE, columns=list(columns)):
                    return max(1.0, batch.nbytes / max(1, len(batch)))
        return 1.0

    def pieces(self, rows: int) -> list[Piece]:
        """All rows in order, at most so many in a piece: row groups together, or parts of one."""
        found: list[Piece] = []
        first = 0
        for url, groups in zip(self.files, self._groups, strict=True):
            begin = 0
            while begin < len(groups):
                end, count = begin + 1, groups[begin]
                while end < len(groups) and count + groups[end] <= rows:
                    count += groups[end]
                    end += 1
                for skip in range(0, count, rows):
                    found.append(Piece(url, (begin, end), skip, min(rows, count - skip), first + skip))
                begin, first = end, first + count
        return found


def _files(url: str) -> list[str]:
    with _errors(url):
        system, path = fsspec.url_to_fs(url)
        if system.isdir(path):
            there, inside = system.ls(path, detail=True), f"{path.rstrip('/')}/"
            names = sorted(one["name"] for one in there if one["name"].lower().endswith(_SUFFIXES))
            if not names:
                raise InputError(f"{url} holds no .parquet files: name a table, or a folder of such")
            folders = [one["name"] for one in there if one["type"] == "directory" and one["name"].startswith(inside)]
            if others := [name for name in (name.removeprefix(inside) for name in folders) if name[:1] not in "_."]:
                raise InputError(
                    f"{url} holds a folder {others[0].rstrip('/')} beside its files, which is not read: put all files into "
                    f"one folder, or move what is no part of the table"
                )
            return [system.unstrip_protocol(name) for name in names]
        if not url.lower().endswith(_SUFFIXES):
            if not system.exists(path):  # HTTP says so of what it does not give, too
                raise StorageError(f"there is no table at {url}: check the path")
            raise InputError(f"{url} is no Parquet: on Ray tables are read piece by piece, which only Parquet allows")
    return [system.unstrip_protocol(path)]


def _info(url: str) -> dict[str, Any]:
    with _errors(url):
        system, path = fsspec.url_to_fs(url)
        return dict(system.info(path))


def _opened(url: str) -> pa.parquet.ParquetFile:
    # Arrow reads files by itself, without Python between
    where = url.removeprefix(_LOCAL) if url.startswith(_LOCAL) else RemoteFile(url)
    return pa.parquet.ParquetFile(where, pre_buffer=False)


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """What Arrow and file systems refuse, in one sentence."""
    try:
        yield
    except (InputError, StorageError):
        raise
    except (pa.ArrowException, UnicodeError, EOFError) as error:
        raise InputError(
            f"{url} can't be read as a table ({reason_of(error)}): repair the file, or export it again"
        ) from None
    except (ValueError, ImportError) as error:  # a protocol that is not known, or whose package is missing
        raise StorageError(
            f"{url} can't be reached ({reason_of(error)}): check the address, or install what it needs"
        ) from None
    except FileNotFoundError:
        raise StorageError(f"there is no table at {url}: check the path") from None
    except Exception as error:  # of a file system's own library: there is no common class
        raise StorageError(
            f"reading {url} failed ({type(error).__name__}: {reason_of(error)}): check it, and try again"
        ) from None
