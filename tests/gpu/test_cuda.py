"""What runs on a CUDA device gives what the CPU gives; skipped where there is none."""

import pytest
import torch

from weft.nn import BlockModel, build, functional
from weft.placements import Program
from weft.sampling import Block, Sample

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
        functional.aggregate(block, here, reduce=reduce),
        functional.aggregate(block.to("cuda"), there, reduce=reduce),
    )
    for out in outs:
        out.square().sum().backward()
    torch.testing.assert_close(outs[1].cpu(), outs[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-12, atol=1e-12)


def test_dropout_has_the_same_bits():
    keys = torch.randint(1 << 40, (100,))
    here = functional.dropout_mask(100, 9, 0.3, keys, 5, torch.float32)
    assert torch.equal(functional.dropout_mask(100, 9, 0.3, keys.cuda(), 5, torch.float32).cpu(), here)


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
