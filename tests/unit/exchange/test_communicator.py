"""A communicator's exchanges, over connections in one process: rows, arrays, sums and what is shared."""

import numpy as np
import pytest
import torch
from test_connections import meshed, together

from weft import _kernels
from weft._kernels import Links
from weft.errors import TrainingError
from weft.exchange import Communicator, SocketTransport, Traffic, add_rows, communicator, gather_rows
from weft.training.checkpoint import NewerError
from weft.training.gradients import pack, unpack
from weft.training.migration import pass_on


def comms(ends, half=False):
    size = len(ends)
    made = []
    for rank, row in enumerate(ends):
        links = SocketTransport(Links([-1 if end is None else end.fileno() for end in row], 10.0), range(size))
        made.append(Communicator(rank, size, links, traffic=Traffic(size), half=half))
    return made


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("elements", [1, 7, 60_000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_sums_have_the_same_bits_everywhere(size, elements, dtype):
    parts = [(torch.randn(elements, 2, dtype=torch.float64) * 100).to(dtype) for _ in range(size)]
    with meshed(size) as (ends, _):
        made = comms(ends)
        got = together(lambda rank: made[rank].sum(parts[rank].clone()), size)
    wanted = parts[0].clone()
    for part in parts[1:]:  # in the workers' order, whichever way they went
        wanted += part
    assert all(torch.equal(total, wanted) for total in got)


@pytest.mark.parametrize(
    ("size", "kilobytes", "sent"),
    [
        (2, 1024, 1024),  # pieces would be as many bytes
        (4, 16, 3 * 16),
        (4, 20, 2 * 3 * 5),
        (8, 8, 7 * 8),
        (8, 40, 2 * 7 * 5),
    ],
)
def test_large_sums_go_by_pieces_where_that_saves_bytes(size, kilobytes, sent):
    with meshed(size) as (ends, _):
        made = comms(ends)
        together(lambda rank: made[rank].sum(torch.ones(kilobytes << 8)), size)
        assert all(sum(comm.traffic.sent()["sync"]) == sent << 10 for comm in made)


def test_what_is_large_is_summed_some_at_a_time(monkeypatch):
    sums, add, parts = [], communicator._added, [torch.randn(500, 7) * 10**rank for rank in range(3)]
    monkeypatch.setattr(communicator, "_added", lambda parts: [sums.append(len(parts[0])), add(parts)][1])
    for at_once in (1 << 26, 4096):
        monkeypatch.setattr(communicator, "_SUMMED_AT_ONCE", at_once)
        with meshed(3) as (ends, _):
            made, given = comms(ends), [part.clone() for part in parts]
            got = together(lambda rank, made=made, given=given: made[rank].sum(given[rank]), 3)
        assert all(torch.equal(total, parts[0] + parts[1] + parts[2]) for total in got)
        assert all(total is mine for total, mine in zip(got, given, strict=True))
        assert (max(sums) <= 1024) == (at_once == 4096)
        sums.clear()


def test_gradients_follow_numbers_in_the_type_of_all():
    parameters = [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32)]
    parameters[1].grad = torch.tensor([0.1, 0.2])
    row = pack(parameters, 1 / 3, torch.tensor(1 / 7, dtype=torch.float64))
    assert torch.equal(row, torch.tensor([1 / 3, 1 / 7, 0, 1, 0, 0, 0.1, 0.2]))


def test_arrays_of_any_length():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (2, 3, 3))
    for kind in counts:
        np.fill_diagonal(kind, 0)
    whole = [
        [
            rng.integers(0, 1000, kind[rank].sum()).astype(t)
            for kind, t in zip(counts, (np.int32, np.int64), strict=True)
        ]
        for rank in range(3)
    ]
    with meshed(3) as (ends, _):
        made = comms(ends)
        got = together(
            lambda rank: made[rank].arrays(
                [(array, kind[rank].tolist()) for array, kind in zip(whole[rank], counts, strict=True)], "sample"
            ),
            3,
        )
    for rank in range(3):
        for k, (array, from_each) in enumerate(got[rank]):
            assert from_each == counts[k][:, rank].tolist()
            starts = [np.cumsum([0, *counts[k][peer]])[rank] for peer in range(3)]
            want = [whole[peer][k][starts[peer] :][: counts[k][peer, rank]] for peer in range(3)]
            assert array.dtype == whole[0][k].dtype
            assert np.array_equal(array, np.concatenate(want))


def test_parts_share_a_message():
    send = [[0, 2], [1, 0]]
    x = [torch.arange(6.0).view(3, 2), torch.arange(10.0, 14.0).view(2, 2)]
    with meshed(2) as (ends, _):
        made = comms(ends)

        def work(rank):
            theirs = [send[1 - rank][rank] if peer != rank else 0 for peer in range(2)]
            first = (x[rank][: sum(send[rank])], send[rank], theirs)
            second = (
                x[rank][:1] * 100,
                [int(peer != rank) for peer in range(2)],
                [int(peer != rank) for peer in range(2)],
            )
            return made[rank].together([first, second], "exchange")()

        got = together(work, 2)
    assert torch.equal(got[0][0][1], x[1][:1])
    assert torch.equal(got[1][0][0], x[0][:2])
    assert torch.equal(got[0][1][1], x[1][:1] * 100)
    assert made[0].traffic.sent() == {"exchange": [0, 3 * 8], "headers": [0, 16]}  # rows of two floats


@pytest.mark.parametrize("length", [0, 3, 300_000])
def test_sharing_and_gathering(length):
    data = bytes(range(256)) * (length // 256 + 1)
    data = data[:length]
    with meshed(3) as (ends, _):
        made = comms(ends)
        shared = together(lambda rank: made[rank].share(data if rank == 0 else None), 3)
        gathered = together(lambda rank: made[rank].gather(torch.tensor([rank, 5])), 3)
        said = together(lambda rank: made[rank].told("ü" * rank * length), 3)
        arrays = together(lambda rank: made[rank].gather_arrays([np.arange(rank), np.full(2, 0.5 * rank)], "sync"), 3)
        together(lambda rank: made[rank].barrier(), 3)
    assert said == [["", "ü" * length, "ü" * 2 * length]] * 3
    assert shared == [data] * 3
    assert all([part.tolist() for part in parts] == [[0, 5], [1, 5], [2, 5]] for parts in gathered)
    for of_numbers, of_floats in arrays:
        assert [part.tolist() for part in of_numbers] == [[], [0], [0, 1]]
        assert [part.tolist() for part in of_floats] == [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]


def test_nobody_sends_what_is_shared_to_each_worker_whole():
    data = bytes(range(256)) * 2500
    with meshed(6) as (ends, _):
        made = comms(ends)
        assert together(lambda rank: made[rank].share(data if rank == 0 else None), 6) == [data] * 6
    assert max(sum(comm.traffic.sent()["sync"]) for comm in made) < 2 * len(data)


def test_half_precision_halves_the_bytes():
    x = torch.randn(10, 4)
    with meshed(2) as (ends, _):
        made = comms(ends, half=True)
        got = together(
            lambda rank: made[rank].rows(
                x, [10 * p for p in (rank, 1 - rank)], [10 * p for p in (rank, 1 - rank)], "exchange"
            ),
            2,
        )
    assert got[0].dtype == torch.float32
    assert torch.equal(got[0], x.half().float())
    assert made[0].traffic.sent()["exchange"][1] == 10 * 4 * 2


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_columns_of_one_row_or_none_are_sent(dtype, count):
    """They are contiguous, though their stride is a row's."""
    x = torch.arange(3 * count).reshape(count, 3).to(dtype)[:, 2]
    with meshed(2) as (ends, _):
        made = comms(ends)
        got = together(lambda rank: made[rank].gather(x), 2)
    assert all(torch.equal(one, x) for of in got for one in of)


def test_gradients_keep_their_range_on_a_half_wire():
    """Those of a loss that is divided by millions of examples are beyond float16."""
    x, counts = torch.randn(10, 4) * 1e-8, [[0, 10], [10, 0]]
    with meshed(2) as (ends, _):
        made = comms(ends, half=True)
        got = together(lambda rank: made[rank].of_gradients.rows(x, counts[rank], counts[rank], "exchange"), 2)
    assert torch.equal(got[0], x.bfloat16().float())
    assert made[0].traffic.sent()["exchange"][1] == 10 * 4 * 2


def test_sums_are_exact_on_a_half_wire():
    parts = [torch.full((elements,), 1 + 2.0**-20) for elements in (3, 3)]
    with meshed(2) as (ends, _):
        made = comms(ends, half=True)
        got = together(lambda rank: made[rank].sum(parts[rank].clone()), 2)
    assert all(torch.equal(total, 2 * parts[0]) for total in got)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_rows_taken_and_added(shape, dtype):
    x = (torch.randn(shape) * 10).to(dtype)
    at = torch.tensor([4, 0, 0, 2])
    assert torch.equal(gather_rows(x, at), x[at])
    assert gather_rows(x, at[:0]).shape == (0, *shape[1:])
    out, want = x.clone(), x.clone()
    add_rows(out, at, x[at])
    assert torch.equal(out, want.index_add_(0, at, x[at]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 17])  # one thread adds narrow ones
def test_threads_change_no_bit_of_rows_taken_and_added(dtype, width):
    """Hubs that most rows are added to, and rows that none is."""
    at = (5000 * torch.rand(60_000) ** 3).long()
    rows, out = torch.randn(60_000, width, dtype=dtype), torch.randn(6000, width, dtype=dtype)
    want = out.clone()
    np.add.at(want.numpy(), at.numpy(), rows.numpy())  # one by one
    for threads in (1, 4, 7, 16):
        got = out.clone()
        _kernels.add_rows_at(rows.numpy(), at.numpy(), got.numpy(), threads)
        assert torch.equal(got, want)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        got = out.clone()
        add_rows(got, at, rows)
        assert torch.equal(got, want)
        assert torch.equal(gather_rows(out, at), out[at])
    finally:
        torch.set_num_threads(before)
    at[-1] = 6000
    with pytest.raises(IndexError, match="a place outside of the output"):
        _kernels.add_rows_at(rows.numpy(), at.numpy(), got.numpy(), 5)
    assert torch.equal(got, want)


def test_alone_nothing_travels():
    comm = Communicator()
    x = torch.arange(3.0)
    assert torch.equal(comm.sum(x.clone()), x)
    assert comm.share(b"abc") == b"abc" and comm.told("abc") == ["abc"]
    assert comm.arrays([(np.arange(0), [0])], "sample")[0][1] == [0]
    assert len(comm.gather(x)) == 1


def test_models_move_with_gradients_and_buffers():
    def model_of(rank):
        torch.manual_seed(rank)
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
        model(torch.randn(5, 3)).sum().backward()
        model[0].register_buffer("flag", torch.tensor(rank == 1))  # so that what follows begins anywhere
        model[0].register_buffer("steps", torch.tensor([2654435761 + rank, -1 - rank]))  # no float32 is as large
        model[0].register_buffer("flags", torch.tensor([rank == 0, True, False, True, rank == 2]))
        model[2].bias.grad = None if rank == 1 else model[2].bias.grad
        return model

    models = [model_of(rank) for rank in range(3)]
    wanted = [model_of(rank) for rank in range(3)]
    with meshed(3) as (ends, _):
        made = comms(ends)
        together(lambda rank: pass_on(models[rank], made[rank], -1), 3)
        sent = made[0].traffic.sent()["migrate"]
    numbers = sum(-(-t.nbytes // 4) for t in wanted[0].state_dict().values()) + len(list(wanted[0].parameters()))
    assert sent == [0, 0, 4 * (numbers + sum(p.numel() for p in wanted[0].parameters()))]
    for rank, model in enumerate(models):
        came = wanted[(rank + 1) % 3]
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), came.state_dict().values(), strict=True)
        )
        for mine, theirs in zip(model.parameters(), came.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None)
            assert mine.grad is None or torch.equal(mine.grad, theirs.grad)


def test_a_gradient_that_one_worker_has_is_everyones():
    parameters = [[torch.nn.Parameter(torch.ones(2)) for _ in range(3)] for _ in range(2)]
    parameters[0][0].grad = torch.tensor([1.0, 2.0])
    parameters[1][0].grad, parameters[1][1].grad = torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0])
    whole = pack(parameters[0]) + pack(parameters[1])
    unpack(whole[:3].tolist(), whole[3:], parameters[0])
    assert parameters[0][0].grad.tolist() == [4.0, 6.0]
    assert parameters[0][1].grad.tolist() == [5.0, 6.0]
    assert parameters[0][2].grad is None


def test_what_the_first_worker_refuses_all_do(ranks):
    def refuse():
        raise NewerError("of a newer version")

    def ask(world):
        comm = world.communicator()
        with pytest.raises(TrainingError, match=r"^of a newer version$"):
            comm.decided(refuse)
        decided = comm.decided(lambda: [world.rank, "so be it"])
        comm.close()
        return decided

    assert ranks(3, ask) == [[0, "so be it"]] * 3
