"""A file at an address, as a stream that Arrow reads from anywhere in it: by ranges, asked for again where that may help."""

import io
from pathlib import Path

from weft.errors import GraphFormatError, InputError, StorageError
from weft.graph.remote_folder import RemoteFolder


def name_at(place: Path | str) -> Path:
    """The last part of a path or an address, without what a server is asked besides."""
    return Path(place) if isinstance(place, Path) else Path(place.partition("?")[0].rpartition("/")[2])


class RemoteFile(io.RawIOBase):
    """Its bytes; whoever reads little at a time buffers it."""

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
