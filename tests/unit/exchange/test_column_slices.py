"""Between rows by owner and slices of columns: what goes where, that each way is the other's adjoint, and the bytes."""

import pytest
import torch
from test_communicator import comms
from test_connections import meshed, together

from weft.exchange import Communicator, SliceLayout, to_columns, to_owners

# Workers, rows of each, columns: divisible or not, narrower than the workers, workers without rows.
CASES = [
    ((7,), 5),
    ((4, 6), 6),
    ((4, 6), 5),
    ((5, 0, 3), 7),
    ((2, 3, 4, 1), 8),
    ((2, 3, 4, 1), 2),
    ((0, 3, 0, 9), 5),
    ((1, 1, 1, 1), 1),
]


def spreads(rows, total):
    bounds = tuple(sum(rows[:worker]) for worker in range(len(rows) + 1))
    return [SliceLayout(rank, len(rows), total, bounds) for rank in range(len(rows))]


def on_all(work, rows, total):
    """work(rank, spread, communicator) on all workers, and the bytes that each sent."""
    made = spreads(rows, total)
    with meshed(len(rows)) as (ends, _):
        lines = comms(ends) if len(rows) > 1 else [Communicator()]
        got = together(lambda rank: work(rank, made[rank], lines[rank]), len(rows))
        return got, [sum(line.traffic.sent().get("exchange", [0])) for line in lines]


def whole(rows, total, seed=0):
    torch.manual_seed(seed)
    return torch.randn(sum(rows), total, dtype=torch.float64)


def sliced(x, spread):
    """The specification: a worker's columns of all rows, padded."""
    first, end = spread.span(spread.rank)
    return torch.nn.functional.pad(x[:, first:end], (0, spread.width - (end - first)))


@pytest.mark.parametrize(("rows", "total"), CASES)
def test_rows_become_slices_and_rows_again(rows, total):
    x = whole(rows, total)

    def work(rank, spread, comm):
        columns = to_columns(x.split(rows)[rank], spread, comm)
        return columns, to_owners(columns, spread, comm)

    got, _ = on_all(work, rows, total)
    for (columns, back), spread, own in zip(got, spreads(rows, total), x.split(rows), strict=True):
        assert torch.equal(columns, sliced(x, spread))
        assert torch.equal(back, own)


@pytest.mark.parametrize(("rows", "total"), CASES)
def test_each_way_is_the_others_adjoint(rows, total):
    """<g, A dx> = <A* g, dx>, exactly, for whole numbers; padding gets and gives nothing."""
    dx, dh = whole(rows, total).mul(9).round(), whole(rows, total, 1).mul(9).round()

    def work(rank, spread, comm):
        torch.manual_seed(rank)
        x = dx.split(rows)[rank].clone().requires_grad_()
        y = to_columns(x, spread, comm)
        g = torch.randn(y.shape, dtype=torch.float64).mul(9).round()
        y.backward(g)
        h = torch.cat([sliced(dh, spread)], 1).requires_grad_()
        out = to_owners(h, spread, comm)
        g_out = torch.randn(out.shape, dtype=torch.float64).mul(9).round()
        out.backward(g_out)
        sums = [(g * y).sum(), (x.grad * x).sum(), (g_out * out).sum(), (h.grad * h).sum()]
        return [*(total.detach() for total in sums), h.grad]

    got, _ = on_all(work, rows, total)
    forward, backward, there, back = (sum(float(parts[k]) for parts in got) for k in range(4))
    assert forward == backward
    assert there == back
    for (*_, gradient), spread in zip(got, spreads(rows, total), strict=True):
        assert not gradient[:, spread.columns(spread.rank) :].any()


@pytest.mark.parametrize(("rows", "total"), CASES)
def test_padding_is_never_sent(rows, total):
    x = whole(rows, total)
    _, sent = on_all(lambda rank, spread, comm: to_columns(x.split(rows)[rank], spread, comm), rows, total)
    for spread, own in zip(spreads(rows, total), sent, strict=True):
        assert own == 8 * spread.rows(spread.rank) * (total - spread.columns(spread.rank))
    _, sent = on_all(lambda rank, spread, comm: to_owners(sliced(x, spread), spread, comm), rows, total)
    for spread, own in zip(spreads(rows, total), sent, strict=True):
        assert own == 8 * spread.columns(spread.rank) * (sum(rows) - spread.rows(spread.rank))
