"""The settings of a run: groups of them, that are the same in Python, on the command line and in TOML.

A setting has a group and a name (`optimisation.lr`), and a key that is unique over all groups (`lr`), by which it can
be given without its group: `weft.train(graph, lr=0.01)`, `--lr 0.01`, or `lr = 0.01` above the tables of a TOML file.

Each says where it is declared what may differ between a run and the one that goes on from its checkpoint: with what may
differ set from the start, the run would have come to the same checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from weft.config import checked, key_of, near
from weft.errors import ConfigError, TrainingError
from weft.plan.binding import NoEffectError, check_bindings
from weft.plan.groups import (
    DEFAULTS,
    FIELDS,
    GROUPS,
    PLACES,
    CheckpointSettings,
    EvaluationSettings,
    ModelSettings,
    OptimisationSettings,
    ParallelSettings,
    PlanSettings,
    ReportSettings,
    SamplingSettings,
    TaskSettings,
)
from weft.plan.plan import NAMED, OF_GRAPH, head_and_options
from weft.plugins import LAUNCHERS, OBJECTIVES, SAMPLERS
from weft.quantities import port_range, size_of

# What others call settings that have another name here.
_OTHER_NAMES = {
    "batch_size": "bs",
    "checkpoint": "save_dir ckpt_path default_root_dir",
    "clip_norm": "grad_clip max_grad_norm gradient_clip_val",
    "device": "accelerator",
    "fanouts": "num_neighbors neighbor_sizes num_samples sizes",
    "hidden": "hidden_channels",
    "loaders": "num_workers",
    "log": "verbose",
    "lr": "learning_rate learn_rate",
    "memory": "max_memory",
    "patience": "early_stopping",
    "plan": "strategy",
    "products": "precision mixed_precision amp autocast",
    "schedule": "scheduler lr_scheduler",
    "seed": "random_state random_seed",
    "transport": "backend",
    "weight_decay": "wd l2",
    "workers": "gpus num_gpus devices world_size",
}
OUR_NAMES = {other: key for key, others in _OTHER_NAMES.items() for other in others.split()}
# What isn't one, and where it is.
_WHERE = {
    "training batches always are": "shuffle",
    "weft.Loader takes seeds=, or split=": "input_nodes",
    "give them one by one, as lr=0.01, or by group, as optimisation={'lr': 0.01}": "settings",
    "weft.Graph.from_pyg(data, leave_out=...) makes a graph without some arrays": "leave_out",
    "weft.train trains the model in place: save it with torch, or set checkpoint": "out",
    "it goes into a loop of your own: weft.Loader, weft.parallel": (
        "ema optimizer_kwargs betas eps nesterov gamma step_size"
    ),
    "weft.train takes listen=, a function that is told of each epoch": "callbacks callback listen",
    "what is learned is task, or loss=, a function of rows and labels, or objective=": "criterion loss_fn loss_function",
    "the graph's own split says it (of PyG's data, its masks)": "split train_mask val_mask test_mask",
    "give a model that is made with it, as model": "activation act aggr bias residual num_classes",
    "batches are made ready by loaders and prefetch": "pin_memory persistent_workers drop_last collate_fn",
}
_NO_SETTING = {name: where for where, names in _WHERE.items() for name in names.split()}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that a run can be told, in groups. `given`: the keys that were set, to whatever value."""

    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    sampling: SamplingSettings = SamplingSettings()
    optimisation: OptimisationSettings = OptimisationSettings()
    plan: PlanSettings = PlanSettings()
    parallel: ParallelSettings = ParallelSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    report: ReportSettings = ReportSettings()
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, **given: object) -> Self:
        """Settings by key: `Settings.of(model="gcn", lr=0.01)`."""
        return cls.read(given)

    @classmethod
    def read(cls, given: Mapping[str, object], where: str = "settings") -> Self:
        """Settings by key, or in tables by group and name. `where`: they come from, for errors."""
        values = flattened(given, where)
        groups: dict[str, dict[str, object]] = {}
        for key, value in values.items():
            group, name = PLACES[key]
            groups.setdefault(group, {})[name] = value
        made = {group: GROUPS[group](**names) for group, names in groups.items()}
        return cls(**made, given=frozenset(values))  # type: ignore[arg-type]

    @classmethod
    def restored(cls, flat: Mapping[str, object], where: str) -> Self:
        """Settings as `flat` wrote them, in this version or an older one; what has no effect is left out.

        So is what has started the workers, which need not be known where a model is read.
        """
        given = {key: value for key, value in flat.items() if DEFAULTS.get(key) != value and key != "on"}
        try:
            return cls.read(given, where)
        except NoEffectError as error:
            return cls.restored({key: value for key, value in given.items() if key != error.key}, where)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", self.given | {key for key in PLACES if self[key] != DEFAULTS[key]})
        self._check()
        check_bindings(self)

    def __getitem__(self, key: str) -> object:
        """A setting by its key."""
        group, name = PLACES[key]
        return getattr(getattr(self, group), name)

    def changed(self, **given: object) -> Self:
        """The same settings but for some keys."""
        return type(self).read({key: self[key] for key in self.given} | given)

    def flat(self) -> dict[str, object]:
        """All settings by key as plain values, for logs and checkpoints."""
        return {key: str(self[key]) if isinstance(self[key], Path) else self[key] for key in PLACES}

    def of_run(self) -> dict[str, object]:
        """All that each worker of a run must be told alike; of paths, whether there is one."""
        own = {"workers", "threads", "ports", "tls", "timeout", "log", "tensorboard"}
        values = {key: self[key] for key in PLACES if key not in own}
        return {key: "a path" if isinstance(value, Path) else str(value) for key, value in values.items()}

    @property
    def strategy(self) -> str:
        """The plan's first word: a name, placements, a file, or auto."""
        return (self.plan.name.split() or [""])[0]

    @property
    def decoupled(self) -> bool:
        """Is the model's decoupled variant trained, in place of the model itself?"""
        if not self.sampling.full_graph or self.plan.is_file:  # no file may say so
            return False
        head, options = head_and_options(self.plan.name)
        return bool(options.get("decoupled", head == "tp-decoupled"))

    @property
    def budget(self) -> float | None:
        """Bytes that a worker may use, if they are limited."""
        return None if self.parallel.memory is None else size_of(self.parallel.memory)

    @property
    def total_batch(self) -> int | None:
        """Seeds of all workers in a batch; None: the whole graph is one."""
        return None if self.sampling.full_graph else self.sampling.batch_size * self.parallel.workers

    def fanouts_for(self, depth: int) -> list[int]:
        """A fanout for each of `depth` convolutions."""
        fanouts = self.sampling.fanouts
        if self.sampling.full_graph:
            return [-1] * depth
        if fanouts is None:
            return [10] * depth
        if len(fanouts) == 1:
            return list(fanouts) * depth
        if len(fanouts) != depth:
            raise ConfigError(
                f"{len(fanouts)} fanouts for a model that is {depth} convolutions deep: give {depth}, or one for all"
            )
        return list(fanouts)

    @property
    def of_links(self) -> bool:
        """Are links learned, by Weft's objective or one that is derived from it?"""
        name = self.task.name
        return name == "link" or (name != "vertex" and OBJECTIVES.get(name).of_links)

    def _check(self) -> None:
        """Refuse settings that contradict each other."""
        fanouts, layers, sampling, model = self.sampling.fanouts, self.model.layers, self.sampling, self.model
        OBJECTIVES.check(self.task.name)
        SAMPLERS.check(sampling.sampler)
        LAUNCHERS.check(self.parallel.on)
        if fanouts is not None and 0 in fanouts:
            raise ConfigError("fanouts hold a 0: give a positive number, or -1 (or the word full) for all neighbours")
        if fanouts is not None and layers is not None and len(fanouts) not in (1, layers):
            raise ConfigError(
                f"layers = {layers} and {len(fanouts)} fanouts contradict each other: give one fanout a layer, or "
                f"drop one of the settings"
            )
        if "sampler" in self.given and SAMPLERS.get(sampling.sampler).budgets and fanouts is None:
            raise ConfigError(
                f"sampler = {sampling.sampler!r} needs fanouts: how many vertices of the whole graph each layer draws, such "
                f"as 4096"
            )
        asked = "hits" in self.given or self.task.metric == "hits"
        if self.of_links and asked and self.task.hits > self.task.eval_negatives:
            raise ConfigError(
                f"hits = {self.task.hits} is more than eval_negatives = {self.task.eval_negatives}, among which each link "
                f"is ranked, so that every link would be a hit: lower hits, or set more eval_negatives"
            )
        if model.bases and model.blocks:
            raise ConfigError("bases and blocks are two ways to make relations' matrices: set one of them")
        if self.strategy == "auto" and self.plan.name != "auto":
            raise ConfigError(
                f"plan = {self.plan.name!r}: what the planner is to keep to is set by itself: write plan = 'auto', and such "
                f"as cache = 0.05 besides"
            )
        if not sampling.full_graph and self.strategy in OF_GRAPH:
            raise ConfigError(
                f"plan = {self.plan.name!r} is for the full graph: set full_graph, or choose another plan"
            )
        if sampling.full_graph and self.strategy in NAMED:
            raise ConfigError(
                f"plan = {self.plan.name!r} is for batches: drop full_graph, or choose {', '.join(OF_GRAPH)}"
            )
        if self.parallel.memory is not None and not size_of(self.parallel.memory):
            raise ConfigError(
                f"memory = {self.parallel.memory!r} is no size: give one with its unit, such as 2GB or 512MiB"
            )
        if self.parallel.ports is not None:
            port_range(self.parallel.ports)


def flattened(given: Mapping[str, object], where: str) -> dict[str, object]:
    """Settings by key, checked one by one, of what may hold tables by group."""
    flat: dict[str, object] = {}
    for name, value in given.items():
        table = _keys(name, value, where) if name in GROUPS and isinstance(value, Mapping) else {name: value}
        for key, of in table.items():
            if key not in FIELDS:
                hint = near(OUR_NAMES.get(key, key), [*FIELDS, *GROUPS] if isinstance(of, Mapping) else FIELDS)
                hint = _NO_SETTING.get(key, "") or hint or f"known ones are {', '.join(FIELDS)}"
                raise ConfigError(f"{where}: there is no setting {key!r}; {hint.rstrip()}")
            if key in flat:
                raise ConfigError(f"{where}: {key} is set twice: in the table [{PLACES[key][0]}], and by itself")
            try:
                flat[key] = checked(FIELDS[key], of)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
    return flat


def _keys(group: str, table: Mapping[str, object], where: str) -> dict[str, object]:
    """A group's table by key."""
    keys = {one.name: key_of(one) for one in fields(GROUPS[group])}
    for name in table:
        if name not in keys:
            there, known = PLACES.get(name, (group, ""))
            hint = f"did you mean {known!r}?" if known else near(name, keys) or f"known ones are {', '.join(keys)}"
            hint = hint if there == group else f"it is in the table [{there}]"
            raise ConfigError(f"{where}: the table [{group}] has no setting {name!r}; {hint.rstrip()}")
    return {keys[name]: value for name, value in table.items()}


@dataclass(frozen=True)
class Rule:
    """When a setting may be changed: in words, and as far as the new settings tell."""

    words: str
    allows: Callable[[Settings], bool]


RULES = {
    "same": Rule("never", lambda now: False),
    "free": Rule("", lambda now: True),
    "total": Rule("if workers x batch_size stays", lambda now: True),  # the loader knows
    "longer": Rule(
        "where schedule is constant, to no less than is trained", lambda now: now.optimisation.schedule == "constant"
    ),
    "impatient": Rule("without patience", lambda now: not now.evaluation.patience),
    "replayed": Rule("if it would not have stopped the run before", lambda now: True),  # the figures know
}


def rule_of(key: str) -> str:
    """The name of the rule that a setting is changed by."""
    return str(FIELDS[key].metadata["resumed"] or GROUPS[PLACES[key][0]].resumed)


def fixed_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Those of a run's settings, as plain data, that a run which goes on from it never changes."""
    return {key: value for key, value in settings.items() if key in FIELDS and rule_of(key) == "same"}


def may_change() -> str:
    """All that may be changed, in words; groups with their tables' names."""
    said = []
    for group, kind in GROUPS.items():
        keys = [key_of(one) for one in fields(kind)]
        if kind.resumed == "free":
            fixed = [key for key in keys if rule_of(key) == "same"]
            said.append(f"[{group}]{' but ' if fixed else ''}{', '.join(fixed)}")
        else:
            said += [f"{key} {RULES[rule_of(key)].words}".strip() for key in keys if rule_of(key) != "same"]
    return ", ".join(said)


def check_resumed(then: Settings, now: Settings, name: str, alone: bool = False) -> None:
    """Refuse what a run that goes on from the checkpoint of this name may not change. `alone`: by one worker?"""
    before, after = then.flat(), now.flat()
    if alone:
        del after["wire"]  # no rows travel
    different = [key for key in after if after[key] != before[key] and not RULES[rule_of(key)].allows(now)]
    if now.decoupled != then.decoupled:  # the one plan that trains another model
        different.append("plan")
    if different:
        changes = ", ".join(f"{key} = {before[key]} (now {after[key]})" for key in different)
        raise TrainingError(
            f"the checkpoint {name} was written with other settings: {changes}; use the same, or another folder (what may "
            f"change: {may_change()})"
        )
