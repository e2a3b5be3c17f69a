"""The stages of a job in their order: ids looked at and numbered, edges sent to destinations, lists made, files copied."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from weft.errors import InputError
from weft.graph.csr import id_type, range_bounds, running_sum
from weft.graph.directory import ArrayEntry, DirectoryWriter, Facts
from weft.graph.edges_to_csr import ProgressCallback
from weft.graph.shards import assembly, edges, names, vertices
from weft.graph.shards.assembly import entries_of, prepared
from weft.graph.shards.names import missing_name
from weft.graph.shards.request import Job, Layout, ShardRequest, described, tasks_for
from weft.graph.shards.work import Runner, StageFunction, StageRunner, TaskResult, Work, alone_in, do_task
from weft.graph.storage import forget_steps, steps_folder
from weft.graph.tables import check_edges

STAGES: dict[str, tuple[StageFunction, str]] = {  # by name: of a job's folder, a number and where to write; its title
    "looked": (vertices.looked_at, "looking at vertices"),
    "highest": (edges.highest, "looking at edges"),
    "ends": (edges.named, "reading names"),
    "vertices": (vertices.written, "writing vertices"),
    "known": (names.known_names, "looking names up"),
    "firsts": (names.first_names, "finding new names"),
    "ranks": (names.ranked_names, "numbering names"),
    "numbers": (names.appeared_names, "looking names up"),
    "sent": (edges.sent, "sending edges"),
    "lists": (edges.listed, "making lists"),
    "places": (edges.placed, "placing lists"),
    "copies": (assembly.copied, "writing arrays"),
}


@dataclass(frozen=True)
class ShardedGraph:
    """What was made, and what it took."""

    vertices: int
    edges: int
    width: int
    classes: int
    left_out: tuple[str, ...]
    peak: int  # bytes that the largest of the processes has held
    resumed: tuple[str, ...]  # stages of which something was done already


def make_shards(
    request: ShardRequest, out: Path, run: Runner, *, overwrite: bool = False, progress: ProgressCallback | None = None
) -> ShardedGraph:
    """Make a graph directory of tables by tasks. Stopped halfway, the same call goes on; done, it leaves nothing else."""
    out = Path(os.path.realpath(out))
    writer = DirectoryWriter(out, overwrite=overwrite)
    writer.check()
    job, identity, left_out = described(request)
    work = Work(steps_folder(out, [identity, asdict(job)]))
    with alone_in(work.folder), _steps_kept(work, None not in identity):
        stages = _Stages(work, job, run, progress)
        layout = stages.number()
        edges = stages.make_lists()
        with writer as directory:
            entries = stages.copy(directory.folder)
            names = {name: entries.pop(name) for name in tuple(entries) if name.startswith("names")}
            directory.take(**entries)
            if layout.bounds is not None:
                directory.add(bounds=np.array(layout.bounds, dtype=np.int64))
            directory.take(**names)
            classes = max((one["classes"] for one in work.load("vertices") or ()), default=0)
            directory.facts = Facts(classes, job.labels if len(job.labels) > 1 else layout.classes)
    forget_steps(out)
    width, done = entries["features"].shape[1] if "features" in entries else 0, stages.runner
    return ShardedGraph(layout.vertices, edges, width, classes, left_out, done.peak, tuple(done.resumed))


@contextmanager
def _steps_kept(work: Work, known: bool) -> Iterator[None]:
    """Keep what is done for the same command; not where tables are wrong, or not `known` from others of their size."""
    if not known:
        work.begin_anew()  # of one that was killed
    try:
        yield
    except BaseException as error:
        if not known or isinstance(error, InputError):  # other tables are other work
            shutil.rmtree(work.folder, ignore_errors=True)
        raise


def run_task(folder: Path, run: str, stage: str, index: int) -> TaskResult:
    """Run a task of a job, wherever its folder is seen. `run`: a name of the command that asks for it."""
    return do_task(STAGES[stage][0], folder, run, stage, index)


class _Stages:
    """Goes through the stages, and drops what none of the later ones reads."""

    def __init__(self, work: Work, job: Job, run: Runner, progress: ProgressCallback | None) -> None:
        self._work, self._job, self.runner = work, job, StageRunner(work, run, progress)
        work.save("job", asdict(job))

    def number(self) -> Layout:
        """Give all vertices their numbers."""
        job, pieces = self._job, len(self._job.edge_pieces)
        if job.nodes is not None:
            layout = self._kept(self._with_nodes(self._do("looked", len(job.node_pieces))))
            widths = {one["width"] for one in self._do("vertices", len(job.node_pieces))}
            if len(widths) > 1:  # of lists, which are as long within each piece
                raise InputError(
                    f"{job.nodes}: features of some rows have {min(widths)} numbers, of others {max(widths)}: all must have "
                    f"as many"
                )
            if layout.by_name:
                self._do("ends", pieces)
                self._check(self._do("known", job.buckets))
        elif job.textual or job.ids == "names":
            self._do("ends", pieces)
            firsts = self._do("firsts", job.buckets)
            layout = self._kept(self._of_edges(sum(sum(one["counts"]) for one in firsts), by_name=True))
            self._do("ranks", pieces)
            self._do("numbers", job.buckets)
        else:
            given = job.vertices or 0
            highest = [] if given else [one["highest"] for one in self._do("highest", pieces)]
            layout = self._kept(self._of_edges(given or max(highest, default=-1) + 1, by_name=False))
        return layout

    def make_lists(self) -> int:
        """Send the edges to their destinations, and make lists there; how many edges the graph has."""
        ranges = Layout.of(self._work).ranges
        self._do("sent", len(self._job.edge_pieces))
        self._work.drop("ends", "known", "firsts", "numbers")
        lists = self._do("lists", ranges)
        self._work.drop("sent")
        self._do("places", ranges)
        return sum(one["edges"] for one in lists)

    def copy(self, folder: Path) -> dict[str, ArrayEntry]:
        """Make the files of the graph."""
        self._work.drop("copies")  # into the folder of a command that was stopped
        return entries_of(self._work, self._do("copies", prepared(self._work, folder), again=True))

    def _do(self, stage: str, count: int, *, again: bool = False) -> list[TaskResult]:
        return self.runner.do(stage, count, STAGES[stage][1], again=again)

    def _kept(self, layout: Layout) -> Layout:
        if layout.vertices < (self._job.parts or 1):
            raise InputError(f"{self._job.parts} parts are not possible with {layout.vertices} vertices: give fewer")
        self._work.save("layout", asdict(layout))
        return layout

    def _with_nodes(self, looked: Sequence[TaskResult]) -> Layout:
        """Vertices are the rows of their table, or those of each owner in this order."""
        job = self._job
        counts = np.array([one["counts"] for one in looked], dtype=np.int64).reshape(-1, job.groups)
        vertices, positions = int(counts.sum()), all(one["positions"] for one in looked)
        if not vertices:
            raise InputError(f"{job.nodes} has no rows: the graph needs at least one vertex")
        if job.ids == "positions" and not positions:
            raise InputError(
                f"{job.nodes}: column {job.id} is not 0, 1, 2, ..., so that its ids are names: drop --ids positions"
            )
        owned = running_sum(counts.sum(0))
        words = sorted(set().union(*(one["words"] for one in looked)))
        return Layout(
            vertices,
            by_name=not positions or job.owner is not None,
            keeps_names=not positions or job.ids == "names",
            classes=tuple(words) if job.label_words else None,
            runs=tuple(map(tuple, (owned[:-1] + np.cumsum(counts, axis=0) - counts).tolist())),
            bounds=tuple(owned.tolist()) if job.owner else self._bounds(vertices),
            ranges=self._ranges(vertices),
        )

    def _of_edges(self, vertices: int, by_name: bool) -> Layout:
        """Vertices are what edges name."""
        check_edges(self._job.edges, vertices)
        return Layout(vertices, by_name, by_name, None, (), self._bounds(vertices), self._ranges(vertices))

    def _bounds(self, vertices: int) -> tuple[int, ...] | None:
        return None if self._job.parts is None else tuple(range_bounds(vertices, self._job.parts).tolist())

    def _ranges(self, vertices: int) -> int:
        job = self._job
        edges = sum(piece.rows for piece in job.edge_pieces) * (1 + job.options.undirected)
        an_edge = np.dtype(id_type(vertices)).itemsize + 4 * (job.weight is not None) + 4 * (job.type is not None)
        return min(vertices, tasks_for(4 * edges * an_edge + 200 * vertices, job.memory))

    def _check(self, known: Sequence[TaskResult]) -> None:
        """Refuse a vertex that comes twice, and an edge whose end is none."""
        twice = [one["twice"] for one in known if one["twice"] >= 0]
        if twice:
            raise InputError(
                f"{self._job.nodes}: the id in row {min(twice)} comes twice; ids of vertices must be unique"
            )
        missing = [one["missing"] for one in known if one["missing"]]
        if missing:
            raise missing_name(self._work, *min(missing))
