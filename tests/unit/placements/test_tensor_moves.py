"""What coupled tensor parallelism moves, and how even it is: the formulas' bytes, and an R-MAT graph's load."""

import sys
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from weft.graph import rmat
from weft.partition import allocate

sys.path.insert(0, str(Path(__file__).parent))
from test_tensor import BOUNDS, EVEN, VERTICES, WIDTH, Worker, made, on_workers


@pytest.fixture(scope="module")
def graph():
    """With hubs, repeated edges, self-loops and isolated vertices."""
    return made()


def numbers(worker):
    """What is sent in the first epoch and in the third, in numbers."""
    sent = [worker.gradients()[2] // 8 for _ in range(3)]
    assert sent[1] == sent[2]
    return sent[0], sent[2]


def moved(graph, model, bounds):
    """Numbers that all workers send: in the first epoch, and in every later one."""
    found = on_workers(lambda rank, comm, ahead: numbers(Worker(graph, model, bounds, comm)), bounds)
    return [sum(of_workers) for of_workers in zip(*found, strict=True)]


@pytest.mark.parametrize("size", EVEN)
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GIN])
def test_bytes_are_the_formulas(graph, kind, size):
    """V (N-1)/N [d0 + 4 sum d]: with the inputs split, too, once; without d0 in every later epoch."""
    rest = VERTICES * (size - 1) / size
    first, later = moved(graph, kind(WIDTH, 11, 3, 11).double(), EVEN[size])
    assert later == pytest.approx(rest * 4 * (11 + 11), rel=0.03)
    assert first - later == pytest.approx(rest * 2 * WIDTH, rel=0.03)
    uneven = moved(graph, kind(WIDTH, 12, 3, 12).double(), BOUNDS[2])[1]
    assert uneven == pytest.approx(VERTICES / 2 * 4 * (12 + 12), rel=0.03)


@pytest.mark.parametrize("kind", [GCN, GraphSAGE])
def test_what_narrows_goes_first(graph, kind):
    _, later = moved(graph, kind(WIDTH, 12, 3, 8).double(), EVEN[4])
    assert later == VERTICES * 3 / 4 * 4 * (12 + 8)


def test_bytes_of_attention(graph):
    """Heads that divide need no scalars of others; a head that is cut, two a row, to all, and back."""
    rest = VERTICES * 3 / 4
    whole = moved(graph, GAT(WIDTH, 8, 2, 8, heads=4).double(), EVEN[4])
    assert whole == [rest * 4 * (8 + 4 * 8)] * 2  # the last layer's heads are averaged
    cut = moved(graph, GAT(WIDTH, 8, 1, 8, heads=1).double(), EVEN[4])
    assert cut == [rest * 4 * 8 + 2 * 3 * 2 * VERTICES] * 2


def test_load_is_even(tmp_path):
    """On an R-MAT graph edges are shared out evenly, and bytes, where parts have as many vertices; METIS's are uneven."""
    graph = rmat(tmp_path / "rmat", vertices=2000, edges=40_000, width=12, classes=12)
    even = (0, 500, 1000, 1500, 2000)

    def work(rank, comm, ahead):
        worker = Worker(graph, GCN(12, 12, 3, 12).double(), even, comm)
        return sum(layer.num_edges for layer in worker.program.layers), numbers(worker)[1]

    edges, sent = (np.array(column) for column in zip(*on_workers(work, even), strict=True))
    assert edges.sum() == 3 * len(graph.indices)
    assert edges.max() / edges.mean() <= 1.02
    assert sent.max() / sent.mean() <= 1.02
    by_owner = np.bincount(allocate(graph, 4, "metis", seed=0), np.diff(graph.indptr))
    assert by_owner.max() / by_owner.mean() > 1.2
