"""How batches are gone through: in parts, and the time steps of migrating models with the paper's merging."""

import numpy as np
import pytest
from torch import nn

from weft.errors import ConfigError
from weft.exchange import Communicator
from weft.plan import Plan, migrate
from weft.training.batches import Schedule
from weft.training.migration import Migration, TimeSteps
from weft.training.objectives import VertexExamples


class Everything:
    """A team whose worker computes all it is given, and shows what that was."""

    shares, ahead = np.ones(1), [Communicator()]

    @property
    def drawing(self):
        return [self]

    def share(self, seeds):
        return seeds, np.zeros(len(seeds))


@pytest.mark.parametrize(("seeds", "number", "count"), [(10, 1, 1), (10, 3, 3), (2, 5, 2), (0, 4, 1)])
def test_micro_batches_hold_every_seed_once(seeds, number, count):
    schedule, batch = Schedule(number), VertexExamples(np.arange(seeds))
    assert schedule.count(batch) == count
    parts = [schedule.program(batch, part, Everything(), 0, ())[0] for part in range(count)]
    assert np.concatenate(parts).tolist() == list(range(seeds))
    assert all(len(part) for part in parts) or not seeds


@pytest.mark.parametrize("dropped", [[], [1], [0, 2], [3, 1, 0]])
def test_every_seed_is_computed_once_by_its_own_model(dropped):
    rng = np.random.default_rng(0)
    seeds, home = rng.permutation(1000)[:203], rng.integers(0, 4, 1000)
    homes, steps = home[seeds], TimeSteps(4, dropped=dropped)
    seen, sizes = [], steps.sizes(homes)
    for part in range(len(steps.kept)):
        for worker in range(4):
            own = seeds[steps.own(seeds, lambda some: home[some], worker, part)]
            at = (worker - sum(steps.move(t) for t in range(part + 1))) % 4  # the model that has come here by now
            assert set(own) <= set(seeds[at::4])
            assert len(own) == sizes[steps.kept[part]][at]
            seen += own.tolist()
            if not dropped:
                assert (homes[np.isin(seeds, own)] == worker).all()
    assert sorted(seen) == sorted(seeds.tolist())
    assert (sum(steps.move(t) for t in range(len(steps.kept))) + steps.back) % 4 == 0


def by_masks(seeds, homes, steps):
    """The seeds of each kept step, by model: slowly."""
    model = np.arange(len(seeds)) % steps.workers
    step = (homes - model) % steps.workers
    found = {t: [seeds[(step == t) & (model == m)] for m in range(steps.workers)] for t in range(steps.workers)}
    for gone in steps.dropped:
        rest = [np.array_split(roots, len(found)) for roots in found.pop(gone)]
        for number, t in enumerate(found):
            found[t] = [np.concatenate([own, rest[m][number]]) for m, own in enumerate(found[t])]
    return found


@pytest.mark.parametrize("dropped", [[], [2], [4, 0], [3, 1, 4, 0]])
def test_a_model_has_the_same_seeds_in_the_same_order_as_by_masks(dropped):
    rng = np.random.default_rng(1)
    seeds, home, steps = rng.permutation(500)[:198], rng.integers(0, 5, 500), TimeSteps(5, dropped=dropped)
    wanted = by_masks(seeds, home[seeds], steps)
    for part, step in enumerate(steps.kept):
        for worker in range(5):
            own = seeds[steps.own(seeds, lambda some: home[some], worker, part)]
            assert own.tolist() == wanted[step][(worker - step) % 5].tolist()


def test_a_part_looks_only_at_the_seeds_of_the_model_that_is_there():
    """Not at all of the batch, of which each of many workers has as many."""
    looked = []

    def home_of(some):
        looked.append(len(some))
        return some % 64

    steps = TimeSteps(64)
    for part in range(64):
        steps.own(np.arange(64 * 100), home_of, 3, part)
    assert looked == [100] * 64


def test_merging_spreads_a_step_as_in_the_papers_figure():
    """Figure 10: of four, two and two seeds a model, the second step's two go one to each other step."""
    step = np.repeat([0, 0, 0, 0, 1, 1, 2, 2], 3)  # of each seed; the models take turns
    model, steps = np.arange(24) % 3, TimeSteps(3)

    def counts():
        return {t: of.tolist() for t, of in steps.sizes((model + step) % 3).items()}

    assert counts() == {0: [4, 4, 4], 1: [2, 2, 2], 2: [2, 2, 2]}
    steps.dropped.append(1)
    assert counts() == {0: [5, 5, 5], 2: [3, 3, 3]}


def migrating(workers, merge, seed=0):
    return Migration(nn.Linear(2, 2), Communicator(0, workers), lambda ids: ids, merge, seed, False, print)


def test_merging_goes_on_while_epochs_get_faster():
    merging = migrating(4, "fewest")
    merging.judge(30.0, {0: 9, 1: 5, 2: 7, 3: 6})
    assert not merging.steps.dropped  # the first epoch is slow anyhow
    merging.judge(10.0, {0: 9, 1: 5, 2: 7, 3: 6})
    assert merging.steps.dropped == [1]
    merging.judge(8.0, {0: 10, 2: 9, 3: 8})
    assert merging.steps.dropped == [1, 3]
    restored = migrating(4, "fewest")
    restored.restore(merging.state())
    restored.judge(20.0, {0: 10, 2: 9, 3: 8})
    assert restored.steps.dropped == [1, 3]
    for one in (merging, restored):
        one.judge(8.5, {0: 14, 2: 13})
        assert one.steps.dropped == [1]  # the last one was not faster: it is taken back
        assert one.settled
        one.ended_epoch([1.0], [])
        assert one.steps.dropped == [1]


def test_merging_ends_with_one_step_and_begins_anew_on_other_workers():
    merging = migrating(2, "random", 5)
    for _ in range(2):
        merging.judge(2.0, {})
    assert len(merging.steps.dropped) == 1
    merging.judge(1.0, {})
    assert merging.settled
    other = migrating(3, "random", 5)
    other.restore(merging.state())
    assert not other.settled
    assert not other.steps.dropped
    assert migrating(3, "none").settled


def test_a_plan_that_migrates_needs_seeds_at_home_and_whole_neighbourhoods():
    assert migrate(2) == Plan(("local", "local"), seeds="home", models="migrate")
    for layers, more in ((("push", "local"), {}), (("local",), {"seeds": "spread"}), (("local",), {"group": "host"})):
        with pytest.raises(ConfigError, match="models that migrate compute whole neighbourhoods of seeds at home"):
            Plan(layers, **({"seeds": "home", "models": "migrate"} | more))
