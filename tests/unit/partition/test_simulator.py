"""The simulator counts what servers would really sample, for any allocation; links are fitted from transfers."""

import numpy as np
import pytest

from weft.errors import ConfigError, InputError
from weft.graph import Graph
from weft.partition import PartitionGoal, ServerLinks, Traces, TrainingTask, fit, seeds_of
from weft.sampling import Batches, NeighborSampler, balance_seeds
from weft.sampling.balance import seed_limits

TASK = TrainingTask((3, 2, 4), 40, seed=5)


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    return Graph.from_arrays(
        rng.integers(0, 400, (2, 3000)),
        num_vertices=400,
        labels=rng.integers(0, 3, 400),
        split=rng.integers(0, 4, 400),
    )


def counted(graph, owners, parts, task, batches, home, slack=None):
    """Each server samples its own seeds, as training does; seeds at home are evened, if there is a slack."""
    rows = np.zeros((batches, parts, parts), dtype=np.int64)
    epoch = Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed).of(0)
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, batch in enumerate(epoch[:batches]):
        servers = owners[batch] if home else np.arange(len(batch)) % parts
        if slack is not None:
            drawn = NeighborSampler(graph, task.fanouts[:1], seed=task.seed).sample(batch, 0, number)
            lists = [[] for _ in batch]
            for seed, row in zip(drawn.blocks[0].dst().tolist(), drawn.blocks[0].src.tolist(), strict=True):
                lists[seed].append(owners[drawn.vertices[row]])
            holders, lengths = np.array([of for each in lists for of in each]), np.array([*map(len, lists)])
            most = seed_limits(len(batch), np.full(parts, 1 / parts), slack)
            servers = balance_seeds(servers, np.arange(len(batch)), lengths, holders, most)
        for server in range(parts):
            seeds = batch[servers == server]
            if len(seeds):
                needed = owners[sampler.sample(seeds, 0, number).vertices.numpy()]
                rows[number, server] = np.bincount(needed[needed != server], minlength=parts)
    return rows


@pytest.mark.parametrize("parts", [1, 2, 5, 64, 70, 130])
@pytest.mark.parametrize("seeds", ["home", "spread"])
def test_rows_are_those_that_training_needs(graph, parts, seeds):
    owners = np.random.default_rng(1).integers(0, parts, 400).astype(np.int32)
    found = Traces(graph, TASK, batches=2, threads=2).rows(owners, parts, seeds=seeds)
    assert (found == counted(graph, owners, parts, TASK, 2, seeds == "home")).all()


@pytest.mark.parametrize("parts", [1, 2, 5, 70])
@pytest.mark.parametrize("slack", [0.0, 0.1, 9.0])
def test_seeds_leave_homes_that_are_too_full(graph, parts, slack):
    owners = (np.random.default_rng(1).random(400) ** 3 * parts).astype(np.int32)
    rows = Traces(graph, TASK, batches=2).rows(owners, parts, slack=slack)
    assert (rows == counted(graph, owners, parts, TASK, 2, True, slack)).all()
    assert slack or parts == 1 or (rows != Traces(graph, TASK, batches=2).rows(owners, parts)).any()


def test_hosts_get_what_any_of_their_workers_needs(graph):
    owners, hosts = np.random.default_rng(1).integers(0, 5, 400).astype(np.int32), np.array([0, 0, 1, 1, 2])
    rows = Traces(graph, TASK, batches=2).rows(owners, 5, hosts=hosts)
    assert (rows == counted(graph, hosts[owners], 3, TASK, 2, True)).all()


@pytest.mark.parametrize("parts", [1, 2, 5, 33, 64, 70])
@pytest.mark.parametrize("groups", [1, 3, 20, 400])
def test_folded_traces_count_the_same(graph, parts, groups):
    rng = np.random.default_rng(groups)
    of = rng.integers(0, groups, 400) if groups < 400 else np.arange(400)
    allocations = rng.integers(0, parts, (11, groups)).astype(np.int32)
    traces = Traces(graph, TASK, batches=3)
    wanted = np.stack([traces.rows(allocation[of], parts) for allocation in allocations])
    apart, joined = (traces.folded(of, groups, joined=joined) for joined in (False, True))
    apart = type(apart)(apart.fold, 2)
    assert (apart.rows(allocations, parts) == wanted).all()
    assert (joined.rows(allocations, parts) == wanted.sum(axis=1, keepdims=True)).all()


def test_folds_stay_as_small_as_samples():
    edges = np.random.default_rng(0).integers(0, 2000, (2, 60_000))
    graph = Graph.from_arrays(edges, num_vertices=2000)
    task = TrainingTask((8, 8, 8), 500)
    fold = Traces(graph, task, batches=2).folded(np.arange(2000), 2000, joined=False).fold
    sampler, sampled = NeighborSampler(graph, task.fanouts), 0
    for number, seeds in enumerate(Batches(np.arange(2000), None, 500, 0).of(0)[:2]):
        sampled += sum(block.num_edges + block.num_dst for block in sampler.sample(seeds, 0, number).blocks)
    assert fold.members() <= sampled and fold.kinds() <= 2 * 2000


def test_some_rows_stand_for_all():
    edges = np.random.default_rng(0).integers(0, 20_000, (2, 200_000))
    traces = Traces(Graph.from_arrays(edges, num_vertices=20_000), TrainingTask((5, 5), 800), batches=3)
    groups = np.arange(20_000) % 50
    allocation = (np.arange(50, dtype=np.int32) % 4)[None]
    whole, some = (traces.folded(groups, 50, joined=True, one_in=n) for n in (1, 8))
    assert some.fold.kinds() < whole.fold.kinds() / 4
    totals = [folded.rows(allocation, 4).sum() for folded in (whole, some)]
    assert totals[1] == pytest.approx(totals[0], rel=0.03)


def test_seconds_by_hand():
    alpha, beta = np.array([[0.0, 2.0], [5.0, 0.0]]), np.array([[0.0, 0.1], [0.5, 0.0]])
    rows = np.array([[[0, 10], [4, 0]], [[0, 0], [6, 0]]])  # two batches
    assert ServerLinks(alpha, beta).seconds(rows).tolist() == [2 + 1.0, 5 + 2.0 + 5 + 3.0]
    assert ServerLinks.of(PartitionGoal(2)).seconds(rows).tolist() == [10, 10]


def test_links_of_bandwidths():
    equal = ServerLinks.of(PartitionGoal(3))
    assert (equal.beta == 1).all() and not equal.starts
    pairs = np.full((3, 3), np.inf)
    pairs[0, 1] = pairs[1, 0] = 0.25
    found = ServerLinks.of(PartitionGoal(3, bandwidths=(1, 1, 0.5), pairs=pairs))
    mean = (1 + 1 + 2) / 3
    assert found.beta * mean == pytest.approx(np.array([[1, 4, 2], [4, 1, 2], [2, 2, 2]]))


def test_slow_links_count_for_more(graph):
    owners = np.arange(400, dtype=np.int32) % 2
    beta = np.array([[0.0, 5.0], [1.0, 0.0]])
    traces = Traces(graph, TASK)
    equal, slow = (
        traces.seconds(owners, links)
        for links in (ServerLinks.of(PartitionGoal(2)), ServerLinks(np.zeros((2, 2)), beta))
    )
    assert slow > 2 * equal
    folded = traces.folded(np.arange(400), 400, joined=True)
    assert folded.seconds(owners[None], ServerLinks.of(PartitionGoal(2)))[0] == equal


def test_seeds_are_the_training_vertices(graph):
    assert (seeds_of(graph) == graph.seeds("train")).all()
    bare = Graph(graph.indptr, graph.indices)
    assert len(seeds_of(bare)) == 400
    assert len(seeds_of(Graph(graph.indptr, graph.indices, split=np.full(400, 3, np.uint8)))) == 400
    assert len(Traces(graph, TASK, batches=99)) == Traces(graph, TASK).epoch


class TestFit:
    def test_it_finds_the_line(self):
        rows = np.array([10, 100, 1000, 5000])
        assert fit(rows, 0.002 + 3e-6 * rows) == pytest.approx((0.002, 3e-6))

    def test_nothing_is_negative(self):
        alpha, beta = fit(np.array([100, 200]), np.array([1.0, 3.0]))
        assert alpha == 0 and beta == pytest.approx(0.014)
        assert fit(np.array([1, 2]), np.array([3.0, 1.0])) == (2.0, 0.0)

    def test_one_size_is_not_enough(self):
        with pytest.raises(InputError, match="two different sizes"):
            fit(np.array([5, 5]), np.array([1.0, 1.1]))


def test_links_must_be_square():
    with pytest.raises(ConfigError, match="shape"):
        ServerLinks(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ConfigError, match="at least 0"):
        ServerLinks(np.zeros((2, 2)), -np.ones((2, 2)))
