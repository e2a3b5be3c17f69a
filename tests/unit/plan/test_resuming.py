"""What a run that goes on from a checkpoint may change: decided for each setting, and told."""

from pathlib import Path

import pytest

from weft.errors import TrainingError
from weft.plan import DEFAULTS, PLACES, Settings, plan_named
from weft.plan.settings import RULES, check_resumed, may_change, rule_of

DOCS = Path(__file__).resolve().parents[3] / "docs" / "training.md"
MAY = {
    "batch_size": "total",
    "epochs": "longer",
    "evaluate_every": "impatient",
    "patience": "replayed",
}
FREE = """
    plan seeds group topology cache cache_by cache_per slack gather merge prefetch replicate overlap chunks workers on device
    threads sample_on loaders micro_batches memory cluster watch transport ports tls timeout max_restarts min_workers
    eval_batch_size checkpoint checkpoint_every keep resume log tensorboard
"""


def test_each_setting_is_decided():
    """A new one may not change, unless it is entered here."""
    assert {key: rule_of(key) for key in PLACES} == dict.fromkeys(PLACES, "same") | MAY | dict.fromkeys(
        FREE.split(), "free"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "gcn"),
        ("hidden", 64),
        ("dtype", "float64"),
        ("task", "link"),
        ("sampler", "labor"),
        ("full_graph", True),
        ("optimizer", "adamw"),
        ("warmup", 1.0),
        ("seed", 1),
        ("wire", "float16"),
        ("evaluation", "exact"),
    ],
)
def test_what_may_not_is_refused_by_name(key, value):
    with pytest.raises(TrainingError, match=rf"{key} = {DEFAULTS[key]} \(now {value}\)"):
        check_resumed(Settings(), Settings.of(**{key: value}), "step-1")


def test_the_decoupled_model_is_another_one():
    whole = Settings.of(full_graph=True, plan="halo")
    check_resumed(whole, Settings.of(full_graph=True, plan="tp"), "step-1")
    with pytest.raises(TrainingError, match="plan = halo"):
        check_resumed(whole, Settings.of(full_graph=True, plan="tp-decoupled"), "step-1")


@pytest.mark.parametrize("plan", ["tp decoupled=on", "tp decoupled=true", "columns + columns decoupled=on"])
def test_a_plan_that_says_decoupled_in_any_words_is_of_that_model(plan):
    settings = Settings.of(full_graph=True, plan=plan)
    assert settings.decoupled and plan_named(settings, 2).decoupled


@pytest.mark.parametrize("plan", ["tp", "tp decoupled=off", "tp-decoupled decoupled=false"])
def test_a_plan_that_says_that_it_is_not_decoupled_is_not(plan):
    settings = Settings.of(full_graph=True, plan=plan)
    assert not settings.decoupled and not plan_named(settings, 2).decoupled


def test_docs_and_refusals_say_the_same():
    words = " ".join(DOCS.read_text().split())
    assert may_change() in words.replace("`", "")
    assert all(rule.words in words.replace("`", "") for name, rule in RULES.items() if name != "same")
