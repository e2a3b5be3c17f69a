"""A watch over epochs: noise is left alone, drifts are seen in time, and plans change only for a gain that is worth it."""

import json
import random
from dataclasses import replace
from functools import partial

import pytest

from weft.exchange import Communicator
from weft.plan import Plan, gdp, snp, split
from weft.planner import Answer, Cluster, Host, Prediction
from weft.planner.cluster import Link
from weft.training.watch import Watch, epoch_seconds

GDP, SNP, SPLIT = gdp(2), snp(2), split(2)


def predicted(plan, seconds, name=None, excluded=None):
    named = name or {GDP: "gdp", SNP: "snp", SPLIT: "split"}.get(plan, "other")
    return Prediction(named, plan, seconds, {}, {"links": seconds}, {}, 0.0, 1.0, excluded)


def answer(*predictions):
    ranked = sorted(predictions, key=lambda one: (one.excluded is not None, one.seconds))
    return Answer("", ranked[0], ranked, [], 10, 10, 0.0, 0.0, off=0.075)


BATCHES = 10


class Run:
    """Epochs of ten batches by a plan whose true seconds a function of (epoch, plan) tells, watched with what a planner
    would say."""

    def __init__(self, truth, plan=GDP, first=1.0, replan=None, epochs=1_000_000, **more):
        self.plan, self.truth, self.planned, self.switched, self.told = plan, truth, [], [], []
        self.replan = replan or (lambda: answer(predicted(self.plan, first)))
        self.epoch, self.epochs, self.comm, more["epochs"] = 0, epochs, Communicator(), epochs
        self.watch = Watch(predicted(plan, first), lambda left: self.replan(), **more)

    def go(self, epochs):
        for _ in range(epochs):
            steps, usual = [], {}
            for batch in range(BATCHES):
                if self.plan not in usual:
                    usual[self.plan] = self.truth(self.epoch, self.plan) / BATCHES
                steps.append(usual[self.plan])
                left = (self.epochs - self.epoch) * BATCHES - batch - 1
                if self.change(self.watch.stepped(steps[-1], left, self.comm)):
                    steps = []
            self.epoch += 1
            rest = partial(self.planned.append, self.epoch)
            self.change(self.watch.look(self.epoch, steps, BATCHES, self.comm, rest))
        return self

    def change(self, change):
        """Go on as the watch says: is it by another plan?"""
        if change is None:
            return False
        self.told.append(change.text)
        if change.plan is not None:
            self.plan = change.plan
            self.switched.append((self.epoch, change.plan))
        return change.plan is not None


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.75])
@pytest.mark.parametrize("seed", range(8))
def test_steady_noise_never_plans_again(seed, factor):
    rng = random.Random(seed)
    run = Run(lambda epoch, plan: factor * rng.uniform(0.85, 1.15) * (2 if epoch == 0 else 1)).go(200)
    assert run.planned == []


@pytest.mark.parametrize("seed", range(8))
def test_a_prediction_far_off_is_looked_into_once(seed):
    rng = random.Random(seed)
    assert Run(lambda epoch, plan: 4.0 * rng.uniform(0.9, 1.1)).go(100).planned == [1]  # a first epoch is not that slow
    assert Run(lambda epoch, plan: 0.3 * rng.uniform(0.9, 1.1)).go(100).planned == [2]
    assert Run(lambda epoch, plan: 1.8 * rng.uniform(0.95, 1.05)).go(100).planned == [3]  # two in a row


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("slow_from", [2, 3, 12, 60])
def test_a_slow_link_is_switched_within_two_epochs(slow_from, share):
    """The link is slowed tenfold when so much of an epoch is left."""
    rng = random.Random(1)

    def truth(epoch, plan):
        slow = 0 if epoch < slow_from else share if epoch == slow_from else 1
        return rng.uniform(0.9, 1.1) * (1 + 9 * slow if plan == GDP else 2.0)

    run = Run(truth, replan=lambda: answer(predicted(GDP, 10.0), predicted(SPLIT, 2.0))).go(slow_from + 40)
    assert run.switched in ([(slow_from + 1, SPLIT)], [(slow_from + 2, SPLIT)])
    assert len(run.planned) == 1


def test_recovery_is_seen_too():
    slow = range(10, 20)
    run = Run(lambda epoch, plan: (10.0 if epoch in slow else 1.0) if plan == GDP else (6.0 if epoch in slow else 2.0))
    run.replan = lambda: (
        answer(predicted(GDP, 10.0), predicted(SPLIT, 6.0))
        if run.epoch - 1 in slow
        else answer(predicted(GDP, 1.0), predicted(SPLIT, 2.0))
    )
    run.go(40)
    assert run.switched == [(11, SPLIT), (21, GDP)] and len(run.planned) == 2


def test_drifts_of_a_third_need_two_epochs_in_a_row():
    assert Run(lambda epoch, plan: 1.3 if epoch in (10, 12, 14) else 1.0).go(30).planned == []
    assert Run(lambda epoch, plan: 1.35 if epoch >= 10 else 1.0).go(30).planned == [12]
    assert Run(lambda epoch, plan: 0.7 if epoch >= 10 else 1.0).go(30).planned == [12]
    assert Run(lambda epoch, plan: (1.35, 0.7)[epoch % 2] if epoch in (10, 11) else 1.0).go(30).planned == []


def test_patience_doubles_while_nothing_changes():
    level = [1.0]

    def wild(epoch, plan):  # each epoch is thrice as slow as the one before, or as fast as the first
        level[0] = level[0] * 3 if level[0] < 1e6 else 1.0
        return level[0]

    run = Run(wild).go(100)
    gaps = [later - sooner for sooner, later in zip(run.planned, run.planned[1:], strict=False)]
    assert len(gaps) >= 3
    assert all(gap > least for gap, least in zip(gaps, (2, 4, 8, 16, 32), strict=False))


def test_a_small_gain_is_not_worth_a_switch():
    run = Run(lambda epoch, plan: 1.0 if epoch < 5 else 3.0)
    run.replan = lambda: answer(predicted(GDP, 3.0), predicted(SPLIT, 2.9))
    run.go(6)
    assert run.planned == [6] and not run.switched
    assert run.told[0].endswith("; plan gdp stays (3.0 s an epoch): split is hardly faster (2.9 s)")


def test_plans_that_can_not_be_used_are_not_switched_to():
    run = Run(lambda epoch, plan: 1.0 if epoch < 5 else 3.0)
    run.replan = lambda: answer(predicted(GDP, 3.0), predicted(SNP, 2.0), predicted(SPLIT, 0.1, excluded="memory"))
    assert run.go(6).switched == [(6, SNP)]


def test_a_model_off_by_a_constant_factor_changes_nothing_else():
    """Plans that were never in use are taken to be off as the present one is."""
    run = Run(lambda epoch, plan: 1.4 if epoch < 5 else 4.2)
    run.replan = lambda: answer(predicted(GDP, 3.0), predicted(SPLIT, 2.95))
    run.go(6)
    assert run.planned == [6] and not run.switched


def test_a_plan_that_disappoints_is_left_for_good():
    """Predicted at half the time of the present one's, it takes twice as long: gone back from once, and not tried again."""

    def truth(epoch, plan):
        return (1.0 if epoch < 10 else 3.0 + 2 * (epoch >= 40)) if plan == GDP else 6.0

    run = Run(truth)
    run.replan = lambda: answer(predicted(GDP, 3.0 + 2 * (run.epoch > 40)), predicted(SPLIT, 1.5))
    run.go(100)
    assert run.switched == [(11, SPLIT), (14, GDP)]
    assert len(run.planned) <= 4


def test_a_plan_that_the_answer_does_not_name_is_judged_by_its_epochs():
    run = Run(lambda epoch, plan: 1.0 if epoch < 5 else 3.0)
    run.replan = lambda: answer(predicted(SPLIT, 2.0))
    assert run.go(6).switched == [(6, SPLIT)]


@pytest.mark.parametrize(("epochs", "switched"), [(100, [(6, SPLIT)]), (10, [])])
def test_filling_a_cache_has_to_pay_in_the_epochs_that_are_left(epochs, switched):
    """Ten seconds of filling and two saved an epoch: worth it if more than five are left."""
    cached = replace(predicted(SPLIT, 1.0), once=10.0)
    run = Run(lambda epoch, plan: 1.0 if epoch < 5 or plan == SPLIT else 3.0, epochs=epochs)
    run.replan = lambda: answer(predicted(GDP, 3.0), cached)
    assert run.go(10).switched == switched
    assert ("; filling its cache takes 10.0 s" in run.told[0]) == bool(switched)


def test_what_is_filled_already_counts_no_more():
    cached = replace(predicted(GDP, 3.0), once=1e6)
    run = Run(
        lambda epoch, plan: 1.0 if epoch < 5 else 3.0, replan=lambda: answer(cached, predicted(SPLIT, 2.9)), epochs=7
    )
    assert run.go(7).switched == []


def test_planning_again_is_told_how_many_epochs_are_left():
    asked = []

    def replan(left):
        asked.append(left)
        return answer(predicted(GDP, 3.0))

    watch = Watch(predicted(GDP, 1.0), replan, epochs=30)
    for epoch in range(1, 8):
        watch.look(epoch, [3.0 if epoch > 4 else 1.0], 1, Communicator(), lambda: None)
    assert asked == [25]


def test_what_is_said():
    found, different = answer(predicted(GDP, 2.6), predicted(SPLIT, 0.9)), lambda: "Its sums are small."
    run = Run(lambda epoch, plan: 0.5 if epoch < 6 else 3.1, first=0.5, replan=lambda: found, describe=different).go(7)
    assert run.told == [
        "epoch 7 took 3.1 s in place of 0.5 s: measured the cluster again (Its sums are small); from now on plan split "
        "(0.9 s an epoch) in place of gdp (2.6 s)"
    ]
    run = Run(lambda epoch, plan: 3.1, first=0.5, replan=lambda: answer(predicted(GDP, 2.6)))
    assert run.go(1).told == [
        "epoch 1 took 3.1 s in place of 0.5 s: measured the cluster again; plan gdp stays, still the fastest "
        "(2.6 s an epoch)"
    ]
    cached = Plan(GDP.layers, cache=0.25)
    found = answer(predicted(GDP, 2.6), predicted(cached, 0.9, "gdp"))
    run = Run(lambda epoch, plan: 3.1, first=0.5, replan=lambda: found).go(1)
    assert (
        "plan local+local seeds=spread cache=25% (0.9 s an epoch) in place of local+local seeds=spread" in run.told[0]
    )


class Shared(Communicator):
    """A second worker's communicator, on which the first one has said what it decided."""

    def __init__(self, said):
        super().__init__(1, 2)
        self.said = list(said)

    def share(self, data):
        assert data is None
        return json.dumps(self.said.pop(0)).encode()

    def barrier(self):
        return None


def test_the_first_worker_decides_for_all():
    calm = Watch(predicted(GDP, 1.0), lambda left: answer(predicted(GDP, 1.0)))
    comm = Shared([{"decided": told} for told in (False, True, {"plan": SPLIT.as_dict(), "text": "told"})])
    assert not calm.drifts(1, [100.0], 1, comm)
    assert calm.drifts(2, [0.1], 1, comm)
    change = calm.plan_again(comm)
    assert change.plan == SPLIT and change.text == "told"


def test_hiccups_and_parts_of_epochs():
    assert epoch_seconds([0.1] * 9 + [5.0], 10) == pytest.approx(1.0)
    assert epoch_seconds([0.1] * 4, 20) == pytest.approx(2.0)
    assert epoch_seconds([0.1, 0.3], 2) == pytest.approx(0.4)
    run = Run(lambda epoch, plan: 1.0)
    assert not run.watch.drifts(1, [], 10, run.comm)


def test_changes_of_a_cluster_in_words():
    hosts = [Host("h1", 125e6, 1e9, cores=2), Host("h2", 125e6, 1e9, cores=2), Host("h3", 125e6, 1e9, cores=2)]
    before = Cluster(tuple(hosts), 1e-3, 1e-4, 1e9, links=(Link(("h1", "h3"), 50e6),))
    assert before.changes_to(before) == "nothing has changed"
    hosts[1] = Host("h2", 12.5e6, 1e9, cores=1)
    after = Cluster(tuple(hosts), 1.1e-3, 3e-4, 1e9)
    assert before.changes_to(after) == (
        "h2's link 1 Gbit/s -> 0.1 Gbit/s, h2's processors 2 -> 1, h1 to h3 0.4 Gbit/s -> 1 Gbit/s, an exchange within a "
        "host 0.1 ms -> 0.3 ms"
    )
