"""Every option binds: one that is given either has an effect that can be named, or is refused with what to do."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import weft
from weft.errors import ConfigError
from weft.keys import seeded
from weft.nn import DEFAULT_LAYERS, build
from weft.plan import (
    DEFAULTS,
    NAMED,
    OF_GRAPH,
    PLACES,
    Settings,
    check_cache,
    check_device,
    check_loader,
    check_own_model,
    check_workers,
    plan_named,
)
from weft.plan.groups import FIELDS
from weft.training.planning import task_of

NOTHING = SimpleNamespace(
    first_epoch=lambda *how: [], labels=None
)  # is learned: what plans may choose of hangs on settings


def each(keys, of):
    return dict.fromkeys(keys, of)


# Another value than the usual one for each setting, and what it needs besides.
OTHER = {
    "hidden": 64,
    "layers": 2,
    "heads": 2,
    "bases": 2,
    "blocks": 2,
    "dropout": 0.5,
    "norm": "layer",
    "jk": "cat",
    "dtype": "float64",
    "decoder": "mlp",
    "loss": "margin",
    "margin": 0.5,
    "negatives": "batch",
    "num_negatives": 2,
    "link_split": "80/10/10",
    "metric": "auc",
    "hits": 3,
    "eval_negatives": 7,
    "fanouts": (5, 5),
    "sampler": "labor",
    "replace": True,
    "weighted": True,
    "batch_size": 64,
    "epochs": 3,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.5,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warmup": 1.0,
    "clip_norm": 1.0,
    "seed": 7,
    "seeds": "home",
    "group": "host",
    "topology": "partitioned",
    "cache": 0.25,
    "cache_by": "degree",
    "cache_per": "host",
    "wire": "float16",
    "slack": 0.5,
    "gather": "step",
    "merge": "random",
    "prefetch": 5,
    "replicate": True,
    "overlap": False,
    "chunks": 4,
    "workers": 2,
    "threads": 2,
    "loaders": 3,
    "micro_batches": 2,
    "memory": "2GB",
    "cluster": "c.toml",
    "watch": False,
    "transport": "gloo",
    "ports": "29500-29600",
    "tls": "secret",
    "timeout": 60.0,
    "evaluate_every": 2,
    "evaluation": "exact",
    "eval_batch_size": 64,
    "patience": 3,
    "checkpoint": "c",
    "checkpoint_every": 5,
    "keep": 2,
    "resume": True,
    "log": "json",
    "tensorboard": "t",
    "on": "ray",
    "device": "cpu",
    "sample_on": "cpu",
    "products": "tf32",
    "max_restarts": 2,
    "min_workers": 2,
}
NEEDS = {
    **each(("checkpoint_every", "keep", "resume", "max_restarts"), {"checkpoint": "c"}),
    "min_workers": {"checkpoint": "c", "max_restarts": 1},
    "margin": {"loss": "margin"},
    "momentum": {"optimizer": "sgd"},
    **each(("cache_by", "cache_per"), {"cache": 0.25}),
}

BATCHES, GRAPH, LINKS = "batches", "graph", "link"
MODELS = {"sage", "gat", "rgcn", "deepgcn", "film", "own.py:make"}
KNOWN = MODELS - {"own.py:make"}
ROWS = {*NAMED, "auto", "push+pull"} - {"nfp"}
COLUMNS = {"tp", "tp-decoupled", "auto"}
# Where settings have an effect: models, tasks, plans. What is not named has one everywhere.
BINDS = {
    **each(("layers", "dropout"), {"models": KNOWN}),
    "heads": {"models": {"gat"}},
    "norm": {"models": {"sage", "gat", "rgcn"}},
    "jk": {"models": {"sage", "gat"}},
    **each(("bases", "blocks"), {"models": {"rgcn"}}),
    **each(("decoder", "loss", "margin", "negatives", "num_negatives"), {"tasks": {LINKS}}),
    **each(("link_split", "metric", "hits", "eval_negatives"), {"tasks": {LINKS}}),
    **each(("fanouts", "sampler", "replace", "weighted", "batch_size", "evaluation"), {"scopes": {BATCHES}}),
    "checkpoint_every": {"scopes": {BATCHES}},
    **each(("eval_batch_size", "seeds", "group", "prefetch", "loaders", "sample_on"), {"scopes": {BATCHES}}),
    **each(("cache", "cache_by"), {"scopes": {BATCHES}, "plans": ROWS}),
    "cache_per": {"scopes": {BATCHES}, "plans": ROWS - {"snp", "split", "push+pull"}},
    "slack": {"scopes": {BATCHES}, "plans": {"leap", "auto"}},
    **each(("gather", "merge"), {"scopes": {BATCHES}, "plans": {"migrate"}}),
    "micro_batches": {"scopes": {BATCHES}, "plans": {*NAMED, "auto", "push+pull"} - {"migrate"}},
    "replicate": {"scopes": {GRAPH}, "plans": {"halo", "auto"}},
    **each(("overlap", "chunks"), {"scopes": {GRAPH}, "plans": COLUMNS}),
    "memory": {"plans": COLUMNS},
    **each(("cluster", "watch"), {"plans": {"auto"}}),
}
# What a plan itself refuses, in its own words.
IMPOSSIBLE = {("group", "migrate"), ("chunks", "halo")}
IMPOSSIBLE |= set(product(("topology", "replicate"), ("tp", "tp-decoupled")))
# What says that there is none of a setting's: true everywhere.
OFF = {key: off for key in DEFAULTS for off in FIELDS[key].metadata["off"]}
# What is refused where it has no effect.
ON = {key: DEFAULTS[key] if key in OFF and OFF[key] == value else value for key, value in OTHER.items()}
PLANS = [(BATCHES, plan) for plan in (*NAMED, "auto", "push+pull")] + [(GRAPH, plan) for plan in (*OF_GRAPH, "auto")]


def made(scope, plan, model, task, **given):
    settings = Settings.of(plan=plan, model=model, task=task, full_graph=scope == GRAPH, **given)
    return settings, plan_named(settings, 2)


def has_effect(key, scope, plan, model, task):
    here = {"models": model, "tasks": task, "scopes": scope, "plans": plan}
    if key == "hidden" and model not in KNOWN and task != LINKS:  # links: as wide are the rows that are scored
        return False
    return all(here[kind] in allowed for kind, allowed in BINDS.get(key, {}).items())


def under_every_plan(check, key):
    """`check(key, scope, plan, model, task)` for all plans, models and tasks; what fails says for which."""
    for (scope, plan), model, task in product(PLANS, sorted(MODELS), ("vertex", LINKS)):
        try:
            check(key, scope, plan, model, task)
        except BaseException as error:
            error.add_note(f"{key}: plan {plan} ({scope}), model {model}, task {task}")
            raise


@pytest.mark.parametrize("key", OTHER)
def test_an_option_has_an_effect_or_is_refused(key):
    under_every_plan(has_an_effect_or_is_refused, key)


def has_an_effect_or_is_refused(key, scope, plan, model, task):
    needed = NEEDS.get(key, {})
    given = needed | {key: OTHER[key]}
    if not has_effect(key, scope, plan, model, task) or (key, plan) in IMPOSSIBLE:
        with pytest.raises(ConfigError) as refused:
            made(scope, plan, model, task, **given | {key: ON[key]})
        plain = r"plan: .*(drop|set|pull)" if (key, plan) in IMPOSSIBLE else r"\w+ means nothing to .*: drop it, or \w"
        assert re.match(plain, str(refused.value))
        return
    settings, found = made(scope, plan, model, task, **given)
    assert settings[key] == (Path(OTHER[key]) if isinstance(settings[key], Path) else OTHER[key])
    if PLACES[key][0] == "plan" and plan == "auto":
        task_given = task_of(settings, 2, 64, NOTHING)
        assert task_given.choices[key] == ((5, 4, 3, 2, 1, 0) if key == "prefetch" else (OTHER[key],))
    elif PLACES[key][0] == "plan" and not (key == "seeds" and found.seeds == made(scope, plan, model, task)[1].seeds):
        assert found != made(scope, plan, model, task, **needed)[1]


RELATIONAL = ("rgcn", "rgat")


def shown(name, widths, **options):
    """What the parameters of a model of one layer are, and its rows in training."""
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(20, 6, generator=draw), torch.randint(0, 20, (2, 60), generator=draw)]
    given += [torch.arange(60) % 3, torch.arange(20) % 2] if name in RELATIONAL else []
    model = build(name, 6, options.pop("hidden", 8), 4, 1, relations=3, widths=widths, **options)
    with seeded(0):
        rows = model(*given)
    return [parameter.shape for parameter in model.parameters()], rows.tolist()


@pytest.mark.parametrize(("key", "value"), [("hidden", 16), ("dropout", 0.5), ("norm", "batch"), ("norm", "layer")])
@pytest.mark.parametrize("name", DEFAULT_LAYERS)
def test_an_option_of_one_layer_is_refused_where_the_model_does_not_show_it(name, key, value):
    several = [[6], [6, 4]] if name in RELATIONAL else [[6]]  # features by type of vertices
    if any(shown(name, widths) != shown(name, widths, **{key: value}) for widths in several):
        Settings.of(model=name, layers=1, **{key: value})
        return
    with pytest.raises(ConfigError, match=f"^{key} means nothing to the model {name}( of one layer)?: drop it, or"):
        Settings.of(model=name, layers=1, **{key: value})
    if name in ("gcn", "sage", "gat", "gatv2", "gin"):
        assert shown(name, [6], jk="last") != shown(name, [6], jk="last", **{key: value})
        Settings.of(model=name, layers=1, jk="last", **{key: value})


def test_of_one_layer_what_is_off_or_the_width_of_links_may_be_said():
    Settings.of(layers=1, dropout=0.0, norm="none")
    Settings.of(layers=1, task="link", hidden=16)
    Settings.of(model="own.py", task="link", hidden=16)
    with pytest.raises(
        ConfigError, match="dropout means nothing to the model sage of one layer: drop it, or set layers"
    ):
        Settings.of(layers=1, task="link", dropout=0.5)
    old = Settings.restored(Settings.of(layers=1).flat() | {"hidden": 16, "norm": "batch"}, "there")  # of 0.1.0, say
    assert old.model.layers == 1 and "hidden" not in old.given


@pytest.mark.parametrize("key", sorted(OFF.keys() - {"full_graph"}))
def test_what_is_off_may_be_said_to_be_off(key):
    under_every_plan(may_be_said_to_be_off, key)


def may_be_said_to_be_off(key, scope, plan, model, task):
    settings, found = made(scope, plan, model, task, **{key: OFF[key]})
    assert settings[key] == OFF[key]
    choices = task_of(settings, 2, 64, NOTHING).choices
    if not has_effect(key, scope, plan, model, task):  # nor does it change anything
        plain, usual = made(scope, plan, model, task)
        assert found == usual
        assert choices in (task_of(plain, 2, 64, NOTHING).choices, {key: (getattr(usual, key, None),)})
    elif PLACES[key][0] == "plan" and key != "seeds":
        assert getattr(found, key) == OFF[key] or plan == "auto"
        assert plan != "auto" or choices[key][0] == OFF[key]


def test_what_is_off_is_off():
    values = {"jk": "none", "products": "full", "seeds": "auto", "group": "all", "sample_on": "auto", "merge": "none"}
    values |= {"micro_batches": 1, "watch": False, "overlap": False}
    assert all(not off or values[key] == off for key, off in OFF.items())
    assert {key for key, off in OFF.items() if off is False} >= {"watch", "overlap"}
    assert {"prefetch", "slack", "momentum", "cache"} <= OFF.keys()


def test_other_values_are_others():
    assert {*OTHER} == {*DEFAULTS} - {"model", "task", "plan", "full_graph"}
    assert all(DEFAULTS[key] != value for key, value in OTHER.items())


def test_every_setting_is_read_somewhere():
    root = Path(weft.__file__).parent
    source = "\n".join(path.read_text() for path in root.rglob("*.py") if path.parent.name not in ("plan", "commands"))
    options = {key for key, (group, _) in PLACES.items() if group == "plan"}  # by the plan that is made of them
    for key, (group, name) in PLACES.items():
        assert key in options or re.search(rf"\b{group}\.{name}\b", source) or f'"{key}"' in source, key


def test_loaders_may_be_as_many_as_batches_ahead_and_one():
    assert Settings.of(loaders=3) and Settings.of(loaders=9, prefetch=8)
    assert plan_named(Settings.of(loaders=5, plan="gdp prefetch=4"), 2).prefetch == 4


def test_given_though_as_usual():
    assert Settings.of(plan="nfp", cache=0.0)  # what is off may be said to be off
    with pytest.raises(
        ConfigError, match="merge means nothing to plan = 'split', where no models migrate: drop it, or"
    ):
        plan_named(Settings.of(plan="split", merge="fewest"), 2)
    settings = Settings.of(group="all", topology="replicated")
    assert task_of(settings, 2, 64, NOTHING).choices == {"group": ("all",), "topology": ("replicated",)}
    assert task_of(Settings(), 2, 64, NOTHING).choices == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"plan": "nfp cache=5%"}, "cache means nothing to plan = 'nfp cache=5%', where each worker has its slice"),
        ({"plan": "gdp slack=0.3"}, "slack means nothing to plan = 'gdp slack=0.3'"),
        ({"plan": "halo", "cache": 0.1, "full_graph": True}, "cache means nothing to training on the full graph"),
        ({"cache_by": "degree", "cache": 0}, "cache_by means nothing to a run without a cache: drop it, or set cache"),
        (
            {"cache_by": "degree", "plan": "leap"},
            "cache_by means nothing to a run without a cache: drop it, or set cache",
        ),
        (
            {"cache_per": "host", "plan": "snp", "cache": 0.1},
            "cache_per means nothing to plan = 'snp', which reads each row on one device of a host already: edges of",
        ),
        ({"plan": "gdp cache_per=host"}, "cache_per means nothing to a run without a cache: drop it, or set cache"),
        ({"prefetch": 0, "loaders": 2, "plan": "gdp"}, "loaders means nothing to batches that are prepared when"),
        (
            {"loaders": 4},
            "loaders means nothing to a run that makes fewer batches ready at a time (prefetch and one): drop",
        ),
        ({"loaders": 5, "prefetch": 3, "plan": "gdp"}, "loaders means nothing to a run that makes fewer batches ready"),
        ({"wire": "auto", "plan": "split"}, "wire means nothing to a plan that is chosen already, if it is auto"),
        ({"wire": "float16", "dtype": "float64"}, "wire means nothing to rows of float64"),
        (
            {"memory": "2GB", "chunks": 3, "plan": "tp", "full_graph": True},
            "memory means nothing to plan = 'tp', whose",
        ),
        ({"memory": "2GB", "plan": "leap"}, "memory means nothing to a plan of batches that is chosen already"),
        ({"evaluation": "exact", "eval_batch_size": 10}, "eval_batch_size means nothing to exact evaluation"),
        ({"keep": 2}, "keep means nothing to a run without checkpoints: drop it, or set checkpoint"),
        ({"sampler": "labor", "replace": True}, "replace means nothing to sampler = 'labor'"),
        ({"sampler": "labor", "sample_on": "device"}, "sample_on means nothing to sampler = 'labor'"),
        ({"weighted": True, "sample_on": "device"}, "sample_on means nothing to neighbours drawn by weight: drop it"),
    ],
)
def test_refused(given, message):
    with pytest.raises(ConfigError) as refused:
        plan_named(Settings.of(**given), 2)
    assert message in str(refused.value)


def test_what_makes_a_model_is_refused_beside_one():
    for given in ({"hidden": 64}, {"model": "gcn"}, {"dropout": 0.5}):
        with pytest.raises(ConfigError, match="means nothing to a model that is made already: drop it, or"):
            check_own_model(Settings.of(**given), decodes=False)
    check_own_model(Settings.of(task="link", hidden=64, decoder="mlp"), decodes=False)
    with pytest.raises(ConfigError, match="decoder means nothing to a model that is made already"):
        check_own_model(Settings.of(task="link", decoder="mlp"), decodes=True)


def test_what_a_loader_does_not_look_at_is_refused():
    check_loader(Settings.of(fanouts=(5, 5), seed=3, prefetch=0, dtype="float64", plan="split"))
    check_loader(Settings.of(watch=False, memory=None, max_restarts=0, merge="none"))  # off
    with pytest.raises(ConfigError, match="dropout means nothing to a loader"):  # off here, but not in the model
        check_loader(Settings.of(dropout=0.0))
    for key in ("lr", "hidden", "checkpoint", "evaluate_every", "log"):
        with pytest.raises(ConfigError, match=f"{key} means nothing to a loader: drop it, or"):
            check_loader(Settings.of(**{key: OTHER[key]}))
    for given, told in (
        ({"memory": "2GB"}, "memory means nothing to a loader: drop it, or"),
        ({"cache_by": "degree"}, "cache_by means nothing to a run without a cache: drop it, or set cache"),
        (
            {"cache_per": "host", "cache": 0.1},
            "cache_per means nothing to a loader whose plan is not named: drop it, or name",
        ),
    ):  # there is no planner that would go by it
        with pytest.raises(ConfigError, match=told):
            check_loader(Settings.of(**given))
    check_loader(Settings.of(cache_per="host", cache=0.1, plan="gdp"))
    check_loader(Settings.of(cache_by="degree", cache=0.1))


# What one worker has no use for: there is nobody to send to, or to plan for.
OF_OTHERS = {"seeds", "group", "topology", "cache_per", "wire", "slack", "gather", "merge"}
OF_OTHERS |= {"replicate", "cluster", "transport", "memory", "ports", "tls"}


@pytest.mark.parametrize("key", [*OTHER, "plan"])
def test_what_only_several_workers_follow_is_refused_with_one(key, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    where = BINDS.get(key, {})
    given = {
        "plan": "migrate" if key in ("gather", "merge") else "split" if key == "plan" else "auto",
        "model": {"heads": "gat", "bases": "rgcn", "blocks": "rgcn"}.get(key, "sage"),
        "task": LINKS if "tasks" in where else "vertex",
        "full_graph": where.get("scopes") == {GRAPH},
    }
    given |= NEEDS.get(key, {}) | ({key: OTHER[key]} if key in OTHER else {})
    if key in OF_OTHERS or key == "plan":
        with pytest.raises(ConfigError, match=r"\w+ means nothing to a run of one worker: drop it, or start several"):
            check_workers(Settings.of(**given))
    else:
        check_workers(Settings.of(**given))
    check_workers(Settings.of(**given | {"workers": 2}))
    monkeypatch.setenv("WORLD_SIZE", "1")  # a launcher's: the same command for any number of workers
    check_workers(Settings.of(**given))


@pytest.mark.parametrize("key", ["cache", "cache_by"])
def test_one_worker_has_a_cache_on_a_device_only(key, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    given = {key: OTHER[key]} | NEEDS.get(key, {})
    with pytest.raises(ConfigError, match="cache means nothing to a run of one worker: drop it, or start several"):
        check_workers(Settings.of(device="cpu", **given))
    check_workers(Settings.of(**given))  # there may be one
    check_device(Settings.of(**given), "cuda", 1)
    check_device(Settings.of(**given), "cpu", 2)
    check_device(Settings.of(cache=0.0, products="full", sample_on="auto"), "cpu", 1)
    check_device(Settings.of(overlap=False, memory=None, full_graph=True), "cuda", 1)
    with pytest.raises(
        ConfigError, match="cache means nothing to a run of one worker on cpu: drop it, or start several"
    ):
        check_device(Settings.of(**given), "cpu", 1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    check_device(Settings.of(**given), "cpu", 1)


def test_a_cache_a_host_needs_devices_several_of_them_on_a_host_and_rows_that_both_may_read():
    host = plan_named(Settings.of(plan="gdp", cache=0.1, cache_per="host"), 2)
    check_cache(host, True, [1, 3])
    check_cache(replace(host, cache_per="worker"), False, [1])
    check_cache(replace(host, cache=0.0), False, [1])
    for plan, on_device, workers, told in (
        (host, False, [2], "workers that compute on processors: drop it, or set device = 'cuda'"),
        (host, True, [1, 1], "workers that have a host each: drop it, or start several on a host"),
        (
            replace(host, layers=("push", "local")),
            True,
            [2],
            "a plan whose first layer is push, which reads no row on two",
        ),
        (replace(host, layers=("columns", "local")), True, [2], "a plan whose first layer is columns"),
    ):
        with pytest.raises(ConfigError, match=f"cache_per means nothing to {re.escape(told)}"):
            check_cache(plan, on_device, workers)
    for per in ("host", "worker"):
        with pytest.raises(
            ConfigError, match="cache_per means nothing to a run on cpu: drop it, or set device = 'cuda'"
        ):
            check_device(Settings.of(cache=0.1, cache_per=per), "cpu", 2)


def test_one_worker_goes_over_the_whole_graph_by_the_plan(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for plan in OF_GRAPH:
        check_workers(Settings.of(plan=plan, full_graph=True))
    check_workers(Settings.of(plan="tp", full_graph=True, memory="2GB"))
    check_workers(Settings.of(cache=0.0, wire="float32", watch=False, slack=0, merge="none", seeds="auto"))  # off
    check_workers(Settings.of(overlap=False, full_graph=True))


def test_options_of_a_plan_file(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text('layers = ["columns", "local"]\ncache = 0.1\n')
    with pytest.raises(ConfigError, match="cache means nothing to plan"):
        plan_named(Settings.of(plan=str(file)), 2)
