"""The graph directory on disk: .npy files, and a manifest with their shapes, types and checksums (docs/file-formats.md).

Nothing is parsed but the manifest, whose own sum is checked: an array's header must be what the manifest says, byte by byte.
"""

import contextlib
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from weft.config import check_writable
from weft.errors import GraphFormatError, InputError, StorageError, WeftError
from weft.graph.shard_sums import ShardSums, ends_of, sums_of_shards
from weft.graph.storage import named_errors, remove_leftovers, written_beside

FORMAT = "weft-graph"
VERSION = 1
_VERSION_OF_EDGE_FEATURES = 2  # of graphs that have some, so that Weft that does not know them says what to do
MANIFEST = "manifest.json"
HEADER = 128  # bytes of an .npy header, padded so that the shape can be filled in at the end
_CHUNK = 1 << 22  # bytes read or written at a time
_NAMES = ("class_names", "vertex_type_names", "edge_type_names")
_IDS = ("<i4", "<i8")
TYPES = {  # what each array may be of, first what others become, and how many dimensions it has
    "indptr": (("<i8",), (1,)),
    "indices": (_IDS, (1,)),
    "edge_weight": (("<f4",), (1,)),
    "edge_type": ((*_IDS, "|u1"), (1,)),
    "edge_features": (("<f4",), (2,)),
    "vertex_type": ((*_IDS, "|u1"), (1,)),
    "features": (("<f4", "<f2", "<f8"), (2,)),
    "labels": ((*_IDS, "|u1"), (1, 2)),
    "split": (("|u1",), (1,)),
    "original_ids": (("<i8",), (1,)),
    "bounds": (("<i8",), (1,)),
    "shares": (("<f8",), (1,)),
    "names": (("<i8",), (1,)),
    "names_text": (("|u1",), (1,)),
    "names_offsets": (("<i8",), (1,)),
}


@dataclass(frozen=True)
class ArrayEntry:
    """What a manifest says of an array."""

    shape: tuple[int, ...]
    dtype: str
    crc32: int  # of the data after the header
    shards: tuple[int, ...] | None = None  # the sum of each owner's rows, where hosts may want only some

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def header(self) -> bytes:
        """What an .npy file of this shape and type begins with."""
        size = HEADER - 10
        text = f"{{'descr': '{self.dtype}', 'fortran_order': False, 'shape': {self.shape}, }}"
        return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1).encode() + b"\n"


@dataclass(frozen=True)
class Facts:
    """What a manifest says of a graph besides its arrays; names only where there are some."""

    num_classes: int = 0
    class_names: Sequence[str] | None = None
    vertex_type_names: Sequence[str] | None = None
    edge_type_names: Sequence[str] | None = None


@dataclass(frozen=True)
class Manifest:
    """What a graph directory says of itself."""

    facts: Facts
    arrays: dict[str, ArrayEntry]


class ArrayWriter:
    """One .npy file, written piece by piece, its checksums computed on the way."""

    def __init__(
        self,
        folder: Path,
        name: str,
        dtype: np.dtype | type | str,
        row: tuple[int, ...] = (),
        cuts: np.ndarray | None = None,
    ) -> None:
        """`cuts`: the rows at which shards begin, and the last one ends; None: there are none."""
        self.name, self.dtype, self._row = name, np.dtype(dtype), row
        self._path = folder / f"{name}.npy"
        self._ends = None if cuts is None else ends_of(cuts, self.dtype.itemsize * math.prod(row))
        self._rows, self._sums = 0, ShardSums(self._ends)
        with named_errors(self._path, "writing"):
            self.file: BinaryIO = open(self._path, "wb")  # noqa: SIM115
            self.file.write(b"\0" * HEADER)

    def append(self, rows: np.ndarray) -> None:
        """Add rows; they must be of the right shape and convert safely to the type."""
        assert rows.shape[1:] == self._row, (self.name, rows.shape, self._row)
        piece = np.ascontiguousarray(rows, dtype=self.dtype)
        with named_errors(self._path, "writing"):
            data = piece.data.cast("B") if piece.size else memoryview(b"")
            self.file.write(data)
        self._sums.add(data)
        self._rows += len(rows)

    def spread(self, rows: np.ndarray, shards: np.ndarray) -> None:
        """Add rows in the order in which they come, each to the shard that is named; in the end all are to be full."""
        assert self._ends is not None, self.name
        piece = np.ascontiguousarray(rows[np.argsort(shards, kind="stable")], dtype=self.dtype)
        counts, first = np.bincount(shards), 0
        with named_errors(self._path, "writing"):
            for shard in np.flatnonzero(counts if piece.size else 0).tolist():
                some = piece[first : first + counts[shard]].data.cast("B")
                self.file.seek(HEADER + (self._ends[shard - 1] if shard else 0) + self._sums.length(shard))
                self.file.write(some)
                self._sums.add_to(shard, some)
                first += counts[shard]
        self._rows += len(rows)

    def close(self) -> ArrayEntry:
        """Finish the header, and return the manifest's entry."""
        shards = None if self._ends is None else sums_of_shards(self._ends, self._sums.sums)
        entry = ArrayEntry((self._rows, *self._row), self.dtype.str, self._sums.whole, shards)
        with named_errors(self._path, "writing"), self.file as file:
            file.seek(0)
            file.write(entry.header)
        return entry


class DirectoryWriter:
    """A graph directory in the making: arrays are added, and on leaving the context it appears under its name at once."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._arrays: dict[str, ArrayWriter | ArrayEntry] = {}
        self.facts = Facts()
        self.cuts: Mapping[str, np.ndarray] = {}  # of arrays in shards: the rows at which these begin

    def check(self) -> None:
        """Refuse a place that is taken, or can't be written, before anything long is computed for it."""
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"{self.path} is a file, and a graph is a folder: choose another name")
        check_writable(self.path)
        remove_leftovers(self.path)
        if self.path.exists() and not self._overwrite:
            raise StorageError(
                f"{self.path} exists already: choose another name, or overwrite it with --overwrite (in Python "
                f"overwrite=True)"
            )
        if not self.path.exists():
            return
        if not (self.path / MANIFEST).exists() and any(self.path.iterdir()):
            raise StorageError(
                f"{self.path} is not a graph directory, so it will not be overwritten: choose another name"
            )
        arrays = {one.name for one in self.path.glob("*.npy") if _kind_of(one.stem) in TYPES}
        others = sorted({one.name for one in self.path.iterdir()} - arrays - {MANIFEST})
        if others:
            raise StorageError(
                f"{self.path} holds more than a graph (there is {others[0]}), so it will not be overwritten: move that, or "
                f"choose another name"
            )

    def __enter__(self) -> Self:
        self.check()
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(written_beside(self.path, self._overwrite))
            self.folder.mkdir()
            self._leave = stack.pop_all()
        return self

    def array(self, name: str, dtype: np.dtype | type | str, row: tuple[int, ...] = ()) -> ArrayWriter:
        """A new array, to be appended to."""
        assert name not in self._arrays, name
        writer = self._arrays[name] = ArrayWriter(self.folder, name, dtype, row, self.cuts.get(name))
        return writer

    def add(self, **arrays: np.ndarray | None) -> None:
        """Whole arrays, in pieces; None is left out."""
        for name, values in arrays.items():
            if values is not None:
                writer = self.array(name, values.dtype, values.shape[1:])
                rows = max(1, _CHUNK // max(1, values.dtype.itemsize * math.prod(values.shape[1:])))
                for first in range(0, len(values), rows):
                    writer.append(values[first : first + rows])

    def take(self, **entries: ArrayEntry) -> None:
        """Arrays whose files others have written into the folder."""
        self._arrays |= entries

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leave:
            try:
                if error is not None:
                    raise error
                self._finish()
            finally:
                for array in self._arrays.values():
                    with contextlib.suppress(OSError):  # of a full disk, once more
                        if isinstance(array, ArrayWriter):
                            array.file.close()

    def _finish(self) -> None:
        entries = {name: one.close() if isinstance(one, ArrayWriter) else one for name, one in self._arrays.items()}
        arrays = {name: asdict(entry) for name, entry in entries.items()}
        for entry in arrays.values():
            if entry["shards"] is None:
                del entry["shards"]
        facts = {name: value for name, value in asdict(self.facts).items() if value is not None}
        version = _VERSION_OF_EDGE_FEATURES if "edge_features" in arrays else VERSION
        manifest = {"format": FORMAT, "version": version, **facts, "arrays": arrays}
        as_read = json.loads(json.dumps(manifest))
        if wrong := _wrong_with(as_read):
            raise InputError(
                f"{self.path} can't be written as a graph ({wrong}): give arrays of the types and shapes that Graph names"
            )
        manifest["crc32"] = _sum_of(as_read)
        (self.folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _sum_of(manifest: dict[str, object]) -> int:
    """The sum of all that a manifest says besides it, however it is laid out."""
    rest = {name: value for name, value in manifest.items() if name != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_manifest(path: Path) -> Manifest:
    """The manifest of a graph directory, checked."""
    manifest = parsed_manifest(_manifest_text(path), path / MANIFEST)
    if "crc32" not in manifest:  # as Weft 0.1.0 wrote them
        extra = sorted(name for name in TYPES if (path / f"{name}.npy").exists() and name not in manifest["arrays"])
        if extra:
            raise GraphFormatError(
                f"{path / MANIFEST} is damaged (it does not name {extra[0]}.npy): import the graph again"
            )
    return manifest_of(manifest)


def _manifest_text(path: Path) -> str:
    if not path.exists():
        raise GraphFormatError(f"there is no graph at {path}: make one with `weft import` or `weft generate`")
    file = path / MANIFEST
    if not file.exists():
        raise GraphFormatError(f"{path} is not a graph directory (it has no {MANIFEST}): make one with `weft import`")
    with named_errors(file, "reading"):
        return file.read_text(errors="replace")


def parsed_manifest(text: str, file: Path | str) -> dict[str, Any]:
    """What a manifest's text says, if it is sound; `file`: where it is."""
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphFormatError(f"{file} is damaged ({error}): import the graph again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise GraphFormatError(f"{file} is not the manifest of a Weft graph: import the graph again")
    if manifest.get("version") not in (VERSION, _VERSION_OF_EDGE_FEATURES):
        raise GraphFormatError(
            f"{file} has version {manifest.get('version')} of the graph format, this Weft reads versions {VERSION} and "
            f"{_VERSION_OF_EDGE_FEATURES}: upgrade Weft, or import the graph again with this one"
        )
    wrong = _wrong_with(manifest)
    if wrong:
        raise GraphFormatError(f"{file} is damaged ({wrong}): import the graph again")
    return manifest


def manifest_of(manifest: Mapping[str, Any]) -> Manifest:
    """What a sound manifest says, as it is read."""
    facts = Facts(manifest["num_classes"], *(manifest.get(name) for name in _NAMES))
    arrays = {
        name: ArrayEntry(
            tuple(entry["shape"]), entry["dtype"], entry["crc32"], tuple(entry["shards"]) if "shards" in entry else None
        )
        for name, entry in manifest["arrays"].items()
    }
    return Manifest(facts, arrays)


def _wrong_with(manifest: dict) -> str:
    """What is wrong with a manifest; nothing if it is sound."""
    if "crc32" in manifest and _sum_of(manifest) != manifest["crc32"]:
        return "its own checksum differs"
    if not _is_count(manifest.get("num_classes")):
        return f"num_classes = {manifest.get('num_classes')!r}"
    for name in _NAMES:
        names = manifest.get(name)
        if names is not None and not (isinstance(names, list) and all(isinstance(word, str) for word in names)):
            return f"{name} is no list of names"
    arrays = manifest.get("arrays")
    if not isinstance(arrays, dict):
        return "it names no arrays"
    needed = [
        ("indptr", True),
        ("indices", True),
        ("names_offsets", "names_text" in arrays),
        ("vertex_type", "features_0" in arrays),
    ]
    for name, is_needed in needed:
        if is_needed and name not in arrays:
            return f"it does not name {name}"
    return next((wrong for name, entry in arrays.items() if (wrong := _wrong_with_entry(name, entry))), "")


def _kind_of(name: str) -> str:
    """Under which name an array is among the types: features of one type of vertices have its number besides."""
    return "features" if name.removeprefix("features_").isdecimal() else name


def _wrong_with_entry(name: str, entry: object) -> str:
    dtypes, dimensions = TYPES.get(_kind_of(name), ((), ()))
    if not dtypes:
        return f"it names {name}, which no graph has"
    if not isinstance(entry, dict) or not {"shape", "dtype", "crc32"} <= set(entry):
        return f"it does not say all of {name}"
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) not in dimensions or not all(map(_is_count, shape)):
        return f"{name} has shape {shape!r}"
    if entry["dtype"] not in dtypes:
        return f"{name} is of type {entry['dtype']!r}"
    shards = entry.get("shards", [])
    if not isinstance(shards, list) or not all(map(_is_count, shards)):
        return f"the checksums of shards of {name} are {shards!r}"
    return "" if _is_count(entry["crc32"]) else f"the checksum of {name} is {entry['crc32']!r}"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def map_array(path: Path, name: str, entry: ArrayEntry) -> np.ndarray:
    """An array of a directory, memory-mapped, its size and header checked against the manifest."""
    file = path / f"{name}.npy"
    if not file.is_file():
        raise GraphFormatError(
            f"{file} is {'no file' if file.exists() else 'missing'}, which the manifest names: copy the whole folder, or "
            f"import again"
        )
    with named_errors(file, "reading"), open(file, "rb") as stream:
        header, size, expected = stream.read(HEADER), os.fstat(stream.fileno()).st_size, HEADER + entry.nbytes
        if size != expected:
            raise GraphFormatError(
                f"{file} has {size} bytes in place of {expected}: it is truncated or of another graph; import again"
            )
        if header != entry.header:
            raise GraphFormatError(
                f"{file} is damaged: its header does not have the shape and type that the manifest names; import again"
            )
        if not entry.nbytes:
            return np.empty(entry.shape, entry.dtype)
        return np.memmap(stream, entry.dtype, "r", HEADER, entry.shape)


def check_array(
    path: Path, name: str, entry: ArrayEntry, check: Callable[[np.ndarray, int], object] | None = None
) -> None:
    """Read an array's file whole: its sum must be the manifest's, and its rows, a piece at a time, pass `check`.

    By plain reads: pages of a memory map would count as this process's memory.
    """
    file, crc, first = path / f"{name}.npy", 0, 0
    wrong: WeftError | None = None
    row = entry.nbytes // max(1, entry.shape[0])
    buffer = np.empty(max(row, _CHUNK // max(1, row) * row), dtype=np.uint8)
    with named_errors(file, "reading"), open(file, "rb", buffering=0) as stream:
        stream.seek(HEADER)
        while count := _fill(stream, buffer):
            crc = zlib.crc32(buffer[:count].data, crc)
            if check and not wrong and count % row == 0:
                rows = buffer[:count].view(entry.dtype).reshape(-1, *entry.shape[1:])
                try:
                    check(rows, first)
                except WeftError as error:
                    wrong = error
                first += len(rows)
    if crc != entry.crc32:
        raise GraphFormatError(f"{file} is damaged: its checksum differs from the manifest's; import the graph again")
    if wrong:
        raise GraphFormatError(f"{file} holds what it can't: {wrong}") from wrong


def _fill(stream: BinaryIO, buffer: np.ndarray) -> int:
    """Read as many bytes as fit, or as there are."""
    count = 0
    while some := stream.readinto(buffer[count:].data):  # type: ignore[attr-defined]
        count += some
    return count
