"""Plans that are predicted to take about as long are tried, at a bounded cost, and the fastest one stays."""

import random
from dataclasses import replace

import pytest
from test_watch import GDP, SNP, SPLIT, Run, answer, predicted

from weft.plan import dnp
from weft.training.trial import Trial, differences, rivals

DNP = dnp(2)


def race(epochs=10_000, change=0.0, truth=None, first=1.0, **more):
    """A run of so many epochs by gdp, which is predicted to take `first`, with split and snp as its rivals."""
    close = [predicted(SPLIT, 1.01 * first), predicted(SNP, 1.02 * first)]
    return Run(truth, first=first, trial=Trial(close, epochs, change), **more)


def fastest(seconds):
    return lambda epoch, plan: seconds[plan]


def test_who_may_be_faster():
    found = answer(predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1), predicted(DNP, 1.2))
    assert [one.plan for one in rivals(found)] == [SPLIT, SNP]
    assert rivals(answer(predicted(GDP, 1.0))) == []


def test_plans_that_do_something_else_come_first():
    """What is predicted a little slower, and alike in all but a layer, is slower; what has less in common may be faster."""
    best, alike, other = (replace(SNP, layers=of) for of in (("push", "push"), ("push", "local"), ("local", "local")))
    found = answer(predicted(best, 1.0), predicted(alike, 1.01), predicted(replace(other, seeds="home"), 1.04))
    assert [one.plan.layers for one in rivals(found)] == [("local", "local"), ("push", "local")]
    nearly = answer(predicted(best, 1.0), predicted(alike, 1.01), predicted(replace(other, seeds="home"), 1.14))
    assert [one.plan.layers for one in rivals(nearly)] == [("push", "local"), ("local", "local")]
    assert differences(best, alike) == 1 and differences(best, replace(other, seeds="home")) == 3


def test_plans_that_differ_in_their_cache_alone_do_the_same():
    best, smaller, none = (replace(GDP, cache=size) for size in (1.0, 0.25, 0.0))
    assert differences(best, none) == 0
    found = answer(predicted(best, 1.0), predicted(none, 1.01), predicted(SPLIT, 1.05), predicted(smaller, 1.02))
    assert [one.plan for one in rivals(found)] == [SPLIT]
    found = answer(predicted(best, 1.0), predicted(replace(SPLIT, cache=0.25), 1.01), predicted(SPLIT, 1.02))
    assert [one.plan for one in rivals(found)] == [replace(SPLIT, cache=0.25)]


def test_other_models_and_plans_without_room_are_not_tried():
    half = predicted(replace(SPLIT, wire="float16"), 0.9)
    found = answer(predicted(GDP, 1.0), predicted(SNP, 1.01, excluded="would need more memory"))
    assert rivals(replace(found, predictions=[half, *found.predictions])) == []


@pytest.mark.parametrize(
    ("epochs", "change", "cold", "switched"),
    [
        (100, 0.1, 1.0, [(2, SPLIT), (4, SNP), (6, GDP)]),
        (8, 0.1, 1.0, [(2, SPLIT), (4, GDP)]),  # 0.4 s: 0.22 for one, 0.1 to change back
        (18, 0.1, 1.4, []),  # first epochs take 0.4 s longer: not affordable
        (30, 1.0, 1.0, []),
        (2, 0.0, 1.0, []),
    ],
)
def test_as_many_are_tried_as_the_run_pays_for(epochs, change, cold, switched):
    run = race(epochs, change, lambda epoch, plan: (1.0 if plan == GDP else 1.1) * (cold if epoch == 0 else 1.0))
    assert run.go(min(epochs, 50)).switched == switched
    assert bool(run.told) == bool(switched)


def test_a_run_that_is_resumed_pays_by_what_is_left_of_it():
    run = race(100, 0.1, lambda epoch, plan: 1.0 if plan == GDP else 1.1)
    run.epoch = 92
    assert run.go(8).switched == [(94, SPLIT), (96, GDP)]


@pytest.mark.parametrize("best", [GDP, SPLIT, SNP])
@pytest.mark.parametrize("seed", range(4))
def test_the_fastest_stays(best, seed):
    rng = random.Random(seed)

    def truth(epoch, plan):
        cold = epoch == 0 or (run.switched and run.switched[-1][0] == epoch)
        return rng.uniform(0.97, 1.03) * (0.9 if plan == best else 1.05) * (1.7 if cold else 1)

    run = race(truth=truth)
    run.go(100)
    changes = [(2, SPLIT), (4, SNP), (6, best)]
    assert run.switched == (changes if best != SNP else changes[:2])
    assert run.planned == [] and run.watch.trial is None and run.watch.prediction.plan == best


def test_what_is_said():
    times = fastest({GDP: 1.0, SPLIT: 0.8, SNP: 1.2})
    run = race(truth=times).go(10)
    assert run.told == [
        "plan gdp takes 1.0 s an epoch: split is tried, which may be faster",
        "plan split takes 0.8 s an epoch: snp is tried, which may be faster",
        "plans tried, an epoch of each: gdp 1.0 s, split 0.8 s, snp 1.2 s; split goes on",
    ]


def test_short_epochs_are_too_noisy_to_try_plans():
    assert race(truth=fastest({GDP: 0.4, SPLIT: 0.2, SNP: 0.2}), first=0.4).go(20).switched == []


def test_a_small_gain_is_not_worth_it():
    run = race(truth=fastest({GDP: 1.0, SPLIT: 0.97, SNP: 0.96})).go(10)
    assert run.plan == GDP and run.switched[-1] == (6, GDP)


def test_what_is_not_at_all_as_predicted_ends_the_trial():
    run = race(truth=fastest({GDP: 1.0, SPLIT: 5.0, SNP: 0.1}))
    assert run.go(50).switched == [(2, SPLIT), (3, GDP)]


@pytest.mark.parametrize("slow_from", range(1, 9))
def test_a_link_that_slows_down_meanwhile_is_seen_in_two_epochs(slow_from):
    def truth(epoch, plan):
        return (10.0 if epoch >= slow_from else 1.0) if plan != DNP else 2.0

    def found():
        return answer(predicted(GDP, 10.0), predicted(SPLIT, 10.0), predicted(SNP, 10.0), predicted(DNP, 2.0, "dnp"))

    run = race(truth=truth, replan=found).go(30)
    assert len(run.planned) == 1 and run.planned[0] <= slow_from + 2
    assert run.switched[-1] == (run.planned[0], DNP) and run.plan == DNP


def test_a_plan_that_is_not_at_all_as_predicted_is_planned_again_and_others_are_tried():
    run = race(truth=fastest({GDP: 2.5, SPLIT: 1.2, SNP: 1.1}))
    run.replan = lambda: answer(predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1))
    run.go(30)
    assert len(run.planned) == 1 and run.watch.trial is None
    assert [plan for _, plan in run.switched] == [SPLIT, SNP] and run.switched[0][0] == run.planned[0] + 1


def test_what_was_tried_is_remembered_when_planning_again():
    """A plan that disappointed in the trial is not switched to because it is predicted to be a little faster."""
    run = race(truth=lambda epoch, plan: (1.0 if plan == GDP else 1.5) * (3.0 if epoch > 9 else 1.0))
    run.replan = lambda: answer(predicted(GDP, 3.0), predicted(SPLIT, 2.5))
    assert run.go(30).switched == [(2, SPLIT), (4, SNP), (6, GDP)] and len(run.planned) == 1
