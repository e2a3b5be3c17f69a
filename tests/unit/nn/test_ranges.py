"""How many ranges fit a budget of memory under tp."""

import pytest

from weft.errors import ConfigError
from weft.nn import build, convolutions, needs

BOUNDS = (0, 1000, 2500, 4000)


def of(name, **options):
    return needs(convolutions(build(name, 16, 24, 5, 2, **options), 16), 100_000, BOUNDS, 4)


def test_ranges_divide_what_there_is_an_edge_of():
    found = of("gat")
    fixed = found.lists + found.slices + found.rows
    assert found.edges == 4 * 4 * 3 * 100_000  # numbers of four bytes; a slice has parts of three of four heads
    assert found.within(fixed + found.edges) == 1
    assert found.within(fixed + found.edges - 1) == 2
    assert found.within(fixed + found.edges / 10) == 10


def test_sums_keep_nothing_an_edge():
    found = of("sage")
    assert found.edges == 0
    assert found.slices == 4 * 4000 * 2 * 8  # of 24 columns, on three workers
    assert found.within(found.lists + found.slices + found.rows) == 1


def test_too_little_memory_is_told_with_numbers():
    with pytest.raises(ConfigError, match=r"memory = 1 MB is too little for a worker under tp: it needs lists \d+ MB"):
        of("gat").within(1e6)
