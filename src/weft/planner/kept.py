"""What is kept for later runs, in the user's cache: clusters as measured, what models cost, and what dry runs counted.

A cluster file for each set of machines, of which the first worker's counts for all: a short probe checks it each time, for
links and processors may have changed. A file for each model, its batches and machines, with what its layers cost, and how
far off the predictions of plans were that were tried beside each other, where links are as fast as they were then. Costs
are in pieces of work, and what a piece takes is found each time: so they hold however fast machines are just now. And a
file a worker with what a dry run counted of the same seeds on the same graph; not of links, whose examples are drawn, which
takes as long.
"""

import hashlib
import inspect
import io
import json
import math
import os
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch_geometric
from torch import nn
from torch.nn.parameter import is_lazy

import weft
from weft import __version__, _kernels
from weft.errors import ConfigError, StorageError
from weft.exchange import Communicator, World
from weft.graph import Graph, ProgressCallback, cache_folder, why_no_cache, with_sum, without_sum, written_beside
from weft.nn import plain_state
from weft.placements import Moves, all_placements, placement_named
from weft.plan import Plan
from weft.planner.cluster import KINDS, TIMED, UNCHANGED, Cluster
from weft.planner.cluster_file import check_sum, read_cluster, shared, write_cluster
from weft.planner.counts import CountedBatch, Counts, Drawn, Key, PlacedHop, Shape
from weft.planner.dry_run import DryRun
from weft.planner.loads import LayerCost, ModelCost
from weft.planner.model_cost import paces
from weft.planner.probe import memory_now, probe_cluster_again
from weft.planner.task import PlannedExamples, Sampling, Task, Workers
from weft.plugins import SAMPLERS
from weft.quantities import as_age
from weft.threads import PARSING, cores

_DAY = 86_400.0
DAYS = 30  # that a file counts
_CLUSTERS, _TASKS, _COUNTS = "cluster-*-workers-*.toml", "task-*.json", "counts-*-of-0.npz"
_LARGEST, _MOST = 8 << 20, 32  # bytes of a file of counts, and how many a worker has
_KNOWN = tuple(f"{package.__path__[0]}{os.sep}" for package in (torch, torch_geometric, weft))  # by their versions
_TOLD, _OF_LAYER = ({field.name for field in fields(kind)} for kind in (ModelCost, LayerCost))
_Record = TypeVar("_Record", Drawn, Moves)
_Read = dict[str, tuple[np.ndarray, np.ndarray]]  # by state: vertices that a worker read, and how often


class KeptCluster:
    """The file in which the first worker keeps what was measured of these workers' machines."""

    def __init__(self, world: World, tell: Callable[[str], None]) -> None:
        """`tell` gets the first worker's lines for its user. All workers call this together."""
        self._world, self._tell = world, tell if world.rank == 0 else lambda text: None
        comm = world.communicator("all")
        everyone = numbers_of_all(number_of((traits_of_machine(), world.carrier)), comm)
        comm.close()
        folder, of = cache_folder(), number_of((world.hosts, everyone))
        self.path = None if folder is None else folder / f"cluster-{world.size}-workers-{of:012x}.toml"

    def read(self) -> Cluster | None:
        """The cluster as it was measured, with what has changed since; None: it is to be measured.

        All workers call this together.
        """
        start, comm = time.perf_counter(), self._world.communicator("all")
        kept = shared(comm, self._found() if self._world.rank == 0 else None)
        comm.close()
        if kept is None:
            return None
        now = probe_cluster_again(self._world, kept)
        changes, took = kept.changes_to(now), time.perf_counter() - start
        age = f"the cluster as measured {as_age(time.time() - (kept.measured or 0.0))} ago ({self.path})"
        anew = (
            "`weft probe` measures it anew"
            if kept.rounds
            else "training refines what work takes, `weft probe` measures it"
        )
        if changes == UNCHANGED:
            self._tell(f"{age}, checked in {took:.1f} s; {anew}")
            return memory_now(self._world, kept)
        self._tell(f"{age}, but for what {took:.1f} s found: {changes}; {anew}")
        self.write(now)
        return memory_now(self._world, now)

    def write(self, cluster: Cluster) -> str:
        """Keep a cluster, all of it or nothing, if this is the first worker; says where, or why it is not kept."""
        if self._world.rank > 0:
            return ""
        if self.path is None:
            return (
                f"not kept for later runs ({why_no_cache()}): `weft probe --out cluster.toml` writes it for --cluster"
            )
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_cluster(self.path, cluster, summed=True)
            drop_old(self.path.parent, _CLUSTERS)
        except (OSError, StorageError) as error:
            said = getattr(error, "strerror", None) or error
            return f"not kept for later runs in {self.path} ({said}): name another folder in WEFT_CACHE, or `off`"
        return f"kept for later runs in {self.path}; `weft probe` measures it anew"

    def _found(self) -> Cluster | None:
        """What the file says, if it makes sense and is not too old."""
        if self.path is None or not os.path.exists(self.path):  # nor where this user may not look
            return None
        try:
            return self._sound(self.path)
        except ConfigError as error:
            self._tell(f"what was kept of this cluster is ignored, and it is looked at anew: {error}")
            return None

    def _sound(self, path: Path) -> Cluster:
        cluster = read_cluster(path)
        if [*cluster.workers_by_host] != self._world.workers or not cluster.work or cluster.measured is None:
            raise ConfigError(f"{path} is not what `weft probe` keeps there")
        check_sum(path)
        if not is_recent(cluster.measured):
            date = time.strftime("%Y-%m-%d", time.gmtime(cluster.measured))
            raise ConfigError(f"{path} is of {date}, and counts for {DAYS} days")
        return cluster


def is_recent(measured: float) -> bool:
    """Does what was measured at that time count?"""
    return -_DAY < time.time() - measured < DAYS * _DAY


def keep(file: Path, data: bytes, files: str) -> None:
    """Keep a file, all of it or nothing, and no others of these `files` that are too old.

    That it can't be kept is told by `KeptCluster`, in the same folder.
    """
    with suppress(OSError, StorageError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_beside(file) as beside:
            beside.write_bytes(data)
        drop_old(file.parent, files)


def drop_old(folder: Path, files: str) -> None:
    """Remove files of a folder that are too old to count."""
    with suppress(OSError):  # somebody else removes them
        for old in [file for file in folder.glob(files) if not is_recent(file.stat().st_mtime)]:
            old.unlink()


def traits_of_machine() -> tuple[object, ...]:
    """All by which a worker's machine is told from one for which other figures hold."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    machine_id = Path("/etc/machine-id")
    machine = machine_id.read_bytes() if os.access(machine_id, os.R_OK) else b""
    software = __version__, _kernels.COMMIT, _kernels.COMPILER, _kernels.LEVEL, torch.__version__, TIMED, *KINDS
    return socket.gethostname(), machine, cores().bit_count(), device, software


def number_of(traits: tuple[object, ...]) -> int:
    """A number of 48 bits for each."""
    return int.from_bytes(hashlib.sha256(repr(traits).encode()).digest()[:6], "big")


def numbers_of_all(mine: int, comm: Communicator | None) -> list[int]:
    """Such numbers of all workers; None: none of them is here. All workers call this together."""
    return [int(number) for number in comm.each(mine)] if comm else [mine]


class Tried(NamedTuple):
    """What earlier runs found of plans that they tried beside each other."""

    factors: Mapping[Plan, float]  # by how much predictions were off
    keep: Callable[[Mapping[Plan, float]], None]  # for later runs, of what this one tried


class Earlier:
    """What runs found before of a task: the file in which the first worker keeps it, for all.

    `timed`: how many seconds ago layers were timed; None: this run did.
    """

    def __init__(self, graph: Graph, model: nn.Module, shapes: list[Shape], task: Task, workers: Workers) -> None:
        """With workers that are here, all of them call this together."""
        self._comm, self._device, self._depth = workers.comm, workers.device, len(shapes)
        code, folder = code_of(model), None if task.anew else cache_folder()
        sizes = [f"{size:.1e}" for shape in shapes for size in vars(shape).values()]  # other seeds reach about as many
        drawn = task.sampling and replace(task.sampling, seed=0)
        of_task = drawn, task.dtype, task.sample_on, graph.num_vertices, graph.num_features, sizes
        of_machine = traits_of_machine(), str(workers.device), workers.threads, torch_geometric.__version__
        mine = number_of((code, _described(model), of_task, of_machine))
        numbers = numbers_of_all(0 if code is None else mine, self._comm)
        of = number_of((list(workers.hosts), numbers))
        self._path = folder / _TASKS.replace("*", f"{of:012x}") if folder and all(numbers) else None
        said = self._read()
        self._found = said and said["cost"]
        self._measured = time.time() if said is None else said["measured"]
        self.timed = None if said is None else max(0.0, time.time() - self._measured)
        self._factors = {Plan.from_dict(plan): factor for plan, factor in said["factors"]} if said else {}
        self._rates: list[float] = said["rates"] if said else []  # of links, where the factors hold
        self._later, self._later_rates = self._factors, self._rates

    def cost(self, find: Callable[[], ModelCost]) -> ModelCost:
        """What a step of the model costs, as it was found, or is now and kept. All workers call this together."""
        if self._found is None:
            found = find()
            self._found = asdict(found)
            self._write()
            return found
        (now, there), cost = paces(self._comm, self._device), _cost_of(self._found)
        return replace(cost, pace=now, device_pace=None if cost.device_pace is None else there)

    def tried(self, cluster: Cluster) -> Tried:
        """What was found of plans on links like a cluster's."""
        factors = self._factors if cluster.has_rates(self._rates) else {}
        return Tried(factors, partial(self._keep, cluster, factors))

    def _keep(self, cluster: Cluster, factors: Mapping[Plan, float], took: Mapping[Plan, float]) -> None:
        """Keep for later runs what plans took over what was predicted, which were tried beside the first of them."""
        first = next(iter(took.values()))
        later = self._later if cluster.has_rates(self._later_rates) else {}
        self._later = later | {plan: factors.get(plan, 1.0) * one / first for plan, one in took.items()}
        self._later_rates = cluster.rates
        self._write()

    def _read(self) -> dict[str, Any] | None:
        """What the file says, for all workers; None: nothing that is whole, makes sense and is not too old."""

        def sound() -> dict[str, Any] | None:
            try:
                said = json.loads(without_sum(self._path.read_bytes()) or "{}") if self._path else {}
                if len(_cost_of(said["cost"]).layers) != self._depth:
                    return None
                pairs = [[plan, factor] for plan, factor in said["factors"]]
                factors = [[plan, factor] for plan, factor in pairs if _is_plan(plan) and _is_figure(factor) and factor]
                known = {"factors": factors, "rates": [float(rate) for rate in said["rates"] if _is_figure(rate)]}
                return said | known if is_recent(said["measured"]) else None
            except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
                return None

        return self._comm.decided(sound) if self._comm else sound()

    def _write(self) -> None:
        """Keep all of it, if this is the first worker and may; and nothing of other tasks that is too old to count."""
        if self._path is None or (self._comm is not None and self._comm.rank > 0):
            return
        factors = [[plan.as_dict(), factor] for plan, factor in self._later.items()]
        text = json.dumps(
            {"measured": self._measured, "cost": self._found, "factors": factors, "rates": self._later_rates}
        )
        keep(self._path, with_sum(f"{text}\n".encode()), _TASKS)


def code_of(model: nn.Module) -> list[int] | None:
    """Sums of the files in which a model's classes are written, but for known packages'; None: they are in no file."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__ if kind is not object}
    try:
        own = sorted({file for file in map(_file_of, kinds) if not file.startswith(_KNOWN)})
        return [zlib.crc32(Path(file).read_bytes()) for file in own]
    except (OSError, TypeError, KeyError):  # written at a prompt
        return None


def _file_of(kind: type) -> str:
    """Where a class is written; the module of a user's file may be known by no name."""
    functions = filter(inspect.isfunction, vars(kind).values())
    own = (function for function in functions if function.__module__ == kind.__module__)  # PyG adds some that it makes
    first = next(own, None)
    return inspect.getfile(sys.modules[kind.__module__]) if first is None else first.__code__.co_filename


def _cost_of(said: dict[str, Any]) -> ModelCost:
    """Costs from plain data; a ValueError where they are none, or those of a version that told others."""
    if set(said) != _TOLD or any(set(one) != _OF_LAYER for one in said["layers"]):
        raise ValueError("not what a step costs")
    cost = ModelCost(**said | {"layers": [LayerCost(**one) for one in said["layers"]]})
    device_pace = 0.0 if cost.device_pace is None else cost.device_pace
    bytes_of_model = cost.parameters, cost.frozen
    of_model = [cost.between, cost.inputs, cost.step, cost.pace, *bytes_of_model, device_pace, *cost.widths]
    values = [*of_model, *(value for layer in cost.layers for value in vars(layer).values())]
    if not all(map(_is_figure, values)):
        raise ValueError("not what a step costs")
    if len(cost.widths) != len(cost.layers) + 1:
        raise ValueError("not what some layers cost")
    return cost


def _is_figure(said: Any) -> bool:
    """Is it a number, as times and bytes are? An OverflowError where it is far too large."""
    return isinstance(said, int | float) and 0 <= float(said) < math.inf


def _is_plan(said: dict[str, Any]) -> bool:
    """Is it a plan still? Placements of plugins come and go."""
    try:
        return bool(Plan.from_dict(said))
    except ConfigError:
        return False


def _described(model: nn.Module) -> list[object]:
    """What modules are, and how large, as far as it tells what they cost."""
    kinds = [(name, type(module).__qualname__) for name, module in model.named_modules()]
    parameters = dict(model.named_parameters())
    sizes = [(name, None if is_lazy(p) else tuple(p.shape), str(p.dtype)) for name, p in parameters.items()]
    return [kinds, sizes, [name for name, p in parameters.items() if p.requires_grad], plain_state(model)]


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
        self._files = _COUNTS.replace("0", str(self._comm.rank))
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
    """Of the vertices of all batches that may be looked at, and where each ends; 0: they are not told by their vertices."""
    found = 1
    makes: list[Callable[..., PlannedExamples]] = [*task.examples]
    if len(makes) == 1:  # the next epoch's is looked at besides
        makes.append(partial(makes[0], 1))
    for make in makes:
        examples = make()
        if examples.needed is not None:
            return 0
        found = zlib.crc32(np.append(examples.vertices, len(examples.vertices)).astype(np.int64).tobytes(), found)
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
