"""Where settings have an effect, and the plan that they name. One that has none is refused, with the reason and what to do.

Each setting names its conditions in `groups`; here is what they mean. Some are known by the settings alone, others by the
plan. Where the planner is to choose the plan, those hold that some plan of its search can meet: it searches only these.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import ConfigError
from weft.place import place_here
from weft.plan.groups import DEFAULTS, FIELDS, PLACES
from weft.plan.plan import Plan, plan_of
from weft.plugins import PLACEMENTS, SAMPLERS

if TYPE_CHECKING:
    from weft.plan.settings import Settings

_ATTENTION = ("gat", "gatv2", "rgat")
_RELATIONAL = ("rgcn", "rgat")
_CACHES = ("cache", "cache_by")  # of a device's memory one worker has a use, too
_OWN_WAY = ("deepgcn", "film")  # models whose layers are made in their own way
_OF_PLAN = [key for key, (group, _) in PLACES.items() if group == "plan" and key != "plan"]


class NoEffectError(ConfigError):
    """A setting is given where it has no effect."""

    def __init__(self, key: str, what: str, remedy: str) -> None:
        super().__init__(f"{key} means nothing to {what}: drop it, or {remedy}")
        self.key = key


@dataclass(frozen=True)
class Condition:
    """When settings have an effect: what they mean nothing to where it does not hold, and what to set instead."""

    means_nothing_to: str
    remedy: str
    holds: Callable[["Settings"], bool] = lambda settings: True
    of_plan: Callable[["Settings", Plan], bool] | None = None  # where the plan decides
    searched: bool = True  # is there a plan in the planner's search that it holds for?


def _model(*names: str, but: tuple[str, ...] = ()) -> Callable[["Settings"], bool]:
    def holds(settings: "Settings") -> bool:
        name = settings.model.name
        return settings.model.file is not None or ((not names or name in names) and name not in but)

    return holds


def _between(*names: str) -> Callable[["Settings"], bool]:
    """Has a model layers to be between? `names`: of those that have a place for it within their only one, or beside it."""

    def holds(settings: "Settings") -> bool:
        model = settings.model
        return model.file is not None or model.layers != 1 or model.jk != "none" or model.name in names

    return holds


_SHALLOW = "the model {model} of one layer"
_WIDE, _DROPS, _NORMED = _between(*_OWN_WAY, *_RELATIONAL), _between(*_OWN_WAY, "rgcn", *_ATTENTION), _between("gin")
CONDITIONS = {
    "named": Condition(
        "a model that is made by its own code", "say it there", lambda settings: settings.model.file is None
    ),
    "width": Condition(
        "a model that is made by its own code",
        "say it there",
        lambda settings: settings.model.file is None or settings.of_links,
    ),
    # Of R-GCN and R-GAT, several types of vertices are projected first, which the graph tells.
    "hidden": Condition(_SHALLOW, "set layers", lambda settings: settings.task.name != "vertex" or _WIDE(settings)),
    "dropout": Condition(_SHALLOW, "set layers", _DROPS),
    "normed": Condition(_SHALLOW, "set layers", lambda settings: settings.model.norm == "none" or _NORMED(settings)),
    "attention": Condition("the model {model}", f"choose one of {', '.join(_ATTENTION)}", _model(*_ATTENTION)),
    "relational": Condition("the model {model}", f"choose one of {', '.join(_RELATIONAL)}", _model(*_RELATIONAL)),
    "norm": Condition("the model {model}", "choose another model", _model(but=_OWN_WAY)),
    "jk": Condition("the model {model}", "choose another model", _model(but=(*_OWN_WAY, *_RELATIONAL))),
    "links": Condition("task = '{task}'", "set task = 'link'", lambda settings: settings.of_links),
    "figure": Condition(
        "task = '{task}'",
        "set task = 'link'; of vertices, another loss or figure is an objective of one's own (docs/extending.md)",
        lambda settings: settings.of_links,
    ),
    "margin": Condition("loss = '{loss}'", "set loss = 'margin'", lambda settings: settings.task.loss == "margin"),
    "batches": Condition(
        "training on the full graph", "drop full_graph", lambda settings: not settings.sampling.full_graph
    ),
    "graph": Condition("training on batches", "set full_graph", lambda settings: settings.sampling.full_graph),
    "replace": Condition(
        "sampler = '{sampler}'", "choose another sampler", lambda settings: _sampler_takes(settings, "replace")
    ),
    "weighted": Condition(
        "sampler = '{sampler}'", "choose another sampler", lambda settings: _sampler_takes(settings, "weighted")
    ),
    "each-draws": Condition(
        "sampler = '{sampler}'", "set sampler = 'neighbor'", lambda settings: settings.sampling.sampler == "neighbor"
    ),
    "unweighted": Condition(
        "neighbours drawn by weight", "drop weighted", lambda settings: not settings.sampling.weighted
    ),
    "sgd": Condition("{optimizer}", "set optimizer = 'sgd'", lambda settings: settings.optimisation.optimizer == "sgd"),
    "sampled": Condition(
        "exact evaluation", "set evaluation = 'sampled'", lambda settings: settings.evaluation.how == "sampled"
    ),
    "evaluated": Condition(
        "a run that is evaluated only at its end", "set evaluate_every", lambda settings: settings.evaluation.every > 0
    ),
    "kept": Condition(
        "a run without checkpoints", "set checkpoint", lambda settings: settings.checkpoint.folder is not None
    ),
    "restarted": Condition(
        "a run that ends when a worker is lost", "set max_restarts", lambda settings: settings.parallel.max_restarts > 0
    ),
    "float32": Condition(
        "rows of float64",
        "set dtype = 'float32'",
        lambda settings: settings.model.dtype == "float32" or settings.plan.wire == "float32",
    ),
    "single": Condition(
        "arithmetic in float64", "set dtype = 'float32'", lambda settings: settings.model.dtype == "float32"
    ),
    "open-wire": Condition(
        "a plan that is chosen already, if it is auto",
        "set wire = 'float16'",
        lambda settings: settings.plan.wire != "auto" or settings.strategy == "auto",
    ),
    "auto": Condition(
        "a plan that is chosen already", "set plan = 'auto'", lambda settings: settings.strategy == "auto"
    ),
    "own-sockets": Condition(
        "transport = 'gloo', which makes its own connections",
        "set transport = 'sockets'",
        lambda settings: settings.parallel.transport == "sockets",
    ),
    "rows": Condition(
        "{plan}, where each worker has its slice of all rows",
        "place the first layer otherwise",
        of_plan=lambda settings, plan: plan.scope == "graph" or plan.layers[0] != "columns",
    ),
    "cache": Condition(
        "a run without a cache",
        "set cache",
        lambda settings: settings.plan.cache > 0 or settings.strategy != "auto" or "cache" not in settings.given,
        of_plan=lambda settings, plan: plan.cache > 0,
    ),
    "apart": Condition(
        "{plan}, which reads each row on one device of a host already: edges of layer 1 go to the owners of their sources",
        "place the first layer local or pull",
        of_plan=lambda settings, plan: not PLACEMENTS.get(plan.layers[0]).splits,
    ),
    "ahead": Condition(
        "batches that are prepared when their turn comes",
        "set prefetch",
        lambda settings: settings.plan.prefetch > 0 or settings.strategy != "auto",
        of_plan=lambda settings, plan: plan.prefetch > 0,
    ),
    "busy": Condition(
        "a run that makes fewer batches ready at a time (prefetch and one)",
        "raise prefetch to loaders - 1",
        lambda settings: settings.strategy != "auto" or settings.parallel.loaders <= settings.plan.prefetch + 1,
        # The planner may take a smaller prefetch, where memory is short.
        of_plan=lambda settings, plan: settings.strategy == "auto" or settings.parallel.loaders <= plan.prefetch + 1,
    ),
    "at-home": Condition(
        "{plan}, whose seeds are not computed whole at home",
        "choose leap",
        of_plan=lambda settings, plan: (
            plan.seeds == "home" and PLACEMENTS.get(plan.layers[-1]).leaves == {"request"} and plan.models == "stay"
        ),
    ),
    "migrate": Condition(
        "{plan}, where no models migrate",
        "set plan = 'migrate'",
        of_plan=lambda settings, plan: plan.models == "migrate",
        searched=False,
    ),
    "stay": Condition(
        "{plan}, where models migrate and go through a batch by time steps",
        "choose leap",
        of_plan=lambda settings, plan: plan.models == "stay",
    ),
    "at-owners": Condition(
        "{plan}, where all layers are by columns",
        "set plan = 'halo'",
        of_plan=lambda settings, plan: not plan.tensor_parallel,
    ),
    "by-column": Condition(
        "{plan}, where no layer is by columns",
        "set plan = 'tp'",
        of_plan=lambda settings, plan: plan.tensor_parallel,
    ),
    "bounded": Condition(
        "a plan of batches that is chosen already",
        "set plan = 'auto'",
        lambda settings: settings.sampling.full_graph or settings.strategy == "auto",
    ),
    "by-memory": Condition(
        "{plan}, whose number of chunks is set",
        "drop chunks",
        of_plan=lambda settings, plan: plan.decoupled or not plan.chunks,
    ),
}


def plan_named(settings: "Settings", depth: int, splits: bool = True) -> Plan:
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


def plan_options(settings: "Settings") -> dict[str, object]:
    """What the settings decide of the plan, besides its name: what is not given, the plan or the planner decides."""
    given = [key for key in _OF_PLAN if key in settings.given and settings[key] != "auto"]
    return {key: settings[key] for key in given if binds(key, settings)}


def _made(settings: "Settings", text: str, depth: int, options: dict[str, object]) -> Plan:
    """The plan of a text and options; what is off anyway, under it, is left out."""
    on = {key: value for key, value in options.items() if key == "scope" or not is_off(key, value)}
    plan = plan_of(text, depth, on)
    off = {key: value for key, value in options.items() if key not in on and binds(key, settings, plan)}
    return plan_of(text, depth, on | off)


def _usual(settings: "Settings", splits: bool) -> str:
    """A strategy that will do, where nobody planned."""
    if settings.sampling.full_graph:
        asked = [key for key in ("overlap", "chunks", "memory") if key in settings.given]
        return "halo" if all(is_off(key, settings[key]) for key in asked) else "tp"
    return "split" if splits else "leap"


def check_bindings(settings: "Settings", plan: Plan | None = None) -> None:
    """Refuse what is given and has no effect; with a plan, also what has none under it, wherever it was said."""
    said = (
        {} if plan is None else {one.name: getattr(plan, one.name) for one in fields(plan)[1:] if one.name != "seeds"}
    )
    said = {key: value for key, value in said.items() if value != getattr(Plan, key)}
    for key in DEFAULTS:
        if (key in said or key in settings.given) and not is_off(key, said.get(key, settings[key])):
            for condition in _unmet(key, settings, plan):
                raise NoEffectError(key, _what(condition, settings), condition.remedy)


def is_off(key: str, value: object) -> bool:
    """Does a value say that there is none of what is set? It is true where the setting has no effect, and not refused."""
    return value in FIELDS[key].metadata["off"]


def binds(key: str, settings: "Settings", plan: Plan | None = None) -> bool:
    """Has a setting an effect beside the others, and under a plan?"""
    return not any(_unmet(key, settings, plan))


def _unmet(key: str, settings: "Settings", plan: Plan | None) -> Iterator[Condition]:
    conditions = (CONDITIONS[name] for name in FIELDS[key].metadata["binds"])
    return (condition for condition in conditions if not _holds(condition, settings, plan))


def check_own_model(settings: "Settings", decodes: bool) -> None:
    """Refuse what would make a model, where there is one already. `decodes`: with a decoder of links?"""
    own = {key for key in DEFAULTS if "named" in FIELDS[key].metadata["binds"]} | {"model"}
    own |= {"decoder"} if decodes else set()
    own |= {"hidden"} if decodes or not settings.of_links else set()  # of a decoder that is made
    refuse(settings, own, "a model that is made already", "give the model's name in its place", even_off=True)


def check_variant(plan: Plan, decoupled: bool) -> None:
    """Refuse a plan that trains no such model. `decoupled`: is it a decoupled variant?"""
    if decoupled and not plan.decoupled:
        raise ConfigError(
            f"the model is a decoupled variant, and plan = {str(plan)!r} trains no such model: set full_graph and plan = "
            f"'tp-decoupled', or give what it was made of, its .model"
        )
    if plan.decoupled and not decoupled:
        raise ConfigError(
            f"plan = {str(plan)!r} trains the decoupled variant of a model, which is another one: name it, with plan = "
            f"'tp-decoupled', or give weft.nn.Decoupled(model)"
        )


def check_loader(settings: "Settings", plan: Plan | None = None) -> None:
    """Refuse what a loader does not look at: how a model is made, trained, evaluated, kept and reported; and what a planner
    is to decide. `plan`: one that is made already."""
    groups = ("model", "optimisation", "evaluation", "checkpoint", "report")
    kept = {"dtype", "products", "seed", "epochs"}  # epochs: what is done once is worth so much more
    kept |= {"hidden"} if settings.of_links else set()  # of a decoder that is made
    elsewhere = {key for key in DEFAULTS if PLACES[key][0] in groups} - kept
    refuse(settings, elsewhere, "a loader", "say it where the model is made and trained", even_off=True)
    unused = {"on", "workers", "cluster", "watch", "max_restarts", "min_workers"}
    unused |= set() if settings.sampling.full_graph else {"memory"}  # its plan is named, or one that will do
    refuse(settings, unused, "a loader", "say it where the model is made and trained")
    if settings.strategy == "auto" and plan is None:
        refuse(settings, {"cache_by"} if not settings.plan.cache else (), "a run without a cache", "set cache")
        refuse(settings, {"cache_per"}, "a loader whose plan is not named", "name one, such as plan = 'gdp'")
    for key, value, remedy in (
        ("plan", settings.strategy, "name one (`weft plan GRAPH --model ...` says which is fastest), or drop it"),
        ("wire", settings.plan.wire, "set wire = 'float16', or drop it"),
    ):
        if key in settings.given and value == "auto":
            raise ConfigError(f"{key} = 'auto' asks the planner, and a loader has no model to plan for: {remedy}")
    if plan is not None:
        check_same(settings, plan)


def check_same(settings: "Settings", plan: Plan) -> None:
    """Refuse options beside a plan that is made already, which has them otherwise."""
    for key in _OF_PLAN:
        value, of_plan = settings[key], getattr(plan, key)
        off = is_off(key, value) and not binds(key, settings, plan)
        if key in settings.given and value != of_plan and not off:
            raise ConfigError(f"{key} = {value!r} is set beside a plan that has {key} = {of_plan!r}: drop one of them")


def check_device(settings: "Settings", kind: str, workers: int) -> None:
    """Refuse what means nothing to a run of so many workers on the kind of device that it is on."""
    keys, remedy = (
        ({"products", "cache_per", "sample_on"}, "'cuda' on a machine that has one")
        if kind == "cpu"
        else ({"overlap", "memory"}, "'cpu'")
    )
    refuse(settings, keys, f"a run on {kind}", f"set device = {remedy}")
    if kind == "cpu" and workers == 1 and place_here() is None:
        caches = {key for key in _CACHES if settings[key] != DEFAULTS[key]}
        refuse(settings, caches, "a run of one worker on cpu", "start several, by `workers` or torchrun")


def check_cache(plan: Plan, on_device: bool, workers: Sequence[int]) -> None:
    """Refuse a cache a host where it would be each worker's own; `workers`: of each host."""
    if plan.cache_of_host:
        if not on_device:
            raise NoEffectError("cache_per", "workers that compute on processors", "set device = 'cuda'")
        if max(workers) == 1:
            raise NoEffectError("cache_per", "workers that have a host each", "start several on a host")
        if PLACEMENTS.get(plan.layers[0]).splits:
            what = f"a plan whose first layer is {plan.layers[0]}, which reads no row on two devices of a host"
            raise NoEffectError("cache_per", what, "place that layer local or pull")


def check_workers(settings: "Settings") -> None:
    """Refuse what only several workers can follow, where there is one: unless a launcher says so, such as torchrun."""
    if settings.parallel.workers > 1 or place_here() is not None:
        return
    of_others = {key for key in DEFAULTS if PLACES[key][0] == "plan"} | {
        "cluster",
        "watch",
        "transport",
        "memory",
        "ports",
        "tls",
    }
    of_others -= {
        "prefetch",
        "chunks",
        *(() if settings.parallel.device == "cpu" else _CACHES),
        *(["plan", "memory"] if settings.sampling.full_graph else []),
    }
    said = {key for key in of_others if settings[key] != DEFAULTS[key]}
    refuse(settings, said, "a run of one worker", "start several, by `workers` or torchrun")


def refuse(settings: "Settings", keys: Collection[str], what: str, remedy: str, even_off: bool = False) -> None:
    """Refuse those of some settings that are given. `even_off`: if off, too, for others may have it on."""
    for key in DEFAULTS:
        if key in keys and key in settings.given and (even_off or not is_off(key, settings[key])):
            raise NoEffectError(key, what, remedy)


def _holds(condition: Condition, settings: "Settings", plan: Plan | None) -> bool:
    if not condition.holds(settings):
        return False
    if plan is None:
        return condition.searched or settings.strategy != "auto"
    return condition.of_plan is None or condition.of_plan(settings, plan)


def _what(condition: Condition, settings: "Settings") -> str:
    return condition.means_nothing_to.format(
        plan=f"plan = '{settings.plan.name}'",
        model=settings.model.name,
        task=settings.task.name,
        loss=settings.task.loss,
        sampler=settings.sampling.sampler,
        optimizer=settings.optimisation.optimizer,
    )


def _sampler_takes(settings: "Settings", option: str) -> bool:
    return option in SAMPLERS.get(settings.sampling.sampler).options
