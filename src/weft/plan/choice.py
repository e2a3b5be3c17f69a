"""The plan that a run's settings name."""

from pathlib import Path

from weft.errors import ConfigError
from weft.plan.binding import binds, check_bindings, is_off
from weft.plan.groups import PLACES
from weft.plan.plan import Plan, plan_of
from weft.plan.settings import Settings

_OPTIONS = [key for key, (group, _) in PLACES.items() if group == "plan" and key != "plan"]


def plan_named(settings: Settings, depth: int, splits: bool = True) -> Plan:
    """The plan that the settings name, for a model of so many convolutions; one that will do, if they leave it open.

    `splits`: can all its convolutions be split? All settings that are given have an effect under the plan, or are refused.
    """
    text, scope = settings.plan.name, "graph" if settings.sampling.full_graph else "batches"
    options = plan_options(settings)
    if settings.plan.is_file:
        for key in options:
            raise ConfigError(f"plan = {text} is a file and {key} is set besides: say {key} in the plan's file")
        plan = Plan.read(Path(text))
        if len(plan.layers) != depth:
            raise ConfigError(f"{text} has {len(plan.layers)} placements for {depth} convolutions: give one for each")
        if plan.decoupled:
            raise ConfigError(
                f"{text} is of the decoupled model, which is another one: name it, with plan = 'tp-decoupled'"
            )
    else:
        text = _usual(settings, splits) if settings.strategy == "auto" else text
        head, *words = text.split() or [""]
        if head == "halo" and not splits:
            text = " ".join(["+".join(["pull"] * depth), *words])
        plan = _made(settings, text, depth, options | ({"scope": scope} if scope == "graph" else {}))
    if plan.scope != scope:
        but = "set" if plan.scope == "graph" else "drop"
        raise ConfigError(f"{text} is a plan of scope = {plan.scope!r}: {but} full_graph, or choose another plan")
    check_bindings(settings, None if settings.strategy == "auto" else plan)
    return plan


def plan_options(settings: Settings) -> dict[str, object]:
    """What the settings decide of the plan, besides its name: what is not given, the plan or the planner decides."""
    given = [key for key in _OPTIONS if key in settings.given and settings[key] != "auto"]
    return {key: settings[key] for key in given if binds(key, settings)}


def _made(settings: Settings, text: str, depth: int, options: dict[str, object]) -> Plan:
    """The plan of a text and options; what is off anyway, under it, is left out."""
    on = {key: value for key, value in options.items() if key == "scope" or not is_off(key, value)}
    plan = plan_of(text, depth, on)
    off = {key: value for key, value in options.items() if key not in on and binds(key, settings, plan)}
    return plan_of(text, depth, on | off)


def _usual(settings: Settings, splits: bool) -> str:
    """A strategy that will do, where nobody planned."""
    if settings.sampling.full_graph:
        asked = [key for key in ("overlap", "chunks", "memory") if key in settings.given]
        return "halo" if all(is_off(key, settings[key]) for key in asked) else "tp"
    return "split" if splits else "leap"
