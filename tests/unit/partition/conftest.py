"""What tests of allocations share."""

import pytest


@pytest.fixture
def few_batches(monkeypatch):
    """traffic samples a hundredth of what it does: for tests that do not ask how good its allocations are."""
    few = {"_FEW": (20_000, 0.1), "_MANY": (80_000, 0.5), "_MORE": (80_000, 0.5), "_OTHERS": (50_000, 0.25)}
    for name, pins in few.items():
        monkeypatch.setattr(f"weft.partition.methods.traffic.{name}", pins)
