"""Settling: predictions from elsewhere are refined by epochs, and plans are changed until none is expected to win."""

from dataclasses import replace

import pytest
from test_watch import BATCHES, GDP, SNP, SPLIT, Run, answer, predicted

from weft.training.trial import Settling, Trial
from weft.training.watch import Watch

ELSEWHERE = {GDP: 1.0, SPLIT: 1.5, SNP: 2.0}  # what an epoch is predicted to take at first


class Student:
    """Learns the seconds of each plan that it saw, and takes those that it did not see to be off as the last one is."""

    def __init__(self, truth, predictions=ELSEWHERE):
        self.truth, self.predictions, self.seen, self.kept = truth, dict(predictions), [], 0
        self.run, self.counted, self.begun, self.marks = None, 0, 0, 0

    def begin(self):
        self.begun, self.counted = self.begun + 1, 0

    def mark(self):
        self.marks += 1

    def stepped(self, seconds, counts):
        self.counted += counts

    def refined(self, left):
        assert self.counted >= 8 and left >= 1
        plan = self.run.plan
        self.seen.append(plan)
        factor = self.truth[plan] / self.predictions[plan]
        for other in self.predictions:
            if other not in self.seen:
                self.predictions[other] *= factor**0.5
        self.predictions[plan] = self.truth[plan]
        return answer(*(predicted(one, seconds) for one, seconds in self.predictions.items()))

    def keep(self):
        self.kept += 1
        return "kept"


def settle(truth, epochs=40, change=0.0, **more):
    student = Student(truth)
    run = Run(lambda epoch, plan: truth[plan], settling=Settling(student, BATCHES, change), epochs=epochs, **more)
    student.run = run
    return run.go(min(epochs, 40)), student


def test_what_was_chosen_stays_if_it_takes_what_it_should():
    run, student = settle({GDP: 1.0, SPLIT: 1.5, SNP: 2.0})
    assert run.switched == [] and run.planned == []
    assert run.told == [
        "plan gdp takes 1.0 s an epoch (1.0 s predicted); by that, no other is expected to be worth a change, and it stays; "
        "what was learned is kept"
    ]
    assert student.seen == [GDP] and student.kept == 1


def test_a_plan_that_takes_longer_than_it_should_gives_way():
    run, student = settle({GDP: 4.0, SPLIT: 1.4, SNP: 3.0})
    assert run.switched == [(1, SPLIT)] and student.seen == [GDP, SPLIT]
    assert run.told[0].startswith(
        "plan gdp takes 4.0 s an epoch (1.0 s predicted); by that, split is expected to take "
    )
    assert run.told[0].endswith(", and goes on") and run.told[1].startswith("plan split takes 1.4 s an epoch")


def test_one_that_was_better_is_gone_back_to():
    run, _ = settle({GDP: 4.0, SPLIT: 6.0, SNP: 9.0})
    assert run.switched[0] == (1, SPLIT) and run.plan == GDP
    assert run.told[-1].endswith("gdp, with 4.0 s, was faster and goes on; what was learned is kept")
    assert run.planned == []  # it is known what to expect


def test_a_change_has_to_pay_in_what_is_left_of_the_run():
    truth = {GDP: 4.0, SPLIT: 1.4, SNP: 3.0}
    assert settle(truth, epochs=4, change=10.0)[0].switched == []
    assert settle(truth, epochs=40, change=10.0)[0].switched == [(1, SPLIT)]


def test_filling_a_cache_counts_as_part_of_the_change():
    settling = Settling(None, BATCHES, 0.0)
    cached = replace(predicted(SPLIT, 1.0), once=100.0)
    answered = answer(predicted(GDP, 2.0), cached)
    assert settling.turn(answered, predicted(GDP, 2.0), 2.0, left=50).prediction.plan == GDP
    assert settling.turn(answered, predicted(GDP, 2.0), 2.0, left=500).prediction.plan == SPLIT


def test_plans_that_train_another_model_or_do_not_fit_are_left_out():
    half = predicted(replace(SPLIT, wire="float16"), 0.1)
    answered = answer(predicted(GDP, 2.0), half, predicted(SNP, 0.1, excluded="memory"))
    turn = Settling(None, BATCHES, 0.0).turn(answered, predicted(GDP, 2.0), 2.0, left=50)
    assert turn.prediction.plan == GDP and turn.seconds == 2.0


def test_batches_are_counted_until_their_mean_is_known():
    """Ten of them open connections and touch memory, eight count, and more where they differ; between epochs is a mark."""
    run, student = settle(ELSEWHERE)
    assert student.seen == [GDP] and student.counted == 8 and run.told
    student = Student(ELSEWHERE)
    settling = Settling(student, BATCHES, 0.0)
    known = []
    for batch in range(60):
        if settling.looks((1.0, 3.0)[batch % 2]):
            known.append(settling.usual(predicted(GDP, 1.0)))
            settling.wait()
    assert known.index(next(filter(None, known))) == 9 and known[9] == pytest.approx(
        20.0, rel=0.1
    )  # 40 are enough anyhow


def test_an_evaluation_between_epochs_is_not_learned_from():
    run, student = settle(ELSEWHERE)
    run.watch = Watch(predicted(GDP, 1.0), lambda left: None, settling=Settling(student, BATCHES, 0.0))
    run.watch.begins()
    assert student.marks == 1


def test_only_so_many_are_tried():
    plans = [replace(GDP, cache=share / 10) for share in range(9)]
    truth = {plan: 10.0 - number for number, plan in enumerate(plans)}
    student = Student(truth, dict.fromkeys(plans, 1.0))

    def refined(left):
        student.seen.append(student.run.plan)
        seconds = {one: truth[one] if one in student.seen else 0.8 * truth[student.run.plan] for one in plans}
        return answer(*(predicted(one, took) for one, took in seconds.items()))

    student.refined = refined
    run = Run(lambda epoch, plan: truth[plan], plan=plans[0], settling=Settling(student, BATCHES, 0.0), epochs=1000)
    student.run = run
    assert len({*run.go(40).switched}) == 3


def test_what_was_measured_is_not_tried_again():
    """Once it is settled, plans that are predicted close are tried; gdp, which was in use at first, is known."""
    truth = {GDP: 3.0, SPLIT: 2.8, SNP: 2.7}
    student = Student(truth, {GDP: 1.0, SPLIT: 1.1, SNP: 1.3})
    trial = Trial([], BATCHES, change=0.0, off=0.075)
    run = Run(lambda epoch, plan: truth[plan], settling=Settling(student, BATCHES, 0.0), epochs=10_000, trial=trial)
    student.run = run
    switched = [plan for _, plan in run.go(40).switched]
    assert switched == [SPLIT, SNP] and student.seen == [GDP, SPLIT]
    assert run.told[-1].startswith("plans tried, a batch of each: split 0.28 s, snp 0.27 s; ")


@pytest.mark.parametrize("slow_from", [3, 10])
def test_a_drift_is_seen_in_the_midst_of_it_and_after(slow_from):
    student = Student(ELSEWHERE)
    run = Run(
        lambda epoch, plan: ELSEWHERE[plan] * (10 if epoch >= slow_from and plan == GDP else 1),
        settling=Settling(student, BATCHES, 0.0),
        epochs=100,
    )
    student.run, run.replan = run, lambda: answer(predicted(GDP, 10.0), predicted(SPLIT, 1.5))
    assert run.go(30).plan == SPLIT
