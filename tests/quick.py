"""Tests of many alike: `make test` has some of their values, `make test-slow` all."""

import pytest


def some(values, *quick):
    """A parameter's values, of which only these are in the fast suite: the others would tell little new there."""
    values = list(values)
    missing = [value for value in quick if value not in values]
    assert not missing, f"no such values: {missing}"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
