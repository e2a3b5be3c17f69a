"""The folder of a job, which all its tasks see: what each has made, all or nothing, so that a stopped job goes on."""

import fcntl
import json
import os
import resource
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import StorageError
from weft.graph.csr import running_sum
from weft.graph.edges_to_csr import ProgressCallback
from weft.graph.storage import flush, named_errors, written_beside

TaskResult = dict[str, Any]  # what a task tells in a few numbers, besides its files
StageFunction = Callable[["Work", int, Path], TaskResult]  # the job's folder, a number, and where to write
Runner = Callable[
    [Path, str, str, Sequence[int]], Iterator[tuple[int, TaskResult]]
]  # runs tasks of a stage, in any order

_LOCK = "lock"
_runs: dict[str, "Work"] = {}  # of this process: what was read of a job is read once in a run


class Work:
    """A job's folder. Each task has a folder of its own there, `STAGE/NUMBER`, which appears when it is done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Any] = {}

    def save(self, name: str, value: Any) -> None:
        """Keep plain data under a name."""
        text, file = json.dumps(value), self.folder / f"{name}.json"
        with written_beside(file) as beside:
            beside.write_text(text)
        self._read[name] = json.loads(text)

    def load(self, name: str) -> Any:
        """What was kept; None: nothing was. Read once in a process, as it does not change."""
        if name not in self._read:
            file = self.folder / f"{name}.json"
            if not file.exists():
                return None
            self._read[name] = self._said(file)
        return self._read[name]

    def place(self, stage: str, index: int) -> Path:
        """Where a task has put its files."""
        return self.folder / stage / str(index)

    def do(self, stage: str, index: int, task: StageFunction) -> TaskResult:
        """What a task gives, or gave before it was stopped."""
        place = self.place(stage, index)
        if not (place / "result.json").exists():
            beside = place.with_name(f"{index}.{uuid.uuid4().hex}")
            try:
                with named_errors(place, "writing"):
                    beside.mkdir(parents=True)
                    result = task(self, index, beside)
                    (beside / "result.json").write_text(json.dumps(result))
                    flush(beside)  # or a crash of this host leaves holes in what is done
                    if not place.exists():  # as when a task that was taken for lost is done after all
                        os.rename(beside, place)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        found: TaskResult = self._said(place / "result.json")
        return found | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def begin_anew(self) -> None:
        """Remove whatever was made, but for the lock."""
        for one in self.folder.iterdir():
            if one.is_dir():
                shutil.rmtree(one, ignore_errors=True)
            elif one.name != _LOCK:
                one.unlink()

    def _said(self, file: Path) -> Any:
        with named_errors(file, "reading"):
            try:
                return json.loads(file.read_text())
            except ValueError:
                raise StorageError(f"{file} is damaged: remove {self.folder}, and give the command again") from None

    def drop(self, *stages: str) -> None:
        """Remove what nobody reads any more."""
        for stage in stages:
            shutil.rmtree(self.folder / stage, ignore_errors=True)


def do_task(task: StageFunction, folder: Path, run: str, stage: str, index: int) -> TaskResult:
    """Do a task of a job, wherever its folder is seen. `run`: a name of the command that asks for it."""
    if run not in _runs:
        _runs.clear()
        _runs[run] = Work(folder)
    return _runs[run].do(stage, index, task)


class StageRunner:
    """Has the tasks of one stage after the other done, but what is done already; and keeps what they told."""

    def __init__(self, work: Work, run: Runner, progress: ProgressCallback | None) -> None:
        self._work, self._run, self._progress, self._name = work, run, progress, uuid.uuid4().hex
        self.resumed: list[str] = []  # stages of which something was done already
        self.peak = 0  # bytes that the largest of the processes has held

    def do(self, stage: str, count: int, title: str, *, again: bool = False) -> list[TaskResult]:
        """What the tasks of a stage tell. `again`: nothing of it counts as done."""
        results: list[TaskResult] | None = None if again else self._work.load(stage)
        if results is not None or self._work.place(stage, 0).parent.exists():
            self.resumed.append(stage)
        if results is None:
            found: dict[int, TaskResult] = {}
            for index, result in self._run(self._work.folder, self._name, stage, range(count)):
                found[index] = result
                if self._progress:
                    self._progress(title, len(found), count)
            results = [found[index] for index in range(count)]
            self._work.save(stage, results)
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.peak = max([self.peak, own, *(one["peak"] for one in results)])
        return results


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep the same command from running twice at a time."""
    with named_errors(folder, "writing"):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / _LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageError(
                    f"another command makes the same now, in {folder}: wait for it, or stop it"
                ) from None
            except OSError:  # a file system that has no locks
                pass
            for left in folder.glob("*/*.*"):  # of tasks that were killed
                shutil.rmtree(left, ignore_errors=True)
            yield


def write_sections(file: Path, values: np.ndarray, counts: Sequence[int] | np.ndarray) -> None:
    """An array that is cut into sections, so many values each; then where each begins, in bytes, and how many there are."""
    with open(file, "wb") as out:
        out.write(np.ascontiguousarray(values).data.cast("B") if values.size else b"")
        out.write((running_sum(counts) * values.dtype.itemsize).data)
        out.write(np.int64(len(counts)).tobytes())


def read_section(file: Path, section: int, dtype: Any) -> np.ndarray:
    """One section of a file; of a file that is not there, nothing."""
    with open(file, "rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        (count,) = np.frombuffer(os.pread(stream.fileno(), 8, size - 8), np.int64)
        begins = os.pread(stream.fileno(), 16, size - 8 - 8 * (int(count) + 1) + 8 * section)
        begin, end = np.frombuffer(begins, np.int64).tolist()
        found = np.empty((end - begin) // np.dtype(dtype).itemsize, dtype=dtype)
        stream.seek(begin)
        data, done = found.view(np.uint8), 0
        while done < end - begin:
            done += stream.readinto(data[done:].data) or _cut_short(file)
        return found


def _cut_short(file: Path) -> int:
    raise OSError(f"{file} is shorter than it was")


def by_section(sections: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The order that brings values to their sections, and how many each gets."""
    narrow = sections.astype(np.uint16) if count < 1 << 16 else sections  # which sorts in linear time
    return np.argsort(narrow, kind="stable"), np.bincount(sections, minlength=count)
