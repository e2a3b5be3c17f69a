"""The model of a run: by name, or made by a user's own function in a file."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError, ModelError, StorageError, WeftError
from weft.graph import Graph
from weft.keys import Stream, seeded
from weft.nn import (
    DEFAULT_LAYERS,
    BlackBox,
    Decoupled,
    build,
    check_adds_up,
    check_can_run,
    check_hooks,
    check_rows,
    check_tables,
    convolution_of,
    encoder_of,
    forward_of,
)
from weft.plan import Plan, Settings, plan_named
from weft.plugins import SAMPLERS
from weft.training.objectives import Objective, objective_named, width_by, wrapped_by
from weft.training.team import owners_of

_UNUSED = {
    "edge_weight": "the graph's edge weights are not used: {} gives its convolutions none",
    "edge_type": "the graph's edge types are not used: {} takes all edges alike",
    "edge_features": "the graph's edge features are not used: {} gives its convolutions no edge_attr",
}


def make_model(settings: Settings, graph: Graph, objective: Objective | None = None) -> nn.Module:
    """The model that the settings name, for this graph's features and what is learned, with all that is trained besides."""
    objective = objective or objective_named(settings)
    graph.features_by_owner()
    encoder = variant_of(_named(settings, graph, width_by(objective, graph, settings)), settings)
    return wrapped_by(objective, encoder, settings)


def dtype_for(settings: Settings) -> torch.dtype:
    """What the settings have numbers computed in."""
    dtype: torch.dtype = getattr(torch, settings.model.dtype)
    return dtype


def variant_of(model: nn.Module, settings: Settings) -> nn.Module:
    """The model itself, or its decoupled variant, with the same parameters, where the settings' plan trains that."""
    return Decoupled.of(model) if settings.decoupled else model


def plan_for(settings: Settings, model: nn.Module, depth: int) -> Plan:
    """The plan that the settings name for a model."""
    return plan_named(settings, depth, splits(model))


def splits(model: nn.Module) -> bool:
    """Can all its convolutions be split?"""
    convolutions = (convolution_of(conv) for conv in model.modules() if isinstance(conv, MessagePassing))
    return not any(isinstance(conv, BlackBox) for conv in convolutions)


def check_plan(settings: Settings, graph: Graph, model: nn.Module) -> None:
    """Refuse what workers would refuse, before they are started."""
    model = encoder_of(model)
    check_model(settings, model, graph.num_features, settings.parallel.workers)
    owners_of(graph, settings.parallel.workers, settings.parallel.min_workers)
    plan_for(settings, model, len(settings.fanouts_for(forward_of(model, graph.num_features).depth)))


def check_model(settings: Settings, model: nn.Module, width: int, workers: int) -> None:
    """Refuse a model that can't run; is another one in batches, or on several workers; or that the sampler can't serve."""
    check_can_run(model)
    other = next((p.dtype for p in model.parameters() if p.is_floating_point() and p.dtype != torch.float32), None)
    if other is not None and "dtype" not in settings.given:
        remedy = "set dtype = 'float64'" if other == torch.float64 else "call model.float(), or set dtype"
        raise of_other_type(other, "would be computed in float32, the default", remedy)
    if not SAMPLERS.get(settings.sampling.sampler).equal_edges:
        check_adds_up(model)
    batches = not settings.sampling.full_graph
    if workers > 1 or (batches and settings.parallel.micro_batches > 1):
        check_tables(model)
        if batches:
            check_hooks(model, width)
    if batches or workers > 1:
        fewer = 3 if batches else 1  # convolutions behind which there may be fewer rows
        check_rows(model.model if isinstance(model, Decoupled) else model, width, fewer, workers > 1)


def of_other_type(parameters: torch.dtype, computed: str, remedy: str) -> ConfigError:
    """What is said of a model that has parameters of a type in which it isn't computed."""
    return ConfigError(f"the model has parameters of {parameters}, and {computed}: {remedy}")


def unused_by(model: nn.Module, graph: Graph, weighted: bool = False) -> list[str]:
    """What a model leaves unused of a graph's edges; `weighted`: are they drawn by their weights?"""
    there = [name for name in _UNUSED if getattr(graph, name) is not None]
    if not there:
        return []
    forward = forward_of(model, graph.num_features)
    used = forward.edge_arguments() | ({"edge_weight"} if weighted else set())
    return [_UNUSED[name].format(forward.kind) for name in there if name not in used]


def _named(settings: Settings, graph: Graph, out_channels: int) -> nn.Module:
    if settings.model.file is not None:
        return _from_file(*settings.model.file, graph, out_channels, settings.optimisation.seed)
    layers = settings.model.layers
    if layers is None and settings.sampling.fanouts is not None and len(settings.sampling.fanouts) > 1:
        layers = len(settings.sampling.fanouts)
    return build(
        settings.model.name,
        graph.num_features,
        settings.model.hidden,
        out_channels,
        layers or DEFAULT_LAYERS.get(settings.model.name),
        heads=settings.model.heads,
        dropout=settings.model.dropout,
        norm=None if settings.model.norm == "none" else settings.model.norm,
        jk=None if settings.model.jk == "none" else settings.model.jk,
        seed=settings.optimisation.seed,
        relations=0 if graph.edge_type is None else graph.num_edge_types,
        widths=graph.feature_widths,
        bases=settings.model.bases,
        blocks=settings.model.blocks,
    )


def _from_file(file: Path, name: str, graph: Graph, out_channels: int, seed: int) -> nn.Module:
    """What a file's function gives, called with (in_channels, out_channels); both run under the seed."""
    if not file.is_file():
        raise StorageError(f"model '{file}:{name}': there is no file {file}; check the path")
    named = f"weft_model_{file.stem}"
    spec = importlib.util.spec_from_file_location(named, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[named] = importlib.util.module_from_spec(spec)  # in which PyG looks for what is in it
    if str(file.parent.resolve()) not in sys.path:
        sys.path.append(str(file.parent.resolve()))  # of files beside it
    try:
        with seeded(Stream.INIT, seed), _told_of(file):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[named]
        raise
    function = getattr(module, name, None)
    if function is None:
        raise ModelError(f"{file} has no function {name!r}: define it as f(in_channels, out_channels)")
    try:
        inspect.signature(function).bind(graph.num_features, out_channels)
        if isinstance(function, nn.Module):
            raise TypeError("it is a model already")
    except TypeError as error:
        raise ModelError(
            f"{file}:{name} can't be called ({error}): define it as f(in_channels, out_channels)"
        ) from None
    except ValueError:  # nothing is known of its arguments
        pass
    with seeded(Stream.INIT, seed), _told_of(file):
        model = function(graph.num_features, out_channels)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{file}:{name} gave a {type(model).__name__}: it must return a torch.nn.Module")
    return model


@contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """What goes wrong in a user's file is told with the last line of it that was run."""
    try:
        yield
    except WeftError:
        raise
    except Exception as error:
        frames, name = traceback.extract_tb(error.__traceback__), type(error).__name__
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
        if isinstance(error, SyntaxError):
            raise ModelError(f"{error.filename}, line {error.lineno}: {name}: {error.msg}") from error
        raise ModelError(f"{file}{f', line {lines[-1]}' if lines else ''}: {name}: {error}") from error
