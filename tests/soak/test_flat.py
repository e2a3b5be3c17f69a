"""What a run holds stays the same however many epochs it trains, on one worker and on several: `make soak` for an hour."""

import pytest
from soaking import PLANS, SWITCH, drawn, growth, soaked

from weft.exchange import World
from weft.graph import communities
from weft.partition import allocate, write_partitioned


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak")
    graph = communities(folder / "g", vertices=1200, edges=9000, width=8, classes=4, train=0.2, block=100)
    write_partitioned(graph, allocate(graph, 4, "metis"), 4, folder / "parts")
    return str(folder / "g"), str(folder / "parts")


HOUR = 3600.0
MANY = pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("epochs", [120, MANY])
def test_one_worker(graphs, epochs):
    assert not growth(soaked(World(), graphs[0], epochs, ()))


@pytest.mark.parametrize("epochs", [pytest.param(120, marks=pytest.mark.slow)])
def test_simulated_workers(graphs, ranks, epochs):
    """They are threads of this process, so all see what all hold."""
    assert not growth(ranks(4, soaked, graphs[1], epochs, ("split",))[0])


@pytest.mark.parametrize("epochs", [pytest.param(120, marks=pytest.mark.slow), MANY])
def test_processes(graphs, processes, epochs):
    check_processes(graphs, processes, epochs, ("split",))


@pytest.mark.parametrize("epochs", [pytest.param(4 * SWITCH * len(PLANS), marks=pytest.mark.slow), MANY])
def test_processes_by_plans_in_turn(graphs, processes, epochs):
    """At the least each plan has its turn four times: once in each of the quarters that are compared."""
    check_processes(graphs, processes, epochs, PLANS)


def check_processes(graphs, processes, epochs, plans):
    notes = processes(4, soaked, graphs[1], epochs, plans, hosts=[0, 0, 1, 1], timeout=250)
    assert [growth(of_one) for of_one in notes] == [{}] * 4


@pytest.mark.slow
@pytest.mark.timeout(4500)
def test_an_hour(graphs, processes):
    notes = processes(4, soaked, graphs[1], 10**6, PLANS, HOUR, hosts=[0, 0, 1, 1], timeout=250)
    assert [growth(of_one) for of_one in notes] == [{}] * 4


def test_growth_is_seen():
    flat = [{"memory": 10**8, "threads": 5, "files": 20}] * 40
    assert not growth(flat)
    leaks = [{"memory": 10**8 + 10**6 * k, "threads": 5, "files": 20 + k // 20} for k in range(40)]
    assert set(growth(leaks)) == {"memory", "files"}
    assert drawn([flat, leaks]).count("<polyline") == 6
