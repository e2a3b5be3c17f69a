"""Each operation on blocks as a device computes it, against the CPU's kernels in float64: values and gradients."""

import pytest
import torch
from small_blocks import random_block

from weft import triton_kernels
from weft.keys import key
from weft.nn import attention, coefficients, dropout, sums
from weft.nn.conv import film
from weft.operations import Lists, Operations, Terms, operations_on
from weft.placements import EdgeLists

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}  # of numbers about 1
EXACT, SINGLE, HALF = TOLERANCE
WIDTHS = pytest.mark.parametrize(("width", "dtype"), [(1, EXACT), (3, HALF), (17, SINGLE), (128, HALF), (130, EXACT)])
SHAPES = pytest.mark.parametrize(
    ("heads", "columns", "dtype"), [(1, 1, SINGLE), (3, 5, EXACT), (8, 17, HALF), (2, 128, SINGLE)]
)


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def kept(block, heads, dtype=torch.float64):
    """Dropout of edges."""
    return (rand(block.num_edges, heads, seed=4) > 0).to(dtype) * 2


def results(function, block, inputs, options):
    """What a function of a block gives, and its gradients by the inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    outs = function(block, *leaves, **options)
    outs = outs if isinstance(outs, tuple) else (outs,)
    total = sum((out * rand(*out.shape, seed=9 + i, dtype=out.dtype)).sum() for i, out in enumerate(outs))
    return [*(out.detach() for out in outs), *torch.autograd.grad(total, leaves)]


def check(on_device, name, block, *inputs, **options):
    home = next(module for module in (attention, sums, film) if hasattr(module, name))
    function, dtype = getattr(home, name), inputs[0].dtype
    exact = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    want = results(function, block, [x.double() for x in inputs], exact)
    got = on_device(results, function, block, inputs, options)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - theirs).norm() <= TOLERANCE[dtype] * (theirs.norm() + theirs.numel() ** 0.5)


@WIDTHS
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_aggregation(on_device, block, width, reduce, dtype):
    check(on_device, "aggregate", block, rand(block.num_src, width, dtype=dtype), reduce=reduce)


def test_rows_without_columns(on_device, block):
    check(on_device, "aggregate", block, rand(block.num_src, 0))


def test_ties_share_the_gradient_of_a_maximum(on_device, block):
    check(on_device, "aggregate", block, rand(block.num_src, 3).sign(), reduce="max")


def test_a_maximum_with_what_is_no_number_is_none(on_device, block):
    x = rand(block.num_src, 5)
    x[::4, ::2] = torch.nan
    lists = Lists(block.indptr, block.src)
    want = operations_on(x.device).max_rows(lists, x)
    for mine, theirs in zip(on_device(operations_on, x.device).max_rows(lists, x), want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("reduce", "dtype"), [("sum", HALF), ("mean", EXACT)])
def test_weights(on_device, block, reduce, dtype):
    x, weight = rand(block.num_src, 9, dtype=dtype), rand(block.num_edges, seed=1, dtype=dtype)
    check(on_device, "aggregate", block, x, weight, reduce=reduce)


def test_own_rows_beside_sums(on_device, block):
    if block.num_dst <= block.num_src:
        check(on_device, "aggregate_with_own", block, rand(block.num_src, 5))


def test_strided_rows(on_device, block):
    check(on_device, "aggregate", block, rand(block.num_src, 14)[:, ::2])


@SHAPES
def test_attention(on_device, block, heads, columns, dtype):
    x, keep = rand(block.num_src, heads, columns, dtype=dtype), kept(block, heads, dtype)
    att_src, att_dst = rand(heads, columns, seed=2, dtype=dtype), rand(heads, columns, seed=3, dtype=dtype)
    check(on_device, "gat", block, x, att_src, att_dst, slope=0.2, keep=keep)


def test_logits_of_edges(on_device, block):
    logits, keep = 3 * rand(block.num_edges, 3, seed=1), kept(block, 3)
    check(on_device, "edge_softmax_aggregate", block, logits, rand(block.num_src, 3, 5), keep=keep)


def test_more_heads_than_a_program_has(on_device):
    block = random_block(3, 4, 6)
    x, xr, atts = rand(4, 5, 64), rand(3, 5, 64, seed=5), rand(2, 5, 64, seed=2)  # of which a program has two
    check(on_device, "gat", block, x, *atts, slope=0.2)
    check(on_device, "gatv2", block, x, xr, atts[0], slope=0.2)


@pytest.mark.parametrize("slope", [0.2, 1.0])
def test_parts_of_attention(on_device, block, slope):
    """With the gradient of the log of the sum of exponentials."""
    x, of_sources, of_destinations = rand(block.num_src, 3, 5), rand(block.num_src, 3), rand(block.num_dst, 3)

    def part(block, x, *terms):
        rows, lse = attention.attention_part(block, x, terms, slope)
        return rows, torch.where(block.indptr.diff()[:, None] > 0, lse, 0)

    want = results(part, block, [x, of_sources, of_destinations], {})
    for mine, theirs in zip(on_device(results, part, block, [x, of_sources, of_destinations], {}), want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_the_log_of_no_edges(on_device):
    lists = Lists(torch.zeros(3, dtype=torch.int64), torch.zeros(0, dtype=torch.int32))
    x, terms = torch.zeros(2, 1, 4), Terms(None, None, torch.zeros(0, 1), None, 0.2)
    rows, lse, _ = on_device(operations_on, x).attend(lists, x, terms)
    assert not rows.any()
    assert (lse == -1e30).all()


@SHAPES
def test_second_attention(on_device, block, heads, columns, dtype):
    xl, xr = rand(block.num_src, heads, columns, dtype=dtype), rand(block.num_dst, heads, columns, seed=5, dtype=dtype)
    att, keep = rand(heads, columns, seed=6, dtype=dtype), kept(block, heads, dtype)
    check(on_device, "gatv2", block, xl, xr, att, slope=0.2, keep=keep)


def test_softmax_survives_extreme_logits(on_device, block):
    logits, x = 1e4 * rand(block.num_edges, 2), rand(block.num_src, 2, 3)
    check(on_device, "edge_softmax_aggregate", block, logits.float(), x.float())


@pytest.mark.parametrize(("reduce", "dtype"), [("sum", HALF), ("mean", EXACT)])
def test_film(on_device, block, reduce, dtype):
    rows = [rand(block.num_src, 9, dtype=dtype), *(rand(block.num_dst, 9, seed=s, dtype=dtype) for s in (1, 2))]
    check(on_device, "film", block, *rows, reduce=reduce)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
def test_shares_by_attention(on_device, heads, loops, dropped):
    block = random_block(12, 12, 40)
    lists = EdgeLists(block.indptr, block.src)
    keep = tuple((rand(n, heads, seed=n) > 0).double() for n in (40, 12)) if dropped else None

    def shares(block, a_src, a_dst):
        of_edges, of_own = coefficients.shares(lists, lists.turned(), a_src, a_dst, 0.2, loops, keep)
        return (of_edges, of_own) if loops else of_edges

    terms = [rand(12, heads), rand(12, heads, seed=1)]
    want = results(shares, block, terms, {})
    for mine, theirs in zip(on_device(results, shares, block, terms, {}), want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 7])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dropout_has_the_same_bits(on_device, columns, p, dtype):
    keys = torch.tensor([0, 1, -5, 2**40, 7])
    for of_call in (key(2, 3), 1, 2**64 - 1):
        args = (5, columns, p, keys, of_call, dtype)
        assert torch.equal(on_device(dropout.dropout_mask, *args), dropout.dropout_mask(*args))


def test_ids_of_64_bits(block):
    x, out, wide = rand(block.num_src, 3), *(rand(block.num_dst, 3) for _ in range(2))
    triton_kernels.sum_rows(Lists(block.indptr, block.src), None, x, out, False, False)
    triton_kernels.sum_rows(Lists(block.indptr, block.src.long()), None, x, wide, False, False)
    assert torch.equal(out, wide)


def test_ranges_of_rows_are_added_to(on_device, block):
    """As slices of the full graph are gone over: a part of the lists, onto what is there."""
    x, some = rand(block.num_src, 3), slice(block.num_dst // 3, block.num_dst)
    outs = []
    for run in (lambda function, *args: function(*args), on_device):
        out = rand(block.num_dst, 3, seed=1)
        indptr = block.indptr[some.start : some.stop + 1]
        part = Lists(indptr - indptr[0], block.src[indptr[0] :])
        run(operations_on, x).sum_rows(part, None, x, out[some], False, True)
        outs.append(out)
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-12, atol=1e-12)


def test_all_operations_are_there():
    names = [name for name in vars(Operations) if not name.startswith("_")]
    assert len(names) > 10
    assert all(callable(getattr(triton_kernels, name)) for name in names)


def test_pairs_of_rows_and_heads_may_be_more_than_2_31():
    from weft.triton_kernels import attention as of_attention
    from weft.triton_kernels import launch

    x, att = rand(32, 8, 3), rand(8, 3, seed=1)
    out, tiles = torch.full((32 * 8,), torch.nan, dtype=x.dtype), launch.pair_tiles(32, 8, 3)[1]
    given = {"HEADS": 8, "COLUMNS": 3, "ACC": launch.sums_in(x), **tiles}
    launch.launch(of_attention._products, (1,), x, att, out, 1 << 30, **given)  # as the first of many programs
    some = tiles["P"] * tiles["E"]
    assert torch.equal(out[:some], triton_kernels.head_terms(x, att, 32).view(-1)[:some])
