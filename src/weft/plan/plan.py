"""The plan: where each layer of a model is computed, as data. Named strategies are constructors of plans."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self

from weft.config import TYPES, read_toml
from weft.errors import ConfigError, StorageError
from weft.plan.groups import PlanSettings
from weft.plugins import PLACEMENTS
from weft.quantities import size_of

_MOST = 1 << 63  # of options that are numbers
_OWNER, _REQUEST, _INPUT = "owner", "request", "input"  # how rows are held between layers, or fetched below them


@dataclass(frozen=True)
class Plan:
    """A placement for each layer (the one nearest the inputs first), and how batches, topology and rows are handled."""

    layers: tuple[str, ...]
    seeds: str = "spread"  # round-robin over the workers, or at home: at their owners
    group: str = "all"  # who cooperates on a batch: all workers, or those of each host (data-parallel above)
    topology: str = "replicated"  # every worker reads all neighbour lists, or partitioned: only its own
    cache: float = 0.0  # feature rows that a worker keeps besides its own: a share of all (up to 1), or bytes
    cache_by: str = "reads"  # which: those most read in a dry run, or of most out-edges (degree)
    cache_per: str = (
        "worker"  # each has its own, or there is one a host: its devices hold other rows, and read each other's
    )
    wire: str = "float32"  # how rows travel; float16 halves the bytes and gives up exactness
    slack: float = 0.1  # seeds at home under local layers: how far above its share a worker's may be
    models: str = "stay"  # or migrate: they visit the workers where their seeds are at home, a time step at each
    gather: str = "batch"  # migrating models: rows come in one fetch for all steps of a batch, or in one for each step
    merge: str = "fewest"  # migrating models: which time steps are tried to be dropped: of fewest seeds, random, none
    prefetch: int = 2  # batches prepared ahead of the one that is computed; 0: each when its turn comes
    scope: str = "batches"  # or graph: all vertices with all their neighbours are one batch, made ready once
    decoupled: bool = False  # the whole graph by columns: dense layers apart from aggregations (another model)
    replicate: bool = False  # the whole graph at owners: rows that cost less to compute again than to send are
    overlap: bool = True  # the whole graph by columns: what travels does so while something else is computed
    chunks: int = 0  # the whole graph by columns: pieces that destinations are gone through in; 0: by the memory budget

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        for name, choices in (("models", ("stay", "migrate")), ("scope", ("batches", "graph"))):
            _check_choice(name, getattr(self, name), choices)
        for name, one in _OPTIONS.items():
            value, low, high = getattr(self, name), one.metadata["low"], one.metadata["high"]
            _check_choice(name, value, [choice for choice in one.metadata["choices"] if choice != "auto"])
            if low is not None and not low <= value < _MOST:
                raise ConfigError(f"plan: {name} = {value} is out of range: it must be at least {low}, and finite")
            if high is not None and value > high:
                raise ConfigError(f"plan: {name} = {value} is out of range: it must be at most {high}")
        if self.scope == "graph":
            _check_graph(self)
        else:
            _check_layers(self.layers, self.seeds)
            _check_batches(self)

    @property
    def tensor_parallel(self) -> bool:
        """Is the whole graph gone over on slices of columns?"""
        return self.scope == "graph" and self.layers[0] == "columns"

    @property
    def unpriced(self) -> str | None:
        """Why the planner has no price for it, if it has none."""
        if self.models == "migrate":
            return "has models that migrate, which go through a batch by a schedule of their own: it is not priced"
        return None

    @property
    def cache_of_host(self) -> bool:
        """Is there one cache of all devices of a host?"""
        return self.cache > 0 and self.cache_per == "host"

    def held(self, depth: int) -> str:
        """How the rows of a depth are held: by their `owner`, or by `request`: where they are needed; 0: the `input`."""
        if self.scope == "graph":
            return _OWNER
        if not depth:
            return _INPUT
        possible = _held(_kinds(self.layers), depth)
        return _REQUEST if _REQUEST in possible else _OWNER

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data, for JSON and TOML."""
        return asdict(self) | {"layers": list(self.layers)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A plan from plain data; unknown keys are refused."""
        known = [one.name for one in fields(cls)]
        for name in data:
            if name not in known:
                raise ConfigError(f"plan: there is no key {name!r}; known ones are {', '.join(known)}")
        if "layers" not in data:
            raise ConfigError("plan: layers are missing: name a placement for each, the one nearest the inputs first")
        if not isinstance(data["layers"], list | tuple) or not all(isinstance(one, str) for one in data["layers"]):
            raise ConfigError("plan: layers must be a list of placements, the one nearest the inputs first")
        for one in fields(cls)[1:]:
            value, kind = data.get(one.name, one.default), type(one.default)
            if not (type(value) is kind or (kind is float and type(value) is int)):
                raise ConfigError(f"plan: {one.name} = {value!r} is not possible: it must be {TYPES[kind]}")
        return cls(**data)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The plan in a TOML or JSON file; of what `weft plan --json` prints, the best one."""
        if path.suffix == ".toml":
            data = read_toml(path)
        else:
            try:
                data = json.loads(path.read_text())
            except OSError as error:
                raise StorageError(f"the plan {path} can't be read ({error.strerror}): check the path") from None
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"the plan {path} is not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise ConfigError(f"the plan {path} must be a table of keys, such as layers and seeds")
        best = data.get("best")
        if "predictions" in data and isinstance(best, dict) and isinstance(best.get("plan"), dict):
            data = best["plan"]
        try:
            return cls.from_dict(data)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def text(self, preferred: Mapping[str, object]) -> str:
        """The plan as `--plan` takes it: placements, and the options that are neither preferred nor the usual ones."""
        return self._text({**preferred, "scope": self.scope, "seeds": usual_seeds(self.layers, self.scope)})

    def _text(self, known: Mapping[str, object]) -> str:
        """The plan with its options, but for those that have defaults, or are known to be so."""
        usual = {**{one.name: one.default for one in fields(self)[1:]}, **known}
        other = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return " ".join(["+".join(self.layers), *(f"{name}={_said(name, value)}" for name, value in other.items())])

    def __str__(self) -> str:
        return self._text({"seeds": "home" if self.scope == "graph" else None})  # said of mini-batches either way


_OPTIONS = {one.name: one for one in fields(PlanSettings) if hasattr(Plan, one.name)}  # which settings are too
_TRUTH = {"on": True, "off": False, "true": True, "false": False}


def head_and_options(text: str) -> tuple[str, dict[str, object]]:
    """A plan's text, such as `split cache=5%`: its first word, and its options as plain data.

    Whether a plan has such options, it says itself.
    """
    head, *words = re.sub(r"\s*[+,]\s*", "+", text.strip()).split() or [""]
    options: dict[str, object] = {}
    for word in words:
        name, is_set, value = word.partition("=")
        if not (name and is_set and value):
            raise ConfigError(f"plan: {word!r} is no option: write it like seeds=home or cache=5%")
        if name in options:
            raise ConfigError(f"plan: {name} is said twice: drop one of them")
        options[name] = _meant(value)
    return head, options


def _check_choice(name: str, value: object, choices: Collection[str]) -> None:
    if choices and value not in choices:
        raise ConfigError(f"plan: {name} = {value!r} is not possible: choose {' or '.join(choices)}")


class _Kind(Protocol):
    """A placement, as plans know it: which rows it takes and leaves, by how they are held."""

    @property
    def takes(self) -> frozenset[str]: ...
    @property
    def leaves(self) -> frozenset[str]: ...


def _kinds(layers: Sequence[str]) -> Sequence[_Kind]:
    """The layers' placements; refuse one that is not known."""
    if not layers:
        raise ConfigError("plan: it needs a placement for each layer of the model")
    return [PLACEMENTS.get(name) for name in layers]


def _held(kinds: Sequence[_Kind], depth: int) -> frozenset[str]:
    """How the rows above so many layers may be held, by what the one below leaves and the one above takes."""
    leaves: frozenset[str] = kinds[depth - 1].leaves
    return leaves if depth == len(kinds) else leaves & kinds[depth].takes


def usual_seeds(layers: Sequence[str], scope: object = None) -> str:
    """Where seeds are unless it is said: at home where the last layer leaves their rows with their owners."""
    return "home" if scope == "graph" or (layers and _REQUEST not in _kinds(layers[-1:])[0].leaves) else "spread"


def _check_graph(plan: Plan) -> None:
    kinds, by_column = _kinds(plan.layers), set(plan.layers) == {"columns"}
    if not by_column and not all(map(_at_owners, kinds)):
        raise ConfigError(
            f"plan: {', '.join(plan.layers)} is not possible on the whole graph: place all layers at owners "
            f"({_names_at_owners()}), or all of them by columns"
        )
    for name, usual, why in (
        ("seeds", "home", "every vertex is computed at its owner"),
        ("group", "all", "all workers share the one batch"),
        ("models", "stay", "there are no time steps"),
        ("cache", 0.0, "input rows of others that are needed are kept anyhow"),
    ):
        if getattr(plan, name) != usual:
            raise ConfigError(f"plan: {name} must be {usual!r} on the whole graph, for {why}")
    if plan.replicate and (plan.layers[0] != "pull" or plan.topology == "partitioned"):
        raise ConfigError(
            "plan: replicate computes others' vertices again, from their neighbours: pull the inputs (layer 1), and set "
            "topology = 'replicated'"
        )
    if by_column and plan.topology == "partitioned":
        raise ConfigError("plan: layers by columns aggregate the whole graph everywhere: set topology = 'replicated'")
    if not by_column and (plan.decoupled or plan.chunks or not plan.overlap):
        raise ConfigError(
            "plan: decoupled, chunks and overlap mean something to layers by columns only: place all layers so, or drop them"
        )


def _check_batches(plan: Plan) -> None:
    if plan.models == "migrate" and (set(plan.layers) != {"local"} or plan.seeds != "home" or plan.group != "all"):
        raise ConfigError(
            "plan: models that migrate compute whole neighbourhoods of seeds at home: set every layer local, seeds = "
            "'home' and group = 'all'"
        )
    for name, usual in (("decoupled", False), ("replicate", False), ("overlap", True), ("chunks", 0)):
        if getattr(plan, name) != usual:
            raise ConfigError(f"plan: {name} means nothing to mini-batches: set scope = 'graph'")


def _check_layers(layers: tuple[str, ...], seeds: str) -> None:
    kinds = _kinds(layers)
    if _INPUT not in kinds[0].takes:
        raise ConfigError(f"plan: layer 1 can't be {layers[0]}, which takes no inputs: choose another placement for it")
    for number, placement in enumerate(layers[1:], 2):
        if kinds[number - 1].takes == {_INPUT}:
            raise ConfigError(
                f"plan: layer {number} can't be {placement}, which takes only inputs in mini-batches: choose another one"
            )
        if not _held(kinds, number - 1):
            raise ConfigError(
                f"plan: layer {number} is {placement} after a {layers[number - 2]} layer {number - 1}, whose rows are where "
                f"they were requested, some of them twice: place layer {number - 1} at owners "
                f"({_names_at_owners()}), or layer {number} local"
            )
    if _REQUEST not in kinds[-1].leaves and seeds != "home":
        raise ConfigError(
            f"plan: the last layer is {layers[-1]}, which leaves the seeds' rows with their owners: set seeds = 'home'"
        )


def _at_owners(kind: _Kind) -> bool:
    """Are rows with their owners before and after such a layer?"""
    return _OWNER in kind.takes & kind.leaves


def _names_at_owners() -> str:
    names = PLACEMENTS.names()
    return ", ".join(name for name, kind in zip(names, _kinds(names), strict=True) if _at_owners(kind))


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "cache" and isinstance(value, float):
        texts = (f"{100 * value:.6g}%" if value <= 1 else f"{value / 1e6:.6g}MB", repr(value))
        return next(text for text in texts if _meant(text) == value)
    return repr(value) if isinstance(value, float) else str(value)


def _meant(text: str) -> object:
    if text in _TRUTH:
        return _TRUTH[text]
    if text.endswith("%") and isinstance(share := _number(text[:-1]), int | float):
        if not 0 <= share <= 100:
            raise ConfigError(f"plan: {text} is no share: give 0% to 100%, or a size such as 64MB")
        return share / 100
    size = size_of(text)
    if size is not None and 0 < size <= 1:
        raise ConfigError(f"plan: {text} has no room for a row: give 0% to 100%, or a size such as 64MB")
    return size or _number(text)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def mixed(*layers: str, **options: Any) -> Plan:
    """A placement for each layer."""
    return Plan(layers, **({"seeds": usual_seeds(layers, options.get("scope"))} | options))


@dataclass(frozen=True)
class Strategy:
    """A way to place layers that has a name: called with a number of layers, it gives the plan."""

    others: str  # the placement of all layers
    first: str | None = None  # that of the one nearest the inputs, if it is another one
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, depth: int, placement: str | None = None, **options: Any) -> Plan:
        """The plan for so many layers; `placement`: in place of the usual one."""
        others = placement or self.others
        return mixed(*(self.first or others, *[others] * (depth - 1))[:depth], **{**self.options, **options})


_HOME: dict[str, Any] = {"seeds": "home"}
_GRAPH = _HOME | {"scope": "graph"}

gdp = Strategy("local")  # data parallelism: every worker computes all that its seeds need
nfp = Strategy("local", "columns")  # node-feature parallelism: layer 1 on slices of the columns
snp = Strategy("local", "push")  # source-node parallelism: layer 1 at the owners of the sources
dnp = Strategy("local", "pull")  # destination-node parallelism: layer 1 at the owners of the destinations
split = Strategy("cover", options=_HOME)  # split parallelism: every vertex computed once, at its owner, in every layer
leap = Strategy("local", options=_HOME)  # feature-centric: every seed at home, where most of its neighbours are
# LeapGNN's own schedule: models visit the workers where their seeds are at home, carrying their gradients.
migrate = Strategy("local", options=_HOME | {"models": "migrate"})
# The whole graph, every vertex at its owner: rows of neighbours beyond come, or partial sums go, in every layer. Of the
# inputs rows come: once, for they stay.
halo = Strategy("cover", "pull", _GRAPH)
# The whole graph by tensor parallelism: every layer aggregates slices of all rows' columns; dense parts at owners.
tp = Strategy("columns", options=_GRAPH)
# Tensor parallelism of the decoupled model: dense layers apart from aggregations, which are between two exchanges.
tp_decoupled = Strategy("columns", options=_GRAPH | {"decoupled": True})

NAMED = {"gdp": gdp, "nfp": nfp, "snp": snp, "dnp": dnp, "split": split, "leap": leap, "migrate": migrate}
OF_GRAPH = {"halo": halo, "tp": tp, "tp-decoupled": tp_decoupled}


def plan_of(text: str, depth: int, options: Mapping[str, object] | None = None) -> Plan:
    """The plan of a text such as `split cache=5%` or `pull+push+pull seeds=home`, for so many layers.

    `options`: more of them, said elsewhere.
    """
    head, written = head_and_options(text)
    more = dict(options or {})
    for name in written.keys() & more.keys():
        if written[name] != more[name]:
            raise ConfigError(
                f"plan = {text!r} has {name} = {written[name]!r}, and {name} = {more[name]!r} is set besides: drop one"
            )
    make = NAMED.get(head) or OF_GRAPH.get(head)
    if make is not None:
        return Plan.from_dict(make(depth).as_dict() | more | written)
    layers, options = tuple(head.split("+")), more | written
    if len(layers) == 1 and depth > 1:
        known = ", ".join(OF_GRAPH if options.get("scope") == "graph" else NAMED)
        raise ConfigError(
            f"plan = {text!r} is not known: choose one of {known}, or a placement for each of {depth} layers"
        )
    if len(layers) != depth:
        raise ConfigError(f"plan = {text!r} has {len(layers)} placements for {depth} convolutions: give one for each")
    return Plan.from_dict({"layers": layers, "seeds": usual_seeds(layers, options.get("scope"))} | options)
