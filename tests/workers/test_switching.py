"""Plans are switched in the middle of a run: the same model, nothing left open, and all workers by the same plan."""

import numpy as np
import pytest
from switching import PLANS, train_and_switch

from weft.graph import communities
from weft.partition import allocate, write_partitioned
from weft.plan import Plan

ROUND = len(PLANS)  # switches, until each plan was had once
GIVEN = [(3, "sockets", 3 * ROUND)]
GIVEN += [pytest.param((*given, 5 * ROUND), marks=pytest.mark.slow) for given in [(3, "sockets"), (2, "gloo")]]


@pytest.fixture(scope="module", params=GIVEN, ids=lambda given: " ".join(map(str, given)))
def seen(request, processes, tmp_path_factory):
    """What each worker made: its arrays, and what it said."""
    workers, transport, switches = request.param
    folder = tmp_path_factory.mktemp("switching")
    graph = communities(folder / "whole", vertices=600, edges=5000, width=6, classes=4, train=0.3, block=100)
    write_partitioned(graph, allocate(graph, workers, "metis"), workers, folder / "parts")
    hosts = [rank // 2 for rank in range(workers)]  # as if two workers shared a host
    work = folder / "parts", folder, switches
    return processes(workers, train_and_switch, *work, hosts=hosts, transport=transport, timeout=250)


def test_switching_leaves_the_model_as_it_was(seen):
    for arrays, _ in seen:
        np.testing.assert_allclose(arrays["switched"], arrays["stayed"], rtol=0, atol=1e-10)


def test_switching_leaves_nothing_behind(seen):
    """No connection, no thread, no cache: each plan holds no more the last time than the second time."""
    for _, said in seen:
        assert len(said["held"]) == said["switches"]
        fewest, most = np.array(said["held"]).swapaxes(0, 1)
        # In the second time, some of the first may still be ending.
        assert (fewest[-len(PLANS) :] <= most[len(PLANS) : 2 * len(PLANS)]).all()
        assert said["left"] == 0


def test_a_watched_run_switches_at_the_boundary_and_says_so(seen):
    for rank, (arrays, said) in enumerate(seen):
        for number in (2, 5):
            told, plan = said[f"watched-{number}"]
            np.testing.assert_allclose(arrays[f"watched-{number}"], arrays["fitted"], rtol=0, atol=1e-10)
            assert plan == str(PLANS[number])  # on all workers, whatever their own planners said
            notices = [text for text in told if "measured the cluster again (its reason)" in text]
            if rank == 0:
                assert notices and notices[0].startswith("epoch 1 took ")
                assert "from now on plan" in notices[0]


def test_plans_are_tried_and_the_model_is_the_same(seen):
    for arrays, said in seen:
        np.testing.assert_allclose(arrays["tried"], arrays["fitted longer"], rtol=0, atol=1e-10)
        assert said["tried"][1] == seen[0][1]["tried"][1]  # all workers go on by the same plan
    told = seen[0][1]["tried"][0]
    assert any("1 is tried, which may be faster" in text for text in told)
    finals = [text for text in told if text.startswith("plans tried, a batch of each: ")]
    assert len(finals) == 1, [text for text in told if text]
    found = finals[0]
    stays = (Plan(("local", "local")), *PLANS[2:4])[int(found.split("; ")[1].split()[0])]
    assert seen[0][1]["tried"][1] == str(stays)


def test_a_run_that_was_switched_is_resumed(seen):
    for arrays, said in seen:
        np.testing.assert_allclose(arrays["resumed"], arrays["fitted"], rtol=0, atol=1e-10)
        assert said["resumed"][1] == str(PLANS[2])
    told = seen[0][1]["resumed"][0]
    assert any("going on from" in text for text in told) and any("from now on plan" in text for text in told)


def test_watching_can_be_turned_off(seen):
    for arrays, said in seen:
        np.testing.assert_allclose(arrays["calm"], arrays["fitted"], rtol=0, atol=1e-10)
        assert said["calm plan"] == str(Plan(("local", "local")))
        assert not any("took" in text for text in said["calm"])
