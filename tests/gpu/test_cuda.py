"""What runs on a CUDA device gives what the CPU gives; skipped where there is none."""

import pytest
import torch

from weft import _kernels, triton_kernels
from weft.features import DeviceStore
from weft.graph import communities
from weft.keys import Stream, seeded
from weft.nn import BlockModel, attention, build, dropout, sums
from weft.placements import Program
from weft.plan import Settings
from weft.sampling import Block, Sample
from weft.training import Trainer, make_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Typed:
    """A graph of which nothing is read: its edges' types came with them."""

    edge_type = ()


def random_block(num_dst, num_src, edges):
    dst = torch.randint(num_dst, (edges,)).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=num_dst).cumsum(0)])
    return Block(indptr, torch.randint(num_src, (edges,), dtype=torch.int32), num_src)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_aggregation(reduce):
    block, x = random_block(50, 90, 600), torch.randn(90, 7, dtype=torch.float64)
    here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
    outs = (
        sums.aggregate(block, here, reduce=reduce),
        sums.aggregate(block.to("cuda"), there, reduce=reduce),
    )
    for out in outs:
        out.square().sum().backward()
    torch.testing.assert_close(outs[1].cpu(), outs[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-12, atol=1e-12)


def test_dropout_has_the_same_bits():
    keys = torch.randint(1 << 40, (100,))
    here = dropout.dropout_mask(100, 9, 0.3, keys, 5, torch.float32)
    assert torch.equal(dropout.dropout_mask(100, 9, 0.3, keys.cuda(), 5, torch.float32).cpu(), here)


@pytest.mark.parametrize("name", ["sage", "gat", "gatv2", "gin", "film"])
def test_models(name):
    inner, outer = random_block(20, 60, 200), random_block(60, 150, 600)
    sample = Sample(torch.arange(150), [outer, inner], torch.arange(150))
    model = build(name, 8, 8, 3, 2).double().eval()
    x = torch.randn(150, 8, dtype=torch.float64)
    here = BlockModel(model)(x, sample)
    there = BlockModel(model.cuda())(x.cuda(), Program.of(sample).to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_models_over_relations(name):
    inner, outer = random_block(20, 60, 200), random_block(60, 150, 600)
    for block in (inner, outer):
        block.values["edge_type"] = torch.randint(5, (block.num_edges,), dtype=torch.int32)
    sample = Sample(torch.arange(150), [outer, inner], torch.arange(150), Typed())
    model = build(name, 8, 8, 3, 2, relations=5).double().eval()
    x = torch.randn(150, 8, dtype=torch.float64)
    here = BlockModel(model)(x, sample)
    there = BlockModel(model.cuda())(x.cuda(), Program.of(sample).to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["sage", "gin"])
def test_models_on_weighed_edges(name):
    """As layer-wise samplers make them."""
    inner, outer = random_block(20, 60, 200), random_block(60, 150, 600)
    weights = [1 + torch.rand(block.num_src, dtype=torch.float64) for block in (outer, inner)]
    sample = Sample(torch.arange(150), [outer, inner], torch.arange(150), source_weights=weights)
    model = build(name, 8, 8, 3, 2).double().eval()
    x = torch.randn(150, 8, dtype=torch.float64)
    here = BlockModel(model)(x, sample)
    there = BlockModel(model.cuda())(x.cuda(), Program.of(sample).to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


def test_the_same_bits_each_time():
    """No float is added up in an order that changes."""
    block = random_block(50, 90, 5000).to("cuda")
    x, atts = torch.randn(90, 4, 16, device="cuda"), torch.randn(2, 4, 16, device="cuda")

    def step():
        leaves = [t.clone().requires_grad_() for t in (x, *atts)]
        out = attention.gat(block, *leaves, 0.2) + sums.aggregate(block, leaves[0], reduce="mean")
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    first = step()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, step(), strict=True))


@pytest.mark.parametrize("given", [{}, {"cache": 0.3}, {"cache": 1.0, "prefetch": 0}], ids=str)
def test_a_run_whose_neighbours_are_drawn_on_the_device(given, tmp_path):
    """It trains what a run does whose neighbours the CPU draws."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    graph = communities(tmp_path / "graph", vertices=2000, edges=20_000, width=16, classes=4, train=0.4, seed=1)
    found = []
    for place in ("cpu", "device"):
        settings = Settings.of(device="cuda", sample_on=place, dtype="float64", fanouts=(5, 5), epochs=2, **given)
        with seeded(Stream.INIT, 0):
            model = make_model(settings, graph)
        result = Trainer(graph, model, settings).fit()
        found.append(torch.tensor([epoch["loss"] for epoch in result.history]))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("replace", [False, True])
def test_neighbours_drawn_on_the_device(replace):
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    degrees = torch.randint(30, (500,))
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    indices, seeds = torch.randint(500, (int(indptr[-1]),), dtype=torch.int32), torch.arange(0, 500, 9).int()
    fanouts, keys = [5, 4], [2**63, 7]
    given = (indptr.numpy(), indices.numpy(), seeds.numpy(), fanouts, keys, None, None, replace, True, 0, 1)
    vertices, hops = _kernels.HashSampler32(1 << 30).sample(*given)
    there = (part.cuda() for part in (indptr, indices, seeds))
    got, blocks = triton_kernels.sample(*there, fanouts, keys, None, replace, 0)
    assert got.tolist() == vertices.tolist()
    for block, hop in zip(blocks, hops, strict=True):
        assert all(block[at].tolist() == hop[at].tolist() for at in (0, 1, 3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("share", [None, 0.0, 0.5, 1.0])
def test_rows_from_the_cache_and_from_pinned_memory(dtype, share):
    table = torch.randn(1000, 33).numpy().astype(dtype)
    store = DeviceStore(table, torch.device("cuda"))
    if share is not None:
        store.keep(torch.randperm(1000)[: int(share * 1000)].numpy())
    for size in (4000, 0, 300):
        ids = torch.randint(1000, (size,))
        rows = store.fetch(ids)
        assert rows.is_cuda
        assert torch.equal(rows.cpu(), torch.from_numpy(table)[ids].float())
    assert sum(store.read.values()) == 4300
