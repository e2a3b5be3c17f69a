"""The method that is taken where none is named: by training vertices, size, time, and what is installed."""

import numpy as np
import pytest
from slow_partition import random_graph

from weft.graph import Graph
from weft.partition import automatic, choose_method, too_large
from weft.plugins import PARTITION_METHODS


class Large:
    """A graph of any size, as far as the choice looks."""

    def __init__(self, edges, training=True):
        self.num_edges, self.num_vertices = edges, edges // 20
        self.split = np.zeros(3, dtype=np.uint8) if training else None


def test_small_graphs_that_train_get_traffic():
    chosen = choose_method(random_graph(0))
    assert chosen.method == "traffic" and not chosen.weighted
    assert chosen.why == "made for the rows that training will move, about 14 s expected"


@pytest.mark.parametrize(
    ("edges", "minutes", "method"),
    [(30e6, 5, "traffic"), (60e6, 2, "kaminpar"), (60e6, 10, "traffic"), (1e9, 20, "kaminpar"), (1e9, 1, "fennel")],
)
def test_size_and_time_decide(edges, minutes, method):
    chosen = choose_method(Large(int(edges)), minutes, memory=1e12)
    assert chosen.method == method and method in PARTITION_METHODS.names()
    assert chosen.weighted == (method == "kaminpar")
    assert ("traffic would take about" in chosen.why) == (method != "traffic")


def test_many_parts_take_longer_and_more():
    assert choose_method(Large(20_000_000), memory=1e12).method == "traffic"
    many = choose_method(Large(20_000_000), memory=1e12, parts=2000)
    assert many.method == "kaminpar" and "traffic would take about" in many.why
    assert "traffic would need about" in choose_method(Large(20_000_000), 1e9, memory=2e9, parts=2000).why
    assert not too_large("traffic", Large(20_000_000), memory=2e9)


@pytest.mark.parametrize("graph", [random_graph(1, training=0.0), Graph.from_arrays(np.array([[0, 1], [1, 0]]))])
def test_nothing_to_train_on(graph):
    chosen = choose_method(graph)
    assert chosen.method == "kaminpar" and not chosen.weighted
    assert "no training vertices for traffic" in chosen.why


def test_what_is_not_installed_is_passed_over(monkeypatch):
    monkeypatch.setattr(automatic, "find_spec", lambda name: None if name == "kaminpar" else object())
    assert choose_method(Large(60_000_000, training=False), memory=1e12).method == "metis"
    monkeypatch.setattr(automatic, "find_spec", lambda name: None)
    chosen = choose_method(Large(90_000_000), memory=1e12)
    assert chosen.method == "fennel" and "kaminpar is not installed; metis is not installed" in chosen.why


def test_memory_decides(monkeypatch):
    monkeypatch.setattr(automatic, "available_memory", lambda: 8e9)
    chosen = choose_method(Large(1_000_000_000), minutes=600)
    assert chosen.method == "fennel"
    for method in ("traffic", "kaminpar", "metis"):
        assert f"{method} would need about" in chosen.why
    assert "of 8 GB free" in chosen.why
    assert choose_method(Large(1_000_000_000), minutes=600, memory=1e12).method == "traffic"
    assert too_large("metis", Large(300_000_000)).startswith("would need about")
    assert too_large("metis", Large(3_000_000)) == "" == too_large("blocks", Large(10**12))
