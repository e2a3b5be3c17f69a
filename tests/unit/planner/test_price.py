"""The cost model against figures worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from weft.planner import KINDS, STAGES, Cluster, Host
from weft.planner.answer import LIMITS
from weft.planner.cluster import Link
from weft.planner.loads import LayerCost, Load, ModelCost, Move
from weft.planner.price import NOTHING, PARTS, Prices, drift, epoch_seconds

MODEL = ModelCost([LayerCost(1.0, 0.1, 0.2, 0.01, 0.05, 0.08, 0.02, 0.004)], 0.5, 3.0, 1.0, 100, [4, 2])


def cluster(hosts=2, **more):
    work = dict.fromkeys(KINDS, 0.0) | {
        "draw": 0.5,
        "carry": 0.001,
        "arrive": 0.0,
        "pace": 1.0,
        "busy": 1.0,
        "overlap": 4.0,
        "step": 1.0,
        "layers": 1.0,
    }
    return Cluster(tuple(Host(f"h{n + 1}", 100.0, 1e9, **more) for n in range(hosts)), 0.25, 0.125, 1000.0, work)


def prices(of):
    return Prices(of, MODEL, item=4, row=16)


def load(**units):
    none = {stage: {} for stage in STAGES}
    return Load(none | units, layer=0)


def stage(price, name):
    return price.stages[STAGES.index(name)]


def limit(price, name):
    return price.limits[LIMITS.index(name)]


def test_a_stage_takes_as_long_as_its_slowest_worker():
    price = prices(cluster()).of(load(sample={"draw": np.array([4.0, 10.0])}))
    assert stage(price, "sample") == 5.0
    assert limit(price, "preparing") == 5.0
    fast = Cluster((Host("h1", 1, 1), Host("h2", 1, 1, speed=2.0)), 0, 0, 1, cluster().work)
    assert stage(prices(fast).of(load(sample={"draw": np.array([4.0, 10.0])})), "sample") == 2.5


def test_what_a_model_does_with_inputs_goes_by_the_first_layers_rows():
    of, rows = Prices(cluster(), replace(MODEL, inputs=2.0), item=4, row=16), np.array([10.0, 20.0])
    first = replace(load(), sources=rows, destinations=0 * rows, edges=0 * rows)
    assert np.allclose(of.convolved(first)[1], (0.1 + 2.0) * rows)
    assert np.allclose(prices(cluster()).convolved(first)[1], 0.1 * rows)


def test_threads_spare_the_one_that_trains_what_it_need_not_do_alone():
    layer, rows = replace(MODEL.layers[0], alone=0.25), np.array([10.0, 20.0])
    first = replace(load(), sources=rows, destinations=0 * rows, edges=0 * rows)

    def of(threads, cores=16.0, workers=1):
        hosts = tuple(Host(f"h{n}", 100.0, 1e9, workers, cores) for n in range(2 // workers))
        there = Cluster(hosts, 0.0, 0.0, 1e3, cluster().work)
        return Prices(there, replace(MODEL, layers=[layer]), item=4, row=16, threads=threads).of(first)

    one = of(1)
    assert limit(one, "training") == stage(one, "compute") == 1.0 + 2.0
    for price, threads in ((of(0), 16), (of(4), 4), (of(64), 16), (of(0, 15.95), 16), (of(0, 16.0, 2), 8)):
        assert limit(price, "training") == pytest.approx(1.0 + 2.0 * (0.25 + 0.75 / threads), rel=1e-3)
        assert limit(price, "training") == stage(price, "compute")
    assert limit(of(4), "processors") == limit(one, "processors")  # all in all it is as much work
    for cores, workers in ((1.0, 1), (0.5, 1), (1.0, 2)):  # one thread each, as before
        assert vars(of(0, cores, workers))["parts"].tolist() == vars(of(1, cores, workers))["parts"].tolist()
    assert limit(of(2, 2.0, 2), "training") == (1.0 + 1.0 + 1.0 + 2.0) / 2  # workers' threads share two processors


def test_an_exchange_takes_its_latency_and_the_busiest_link():
    sent = np.array([[0.0, 50.0], [200.0, 0.0]])
    work = load()
    work.moves = [Move("exchange", sent), Move("fetch", sent)]
    price = prices(cluster()).of(work)
    assert stage(price, "exchange") == 0.25 + 2.0
    assert limit(price, "links") == 4.0
    assert limit(price, "training") - stage(price, "compute") == 0.25 + 2.0
    assert limit(price, "preparing") == 0.25 + 2.0
    assert price.sent[STAGES.index("exchange")] == 250.0


def test_each_further_worker_adds_to_an_exchange_among_all():
    """Of a processor's time: there is a message to and from each other one. What goes on within hosts stays."""
    work = cluster().work | {"message": 1.0, "tell": 2.0}
    few = Cluster(tuple(Host(f"h{n}", 100.0, 1e9, 2, 2.0) for n in range(2)), 0.25, 0.125, 1000.0, work)
    many = replace(few, exchanging=1).scaled_to(4)  # 6 more than two workers, and a piece of work takes a second

    def seconds(of, near=False):
        there = np.equal.outer(of.host_of, of.host_of) if near else np.ones((of.workers, of.workers))
        load, stages = Load.of(of.workers), ("sample", "exchange", "sync")
        for name in stages:
            load.move(name, 0.1 * there * (1 - np.eye(of.workers)))
        price = prices(of).of(load)
        return np.array([stage(price, name) for name in stages])

    def own(of, near=False):
        return seconds(replace(of, exchanging=8), near), seconds(of, near)

    before, after = own(many)
    np.testing.assert_allclose(after - before, [6 * 0.06, 6 * 0.025, 6 * 0.025])
    before, after = own(many, near=True)
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(seconds(replace(few, exchanging=9)), seconds(few))  # of fewer nothing is taken off


def test_a_slow_link_between_two_hosts_counts():
    sent = np.zeros((3, 3))
    sent[0, 2] = 50.0
    work = load()
    work.moves = [Move("exchange", sent)]
    usual = cluster(3)
    slow = Cluster(usual.hosts, 0.25, 0.125, 1000.0, usual.work, (Link(("h1", "h3"), 5.0),))
    assert stage(prices(usual).of(work), "exchange") == 0.25 + 0.5
    assert stage(prices(slow).of(work), "exchange") == 0.25 + 10.0


def test_a_price_has_no_figure_for_pairs_without_links_of_their_own():
    """There would be a million of them for a thousand hosts, in each price that a search keeps."""
    sent = np.random.default_rng(0).integers(0, 100, (50, 50)).astype(float)
    np.fill_diagonal(sent, 0.0)
    work = load()
    work.moves = [Move("exchange", sent)]
    many = cluster(50)
    own = tuple(Link((f"h{n}", f"h{n + 1}"), 10.0) for n in (1, 2))
    plain, linked = (prices(of).of(work) for of in (many, replace(many, links=own)))
    assert plain.links.shape == (2, 150) and linked.links.shape == (2, 154)
    assert limit(plain, "links") == max(sent.sum(0).max(), sent.sum(1).max()) / 100
    np.testing.assert_array_equal(
        linked.links[0, 150:], [sent[0, 1] / 10, sent[1, 2] / 10, sent[1, 0] / 10, sent[2, 1] / 10]
    )


def test_workers_of_one_host_exchange_within_it():
    one = Cluster((Host("h1", 100.0, 1e9, workers=2, cores=2.0),), 0.25, 0.125, 1000.0, cluster().work)
    work = load()
    work.moves = [Move("exchange", np.array([[0.0, 500.0], [100.0, 0.0]]))]
    assert stage(prices(one).of(work), "exchange") == 0.125 + 0.5  # both ways at once, at each worker's own bandwidth


def test_each_worker_of_a_host_has_its_own_way_to_the_others():
    one = Cluster((Host("h1", 100.0, 1e9, workers=4, cores=4.0),), 0.25, 0.125, 1000.0, cluster().work)
    work = Load.of(4)
    work.moves = [Move("exchange", 100.0 * (1 - np.eye(4)))]
    assert stage(prices(one).of(work), "exchange") == pytest.approx(0.125 + 0.3)  # as four hosts with such links


def test_what_a_rest_saved_up_goes_at_once():
    usual = cluster()
    bursting = Cluster(tuple(Host(h.name, 100.0, 1e9, burst=80.0) for h in usual.hosts), 0.25, 0.125, 1e3, usual.work)
    work = load(sync={"sum": np.zeros(2)})
    work.moves = [Move("exchange", np.array([[0.0, 50.0], [200.0, 0.0]]))] * 2
    before, after = prices(usual).of(work), prices(bursting).of(work)
    assert limit(before, "training") == 1.0 + 2 * (0.25 + 2.0)  # a second of computing
    assert limit(after, "training") == 1.0 + 2 * 0.25 + (4.0 - 1.0)
    assert limit(before, "links") == limit(after, "links") == 4.0
    assert stage(before, "exchange") == stage(after, "exchange")


def test_processors_carry_bytes_while_they_travel():
    sent = np.array([[0.0, 200.0], [200.0, 0.0]])  # two seconds on a link
    carried = {"carry": np.array([400.0, 400.0])}  # bytes out and in: 0.4 s of a processor
    work = load(exchange=dict(carried), compute={"draw": np.array([1.0, 1.0])})
    work.moves = [Move("exchange", sent)]
    of = prices(cluster())
    computes = 0.5 + sum(of.convolved(work))[0]
    assert limit(of.of(work), "training") == pytest.approx(computes + 0.25 + 2.0)
    fetched = load(fetch=dict(carried))
    fetched.moves = [Move("fetch", sent)]
    assert limit(of.of(fetched), "preparing") == pytest.approx(0.25 + 2.0)
    slow = load(exchange={"carry": np.array([4000.0, 4000.0])})  # processors take longer than the link
    slow.moves = [Move("exchange", sent)]
    assert stage(of.of(slow), "exchange") == pytest.approx(0.25 + 4.0)


def test_workers_that_wait_for_each_other_leave_processors_idle():
    work = load(compute={"draw": np.array([4.0, 6.0])}, sample={"draw": np.array([1.0, 1.0])})
    whole, idle = (prices(replace(cluster(), work=cluster().work | {"busy": busy})).of(work) for busy in (1.0, 0.8))
    for name in ("processors", "training"):
        assert limit(idle, name) == pytest.approx(limit(whole, name) / 0.8)
    assert limit(idle, "preparing") == limit(whole, "preparing") == 0.5
    np.testing.assert_allclose(whole.waiting(0.8).limits, idle.limits)


def test_what_several_batches_have_together_counts_by_its_share_but_for_its_memory():
    whole, part = load(sync={"draw": np.array([4.0, 6.0])}), load(sync={"draw": np.array([4.0, 6.0])})
    for one in (whole, part):
        one.layer, one.moves = None, [Move("sync", np.array([[0.0, 300.0], [300.0, 0.0]]))]
    part.share = 1 / 3
    of_whole, of_part = map(prices(cluster()).of, (whole, part))
    np.testing.assert_allclose(of_part.stages, of_whole.stages / 3)
    np.testing.assert_allclose(of_part.limits, of_whole.limits / 3)
    np.testing.assert_allclose(of_part.sent, of_whole.sent / 3)
    np.testing.assert_array_equal(of_part.memory, of_whole.memory)


def test_caches_fill_as_fast_as_processors_and_links_allow():
    sent = np.array([[0.0, 1e3], [1e3, 0.0]])
    usual, fast = (
        Cluster((Host("h1", 1e12, 1e9, speed=s), Host("h2", 1e12, 1e9, speed=s)), 0, 0, 1e12, cluster().work)
        for s in (1, 2)
    )
    assert prices(fast).filling(sent, sent) == pytest.approx(prices(usual).filling(sent, sent) / 2)


def test_layers_cost_by_rows_and_edges():
    work = load()
    work.sources, work.destinations, work.edges = (np.array([n, 0.0]) for n in (10.0, 5.0, 100.0))
    assert stage(prices(cluster()).of(work), "compute") == pytest.approx(1 + 1 + 1 + 1)
    work.pushes = True
    assert stage(prices(cluster()).of(work), "compute") == pytest.approx(1 + 1 + 1 + 5)
    work.by_request = True
    assert stage(prices(cluster()).of(work), "compute") == pytest.approx(1 + 1 + 1 + 8)
    work.pushes, work.ahead = False, True
    price = prices(cluster()).of(work)
    assert stage(price, "compute") == pytest.approx(4.0)
    assert limit(price, "preparing") == pytest.approx(0.4)  # merged by the threads that prepare
    assert limit(price, "processors") == pytest.approx(4.0)
    work.pulled = np.array([7.0, 0.0])  # a tenth of a second each where rows come as they are
    raw = replace(MODEL, layers=[replace(MODEL.layers[0], pulled=0.1)])
    for model, more in ((MODEL, 0.0), (raw, 0.7)):
        assert limit(Prices(cluster(), model, 4, 16).of(work), "processors") == pytest.approx(4.0 + more)


def test_processors_that_hosts_share_and_those_that_they_have():
    work = load(sample={"draw": np.array([8.0, 8.0])})
    apart = prices(cluster(cores=1.0)).of(work)
    shared = prices(cluster(cores=1.0, busy_cores=0.5)).of(work)
    compute = stage(apart, "compute")
    assert limit(apart, "processors") == 4.0 + compute
    assert limit(shared, "processors") == (8.0 + 2 * compute) / 1.0
    half = Cluster((Host("h1", 1, 1), Host("h2", 1, 1, cores=0.5)), 0, 0, 1, cluster().work)
    assert limit(prices(half).of(work), "preparing") == 8.0


def test_batches_that_are_not_prepared_ahead_take_what_their_stages_take_on_processors_that_hosts_share():
    work = load(compute={"draw": np.array([4.0, 6.0])}, sample={"draw": np.array([8.0, 5.0])})
    for hosts in (cluster(cores=1.0), cluster(cores=1.0, busy_cores=0.5)):
        price = prices(hosts).of(work)
        assert price.seconds(3, 2.0, 0) == pytest.approx(3 * price.stages.sum())
    assert limit(price, "preparing") < stage(price, "sample")  # ahead, each takes its time when it comes to it


def test_an_epoch_is_held_up_by_what_takes_longest():
    limits = np.array([1.0, 4.0, 2.0, 6.0, 0.0, 0.5, 0.0, 7.0])
    assert epoch_seconds(limits, 10, 1e3, 2) == pytest.approx(40.0, rel=0.01)
    assert epoch_seconds(limits, 10, 4.0, 2) > 40.0
    assert epoch_seconds(limits, 10, 4.0, 0) == 90.0


def test_work_that_two_limits_have_in_common_holds_nothing_up_twice():
    alone = np.array(
        [4.0, 0.0, 4.0, 0.0, 0.0, 4.0, 0.0, 0.0]
    )  # all that processors do is training, and it waits for nothing
    assert epoch_seconds(alone, 10, 3.0, 2) == 40.0
    apart = np.array([4.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert epoch_seconds(apart, 10, 3.0, 2) == pytest.approx(40 * 2 ** (1 / 3))
    seconds = [epoch_seconds(np.array([4.0, 1.0, 4.0, 1.0, 0.0, x, 0.0, 0.0]), 1, 3.0, 1) for x in (0.0, 1.0, 2.0, 4.0)]
    assert seconds == sorted(seconds, reverse=True)


def test_what_training_exchanges_is_not_delayed_by_itself_on_links():
    """All bytes are training's own: an epoch takes what training does, however badly things run side by side."""
    work = load(exchange={"carry": np.zeros(2)})
    work.moves = [Move("exchange", np.array([[0.0, 300.0], [300.0, 0.0]]))] * 2
    price = prices(cluster()).of(work)
    training, links = limit(price, "training"), limit(price, "links")
    assert links == 6.0 < training
    for overlap in (1.2, 4.0, 50.0):
        assert price.seconds(10, overlap, 2) == pytest.approx(10 * training)
    fetched = load()
    fetched.moves = [Move("fetch", np.array([[0.0, 300.0], [300.0, 0.0]]))]
    both = price + prices(cluster()).of(fetched)  # what others fetch goes over the same links
    assert limit(both, "links") == 9.0 and limit(both, "training") == pytest.approx(2 * training - 2 * 3.0 - 2 * 0.25)
    assert both.seconds(10, 4.0, 2) > 10 * limit(both, "training")


@pytest.mark.parametrize("lanes", [0, 2])
@pytest.mark.parametrize("overlap", [1.5, 3.0, 12.0])
def test_no_figure_grows_without_the_epoch_taking_longer(overlap, lanes):
    """The search leaves out what is worse in every figure: so an epoch may take no less for any of them being more."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        parts = rng.random(len(PARTS)) * 3
        parts[0] = max(parts[0], parts[1])  # what trains is a part of what processors do
        price = replace(NOTHING, parts=parts, links=rng.random((2, 3)))
        price.parts[2:4] += price.links[0].max()  # a thread waits for its slowest exchange each time
        usual = price.seconds(1, overlap, lanes)
        for at in range(len(parts)):
            more = parts.copy()
            more[at] += 0.1
            more[0] += 0.1 * (at == 1)
            links = price.links + 0.1 * np.array([[PARTS[at] == "moves"], [PARTS[at] == "fetches"]])
            longer = replace(price, parts=more, links=links).seconds(1, overlap, lanes)
            saves = PARTS[at] in ("bursts", "fetch bursts", "hidden")
            assert longer <= usual + 1e-9 if saves else longer >= usual - 1e-9, PARTS[at]


def test_what_is_computed_while_partial_rows_travel_hides_them():
    """Own edges are computed meanwhile; of what is left over of either, nothing is gained."""
    model = replace(MODEL, layers=[replace(MODEL.layers[0], meanwhile=0.01, meanwhile_back=0.02)])
    of = Prices(cluster(), model, item=4, row=16)

    def training(meanwhile, back, sent=50.0):
        work = load()
        work.edges, work.pushes = np.array([100.0, 100.0]), True
        work.meanwhile, work.meanwhile_back = meanwhile, back
        work.moves = [Move("exchange", np.array([[0.0, sent], [sent, 0.0]]))] * 2
        price = of.of(work)
        return limit(price, "training"), stage(price, "exchange")

    (whole, exchange), rest = training(0.0, 0.0), np.array([80.0, 10.0])
    assert exchange == pytest.approx(2 * 0.25 + 2 * 0.5)
    assert training(rest, 0.0) == (pytest.approx(whole - 0.8), pytest.approx(exchange - 0.8))
    assert training(0.0, rest / 4) == (pytest.approx(whole - 0.4), pytest.approx(exchange - 0.4))
    assert training(rest, rest) == (pytest.approx(whole - exchange), pytest.approx(0.0))


def test_machines_that_are_slower_now_or_elsewhere():
    work = load(sample={"draw": np.array([4.0, 4.0])})
    usual = cluster()
    before = Cluster(usual.hosts, 0.25, 0.125, 1e3, usual.work | {"pace": 0.5})  # a piece takes twice as long now
    of_both = [[stage(prices(one).of(work), name) for name in ("sample", "compute")] for one in (usual, before)]
    assert of_both[1] == pytest.approx([drift(2.0) * of_both[0][0], 0.5 * drift(2.0) * of_both[0][1]])
    elsewhere = Prices(before, MODEL, item=4, row=16, here=False)  # half as long there as on this machine
    assert stage(elsewhere.of(work), "sample") == stage(prices(usual).of(work), "sample")
    assert stage(elsewhere.of(work), "compute") == 0.5 * stage(prices(usual).of(work), "compute")


def test_small_ups_and_downs_of_a_machine_are_not_believed():
    assert [drift(ratio) for ratio in (0.9, 1.0, 1.1)] == [1.0, 1.0, 1.0]
    assert drift(3.0) == pytest.approx(1 / drift(1 / 3.0)) and 2.0 < drift(3.0) < 3.0
    ratios = np.linspace(0.2, 5.0, 200)
    assert np.all(np.diff([drift(ratio) for ratio in ratios]) >= 0)


def test_rows_on_disk_take_their_time():
    work = load()
    work.inputs = np.array([10.0, 5.0])
    usual = cluster()
    disk = Cluster(usual.hosts, 0.25, 0.125, 1e3, usual.work | {"disk": 0.01})
    kept, absent = (Prices(disk, MODEL, item=4, row=16, absent=share).of(work) for share in (0.0, 0.5))
    assert stage(absent, "fetch") - stage(kept, "fetch") == pytest.approx(0.5 * 10 * 16 * 0.01)
    assert limit(absent, "preparing") > limit(kept, "preparing")
    assert limit(absent, "links") == limit(kept, "links")


def test_memory_grows_with_rows_and_edges():
    small, large = load(), load()
    for work, factor in ((small, 1.0), (large, 3.0)):
        work.sources, work.destinations, work.edges = (factor * np.array([10.0, 20.0]) for _ in range(3))
        work.inputs = work.sources
    before, after = (prices(cluster()).of(work).memory for work in (small, large))
    np.testing.assert_allclose(after, 3 * before)
    assert prices(cluster()).of(replace(load(), layer=None)).memory[1] == 600.0
