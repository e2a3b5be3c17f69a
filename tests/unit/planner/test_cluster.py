"""What a cluster asks of an allocation: shares, links, who is where."""

import numpy as np
import pytest

from weft.planner import NEVER, Cluster, Host
from weft.planner.cluster import Link


def cluster(*hosts, links=(), near=1e9):
    return Cluster(hosts, 1e-4, 1e-4, near, links=links)


def test_who_is_where():
    two = cluster(Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9))
    assert two.workers_by_host == (2, 1) and two.host_of.tolist() == [0, 0, 1]


def test_shares_are_what_processors_do_while_all_work():
    fast = Host("a", 1e8, 1e9, cores=4, busy_cores=2, speed=1.5)
    assert cluster(fast, Host("b", 1e8, 1e9, cores=2)).shares() == (3.0, 2.0)
    assert cluster(Host("a", 1e8, 1e9, workers=2, cores=4), Host("b", 1e8, 1e9, cores=1)).shares() == (2, 2, 1)
    assert cluster(Host("a", 1e8, 1e9, cores=1.0), Host("b", 1e8, 1e9, cores=1.15)).shares() is None


def test_workers_share_their_hosts_link():
    assert cluster(Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9)).shares_of_links() == (5e7, 5e7, 1e8)
    assert cluster(Host("a", 1e8, 1e9), Host("b", 1.1e8, 1e9)).shares_of_links() is None


def test_links_of_pairs_are_shared_by_all_pairs_of_workers():
    hosts, link = (Host("a", 1e8, 1e9, workers=2), Host("b", 1e8, 1e9), Host("c", 1e8, 1e9)), Link(("b", "a"), 4e7)
    assert cluster(*hosts).own_links() is None
    slow = cluster(*hosts, links=(link,))
    found = slow.own_links()
    assert (found[:2, 2] == 2e7).all() and (found == found.T).all() and np.isinf(found).sum() == 12
    assert slow.shares_of_links() == (5e7, 5e7, 1e8, 1e8)  # told although a link a host is alike, for the unit


def test_workers_of_a_single_host_stand_for_hosts():
    found = cluster(Host("a", NEVER, 1e9, workers=3, cores=6), near=2e9).apart()
    assert found.workers_by_host == (1, 1, 1) and {host.bandwidth for host in found.hosts} == {2e9}
    two = cluster(Host("a", 1e8, 1e9), Host("b", 1e8, 1e9))
    assert two.apart() is two


def test_the_busiest_link_counts():
    sent = np.array([[7.0, 30, 10], [5, 7, 0], [20, 1, 7]])  # the diagonal stays at home
    hosts = Host("a", 10, 1), Host("b", 10, 1), Host("c", 2, 1)
    assert cluster(*hosts).link_seconds(sent) == pytest.approx(21 / 2)
    slow = Link(("b", "a"), 1.0)
    assert cluster(*hosts, links=(slow,)).link_seconds(sent) == pytest.approx(30)
    assert cluster(Host("a", 10, 1)).link_seconds(np.array([[5.0]])) == 0
