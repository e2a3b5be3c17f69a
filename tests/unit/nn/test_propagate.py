"""What a range of vertices needs in memory, where all else is in files."""

import torch

from weft.nn import propagate
from weft.placements import EdgeLists


def test_rows_that_a_range_needs_are_found_without_looking_through_the_graph(monkeypatch):
    """Unless it has many edges; then as many marks are as fast."""
    generator = torch.Generator().manual_seed(0)
    degrees = torch.randint(6, (1000,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    lists = EdgeLists(indptr, torch.randint(1000, (int(indptr[-1]),), generator=generator, dtype=torch.int32))

    def check(rows):
        wanted = sorted(set(lists.other[lists.edges_of(rows)].tolist()))
        found = propagate._needed(lists, rows)
        assert found.tolist() == wanted and found.dtype == torch.int64

    for rows in (slice(0, 1000), slice(500, 900)):
        check(rows)
    monkeypatch.setattr(torch, "zeros", None)
    for rows in (slice(0, 10), slice(7, 7), slice(990, 1000)):
        check(rows)
