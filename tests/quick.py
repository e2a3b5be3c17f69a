"""Tests of many alike: `make test` has some of their values, `make test-slow` all."""

import pytest


def some(values, *quick):
    """A parameter's values, of which only these are in the fast suite: the others would tell little new there."""
    return some_rows([(value,) for value in values], *((value,) for value in quick))


def some_rows(rows, *quick):
    """The same of several parameters, in rows of a value each."""
    rows = list(rows)
    missing = [row for row in quick if row not in rows]
    assert not missing, f"no such values: {missing}"
    return [pytest.param(*row, marks=() if row in quick else pytest.mark.slow) for row in rows]
