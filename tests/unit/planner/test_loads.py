"""Which rows a layer's convolution maps: those that a worker holds, and of others those that come as they are."""

import numpy as np
import pytest
from test_dry_run import WORKERS, counts, graph  # noqa: F401 (a fixture)

from weft.placements import OWNER, placement_named
from weft.plan import Plan
from weft.planner.counts import HOME, Key, PlacedHop
from weft.planner.loads import Counted, Message, Setting
from weft.planner.space import layers_of

OFF = 1 - np.eye(WORKERS)


@pytest.fixture
def loads(graph):  # noqa: F811
    """Of each layer of a plan, inputs first."""
    _, found = counts(graph)
    ways = ("local", {"pulled": 8.0}), ("pull", {"pulled": 8.0}), ("push", {"pairs": 8.0}), ("cover", {"pairs": 8.0})
    messages = {(layer, p, r): [Message(of)] for layer in (0, 1) for p, of in ways for r in (True, False)}
    messages |= {(0, "pull", r): [] for r in (True, False)}  # inputs are fetched, ahead of it
    of = Counted(found.batch, Setting(messages, range(WORKERS), 24.0, 4.0, 100.0))

    def made(*layers):
        return found.batch, [piece.load(of) for piece in layers_of(Plan(layers, seeds="home"))][::-1]

    return made


def test_rows_are_mapped_where_they_are_held(loads):
    batch, (below, above) = loads("pull", "local")
    np.testing.assert_allclose(
        below.sources, batch.drawn[Key(0, OWNER)].sources.sum(1)
    )  # inputs, each where it is read
    np.testing.assert_allclose(above.sources, batch.drawn[Key(0, OWNER)].destinations.sum(1))  # rows of the layer below
    np.testing.assert_allclose(above.pulled, (batch.drawn[Key(1, HOME)].sources * OFF).sum(1))
    _, (below, above) = loads("local", "local")
    np.testing.assert_allclose(above.sources, batch.drawn[Key(1, HOME)].sources.sum(1))  # nothing comes of others
    assert np.sum(above.pulled) == np.sum(below.pulled) == 0


def test_inputs_that_a_cover_fetches_are_mapped_too(loads):
    batch, (below, above) = loads("cover", "cover")
    first, second = (
        batch.moves[PlacedHop(Key(n, OWNER), placement_named("cover"), OWNER, ("input", OWNER)[n])] for n in (0, 1)
    )
    _, (pushed, _) = loads("push", "push")
    np.testing.assert_allclose(below.sources - pushed.sources, (first.sources * OFF).sum(1))
    np.testing.assert_allclose(above.pulled, second.pulled.sum(1))


def test_layers_that_cross_say_so(loads):
    for layers, crossing in ((("local", "local"), 0), (("pull", "local"), 1), (("push", "push"), 2)):
        _, each = loads(*layers)
        assert sum(float(np.sum(load.units["compute"].get("cross", 0.0))) for load in each) == crossing * WORKERS
