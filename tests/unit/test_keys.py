"""Draws by a key leave all generators where they were, those of devices too, whether these are in use yet or not."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from weft.keys import generators_kept, seeded


class Devices:
    """What torch has of CUDA devices' generators, here of one: a number, its state."""

    def __init__(self, initialized):
        self.initialized, self.state = initialized, 7

    def put_in(self, monkeypatch):
        for name, given in {
            "is_available": lambda: True,
            "is_initialized": lambda: self.initialized,
            "get_rng_state_all": lambda: [self.state],
            "set_rng_state_all": lambda states: setattr(self, "state", states[0]),
            "manual_seed_all": lambda seed: setattr(self, "state", seed),
        }.items():
            monkeypatch.setattr(torch.cuda, name, given)


@pytest.mark.parametrize("in_use", [True, False])
@pytest.mark.parametrize("within", [lambda: seeded(1, 2), generators_kept])
def test_devices_draw_on_from_where_they_were(monkeypatch, in_use, within):
    before = torch.get_rng_state()
    try:
        torch.manual_seed(5)
        devices = Devices(in_use)
        devices.put_in(monkeypatch)
        with within():
            torch.manual_seed(3)
            assert devices.state == 3
            devices.initialized = True
        assert devices.state == (7 if in_use else 5)
        assert torch.initial_seed() == 5
    finally:
        torch.set_rng_state(before)


def test_a_key_gives_the_same_draws_and_none_of_others(monkeypatch):
    state, of_numpy = torch.get_rng_state(), np.random.get_state()[1].tolist()
    first, other = ([], [])
    for drawn, parts in ((first, (1, 2)), (first, (1, 2)), (other, (1, 3))):
        with seeded(*parts):
            drawn.append(torch.rand(3).tolist())
    assert first[0] == first[1] != other[0]
    assert torch.equal(torch.get_rng_state(), state) and np.random.get_state()[1].tolist() == of_numpy


def test_what_is_imported_on_first_use_leaves_pythons_generator_where_it_was():
    """Rich draws while it is imported."""
    code = "import random, weft; random.seed(0); weft.train; print(random.random())"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert float(told) == random.Random(0).random()
