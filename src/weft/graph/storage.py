"""The graph directory on disk: .npy files and a manifest with their shapes, types and checksums, written all or nothing.

A directory is written under a temporary name beside its target, flushed to the disk, and renamed: a crash leaves the old
graph or none. The manifest is docs/file-formats.md's, and nothing is ever unpickled.
"""

import contextlib
import ctypes
import errno
import json
import math
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NotRequired, Self, TypedDict, cast

import numpy as np

from weft.errors import GraphFormatError, InputError, StorageError
from weft.threads import PARSING

FORMAT = "weft-graph"
VERSION = 1
MANIFEST = "manifest.json"
_HEADER = 128  # bytes of an .npy header, padded so that the shape can be filled in at the end
_CHUNK = 1 << 24  # bytes read or written at a time
_RENAME_EXCHANGE = 2


class ArrayEntry(TypedDict):
    """What a manifest says of an array."""

    shape: list[int]
    dtype: str
    crc32: int


@dataclass(frozen=True)
class Facts:
    """What a manifest says of a graph besides its arrays; names only where there are some."""

    num_classes: int = 0
    class_names: Sequence[str] | None = None
    vertex_type_names: Sequence[str] | None = None
    edge_type_names: Sequence[str] | None = None


class Manifest(TypedDict):
    """All of a manifest."""

    format: str
    version: int
    num_classes: int
    class_names: NotRequired[Sequence[str] | None]
    vertex_type_names: NotRequired[Sequence[str]]
    edge_type_names: NotRequired[Sequence[str]]
    arrays: dict[str, ArrayEntry]


@contextlib.contextmanager
def named_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left while {doing} {path}: free some, or choose another disk") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StorageError(f"no permission for {doing} {path}: check its owner and mode") from error
        if error.errno == errno.ENOENT:
            raise StorageError(f"{doing} {path} failed, for it does not exist: check the path") from error
        raise StorageError(f"{doing} {path} failed: {error.strerror or error}") from error


class ArrayWriter:
    """One .npy file, written piece by piece, its checksum computed on the way."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype | type | str, row: tuple[int, ...] = ()) -> None:
        self.name, self.dtype, self._row = name, np.dtype(dtype), row
        self._path = folder / f"{name}.npy"
        self._rows, self._crc = 0, 0
        with named_errors(self._path, "writing"):
            self.file: BinaryIO = open(self._path, "wb")  # noqa: SIM115
            self.file.write(b"\0" * _HEADER)

    def append(self, rows: np.ndarray) -> None:
        """Add rows; they must be of the right shape and convert safely to the type."""
        assert rows.shape[1:] == self._row, (self.name, rows.shape, self._row)
        piece = np.ascontiguousarray(rows, dtype=self.dtype)
        with named_errors(self._path, "writing"):
            data = piece.data.cast("B") if piece.size else memoryview(b"")
            self.file.write(data)
            self._crc = zlib.crc32(data, self._crc)
        self._rows += len(rows)

    def close(self) -> ArrayEntry:
        """Finish the header, flush to the disk, and return the manifest's entry."""
        shape = (self._rows, *self._row)
        header = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
        with named_errors(self._path, "writing"), self.file as file:
            file.seek(0)
            size = _HEADER - 10
            file.write(b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + header.ljust(size - 1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return {"shape": list(shape), "dtype": self.dtype.str, "crc32": self._crc}


class DirectoryWriter:
    """A graph directory in the making: arrays are added, and on leaving the context it appears under its name at once."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._arrays: dict[str, ArrayWriter] = {}
        self.facts = Facts()

    def check(self) -> None:
        """Refuse a place that is taken, before anything long is computed for it."""
        if self.path.exists() and not self._overwrite:
            raise StorageError(f"{self.path} exists already: choose another name, or overwrite it with --overwrite")
        if self.path.exists() and not (self.path / MANIFEST).exists() and any(self.path.iterdir()):
            raise StorageError(
                f"{self.path} is not a graph directory, so it will not be overwritten: choose another name"
            )

    def __enter__(self) -> Self:
        self.check()
        with named_errors(self.path.parent, "making a folder in"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.path)
            self.folder = self.path.parent / f".{self.path.name}.writing-{os.getpid()}"
            self.folder.mkdir()
        return self

    def array(self, name: str, dtype: np.dtype | type | str, row: tuple[int, ...] = ()) -> ArrayWriter:
        """A new array, to be appended to."""
        assert name not in self._arrays, name
        self._arrays[name] = ArrayWriter(self.folder, name, dtype, row)
        return self._arrays[name]

    def add(self, **arrays: np.ndarray | None) -> None:
        """Whole arrays, in pieces; None is left out."""
        for name, values in arrays.items():
            if values is not None:
                writer = self.array(name, values.dtype, values.shape[1:])
                rows = max(1, _CHUNK // max(1, values.dtype.itemsize * math.prod(values.shape[1:])))
                for first in range(0, len(values), rows):
                    writer.append(values[first : first + rows])

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            for writer in self._arrays.values():
                writer.file.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _finish(self) -> None:
        arrays = {name: writer.close() for name, writer in self._arrays.items()}
        facts = {name: value for name, value in asdict(self.facts).items() if value is not None}
        manifest = {"format": FORMAT, "version": VERSION, **facts, "arrays": arrays}
        with named_errors(self.path, "writing"):
            with open(self.folder / MANIFEST, "w") as file:
                json.dump(manifest, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.folder)
            if self.path.exists():
                swap_folders(self.folder, self.path)
            else:
                os.rename(self.folder, self.path)
            sync_folder(self.path.parent)


def remove_leftovers(path: Path) -> None:
    """Remove what crashed writers of this path left behind (their processes are gone)."""
    for left in path.parent.glob(f".{path.name}.writing-*"):
        pid = left.name.rsplit("-", 1)[1]
        if not pid.isdigit() or not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def swap_folders(new: Path, old: Path) -> None:
    """Swap two folders at once where the system can; elsewhere there is a moment with neither, but both are kept."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    at_here = -100
    if swap and swap(at_here, os.fsencode(new), at_here, os.fsencode(old), _RENAME_EXCHANGE) == 0:
        return
    aside = new.with_name(new.name + "-old")
    os.rename(old, aside)
    os.rename(new, old)
    os.rename(aside, new)


def read_manifest(path: Path) -> Manifest:
    """The manifest of a graph directory, checked for format and version."""
    if not path.exists():
        raise GraphFormatError(f"there is no graph at {path}: make one with `weft import` or `weft generate`")
    file = path / MANIFEST
    if not file.exists():
        raise GraphFormatError(f"{path} is not a graph directory (it has no {MANIFEST}): make one with `weft import`")
    with named_errors(file, "reading"):
        text = file.read_text(errors="replace")
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise GraphFormatError(f"{file} is damaged ({error}): import the graph again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise GraphFormatError(f"{file} is not the manifest of a Weft graph: import the graph again")
    if manifest.get("version") != VERSION:
        raise GraphFormatError(
            f"{path} has version {manifest.get('version')} of the graph format, this Weft reads version {VERSION}: "
            f"upgrade Weft, or import the graph again with this one"
        )
    return cast(Manifest, manifest)


def map_array(path: Path, name: str, entry: ArrayEntry) -> np.ndarray:
    """An array of a directory, memory-mapped, its size and header checked against the manifest."""
    file = path / f"{name}.npy"
    expected = _HEADER + int(np.prod(entry["shape"], dtype=np.int64)) * np.dtype(entry["dtype"]).itemsize
    with named_errors(file, "reading"):
        size = file.stat().st_size
        if size != expected:
            raise GraphFormatError(
                f"{file} has {size} bytes in place of {expected}: it is truncated or of another graph; import again"
            )
        try:
            with PARSING:
                array = np.load(file, mmap_mode="r" if expected > _HEADER else None, allow_pickle=False)
        except ValueError as error:
            raise GraphFormatError(f"{file} is damaged ({error}): import the graph again") from None
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise GraphFormatError(
            f"{file} does not have the shape and type that the manifest names: import the graph again"
        )
    return array


def check_array(path: Path, name: str, entry: ArrayEntry) -> None:
    """Read an array's file whole and compare its checksum."""
    file, crc = path / f"{name}.npy", 0
    with named_errors(file, "reading"), open(file, "rb") as stream:
        stream.seek(_HEADER)
        while piece := stream.read(_CHUNK):
            crc = zlib.crc32(piece, crc)
    if crc != entry["crc32"]:
        raise GraphFormatError(f"{file} is damaged: its checksum differs from the manifest's; import the graph again")


def load_npy(file: Path) -> np.ndarray:
    """A user's .npy file, memory-mapped; pickled ones are refused."""
    with named_errors(file, "reading"):
        try:
            with PARSING:
                return np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(
                f"{file} can't be read as a plain array ({error}): save it again with numpy.save"
            ) from None
