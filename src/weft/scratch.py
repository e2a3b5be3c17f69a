"""Temporary files and folders that are gone when their process is, whichever way it ends."""

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from weft.errors import StorageError
from weft.quantities import as_size


def scratch_array(shape: tuple[int, ...], dtype: DTypeLike, where: Path | None = None) -> np.ndarray:
    """Zeros in a file without a name, which goes when the array does; `where`: the folder whose disk is to hold it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile(dir=where) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, size))  # or a disk that is full kills who writes to the array
            return np.memmap(file, dtype, "w+", shape=shape)
    except OSError as error:
        raise StorageError(
            f"{as_size(size)} of rows can't be put into {where or tempfile.gettempdir()} ({error.strerror}): make room on "
            f"its disk, or set {'another folder for them' if where else 'TMPDIR to a folder with more'}"
        ) from None


@contextmanager
def scratch_folder(prefix: str = "weft-", where: Path | None = None) -> Iterator[Path]:
    """A temporary folder. If this process is killed, another one removes it, which waits for the end of this."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=where)
    # `cat` ends once nobody can write to it any more; signals to all of a job's processes are for the others.
    remove = 'trap "" HUP INT TERM USR1; cat > /dev/null; rm -rf "$1"'
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        ["sh", "-c", remove, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
    ):
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_cache_of_torch() -> None:
    """Remove the empty folder that torch makes for its compiler when PyG is imported. A compiler makes it again."""
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
    if folder.name.startswith("torchinductor_") and folder.parent == Path(tempfile.gettempdir()):
        with suppress(OSError):  # something is in it
            folder.rmdir()
