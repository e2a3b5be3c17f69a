"""What tests of allocations share."""

import pytest


@pytest.fixture
def few_batches(monkeypatch):
    """traffic samples a tenth of what it does: for tests that do not ask how good its allocations are."""
    for name, pins in (("_FEW", (200_000, 0.1)), ("_MANY", (800_000, 0.5)), ("_MORE", (800_000, 0.5))):
        monkeypatch.setattr(f"weft.partition.methods.traffic.{name}", pins)
