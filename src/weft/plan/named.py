"""The plan that settings name: a strategy, a placement for each layer, or a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.plan.plan import NAMED, OF_GRAPH, Plan, mixed
from weft.plan.settings import Settings

# What a plan has besides layers and seeds, and the settings too.
_OPTIONS = ("group", "topology", "cache", "cache_by", "wire", "slack", "gather", "merge", "prefetch")

_OF_GRAPH = ("replicate", "overlap", "chunks")  # and what plans of the full graph have


def plan_named(settings: Settings, depth: int, splits: bool) -> Plan:
    """The plan that the settings name, for a model of some depth; `splits`: can all its convolutions be split?"""
    options: dict[str, Any] = {name: settings[name] for name in _OPTIONS}
    if settings.plan.wire == "auto":
        options["wire"] = "float32"
    if settings.sampling.full_graph:
        return _graph_plan(settings, depth, splits, {name: options[name] for name in ("topology", "wire")})
    if settings.plan.seeds != "auto":
        options["seeds"] = settings.plan.seeds
    name = settings.plan.name
    if name.endswith((".toml", ".json")):
        return _read_plan(Path(name), settings, depth)
    if name == "auto":  # nobody planned
        name = "split" if splits else "leap"
    if name in NAMED:
        return NAMED[name](depth, **options)
    return mixed(*_placements(name, NAMED, depth), **options)


def _graph_plan(settings: Settings, depth: int, splits: bool, options: dict[str, Any]) -> Plan:
    """The plan of the full graph that the settings name; without a name, all at the owners."""
    name = settings.plan.name
    if name.endswith((".toml", ".json")):
        return _read_plan(Path(name), settings, depth)
    options |= {option: settings[option] for option in _OF_GRAPH}
    if name in ("tp", "tp-decoupled"):
        return OF_GRAPH[name](depth, **options)
    if settings.parallel.memory is not None:
        raise ConfigError(f"memory means nothing to plan = {name!r}: choose tp or tp-decoupled, or drop it")
    if name in ("halo", "auto"):
        return OF_GRAPH["halo"](depth, "cover" if splits else "pull", **options)
    return Plan(_placements(name, OF_GRAPH, depth), scope="graph", seeds="home", **options)


def _placements(name: str, named: Iterable[str], depth: int) -> tuple[str, ...]:
    layers = tuple(part.strip() for part in name.split(","))
    if len(layers) == 1 and depth > 1:
        raise ConfigError(
            f"plan = {name!r} is not known: choose one of {', '.join(named)}, or a placement for each of {depth} layers"
        )
    if len(layers) != depth:
        raise ConfigError(f"plan = {name!r} has {len(layers)} placements for {depth} convolutions: give one for each")
    return layers


def _read_plan(path: Path, settings: Settings, depth: int) -> Plan:
    usual = Settings()
    for option in ("seeds", *_OPTIONS, *_OF_GRAPH):
        if settings[option] != usual[option]:
            raise ConfigError(f"plan = {path} is a file and {option} is set besides: say {option} in the plan's file")
    plan = Plan.read(path)
    if len(plan.layers) != depth:
        raise ConfigError(f"{path} has {len(plan.layers)} placements for {depth} convolutions: give one for each")
    if (plan.scope == "graph") != settings.sampling.full_graph:
        but = "drop" if settings.sampling.full_graph else "set"
        raise ConfigError(f"{path} is a plan of scope = {plan.scope!r}: {but} full_graph, or choose another plan")
    if plan.decoupled:
        raise ConfigError(
            f"{path} is of the decoupled model, which is another one: name it, with plan = 'tp-decoupled'"
        )
    return plan
