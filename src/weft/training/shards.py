"""Exact inference by tasks that each hold a piece of the vertices, and meet in files of a folder that they all see.

A convolution's inputs are written piece by piece, and read by whoever has edges from them; what is done stays done. The
numbers are those of `infer`, bit by bit: pieces end where its own do.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

import weft
from weft.errors import AllRowsError, ConfigError, ModelError
from weft.graph import (
    Graph,
    ProgressCallback,
    Runner,
    StageRunner,
    TaskResult,
    Work,
    alone_in,
    do_task,
    forget_steps,
    is_address,
    steps_folder,
    sum_of,
    written_beside,
)
from weft.nn import Decoupled, Layerwise, Pending, check_rows, encoder_of
from weft.training.inference import ROWS, given_rows, pieces_of
from weft.training.models import dtype_for
from weft.training.own_code import code_of
from weft.training.trained_model import TrainedModel, load_model, table_of, told

_SHARD = 1 << 18  # rows in a file of the result
_CHUNK = 1 << 20  # original ids read at a time


def embed_by_tasks(
    graph: Graph, model: Path, what: str, out: Path, run: Runner, progress: ProgressCallback | None = None
) -> int:
    """Write what a model says of all vertices as a folder of Parquet files, in the order of the import; how many rows."""
    assert graph.place is not None
    trained = load_model(model, graph)
    encoder, settings = encoder_of(trained.model), trained.settings
    if isinstance(encoder, Decoupled):
        raise ConfigError("a decoupled model computes all vertices at once: embed without --on ray")
    if len(pieces_of(graph)) > 1:
        with _some_at_a_time():
            check_rows(encoder, graph.num_features)
    out, link = Path(os.path.realpath(out)), settings.of_links
    place = str(graph.place.absolute()) if isinstance(graph.place, Path) else graph.place
    job = {"graph": place, "model": str(model.absolute()), "what": what, "link": link}
    state = (model / "state.json").read_text()  # which has the sums of the parameters
    file = settings.model.file and sum_of(settings.model.file[0])  # functions that its classes call are there, too
    code = [weft.__version__, code_of(trained.model), file]
    work = Work(steps_folder(out, [job, graph.checksum, state, code]))
    with alone_in(work.folder):
        work.save("job", job)
        stages = _Stages(work, run, progress)
        depth = stages.compute(graph.num_vertices)
        work.save("last", depth if link or what != "embeddings" else depth - 1)
        shards = -(-graph.num_vertices // _SHARD)
        stages.do("shards", shards)
        with written_beside(out) as beside:
            beside.mkdir()
            for index in range(shards):
                shutil.copyfile(work.place("shards", index) / "part.parquet", beside / f"part-{index:05}.parquet")
    forget_steps(out)
    return graph.num_vertices


@contextmanager
def _some_at_a_time() -> Iterator[None]:
    """A model that needs the rows of all vertices at once is one for a single process."""
    try:
        yield
    except AllRowsError as error:
        raise ModelError(f"{error.reason}: embed without --on ray, by one process") from error


def infer_task(folder: Path, run: str, stage: str, index: int) -> TaskResult:
    """Do a task of such a job, wherever its folder is seen. `run`: a name of the command that asks for it."""
    kind, _, call = stage.partition("-")
    task = _shard if kind == "shards" else partial({"rows": _rows, "edges": _edges}[kind], int(call))
    return do_task(task, folder, run, stage, index)


class _Stages:
    """Goes through the convolutions: all inputs, all results, and so on, until there is none left."""

    def __init__(self, work: Work, run: Runner, progress: ProgressCallback | None) -> None:
        self._work, self._runner = work, StageRunner(work, run, progress)

    def compute(self, vertices: int) -> int:
        """The model's results; which of the rows these are."""
        call, pieces = 0, len(_Loaded.of(self._work).pieces)
        while self.do(f"rows-{call}", -(-vertices // ROWS))[0]["pending"]:
            self.do(f"edges-{call}", pieces)
            call += 1
        return call

    def do(self, stage: str, count: int) -> list[TaskResult]:
        """All tasks of a stage, unless they are done."""
        return self._runner.do(stage, count, stage.replace("-", " "))


@dataclass(frozen=True)
class _Loaded:
    """Graph and model, as a process needs them."""

    trained: TrainedModel
    layers: Layerwise
    pieces: list[tuple[int, int]]  # vertices whose edges a convolution goes over at a time
    what: str

    @staticmethod
    @lru_cache(maxsize=1)
    def of(work: Work) -> "_Loaded":
        job = work.load("job")
        # The command has checked it, if it is not to be fetched by each host.
        graph = Graph.open_lists(job["graph"]) if is_address(job["graph"]) else Graph.mapped(job["graph"])
        trained = load_model(Path(job["model"]), graph)
        dtype = dtype_for(trained.settings)
        model, features = encoder_of(trained.model).to(dtype).eval(), trained.graph.features_to_train_on()
        layers = Layerwise(model, trained.graph, features, dtype)
        return _Loaded(trained, layers, pieces_of(trained.graph), job["what"])

    def given(self, vertices: np.ndarray) -> Tensor:
        """The features of vertices, as the model is given them."""
        features, dtype = self.trained.graph.features_to_train_on(), dtype_for(self.trained.settings)
        return given_rows(features, torch.from_numpy(vertices), dtype, threads=1)


class _Rows:
    """Rows that the tasks of a stage have written, by vertex."""

    def __init__(self, work: Work, stage: str, bounds: Sequence[int]) -> None:
        self._results, self._work = work.load(stage), work
        result = self._results[0]
        self._files = [work.place(stage, index) / "rows" for index in range(len(bounds) - 1)]
        self._bounds = np.array(bounds)
        self._shape, self._dtype = tuple(result["shape"]), np.dtype(result["dtype"])

    def __getitem__(self, some: slice) -> np.ndarray:
        return self.of(np.arange(*some.indices(int(self._bounds[-1]))))

    def of(self, vertices: np.ndarray) -> np.ndarray:
        """Those of some vertices."""
        out = np.empty((len(vertices), *self._shape), dtype=self._dtype)
        order = np.argsort(vertices, kind="stable")
        rising = vertices[order]
        file = np.searchsorted(self._bounds, rising, side="right") - 1
        begins = np.flatnonzero(np.diff(file, prepend=-1))  # of the files that have some
        for begin, stop in pairwise([*begins, len(file)]):
            index = file[begin]
            first, end = self._bounds[index : index + 2]
            if self._results[index].get("features"):
                out[order[begin:stop]] = _Loaded.of(self._work).given(rising[begin:stop]).numpy()
                continue
            there = np.memmap(self._files[index], self._dtype, "r", shape=(int(end - first), *self._shape))
            out[order[begin:stop]] = there[rising[begin:stop] - first]
        return out


def _inputs(work: Work, call: int) -> _Rows:
    vertices = _Loaded.of(work).trained.graph.num_vertices
    return _Rows(work, f"rows-{call}", [*range(0, vertices, ROWS), vertices])


def _computed(work: Work, calls: int) -> list[_Rows]:
    bounds = [0, *(end for _, end in _Loaded.of(work).pieces)]
    return [_Rows(work, f"edges-{call}", bounds) for call in range(calls)]


def _rows(call: int, work: Work, index: int, out: Path) -> TaskResult:
    """Some inputs of a convolution; where there is none any more, results of the model."""
    some = slice(index * ROWS, (index + 1) * ROWS)
    layers = _Loaded.of(work).layers
    with torch.no_grad():
        reached = layers.up_to_next(some, _computed(work, call))
        if not isinstance(reached, Pending):
            return {"pending": False, **_write(reached, out)}
        result = {"pending": True, "columns": reached.columns}
        if call == 0 and layers.takes_features(reached, some):
            return {**result, "features": True, **_told(reached.inputs.cpu().numpy())}
        return {**result, **_write(reached.inputs, out)}


def _edges(call: int, work: Work, index: int, out: Path) -> TaskResult:
    """Some results of a convolution."""
    loaded, inputs = _Loaded.of(work), _inputs(work, call)
    with torch.no_grad(), _some_at_a_time():
        pending = loaded.layers.up_to_next(slice(0, 1), _computed(work, call))
        assert isinstance(pending, Pending)
        some = loaded.pieces[index]
        return _write(loaded.layers.convolved(pending, some, lambda ids: torch.from_numpy(inputs.of(ids.numpy()))), out)


def _write(rows: Tensor, out: Path) -> TaskResult:
    values = rows.cpu().numpy()
    values.tofile(out / "rows")
    return _told(values)


def _told(values: np.ndarray) -> TaskResult:
    return {"shape": list(values.shape[1:]), "dtype": values.dtype.str}


def _shard(work: Work, index: int, out: Path) -> TaskResult:
    """Some rows of the result, in the order of the import."""
    loaded, call = _Loaded.of(work), work.load("last")
    graph, what, first = loaded.trained.graph, loaded.what, index * _SHARD
    vertices = _imported(graph, first, min(first + _SHARD, graph.num_vertices))
    # Of a convolution's inputs those that it convolves: others may go beside them.
    columns = work.load(f"rows-{call}")[0].get("columns")
    values: np.ndarray = _inputs(work, call).of(vertices)[:, :columns]
    values = values if what == "embeddings" else told(values, what, loaded.trained.several_labels, graph.num_classes)
    pq.write_table(table_of(values, vertices, first, graph, what), out / "part.parquet")
    return {}


def _imported(graph: Graph, first: int, end: int) -> np.ndarray:
    """The vertices that were imported as numbers `first` to `end`; original ids are read a chunk at a time."""
    if graph.original_ids is None:
        return np.arange(first, end)
    found = np.empty(end - first, dtype=np.int64)
    for begin in range(0, graph.num_vertices, _CHUNK):
        ids = np.asarray(graph.original_ids[begin : begin + _CHUNK])
        at = np.flatnonzero((ids >= first) & (ids < end))
        found[ids[at] - first] = begin + at
    return found
