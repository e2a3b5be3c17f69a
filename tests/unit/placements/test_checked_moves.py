"""What a placement says that it would move is looked at before plans are priced by it."""

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.placements import Moves, checked_moves

WORKERS, SOURCES = 3, 5


def test_what_can_be_is_as_it_was():
    moves = Moves(pulled=np.array([0.0, 2.0, 1.0]), solved=np.ones(1), taken=np.zeros(SOURCES, dtype=bool), held=True)
    assert checked_moves(moves, "own", WORKERS, SOURCES) is moves


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        (None, "counted a NoneType: let count"),
        (3.0, "counted a float: let count"),
        (Moves(pulled=np.array([0.0, np.nan, 0.0])), "counted pulled ="),
        (Moves(pairs=np.array([0.0, -1.0, 0.0])), "counted pairs ="),
        (Moves(edges=np.array([0.0, np.inf, 0.0])), "counted edges ="),
        (Moves(own=np.zeros(2)), "counted own = .* for each of the 3 workers"),
        (Moves(asked=-1.0), "counted asked = -1.0"),
        (Moves(columns=float("nan")), "counted columns = nan"),
        (Moves(taken=np.zeros(SOURCES)), "counted taken = .* a bool for each of the 5 sources"),
    ],
)
def test_what_can_not_be_is_told(moves, words):
    with pytest.raises(ConfigError, match=f"the placement 'own' {words}"):
        checked_moves(moves, "own", WORKERS, SOURCES)
