"""The rehearsal: a plan trains until its epochs agree, or for long enough."""

from types import SimpleNamespace

import numpy as np
import pytest

from weft import _kernels
from weft.graph import communities
from weft.training import rehearsal


@pytest.fixture
def epochs(monkeypatch):
    """How many epochs a plan trains for, at most so many, if they take so long and so much of the processors."""

    def run(seconds, worked, most=4):
        begun, taken = [], iter(worked)

        def observed(trainer, comm, planner, plan, epoch):
            return SimpleNamespace(seconds=seconds, processor={"compute": np.full(2, next(taken) / 2)})

        monkeypatch.setattr(rehearsal, "observed", observed)

        class Trainer:
            loader = range(6)

            def train_epoch(self, epoch, first):
                begun.append((epoch, first))

        found = rehearsal._epochs(Trainer(), None, None, None, most)
        assert begun == [(0, 4)]  # two batches to warm up
        return len(found)

    return run


def test_epochs_that_agree_are_enough(epochs):
    assert epochs(0.1, [1.0, 1.01]) == 2
    assert epochs(0.1, [1.0, 1.2, 1.1, 1.05]) == 4
    assert epochs(0.1, [1.0, 1.1, 1.05, 1.05]) == 4
    assert epochs(0.1, [1.0, 1.06, 1.03]) == 3


def test_long_ones_are_few(epochs):
    assert epochs(2.0, [1.0, 1.5]) == 1
    assert epochs(0.6, [1.0, 1.5, 1.2]) == 2
    assert epochs(0.1, [1.0, 1.5, 1.2], most=1) == 1


def test_the_small_graphs_edges_are_drawn_once(tmp_path, monkeypatch):
    calls, draw = [], _kernels.community_edges
    monkeypatch.setattr(_kernels, "community_edges", lambda *args: calls.append(args[1]) or draw(*args))
    communities(tmp_path / "graph", vertices=500, edges=4000, width=4)
    assert calls == [0]
