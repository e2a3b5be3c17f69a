"""A sampler whose draws kernels in Triton make: to the bit the usual one, whatever it is asked. (Triton's interpreter.)"""

import weakref

import numpy as np
import pretended
import pytest
import torch
from test_neighbors import random_lists

from weft.errors import ConfigError
from weft.graph import Graph
from weft.keys import Stream
from weft.sampling import DeviceLists, NeighborSampler, device_sampler

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
HERE = torch.device("cpu")


def graph_of(dtype, renumbered, types):
    lists = random_lists(80, 900, seed=3, dtype=dtype)
    ids = np.random.default_rng(2).permutation(80) * 7 if renumbered else None
    kinds = np.arange(len(lists.indices)) % 3 if types else None
    return Graph(lists.indptr, lists.indices, original_ids=ids, edge_type=kinds)


def samplers(graph, fanouts, **options):
    """The usual one, and the device's."""
    there = DeviceLists(graph, HERE, options.get("span")).make_sampler("neighbor", graph, fanouts, **options)
    return NeighborSampler(graph, fanouts, **options), there


def alike(one, other):
    assert torch.equal(one.indptr, other.indptr) and torch.equal(one.src, other.src)
    assert (one.indptr.dtype, one.src.dtype, one.num_src) == (other.indptr.dtype, other.src.dtype, other.num_src)
    assert (one.edge_ids is None and other.edge_ids is None) or torch.equal(one.edge_ids, other.edge_ids)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("renumbered", [False, True])
@pytest.mark.parametrize(
    ("fanouts", "replace", "types"), [([3, 2], False, False), ([20], True, True), ([-1, 2], False, True)]
)
def test_samples_are_the_usual_ones(dtype, renumbered, fanouts, replace, types):
    graph = graph_of(dtype, renumbered, types)
    usual, there = samplers(graph, fanouts, replace=replace, seed=4)
    for batch, stream in ((0, Stream.SAMPLE), (3, Stream.EVALUATE)):
        one, other = (sampler.sample(torch.arange(0, 80, 9), 1, batch, stream) for sampler in (usual, there))
        assert torch.equal(one.vertices, other.vertices) and one.vertices.dtype == other.vertices.dtype
        assert torch.equal(one.keys, other.keys)
        for mine, theirs in zip(one.blocks, other.blocks, strict=True):
            alike(mine, theirs)


@pytest.mark.parametrize("types", [False, True])
def test_hops_over_the_lists_of_a_span(types):
    graph, span = graph_of(np.int32, True, types), (20, 61)
    for sampler in (pair := samplers(graph, [3, 4], seed=1, span=span)):
        assert sampler._first == 20
    assert DeviceLists.nbytes(graph, span) < DeviceLists.nbytes(graph) == 80 * 16 + 900 * 4
    wanted = np.arange(60, 19, -2, dtype=np.int32)
    for number in (0, 1):
        (one, mine), (other, theirs) = (sampler.hop(wanted, number, 2, 5) for sampler in pair)
        assert np.array_equal(one, other)
        alike(mine, theirs)


def test_nothing_wanted_is_nothing_drawn():
    usual, there = samplers(graph_of(np.int32, False, False), [3])
    none = np.empty(0, dtype=np.int32)
    alike(usual.hop(none, 0, 0, 0)[1], there.hop(none, 0, 0, 0)[1])


def test_lists_are_copied_in_pieces_of_which_one_at_a_time_is_beside_them(monkeypatch):
    """They may take half of what is free, so a second copy of them would have no room. Then the copies are waited for."""
    pieces, waited, copying = [], [], device_sampler.copying

    def recorded(device):
        copy = copying(device)

        def copied(tensors):
            assert not [piece for piece in pieces if piece() is not None]
            there = copy(tensors)
            pieces.extend(map(weakref.ref, there))
            return there

        return copied

    monkeypatch.setattr(device_sampler, "copying", recorded)
    monkeypatch.setattr(device_sampler, "finished", waited.append)
    monkeypatch.setattr(device_sampler, "_PIECE", 100)
    graph = graph_of(np.int32, True, False)
    with pretended.here() as device:
        lists = DeviceLists(graph, device, (20, 61))
        begin, stop = graph.indptr[[20, 61]]
        assert torch.equal(lists.indptr.cpu(), torch.from_numpy(graph.indptr[20:62] - begin))
        assert torch.equal(lists.indices.cpu(), torch.from_numpy(graph.indices[begin:stop]))
        assert torch.equal(lists.ids.cpu(), torch.from_numpy(graph.original_ids[20:61]))
    assert len(pieces) > 5 and waited == [device]


def test_more_ids_than_have_numbers_are_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr("weft.triton_kernels.draws._MOST", 30)
    _, there = samplers(graph_of(np.int32, False, False), [3])
    with pytest.raises(
        ConfigError, match=r"more than 2\^31 ids at once: use smaller batches or fanouts, or more workers"
    ):
        there.sample(torch.arange(20), 0, 0, Stream.SAMPLE)


def test_lists_that_are_shorter_than_a_fanout_are_taken_without_draws():
    """Or each would be gone through as often as the fanout says: for minutes, here."""
    usual, there = samplers(graph_of(np.int32, False, False), [1 << 17])
    one, other = (sampler.sample(torch.arange(10), 0, 0, Stream.SAMPLE) for sampler in (usual, there))
    alike(one.blocks[0], other.blocks[0])
