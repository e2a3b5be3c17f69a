"""What a dry run counted is kept for later runs of the same seeds on the same graph: a file a worker, in the user's cache.

Counts of links are not kept: their examples are drawn, which takes as long.
"""

import io
import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from weft import __version__, _kernels
from weft.exchange import Communicator
from weft.graph import Graph, ProgressCallback, cache_folder, with_sum, without_sum
from weft.placements import Moves, all_placements, placement_named
from weft.planner.counts import CountedBatch, Counts, Drawn, Key, PlacedHop
from weft.planner.dry_run import DryRun
from weft.planner.kept import keep, number_of, numbers_of_all
from weft.planner.task import PlannedExamples, Sampling, Task, Workers
from weft.plugins import SAMPLERS
from weft.threads import PARSING

_FILES = "counts-*-of-0.npz"
_LARGEST, _MOST = 8 << 20, 32  # bytes of a file, and how many files a worker has
_Record = TypeVar("_Record", Drawn, Moves)
_Read = dict[str, tuple[np.ndarray, np.ndarray]]  # by state: vertices that a worker read, and how often


class KeptCounts:
    """The files in which workers keep what they read, and the first one what was counted of all, by group."""

    def __init__(self, graph: Graph, task: Task, sampling: Sampling, workers: Workers, *how: object) -> None:
        """`how`: all else that counts hang on. With workers that are here, all of them call this together."""
        self._comm, folder, number = workers.comm or Communicator(), cache_folder(), 0
        if workers.comm is not None and folder is not None and not task.anew and _is_known(graph, sampling):
            seeds = _sum_of_seeds(task)
            owners = workers.owners.bounds.tolist(), workers.owners.shares.tolist(), list(workers.hosts)
            of_graph = graph.checksum, graph.num_vertices, graph.num_edges, _rows_of(graph)
            software = __version__, _kernels.COMMIT, np.__version__, [kind.name for kind in all_placements()]
            drawn = replace(sampling, loaders=0)
            number = seeds and number_of((seeds, owners, of_graph, software, drawn, task.on_device, how))
        numbers = {*numbers_of_all(number, self._comm)}  # none is kept where one of them may not, or has another graph
        self._folder = folder if len(numbers) == 1 and number else None
        self._files = _FILES.replace("0", str(self._comm.rank))
        self._file = self._files.replace("*", f"{number:012x}")

    def found(self, runs: Mapping[str, DryRun], progress: ProgressCallback | None) -> dict[tuple[str, bool], Counts]:
        """What was counted, or is now by these runs, and kept; by group and replicate. All workers call this together."""
        counts = None if self._folder is None else self._read(self._folder, runs)
        if counts is None:
            counts = {}
            for group, run in runs.items():
                counts[group] = run.run(progress=progress)
            if self._folder is not None:
                self._write(self._folder, counts, {group: run.read for group, run in runs.items()})
        return {(group, False): of for group, of in counts.items()}

    def _read(self, folder: Path, runs: Mapping[str, DryRun]) -> dict[str, Counts] | None:
        """What was kept, for all workers, whose runs get what they read; None: not all have it as it was written."""
        comm, mine = self._comm, None
        with suppress(OSError):
            if (folder / self._file).stat().st_size <= _LARGEST:
                data = without_sum((folder / self._file).read_bytes())
                mine = None if data is None else _unpacked(data)
        if not all(comm.each(mine is not None and mine.file == self._file)) or mine is None:
            return None
        for group, run in runs.items():
            run.read = mine.read[group]
        return _unpacked(comm.share(_packed(self._file, mine.counts, {}))).counts

    def _write(self, folder: Path, counts: Mapping[str, Counts], read: Mapping[str, _Read]) -> None:
        """Keep what this worker read, and the first one what all counted, if it is not too much; and nothing that is old."""
        data = with_sum(_packed(self._file, counts if self._comm.rank == 0 else {}, read))
        if len(data) > _LARGEST:
            return
        keep(folder / self._file, data, self._files)
        with suppress(OSError):
            for old in sorted(folder.glob(self._files), key=lambda file: file.stat().st_mtime)[:-_MOST]:
                old.unlink()


def _is_known(graph: Graph, sampling: Sampling) -> bool:
    """Is it a graph as a folder has it, drawn from and placed by what Weft's version tells all of?"""
    kinds = [SAMPLERS.get(sampling.sampler), *map(type, all_placements())]
    return graph.place is not None and all(kind.__module__.startswith("weft.") for kind in kinds)


def _rows_of(graph: Graph) -> tuple[object, ...]:
    """Of features, how wide rows are."""
    features = graph.features
    if features is None:
        return ()
    return features.shape, str(features.dtype), getattr(features, "widths", np.zeros(0)).tolist()


def _sum_of_seeds(task: Task) -> int:
    """Of the vertices of all batches that may be looked at; 0: they are not told by their vertices."""
    found = 1
    makes: list[Callable[..., PlannedExamples]] = [*task.examples]
    if len(makes) == 1:  # the next epoch's is looked at besides
        makes.append(partial(makes[0], 1))
    for make in makes:
        examples = make()
        if examples.needed is not None:
            return 0
        found = zlib.crc32(np.append(examples.vertices, examples.size).astype(np.int64).tobytes(), found)
    return found + 1


class _Unpacked(NamedTuple):
    """What a file has, by group."""

    file: str  # its name
    counts: dict[str, Counts]
    read: dict[str, _Read]


def _packed(name: str, counts: Mapping[str, Counts], read: Mapping[str, _Read]) -> bytes:
    said, arrays = [], dict[str, np.ndarray]()
    for group, of in counts.items():
        said.append([group, of.of_epoch, of.error, of.batch.seeds, _told(of.kind)])
        arrays |= {f"{group} figures": of.figures, f"{group} weights": of.weights}
    for group, by_state in read.items():
        for state, (vertices, times) in by_state.items():
            arrays |= {f"{group} {state} vertices": vertices, f"{group} {state} times": times}
    told = {"file": name, "counts": said, "read": {group: [*by_state] for group, by_state in read.items()}}
    file, save = io.BytesIO(), cast(Callable[..., None], np.savez)
    save(file, told=np.frombuffer(json.dumps(told).encode(), dtype=np.uint8), **arrays)
    return file.getvalue()


def _unpacked(data: bytes) -> _Unpacked:
    """What was packed."""
    with PARSING, np.load(io.BytesIO(data), allow_pickle=False) as file:
        told = json.loads(file["told"].tobytes())
        found = _Unpacked(told["file"], {}, {})
        for group, of_epoch, error, seeds, figures_of in told["counts"]:
            figures, weights = file[f"{group} figures"], file[f"{group} weights"]
            found.counts[group] = Counts.made(_batch_of(figures_of), figures, weights, seeds, of_epoch, error)
        for group, states in told["read"].items():
            names = {state: (f"{group} {state} vertices", f"{group} {state} times") for state in states}
            found.read[group] = {state: (file[one], file[other]) for state, (one, other) in names.items()}
    return found


def _told(batch: CountedBatch) -> dict[str, Any]:
    """Which figures a worker's batch has: how many of each, or what is no array as it is."""
    return {
        "held": len(batch.held),
        "uneven": len(batch.uneven),
        "needed": {state: len(array) for state, array in batch.needed.items()},
        "drawn": [[*key, _sizes(one)] for key, one in batch.drawn.items()],
        "moves": [
            [*placed.key, placed.kind.name, placed.above, placed.below, _sizes(one)]
            for placed, one in batch.moves.items()
        ],
    }


def _sizes(record: Drawn | Moves) -> dict[str, Any]:
    return {name: [len(value)] if isinstance(value, np.ndarray) else value for name, value in vars(record).items()}


def _batch_of(told: dict[str, Any]) -> CountedBatch:
    batch = CountedBatch(np.zeros(told["held"]), np.zeros(told["uneven"]))
    batch.needed = {state: np.zeros(count) for state, count in told["needed"].items()}
    batch.drawn = {Key(*key): _record(Drawn, sizes) for *key, sizes in told["drawn"]}
    batch.moves = {
        PlacedHop(Key(*key), placement_named(name), above, below): _record(Moves, sizes)
        for *key, name, above, below, sizes in told["moves"]
    }
    return batch


def _record(kind: Callable[..., _Record], sizes: dict[str, Any]) -> _Record:
    return kind(**{name: np.zeros(*size) if isinstance(size, list) else size for name, size in sizes.items()})
