"""What runs find of a task is kept for later ones: a file for each model, its batches and machines, in the user's cache.

That is what a model costs, and how far off the predictions of plans were that were tried beside each other, where links are
as fast as they were then. Costs are in pieces of work, and what a piece takes is found each time: so they hold however fast
machines are just now.
"""

import inspect
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch import nn
from torch.nn.parameter import is_lazy

import weft
from weft.errors import ConfigError
from weft.graph import Graph, cache_folder, with_sum, without_sum
from weft.nn import plain_state
from weft.plan import Plan
from weft.planner.cluster import Cluster
from weft.planner.counts import Shape
from weft.planner.kept import is_recent, keep, number_of, numbers_of_all, traits_of_machine
from weft.planner.loads import LayerCost, ModelCost
from weft.planner.model_cost import paces
from weft.planner.task import Task, Workers

_KNOWN = tuple(f"{package.__path__[0]}{os.sep}" for package in (torch, torch_geometric, weft))  # by their versions
_FILES = "task-*.json"
_TOLD, _OF_LAYER = ({field.name for field in fields(kind)} for kind in (ModelCost, LayerCost))


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
        self._path = folder / _FILES.replace("*", f"{of:012x}") if folder and all(numbers) else None
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
        keep(self._path, with_sum(f"{text}\n".encode()), _FILES)


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
    of_model = [cost.between, cost.inputs, cost.step, cost.pace, cost.parameters, device_pace, *cost.widths]
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
    sizes = [(name, None if is_lazy(p) else tuple(p.shape), str(p.dtype)) for name, p in model.named_parameters()]
    return [kinds, sizes, plain_state(model)]
