"""What Weft prints as a plan is what --plan takes."""

import random

import pytest

from weft.errors import ConfigError
from weft.plan import NAMED, OF_GRAPH, Plan, halo, mixed, plan_of, split, tp_decoupled
from weft.plugins import PLACEMENTS

CHOICES = {
    "seeds": ("spread", "home"),
    "group": ("all", "host"),
    "topology": ("replicated", "partitioned"),
    "cache": (0.0, 0.05, 1 / 3, 1.0, 64e6, 12_345_678.9),
    "cache_by": ("reads", "degree"),
    "cache_per": ("worker", "host"),
    "wire": ("float32", "float16"),
    "slack": (0.1, 0.0, 2.5, 1e-7),
    "models": ("stay", "migrate"),
    "gather": ("batch", "step"),
    "merge": ("fewest", "random", "none"),
    "prefetch": (2, 0, 7),
    "scope": ("batches", "graph"),
    "decoupled": (False, True),
    "replicate": (False, True),
    "overlap": (True, False),
    "chunks": (0, 12),
}


def random_plans(count):
    draw = random.Random(0)
    while count:
        layers = [draw.choice(PLACEMENTS.names()) for _ in range(draw.randint(1, 4))]
        layers = [layers[0]] * len(layers) if draw.random() < 0.3 else layers
        options = {name: draw.choice(CHOICES[name]) for name in draw.sample([*CHOICES], draw.randint(0, 6))}
        options |= draw.choice(
            ({}, {"scope": "graph", "seeds": "home", "group": "all", "cache": 0.0, "models": "stay"})
        )
        try:
            yield Plan(tuple(layers), **options)
        except ConfigError:
            continue
        count -= 1


def test_a_plan_is_read_as_it_is_printed():
    seen = set()
    for plan in random_plans(2000):
        assert plan_of(str(plan), len(plan.layers)) == plan, str(plan)
        seen |= {name for name in CHOICES if getattr(plan, name) != getattr(Plan, name)}
    assert seen == {*CHOICES}


@pytest.mark.parametrize("name", [*NAMED, *OF_GRAPH])
@pytest.mark.parametrize("depth", [1, 3])
def test_named_plans(name, depth):
    plan = (NAMED | OF_GRAPH)[name](depth)
    assert plan_of(name, depth) == plan_of(str(plan), depth) == plan
    assert plan_of(f"{name} wire=float16", depth) == plan_of(name, depth, {"wire": "float16"})


def test_how_it_reads():
    assert str(mixed("pull", "push", "pull", cache=0.05)) == "pull+push+pull seeds=home cache=5%"
    assert str(split(2, cache=64e6, prefetch=0)) == "cover+cover seeds=home cache=64MB prefetch=0"
    assert str(mixed("local", wire="float16")) == "local seeds=spread wire=float16"
    assert str(halo(2, replicate=True)) == "pull+cover scope=graph replicate=on"
    assert str(tp_decoupled(2, overlap=False)) == "columns+columns scope=graph decoupled=on overlap=off"
    assert plan_of("halo replicate=true", 2) == plan_of("halo replicate=on", 2) == halo(2, replicate=True)
    assert plan_of("pull, push,pull", 3) == plan_of("pull+push+pull", 3) == mixed("pull", "push", "pull")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("splat", "plan = 'splat' is not known: choose one of gdp, nfp, "),
        ("push+pull", "has 2 placements for 3 convolutions"),
        ("split cache", "'cache' is no option: write it like"),
        ("split cash=5%", "there is no key 'cash'"),
        ("split cache=much", "cache = 'much' is not possible: it must be a number"),
        ("split cache=5% cache=6%", "cache is said twice"),
        ("split cache=1B", "1B has no room for a row: give 0% to 100%, or a size"),
        ("split cache=150%", "150% is no share: give 0% to 100%"),
        ("split seeds=nowhere", "seeds = 'nowhere' is not possible: choose spread or home"),
        ("split prefetch=1.5", "prefetch = 1.5 is not possible: it must be a whole number"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ConfigError) as refused:
        plan_of(text, 3)
    assert message in str(refused.value)


def test_options_may_be_said_elsewhere_but_not_otherwise():
    assert plan_of("split cache=5%", 2, {"cache": 0.05}) == plan_of("split", 2, {"cache": 0.05})
    with pytest.raises(ConfigError, match=r"has cache = 0.05, and cache = 0.1 is set besides: drop one"):
        plan_of("split cache=5%", 2, {"cache": 0.1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"layers": ["local"], "cahce": 1}', "there is no key 'cahce'"),
        ('{"best": {"layers": ["local"]}}', "there is no key 'best'"),
        ('{"layers": ["local"], "seeds": "here"}', "seeds = 'here' is not possible"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(tmp_path, text, message):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(ConfigError, match=rf"mine\.json: plan: {message}"):
        Plan.read(tmp_path / "mine.json")
