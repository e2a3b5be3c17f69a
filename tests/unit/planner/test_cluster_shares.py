"""What a cluster asks of an allocation: shares, links, who is where."""

import numpy as np
import pytest

from weft.planner import NEVER, Cluster, Host, bandwidths_of, pairs_of, shares_of, workers_of
from weft.planner.cluster import Link
from weft.planner.cluster_shares import apart, hosts_of, link_seconds


def cluster(*hosts, links=(), near=1e9):
    return Cluster(hosts, 1e-4, 1e-4, near, links=links)


def test_who_is_where():
    two = cluster(Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9))
    assert workers_of(two) == (2, 1) and hosts_of(two).tolist() == [0, 0, 1]


def test_shares_are_what_processors_do_while_all_work():
    fast = Host("a", 1e8, 1e9, cores=4, busy_cores=2, speed=1.5)
    assert shares_of(cluster(fast, Host("b", 1e8, 1e9, cores=2))) == (3.0, 2.0)
    assert shares_of(cluster(Host("a", 1e8, 1e9, workers=2, cores=4), Host("b", 1e8, 1e9, cores=1))) == (2, 2, 1)
    assert shares_of(cluster(Host("a", 1e8, 1e9, cores=1.0), Host("b", 1e8, 1e9, cores=1.15))) is None


def test_workers_share_their_hosts_link():
    assert bandwidths_of(cluster(Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9))) == (5e7, 5e7, 1e8)
    assert bandwidths_of(cluster(Host("a", 1e8, 1e9), Host("b", 1.1e8, 1e9))) is None


def test_links_of_pairs_are_shared_by_all_pairs_of_workers():
    hosts, link = (Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9), Host("c", 1e8, 1e9)), Link(("b", "a"), 4e7)
    assert pairs_of(cluster(*hosts)) is None
    slow = cluster(*hosts, links=(link,))
    found = pairs_of(slow)
    assert (found[:2, 2] == 2e7).all() and (found == found.T).all() and np.isinf(found).sum() == 12
    assert bandwidths_of(slow) == (5e7, 5e7, 1e8, 1e8)  # told although a link a host is alike, for the unit


def test_workers_of_a_single_host_stand_for_hosts():
    found = apart(cluster(Host("a", NEVER, 1e9, workers=3, cores=6), near=2e9))
    assert workers_of(found) == (1, 1, 1) and {host.bandwidth for host in found.hosts} == {2e9}
    two = cluster(Host("a", 1e8, 1e9), Host("b", 1e8, 1e9))
    assert apart(two) is two


def test_the_busiest_link_counts():
    sent = np.array([[7.0, 30, 10], [5, 7, 0], [20, 1, 7]])  # the diagonal stays at home
    hosts = Host("a", 10, 1), Host("b", 10, 1), Host("c", 2, 1)
    assert link_seconds(cluster(*hosts), sent) == pytest.approx(21 / 2)
    slow = Link(("b", "a"), 1.0)
    assert link_seconds(cluster(*hosts, links=(slow,)), sent) == pytest.approx(30)
    assert link_seconds(cluster(Host("a", 10, 1)), np.array([[5.0]])) == 0
