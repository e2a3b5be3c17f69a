"""Files of a folder at an address that fsspec knows (`s3://`, `gs://`, `https://`, `file://`, ...), read in pieces.

Each answer is waited for so many seconds. What may pass (a busy server, a connection that is cut) is asked for again a few
times, ever later; what fails is told in a sentence.
"""

import errno
import io
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import fsspec

from weft.errors import GraphFormatError, InputError, StorageError, WeftError, reason_of
from weft.threads import answered_within

T = TypeVar("T")

_PIECE, _AT_ONCE = 2 << 20, 8  # bytes that are asked for at a time, and how often before the first has come
_WAITS = (0.5, 1.0, 2.0, 4.0)  # seconds before what failed and may pass is asked for again
_BUSY = {408, 425, 429, 500, 502, 503, 504}  # HTTP's words for it
_CUT = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.EBUSY, errno.EAGAIN}
# Of the libraries of file systems, which need not be there: a connection that ended early.
_CUT_NAMES = {"ServerDisconnectedError", "ClientPayloadError", "IncompleteRead", "ConnectionClosedError"}


class RemoteFolder:
    """A folder at an address."""

    def __init__(self, url: str, timeout: float) -> None:
        """`timeout`: seconds that an answer may take."""
        self.url, self._timeout = url.rstrip("/"), timeout
        self._system, self._path = self._answer(partial(fsspec.url_to_fs, self.url), "")

    def text(self, name: str) -> str:
        """A small file, whole. Refused where files can't be read in pieces."""
        path = f"{self._path}/{name}"
        self.check_ranges(name)
        data: bytes = self._answer(partial(self._system.cat_file, path), name)
        return data.decode(errors="replace")

    def check_ranges(self, name: str) -> None:
        """Refuse a folder whose files can't be read in pieces."""
        ask = partial(self._system.cat_ranges, [f"{self._path}/{name}"], [0], [1], on_error="raise")
        (first,) = self._answer(ask, name)
        if len(first) > 1:
            raise StorageError(
                f"{self.url} can't be read in pieces, as hosts read graphs and tables: its server ignores ranges (HTTP's "
                f"header Range); serve the directory by one that does not, or copy it to all hosts"
            )

    def pieces(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a file from `start` to `end`."""
        path, some = f"{self._path}/{name}", _PIECE * _AT_ONCE
        for low in range(start, end, some):
            starts = [*range(low, min(end, low + some), _PIECE)]
            ends = [min(end, first + _PIECE) for first in starts]
            ask = partial(self._system.cat_ranges, [path] * len(starts), starts, ends, on_error="raise")
            for first, stop, piece in zip(starts, ends, self._answer(ask, name), strict=True):
                if len(piece) != stop - first:
                    raise self._truncated(name)
                yield piece

    def size(self, name: str) -> int:
        """How long a file is."""
        size = self._answer(partial(self._system.info, f"{self._path}/{name}"), name)["size"]
        if size is None:
            raise StorageError(
                f"the server of {self.url}/{name} does not say how long it is (it may compress what it sends): copy it here"
            )
        return int(size)

    def _answer(self, ask: Callable[[], T], name: str) -> T:
        """What a file system answers, in the end."""
        waits = iter(_WAITS)
        while True:
            try:
                return answered_within(self._timeout, ask)  # some wait for ever
            except Exception as error:  # of a file system's own library: there is no common class
                wait = next(waits, None) if may_pass(error) else None
                if wait is None:
                    raise self._told(error, name) from None
            time.sleep(wait)

    def _told(self, error: Exception, name: str) -> WeftError:
        """What went wrong, in a sentence."""
        where, status = f"{self.url}/{name}" if name else self.url, getattr(error, "status", None)
        if isinstance(error, TimeoutError):
            return StorageError(
                f"no answer within {self._timeout:g} s while reading {where}: check the address and the network, or "
                f"wait longer (--timeout)"
            )
        if isinstance(error, FileNotFoundError):
            return GraphFormatError(
                f"there is no {name} at {self.url}: check the address, and copy all of a graph's directory there"
            )
        if isinstance(error, PermissionError) or status in (401, 403):
            return StorageError(f"no permission to read {where}: check who may, and this host's credentials")
        if isinstance(error, ImportError):
            return StorageError(
                f"{self.url} can't be read without a package that is not installed ({reason_of(error)}): install it on "
                f"all hosts"
            )
        if isinstance(error, ValueError) and not name:
            return StorageError(
                f"{self.url} can't be read ({reason_of(error)}): give a path, or an address that fsspec knows, such as "
                f"s3://, gs:// or https://"
            )
        if status == 416:
            return self._truncated(name)
        often = f" {len(_WAITS) + 1} times" if may_pass(error) else ""
        return StorageError(
            f"reading {where} failed{often} ({type(error).__name__}: {reason_of(error)}): check the address, and try again"
        )

    def _truncated(self, name: str) -> GraphFormatError:
        return GraphFormatError(
            f"{self.url}/{name} is shorter than its manifest says: it is truncated; copy the graph there again"
        )


class RemoteFile(io.RawIOBase):
    """A file, as a stream that Arrow reads from anywhere in it; whoever reads little at a time buffers it."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        """`timeout`: seconds that an answer may take."""
        folder, _, name = url.partition("?")[0].rpartition("/")
        self._url, self._name = url, name + url[len(folder) + 1 + len(name) :]
        self._folder, self._at = RemoteFolder(folder, timeout), 0
        try:
            self._folder.check_ranges(self._name)  # before its size, of which HTTP only tells that there is none
            self._size = self._folder.size(self._name)
        except GraphFormatError:
            raise StorageError(f"there is no table at {url}, or an empty one: check the address") from None

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read from there on."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def size(self) -> int:
        """How many bytes it has."""
        return self._size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As many bytes as there is room for, up to the end."""
        view, done = memoryview(buffer).cast("B"), 0
        end = min(self._size, self._at + len(view))
        try:
            for piece in self._folder.pieces(self._name, self._at, end):
                view[done : done + len(piece)] = piece
                done += len(piece)
        except GraphFormatError:
            raise InputError(f"{self._url} became shorter while it was read: wait until it is whole") from None
        self._at += done
        return done


def may_pass(error: Exception) -> bool:
    """Is it worth asking again? Not where nobody answered in time, which was waited for, or where nobody listens."""
    status = error.status if hasattr(error, "status") else getattr(error, "code", None)
    if isinstance(status, int):
        return status in _BUSY
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & _CUT_NAMES) or (isinstance(error, OSError) and error.errno in _CUT)
