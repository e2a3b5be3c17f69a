"""Plans whose predictions can't tell which is faster are tried for some batches, at a bounded cost; the fastest stays."""

import random
from dataclasses import replace

import pytest
from test_watch import BATCHES, GDP, SNP, SPLIT, Run, answer, predicted

from weft.plan import dnp
from weft.training.trial import Trial, differences, expected, rivals

DNP = dnp(2)
OFF = 0.075  # how far predictions may be off


def race(epochs=10_000, change=0.0, truth=None, first=1.0, **more):
    """A run of so many epochs by gdp, which is predicted to take `first`, with split and snp as its rivals."""
    close = [predicted(SPLIT, 1.01 * first), predicted(SNP, 1.02 * first)]
    return Run(truth, first=first, trial=Trial(close, BATCHES, change, OFF), epochs=epochs, **more)


def fastest(seconds):
    return lambda epoch, plan: seconds[plan]


def could_be(*predictions):
    return [one.plan for one in rivals(replace(answer(*predictions), off=OFF))]


def test_who_may_be_faster():
    close = predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1), predicted(DNP, 1.2)
    assert could_be(*close) == [SPLIT, SNP]
    assert could_be(predicted(GDP, 1.0)) == []


def test_what_an_earlier_run_tried_is_not_tried_again():
    close = replace(answer(predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1)), off=OFF)
    plans = [[one.plan for one in rivals(close, known=known)] for known in ([], [GDP, SPLIT], [SPLIT, SNP])]
    assert plans == [[SPLIT, SNP], [SNP], [SPLIT, SNP]]  # beside the best one, if that was tried too


def test_what_was_tried_is_kept_for_later_runs():
    kept, seconds = [], {GDP: 1.0, SPLIT: 0.9, SNP: 1.1}
    close = [predicted(SPLIT, 1.01), predicted(SNP, 1.02)]
    Run(fastest(seconds), trial=Trial(close, BATCHES, 0.0, OFF, kept.append), epochs=10_000).go(20)
    (took,) = kept
    assert [*took] == [GDP, SPLIT, SNP]
    assert took[SPLIT] / took[GDP] == pytest.approx(0.9 / 1.01, rel=0.1)
    Run(fastest(seconds), trial=Trial([], BATCHES, 0.0, OFF, kept.append), epochs=10_000).go(20)
    assert kept == [took]  # nothing was tried


def test_the_better_predictions_are_the_fewer_plans_are_tried():
    found = answer(predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1))
    counts = [len(rivals(replace(found, off=off))) for off in (0.0, 0.03, 0.06)]
    assert counts == [0, 1, 2]


def test_plans_that_do_something_else_come_first():
    """What is predicted a little slower, and alike in all but a layer, is slower; what has less in common may be faster."""
    best, alike, other = (replace(SNP, layers=of) for of in (("push", "push"), ("push", "local"), ("local", "local")))
    found = could_be(predicted(best, 1.0), predicted(alike, 1.01), predicted(replace(other, seeds="home"), 1.04))
    assert [plan.layers for plan in found] == [("local", "local"), ("push", "local")]
    nearly = could_be(predicted(best, 1.0), predicted(alike, 1.01), predicted(replace(other, seeds="home"), 1.14))
    assert [plan.layers for plan in nearly] == [("push", "local"), ("local", "local")]
    assert differences(best, alike) == 1 and differences(best, replace(other, seeds="home")) == 3


def test_plans_that_differ_in_their_cache_alone_do_the_same():
    best, smaller, none = (replace(GDP, cache=size) for size in (1.0, 0.25, 0.0))
    assert differences(best, none) == 0
    found = could_be(predicted(best, 1.0), predicted(none, 1.01), predicted(SPLIT, 1.05), predicted(smaller, 1.02))
    assert found == [SPLIT]
    found = could_be(predicted(best, 1.0), predicted(replace(SPLIT, cache=0.25), 1.01), predicted(SPLIT, 1.02))
    assert found == [replace(SPLIT, cache=0.25)]


def test_other_models_and_plans_without_room_are_not_tried():
    half = predicted(replace(SPLIT, wire="float16"), 0.9)
    found = answer(predicted(GDP, 1.0), predicted(SNP, 1.01, excluded="would need more memory"))
    assert rivals(replace(found, predictions=[half, *found.predictions], off=OFF)) == []


@pytest.mark.parametrize(
    ("epochs", "change", "switched"),
    [
        (200, 0.1, [SPLIT, SNP, GDP]),
        (17, 0.1, [SPLIT, GDP]),
        (12, 0.1, []),
        (30, 1.0, []),
        (2, 0.0, []),
    ],
)
def test_as_many_are_tried_as_the_run_pays_for(epochs, change, switched):
    run = race(epochs, change, lambda epoch, plan: 1.0 if plan == GDP else 1.1)
    assert [plan for _, plan in run.go(min(epochs, 50)).switched] == switched
    assert bool(run.told) == bool(switched)


@pytest.mark.parametrize(("longer", "epochs"), [(0.0, 20), (0.1, 100), (0.14, 400)])
def test_the_less_likely_a_plan_is_faster_the_longer_a_run_must_be_for_it(longer, epochs):
    def tried(epochs):
        run = Run(
            fastest({GDP: 1.0, SPLIT: 0.9}),
            trial=Trial([predicted(SPLIT, 1.0 + longer)], BATCHES, 0.2, OFF),
            epochs=epochs,
        )
        return bool(run.go(min(epochs, 10)).switched)

    assert tried(epochs) and not tried(epochs // 4)


def test_what_is_expected_of_a_plan():
    rng = random.Random(0)
    for longer, off in ((0.1, 0.1), (-0.05, 0.2), (0.3, 0.05)):
        ratios = [rng.gauss(longer, off) for _ in range(200_000)]
        found = sum(max(0, -r) for r in ratios) / len(ratios), sum(max(0, r) for r in ratios) / len(ratios)
        assert expected(longer, off) == pytest.approx(found, abs=1e-3)
    assert expected(0.2, 0.0) == (0.0, 0.2)


def test_caches_that_rivals_fill_are_part_of_what_trying_costs():
    close = [replace(predicted(SPLIT, 1.01), once=3.0), predicted(SNP, 1.02)]
    truth = fastest({GDP: 1.0, SPLIT: 1.1, SNP: 1.1})
    for epochs, count in ((50, 0), (500, 3)):
        assert len(Run(truth, trial=Trial(close, BATCHES, 0.0, OFF), epochs=epochs).go(20).switched) == count


def test_filling_a_cache_again_has_to_pay():
    """Split is 8% faster, but its cache would be filled anew: not for the last epochs."""
    cached = replace(predicted(SPLIT, 1.01), once=2.0)
    truth = fastest({GDP: 1.0, SPLIT: 0.92, SNP: 0.99})
    for epochs, stays in ((110, SPLIT), (10_000, SPLIT)):
        run = Run(truth, trial=Trial([cached, predicted(SNP, 1.02)], BATCHES, 0.0, OFF), epochs=epochs)
        assert run.go(20).plan == stays
    tried = Trial([], BATCHES, 0.0, OFF)
    for prediction, seconds in ((predicted(GDP, 1.0), 0.1), (cached, 0.092), (predicted(SNP, 1.02), 0.099)):
        tried.begin(prediction.plan)
        assert [tried.looks(seconds) for _ in range(12)][-1]
        turn = tried.decide(prediction, left=100)
    assert turn.prediction.plan == SNP  # 100 batches save 0.8 s


@pytest.mark.parametrize("best", [GDP, SPLIT, SNP])
@pytest.mark.parametrize("seed", range(4))
def test_the_fastest_stays(best, seed):
    rng = random.Random(seed)
    run = race(truth=lambda epoch, plan: rng.uniform(0.97, 1.03) * (0.9 if plan == best else 1.05))
    run.go(100)
    changes = [SPLIT, SNP, best]
    assert [plan for _, plan in run.switched] == (changes if best != SNP else changes[:2])
    assert run.planned == [] and run.watch.trial is None and run.watch.prediction.plan == best


def test_plans_change_between_batches():
    """Ten batches for warming up and eight that count; then four and eight of a rival: an epoch has ten.

    Of one that is slower beyond doubt four count.
    """
    run = race(truth=fastest({GDP: 1.0, SPLIT: 0.8, SNP: 1.2}))
    assert run.go(10).switched == [(1, SPLIT), (2, SNP), (3, SPLIT)]


def test_what_is_much_slower_is_not_tried_for_long():
    """Noise is no reason to go on for forty batches."""
    rng, trial = random.Random(0), Trial([predicted(SPLIT, 10.0)], BATCHES, 0.0, OFF)
    counts = []
    for mean, present in ((1.0, predicted(GDP, 10.0)), (2.0, predicted(SPLIT, 10.0))):
        turn, steps = None, 0
        while turn is None:
            steps += 1
            if trial.looks(mean * rng.uniform(0.7, 1.3)):
                turn = trial.decide(present, left=10_000)
                trial.wait()
        counts.append(steps)
        trial.begin(turn.prediction.plan)
    assert turn.prediction.plan == GDP and turn.seconds is not None
    assert counts[0] > 30 and counts[1] <= 16


def test_what_is_said():
    run = race(truth=fastest({GDP: 1.0, SPLIT: 0.8, SNP: 1.2})).go(10)
    assert run.told == [
        "plan gdp takes 0.1 s a batch: split is tried, which may be faster",
        "plan split takes 0.08 s a batch: snp is tried, which may be faster",
        "plans tried, a batch of each: gdp 0.1 s, split 0.08 s, snp 0.12 s; split goes on (+25.0% ± 0.0% to gdp)",
    ]


def test_noisy_batches_are_timed_for_longer():
    def ended(noise):
        rng, trial = random.Random(0), Trial([], BATCHES, 0.0, OFF)
        for step in range(1, 100):
            if trial.looks(rng.uniform(1 - noise, 1 + noise)):
                if trial.decide(predicted(GDP, 10.0), left=1000) is not None:
                    return step
                trial.wait()

    assert ended(0.001) == BATCHES + 8 < ended(0.1) < ended(0.9) == BATCHES + 40


def test_a_lead_that_may_be_chance_changes_nothing():
    rng = random.Random(1)
    trial = Trial([predicted(SPLIT, 10.0)], BATCHES, 0.0, OFF)
    present = predicted(GDP, 10.0)
    for mean in (1.0, 0.99):
        while True:
            if trial.looks(mean * rng.uniform(0.5, 1.5)):
                turn = trial.decide(present, left=10_000)
                if turn is not None:
                    break
                trial.wait()
        present = turn.prediction
        trial.begin(present.plan)
    first, other = trial.tried
    assert abs(other.lead(first)) < 0.1 and turn.prediction.plan in (GDP, SPLIT)
    assert turn.text.startswith("plans tried") and "±" in turn.text


def test_what_is_not_at_all_as_predicted_ends_the_trial():
    run = race(truth=fastest({GDP: 1.0, SPLIT: 5.0, SNP: 0.1}))
    assert [plan for _, plan in run.go(50).switched] == [SPLIT, GDP]


@pytest.mark.parametrize("slow_from", range(1, 9))
def test_a_link_that_slows_down_meanwhile_is_seen(slow_from):
    def truth(epoch, plan):
        return (10.0 if epoch >= slow_from else 1.0) if plan != DNP else 2.0

    def found():
        return answer(predicted(GDP, 10.0), predicted(SPLIT, 10.0), predicted(SNP, 10.0), predicted(DNP, 2.0, "dnp"))

    run = race(truth=truth, replan=found).go(30)
    assert run.plan == DNP and len(run.planned) <= 2


def test_a_plan_that_is_not_at_all_as_predicted_is_planned_again_and_others_are_tried():
    run = race(truth=fastest({GDP: 2.5, SPLIT: 1.2, SNP: 1.1}))
    run.replan = lambda: replace(answer(predicted(GDP, 1.0), predicted(SPLIT, 1.05), predicted(SNP, 1.1)), off=OFF)
    run.go(30)
    assert run.plan == SNP and run.watch.trial is None


def test_what_was_tried_is_remembered_when_planning_again():
    """A plan that disappointed in the trial is not switched to because it is predicted to be a little faster."""
    run = race(truth=lambda epoch, plan: (1.0 if plan == GDP else 1.5) * (3.0 if epoch > 9 else 1.0))
    run.replan = lambda: answer(predicted(GDP, 3.0), predicted(SPLIT, 2.5))
    assert [plan for _, plan in run.go(30).switched] == [SPLIT, SNP, GDP] and len(run.planned) == 1
