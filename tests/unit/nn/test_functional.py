"""Each operation on blocks against plain torch: values and gradients, in float64 and float32, on awkward blocks too."""

import block_twins
import numpy as np
import pytest
import torch

from weft import _kernels
from weft.errors import ConfigError
from weft.keys import key, mix64
from weft.nn import attention, dropout, sums
from weft.nn.conv import film
from weft.nn.rows import Pass, Rows
from weft.operations import Lists, linear, linear_of_two, linear_pair, operations_on, plain
from weft.sampling import Block


def random_block(num_dst, num_src, edges, seed=0):
    """Random edges with repeats and self-loops; some destinations have none."""
    g = torch.Generator().manual_seed(seed)
    dst = (torch.rand(edges, generator=g) ** 2 * num_dst).long().sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=num_dst).cumsum(0)])
    return Block(indptr, torch.randint(num_src, (edges,), generator=g, dtype=torch.int32), num_src, torch.arange(edges))


BLOCKS = {
    "random": (60, 150, 900),
    "sparse": (100, 100, 30),
    "one vertex": (1, 1, 3),
    "no edges": (5, 8, 0),
    "no destinations": (0, 4, 0),
    "several threads": (200, 1500, 8200),
}


@pytest.fixture(params=BLOCKS)
def block(request):
    num_dst, num_src, edges = BLOCKS[request.param]
    return random_block(num_dst, num_src, edges)


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def check(name, block, *inputs, **options):
    """The kernel's values and gradients equal the reference's."""
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if inputs[0].dtype == torch.float64 else {"rtol": 2e-4, "atol": 5e-5}
    results = []
    ours = next(module for module in (attention, sums, film) if hasattr(module, name))
    for module in (ours, block_twins):
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = getattr(module, name)(block, *leaves, **options)
        upstream = rand(*out.shape, seed=9, dtype=out.dtype)
        grads = torch.autograd.grad((out * upstream).sum(), leaves) if out.numel() else []
        results.append([out.detach(), *grads])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, **tolerance)


DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


@DTYPES
@pytest.mark.parametrize("width", [1, 7, 32, 100])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_aggregate(block, width, reduce, dtype):
    check("aggregate", block, rand(block.num_src, width, dtype=dtype), reduce=reduce)


def test_ties_share_the_gradient_of_max(block):
    check("aggregate", block, rand(block.num_src, 3).sign(), reduce="max")


@DTYPES
def test_a_maximum_with_what_is_no_number_is_none(block, dtype):
    """Wherever in the list it stands: as torch has it."""
    x = rand(block.num_src, 5, dtype=dtype)
    x[::4, ::2] = torch.nan
    lists = Lists(block.indptr, block.src)
    for got, want in zip(operations_on(x.device).max_rows(lists, x), plain.max_rows(lists, x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@DTYPES
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_weighted_aggregate(block, reduce, dtype):
    x, weight = rand(block.num_src, 9, dtype=dtype), rand(block.num_edges, seed=1, dtype=dtype)
    check("aggregate", block, x, weight, reduce=reduce)


def test_aggregate_of_more_dimensions(block):
    check("aggregate", block, rand(block.num_src, 2, 5))


@DTYPES
@pytest.mark.parametrize(("heads", "columns"), [(1, 1), (4, 8), (2, 32), (3, 5)])
@pytest.mark.parametrize("dropped", [False, True])
def test_attention(block, heads, columns, dtype, dropped):
    e, n, m = block.num_edges, block.num_src, block.num_dst
    x, logits = rand(n, heads, columns, dtype=dtype), 3 * rand(e, heads, seed=1, dtype=dtype)
    att_src, att_dst = rand(heads, columns, seed=2, dtype=dtype), rand(heads, columns, seed=3, dtype=dtype)
    keep = (rand(e, heads, seed=4, dtype=dtype) > 0).to(dtype) * 2 if dropped else None
    check("edge_softmax_aggregate", block, logits, x, keep=keep)
    check("gat", block, x, att_src, att_dst, slope=0.2, keep=keep)
    check(
        "gatv2",
        block,
        x,
        rand(m, heads, columns, seed=5, dtype=dtype),
        a_att(heads, columns, dtype),
        slope=0.2,
        keep=keep,
    )


def a_att(heads, columns, dtype):
    return rand(heads, columns, seed=6, dtype=dtype)


def test_softmax_survives_extreme_logits():
    block = random_block(20, 30, 300)
    logits = 1e4 * rand(300, 2)
    for dtype in (torch.float32, torch.float64):
        out = attention.edge_softmax_aggregate(block, logits.to(dtype), rand(30, 2, 3, dtype=dtype))
        torch.testing.assert_close(
            out,
            block_twins.edge_softmax_aggregate(block, logits.to(dtype), rand(30, 2, 3, dtype=dtype)),
            rtol=1e-4,
            atol=1e-5,
        )


def test_exponential_is_accurate():
    """One destination, two edges: p = 1 / (1 + e^-d) shows e^x for all x <= 0."""
    count = 20_000
    block = Block(torch.arange(0, 2 * count + 1, 2), torch.tensor([0, 1], dtype=torch.int32).repeat(count), 2 * count)
    d = torch.linspace(-80, 0, count)
    logits = torch.stack([d, torch.zeros(count)], 1).view(-1, 1)
    x = torch.zeros(2 * count, 1, 1)
    x[0] = 1.0
    got = attention.edge_softmax_aggregate(block, logits, x).flatten().double()
    exact = d.double().exp() / (1 + d.double().exp())
    assert ((got - exact).abs() / exact).max() < 4e-7


@DTYPES
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_film(block, reduce, dtype):
    rows = [rand(block.num_src, 9, dtype=dtype), *(rand(block.num_dst, 9, seed=s, dtype=dtype) for s in (1, 2))]
    check("film", block, *rows, reduce=reduce)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads):
    block = random_block(2000, 9000, 120_000)

    def everything():
        x = rand(9000, 4, 8, dtype=torch.float32).requires_grad_()
        att_src, att_dst = (rand(4, 8, seed=seed, dtype=torch.float32).requires_grad_() for seed in (3, 4))
        att, xr = (
            rand(4, 8, dtype=torch.float32).requires_grad_(),
            rand(2000, 4, 8, dtype=torch.float32).requires_grad_(),
        )
        outs = [
            sums.aggregate(block, x, reduce="mean"),
            sums.aggregate(block, x, reduce="max"),
            attention.gat(block, x, att_src, att_dst, 0.2),
            attention.gatv2(block, x, xr, att, 0.2),
            film.film(block, x[:, 0], xr[:, 0], xr[:, 1]),
        ]
        return [
            *outs,
            *torch.autograd.grad(
                sum(out.sum(dim=list(range(1, out.dim()))).sum() for out in outs), [x, att_src, att_dst]
            ),
        ]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = everything()
        block._cache.clear()
        torch.set_num_threads(threads)
        assert all(torch.equal(a, b) for a, b in zip(one, everything(), strict=True))
    finally:
        torch.set_num_threads(before)


def test_strided_inputs():
    block = random_block(60, 150, 900)
    check("aggregate", block, rand(150, 20)[:, ::2])


def _looped(block):
    """The block with self-loops, as torch makes it."""
    ids, kept = torch.arange(block.num_dst), block.src != block.dst()
    dst = torch.cat([block.dst()[kept].long(), ids])
    order = torch.argsort(dst, stable=True)
    edge_ids = torch.cat([block.edge_ids[kept], torch.full_like(ids, -1)])[order]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=block.num_dst).cumsum(0)])
    return Block(indptr, torch.cat([block.src[kept], ids.int()])[order], block.num_src, edge_ids)


def _transposed(block):
    """The edges by source, as torch sorts them."""
    src, edge = torch.sort(block.src, stable=True)
    ends = torch.arange(block.num_src + 1, dtype=src.dtype)
    return torch.searchsorted(src, ends), block.dst()[edge], edge.int()


def test_transposed_and_self_loops_equal_their_torch_twins(block):
    for got, want in zip(block.transposed(), _transposed(block), strict=True):
        assert torch.equal(got, want)
        assert got.dtype == want.dtype
    got, want = block.with_self_loops(), _looped(block)
    assert torch.equal(got.indptr, want.indptr)
    assert torch.equal(got.src, want.src)
    assert torch.equal(got.edge_ids, want.edge_ids)
    assert got.num_edges == int((block.src != block.dst()).sum()) + block.num_dst


def test_transposing_a_large_block_with_threads():
    block = random_block(5000, 20_000, 300_000)
    for got, want in zip(block.transposed(), _transposed(block), strict=True):
        assert torch.equal(got, want)


def test_more_edges_than_can_be_turned_around_are_refused():
    block = Block(torch.tensor([0, 2**31]), torch.zeros(1, dtype=torch.int32).expand(2**31), 1)
    with pytest.raises(ConfigError, match=r"2,147,483,648 edges on one worker.*plan = 'halo' on several workers"):
        block.transposed()


class TestDropout:
    def test_equals_its_twins(self):
        keys = torch.tensor([0, 1, -5, 2**40, 7])
        for columns in (1, 2, 7):
            for p in (0.0, 0.1, 0.5, 1.0):
                got = dropout.dropout_mask(5, columns, p, keys, key(2, 3), torch.float64)
                assert torch.equal(got, block_twins.dropout_mask(5, columns, p, keys, key(2, 3), torch.float64))
                for i, row in enumerate(keys.tolist()):
                    state = mix64(key(2, 3) ^ mix64(row & (2**64 - 1)))
                    for j in range(columns):
                        bits = mix64((state + j // 2) & (2**64 - 1)) >> 32 * (j % 2) & 0xFFFFFFFF
                        assert got[i, j] == (0 if bits < round(p * 2**32) or p == 1 else 1 / (1 - p))

    def test_rows_do_not_depend_on_their_company(self):
        keys = torch.randperm(1000)
        whole = dropout.dropout_mask(1000, 33, 0.3, keys, 12, torch.float32)
        assert torch.equal(dropout.dropout_mask(10, 33, 0.3, keys[5:15], 12, torch.float32), whole[5:15])

    def test_drops_the_right_share(self):
        mask = dropout.dropout_mask(20_000, 50, 0.3, torch.arange(20_000), 12, torch.float64)
        assert abs((mask == 0).double().mean() - 0.3) < 0.002
        assert abs(mask.mean() - 1) < 0.003
        assert ((mask == 0).double().mean(0) - 0.3).abs().max() < 0.02


@pytest.mark.parametrize("rows", [600, 5000])
@pytest.mark.parametrize(("width", "out"), [(1, 1), (100, 128), (33, 47), (17, 4), (128, 70), (64, 64), (130, 3)])
def test_linear(rows, width, out):
    x, weight, bias = rand(rows, width), rand(out, width, seed=1), rand(out, seed=2)
    plus, upstream = rand(rows, out, seed=3), rand(rows, out, seed=4)
    for terms in ([x, weight], [x, weight, bias], [x, weight, bias, plus], [x, weight, None, plus]):
        exact = [None if t is None else t.clone().requires_grad_() for t in terms]
        single = [None if t is None else t.float().requires_grad_() for t in terms]
        want = torch.nn.functional.linear(*exact[:3]) + (exact[3] if len(terms) == 4 else 0)
        got = linear(*single)
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        grads = [
            torch.autograd.grad((y * upstream.to(y.dtype)).sum(), [t for t in leaves if t is not None])
            for y, leaves in ((got, single), (want, exact))
        ]
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(1,), (), (1, 7), (700, 7), (7,)])
def test_biases_that_torch_expands(shape):
    """As one shift for all columns."""
    terms = [rand(700, 5), rand(7, 5, seed=1), rand(*shape, seed=2)]
    x, weight, bias = terms
    want = torch.nn.functional.linear(x, weight, bias)
    leaves = [t.float().requires_grad_() for t in terms]
    for got, exact in (
        (linear(*leaves), want),
        (linear(Rows.of(leaves[0], 0, Pass([700])), *leaves[1:]), want),
        (linear_of_two(*leaves[:2], *leaves[:2], leaves[2]), want + x @ weight.T),
        (linear_pair(*leaves[:2], leaves[1], 700, leaves[2])[1], want),
    ):
        torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4)
        (of_bias,) = torch.autograd.grad(got.sum(), leaves[2:])
        wanted = torch.ones_like(exact).sum_to_size(shape)
        torch.testing.assert_close(of_bias.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("many", [100, 700])
def test_rows_are_mapped_however_torch_is_called(many):
    x, weight, vector = rand(many, 5).float(), rand(7, 5, seed=1).float(), rand(5, seed=2).float()
    rows, by = Rows.of(x, 0, Pass([many])), torch.nn.functional.linear
    want = x @ weight.T
    for got in (
        by(rows, weight),
        by(rows, weight=weight),
        by(input=rows, weight=weight),
        by(bias=None, input=rows, weight=weight),
    ):
        assert got.depth == 0
        torch.testing.assert_close(got.plain(), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by(rows, vector).plain(), x @ vector, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "width2", "out"), [(1, 1, 1), (100, 33, 128), (17, 64, 47), (128, 128, 70)])
def test_linear_of_two(width, width2, out):
    terms = [rand(700, width), rand(out, width), rand(700, width2), rand(out, width2), rand(out)]
    upstream = rand(700, out, seed=4)
    exact, single = ([t.clone().to(dtype).requires_grad_() for t in terms] for dtype in (torch.float64, torch.float32))
    x, weight, x2, weight2, bias = exact
    want = x @ weight.T + x2 @ weight2.T + bias
    results = [(linear_of_two(*leaves), leaves) for leaves in (single, exact)]
    wanted = torch.autograd.grad((want * upstream).sum(), exact)
    for got, leaves in results:
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        grads = torch.autograd.grad((got * upstream.to(got.dtype)).sum(), leaves)
        for mine, theirs in zip(grads, wanted, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("rows2", [0, 1, 520, 700])
@pytest.mark.parametrize(("width", "out", "out2"), [(1, 1, 1), (100, 16, 47), (17, 70, 4), (128, 64, 64)])
def test_linear_pair(rows2, width, out, out2):
    terms = [rand(700, width), rand(out, width), rand(out2, width), rand(out2)]
    upstream, upstream2 = rand(700, out, seed=4), rand(rows2, out2, seed=5)
    exact, single = ([t.clone().to(dtype).requires_grad_() for t in terms] for dtype in (torch.float64, torch.float32))
    x, weight, weight2, bias = exact
    want = x @ weight.T, x[:rows2] @ weight2.T + bias
    wanted = torch.autograd.grad((want[0] * upstream).sum() + (want[1] * upstream2).sum(), exact)
    for leaves in (single, exact):
        got = linear_pair(*leaves[:3], rows2, leaves[3])
        total = (got[0] * upstream.to(got[0].dtype)).sum() + (got[1] * upstream2.to(got[1].dtype)).sum()
        for mine, theirs in zip((*got, *torch.autograd.grad(total, leaves)), (*want, *wanted), strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("rows", [9000, 700])
def test_more_threads_than_parts_change_no_bit_of_gradients_of_weights(rows):
    x, g, g2 = (rand(*shape, dtype=torch.float32).numpy() for shape in ((rows, 101), (rows, 250), (rows // 2, 70)))

    def gradients(threads):
        found = [np.empty((wide, 101), np.float32) for wide in (250, 250, 70)]
        _kernels.multiply_transposed(g, x, found[0], threads)
        _kernels.multiply_transposed_pair(g, g2, x, *found[1:], threads)
        return found

    one = gradients(1)
    for threads in (2, 17, 70):
        assert all(np.array_equal(a, b) for a, b in zip(one, gradients(threads), strict=True))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit_of_linear(threads):
    x, weight, g = (rand(*shape, dtype=torch.float32) for shape in ((9000, 100), (70, 100), (9000, 70)))

    def everything():
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = linear(*leaves)
        return [out.detach(), *torch.autograd.grad((out * g).sum(), leaves)]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = everything()
        torch.set_num_threads(threads)
        assert all(torch.equal(a, b) for a, b in zip(one, everything(), strict=True))
    finally:
        torch.set_num_threads(before)
