"""Files and folders written all or nothing: under a hidden name beside the target, flushed to the disk, and renamed.

A crash or a full disk leaves the old one or none. What a writer that was killed left behind, the next one removes.
"""

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from weft.config import is_device
from weft.errors import InputError, StorageError, reason_of
from weft.quantities import as_size
from weft.threads import PARSING

_HERE, _NOREPLACE, _EXCHANGE = -100, 1, 2  # of renameat2
_LEFT = 86_400.0  # seconds without a write, after which a writer that can't be seen from here counts as gone
_CHUNK = 1 << 22  # bytes read at a time
_SUM = b"# crc32 = %08x\n"
_NUMPYS = re.compile(r"\d+ requested and \d+ written")  # what numpy says of a full disk


@contextlib.contextmanager
def named_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or _NUMPYS.fullmatch(str(error)):
            raise StorageError(f"no space left while {doing} {path}: free some, or choose another disk") from error
        if error.errno == errno.EROFS:
            raise StorageError(
                f"the disk is read-only, so {doing} {path} can't be: mount it again for writing (after errors of the disk, "
                f"check it first), or choose another one"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise StorageError(f"no permission for {doing} {path}: check its owner and mode") from error
        if error.errno == errno.ENOENT:
            raise StorageError(f"{doing} {path} failed, for it does not exist: check the path") from error
        raise StorageError(f"{doing} {path} failed: {error.strerror or error}") from error


def room_for(there: Path) -> tuple[Path, int]:
    """The first that is there of an absolute path and the folders above it, and the free bytes of its disk."""
    found = next(place for place in (there, *there.parents) if place.exists())
    return found, shutil.disk_usage(found).free


def check_free(what: str, need: int, place: Path, there: Path) -> None:
    """Refuse a place without room, before anything long is computed for it. `there`: the same, as an absolute path.

    What is there, if anything, is replaced once the new one is whole.
    """
    _, free = room_for(there.parent)
    if free < need:
        raise StorageError(
            f"{what} takes {as_size(need)}, and the disk of {place} has {as_size(free)}: free some, or name another place"
        )


@contextlib.contextmanager
def written_beside(path: Path, replace: bool = True) -> Iterator[Path]:
    """Where to write a file or make a folder that takes the place of `path` once it is whole.

    A device or a pipe is written into as it is. `replace`: may something be there, which has come meanwhile?
    """
    if is_device(path):
        with named_errors(path, "writing"):
            yield path
        return
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    beside = hidden_beside(path)
    try:
        with named_errors(path, "writing"):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            yield beside
            flush(beside)
            if not replace:
                _take_free_name(beside, path)
            elif path.is_dir():
                swap_folders(beside, path)
            else:
                os.rename(beside, path)
            _sync(path.parent)
    finally:
        with contextlib.suppress(OSError):  # a disk that has become read-only: the next writer removes it
            _remove(beside)


def remove_leftovers(path: Path) -> None:
    """Remove what writers of this path that are gone left behind, and put back what they moved aside."""
    _tidy(path.parent, glob.escape(path.name))


def remove_all_leftovers(folder: Path, pattern: str, alone: bool) -> None:
    """The same for all such names in a folder; `alone`: they are this process's own, so nobody writes them elsewhere."""
    _tidy(folder, pattern, alone)


def _tidy(folder: Path, pattern: str, alone: bool = False) -> None:
    for left in folder.glob(f".{pattern}.writing-*"):
        name, _, writer = left.name.rpartition(".writing-")
        writer, _, aside = writer.partition("-")
        if writer == _writer() or not _lives(writer, left, alone):
            if aside and not left.with_name(name[1:]).exists():
                os.rename(left, left.with_name(name[1:]))
            else:
                _remove(left)


def _writer() -> str:
    """This process, and where its number means something."""
    return f"{os.getpid()}.{place_of_processes()}"


@cache
def place_of_processes() -> str:
    """This machine, and the processes that see each other: containers that write to one disk have each its own numbers."""
    seen, machine = 0, b""
    with contextlib.suppress(OSError):  # a system without
        seen = os.stat("/proc/self/ns/pid").st_ino
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_bytes()  # names of machines come twice
    return hashlib.sha256(f"{os.uname().nodename} {seen} ".encode() + machine).hexdigest()[:8]


def _lives(writer: str, left: Path, alone: bool) -> bool:
    """May what is left still be written? Elsewhere, unless nobody did for long, or none but this process may (`alone`)."""
    pid, _, place = writer.partition(".")
    if place in ("", place_of_processes()):
        return pid.isdigit() and int(pid) != os.getpid() and _runs(pid)
    if alone:
        return False
    try:
        last = max(part.stat().st_mtime for part in ([left, *left.iterdir()] if left.is_dir() else [left]))
    except OSError:  # it has just been renamed or removed
        return True
    return time.time() - last < _LEFT


def _runs(pid: str) -> bool:
    """Does a process run? One that has ended, and whose end nobody has asked for yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cache_folder() -> Path | None:
    """The folder of what is kept for later runs: WEFT_CACHE, or weft in the user's cache; None: it is to be off."""
    said, xdg = os.environ.get("WEFT_CACHE", ""), Path(os.environ.get("XDG_CACHE_HOME", ""))
    if said:
        return None if said == "off" else Path(said).absolute()
    if xdg.is_absolute():
        return xdg / "weft"
    if os.environ.get("HOME") == "":  # which Python takes for the root
        return None
    try:
        return Path("~/.cache/weft").expanduser()
    except RuntimeError:  # there is no home
        return None


def why_no_cache() -> str:
    """Why there is none."""
    return "WEFT_CACHE is off" if os.environ.get("WEFT_CACHE") == "off" else "no home is known, WEFT_CACHE not set"


def remove_whole(path: Path) -> None:
    """Remove a folder all or nothing: what is left of it after a kill has a hidden name, and the next writer removes it."""
    os.rename(path, hidden_beside(path))
    _remove(hidden_beside(path))


def steps_folder(target: Path, inputs: object) -> Path:
    """Where the steps towards a target are kept until it is there; a folder for each set of inputs."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return _steps(target, hashlib.sha256(text.encode()).hexdigest()[:16])


def steps_of(target: Path) -> list[Path]:
    """The folders of all steps towards a target."""
    return list(target.parent.glob(glob.escape(_steps(target, "").name) + "*"))


def forget_steps(target: Path) -> None:
    """The target is there: drop the steps towards it, whatever the inputs."""
    for folder in steps_of(target):
        shutil.rmtree(folder, ignore_errors=True)


def _steps(target: Path, key: str) -> Path:
    return target.parent / f".{target.name}.steps-{key}"


def hidden_beside(path: Path) -> Path:
    """A hidden name for what this process writes there, by which others find it (`remove_leftovers`) once this has ended."""
    return path.parent / f".{path.name}.writing-{_writer()}"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Flush a file, or a folder and the files in it, to the disk."""
    for part in [*path.iterdir(), path] if path.is_dir() else [path]:
        _sync(part)


def _sync(path: Path) -> None:
    """Flush a file, or a folder's entries, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # such as of vboxsf, or CIFS
            raise
    finally:
        os.close(descriptor)


def swap_folders(new: Path, old: Path) -> None:
    """Swap two folders at once where the system can; elsewhere there is a moment with neither, but both are kept."""
    if _renamed(new, old, _EXCHANGE) is None:
        return
    aside = new.with_name(new.name + "-old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    os.rename(aside, new)


def _take_free_name(new: Path, path: Path) -> None:
    """Rename a file or folder if nothing has its new name; at once, where the system can."""
    failed = _renamed(new, path, _NOREPLACE)
    if failed is not None and (failed == errno.EEXIST or os.path.lexists(path)):
        raise StorageError(
            f"{path} exists by now, though it did not when this began: another process made it meanwhile; choose another "
            f"name, or replace it with --overwrite (in Python overwrite=True)"
        )
    if failed is not None:
        os.rename(new, path)


def _renamed(old: Path, new: Path, how: int) -> int | None:
    """Rename by renameat2; the number of the error where that fails."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    done = rename(_HERE, os.fsencode(old), _HERE, os.fsencode(new), how) == 0
    return None if done else ctypes.get_errno()


def sum_of(file: str | Path, start: int = 0, end: float = math.inf) -> int:
    """The CRC-32 of a file's bytes from `start` to `end`, by plain reads."""
    crc = 0
    with open(file, "rb", buffering=0) as stream:
        stream.seek(start)
        while start < end and (piece := stream.read(int(min(_CHUNK, end - start)))):
            crc = zlib.crc32(piece, crc)
            start += len(piece)
    return crc


def with_sum(data: bytes) -> bytes:
    """A file's bytes with a last line that is their sum: a comment to TOML."""
    return data + _SUM % zlib.crc32(data)


def without_sum(data: bytes) -> bytes | None:
    """The bytes that `with_sum` was given; None where they are not as they were written."""
    written = data[: -len(_SUM % 0)]
    return written if data.endswith(_SUM % zlib.crc32(written)) else None


def load_npy(file: Path) -> np.ndarray:
    """A user's .npy file, memory-mapped; pickled ones and other files are refused."""
    with named_errors(file, "reading"):
        try:
            with PARSING:
                array = np.load(file, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # headers are parsed as Python is: there is no end to what may be wrong with them
            raise InputError(
                f"{file} can't be read as a plain array ({reason_of(error)}): save it again with numpy.save"
            ) from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{file} is no plain array, but several in one file: save each with numpy.save")
    return array
