"""Run by the tests with an installed wheel: what the kernels give on fixed inputs, in float32 and float64, as digests."""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from weft import _kernels
from weft.graph import Graph, rmat
from weft.nn import attention, dropout, sums
from weft.nn.conv import film
from weft.placements import cheapest_cover
from weft.sampling import Block, NeighborSampler

digests, rounded = {}, {}


def keep(name, *arrays):
    """The arrays' bits, and a sum that tells whether they are the same but for rounding."""
    found = [array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array) for array in arrays]
    digests[name] = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()
    rounded[name] = [float(np.abs(array.astype(np.float64)).sum()) for array in found]


def merges(dtype):
    """Aggregation and attention, forward and backward, of widths that fill vectors and that don't."""
    make = torch.Generator().manual_seed(1)
    dst = torch.randint(300, (4000,), generator=make).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=300).cumsum(0)])
    block = Block(indptr, torch.randint(900, (4000,), generator=make, dtype=torch.int32), 900)
    randn = lambda *shape: torch.randn(*shape, generator=make, dtype=torch.float64).to(dtype).requires_grad_()  # noqa: E731
    for width in (1, 7, 16, 33, 100):
        x, weight = randn(900, width), randn(4000)
        for reduce in ("sum", "mean", "max"):
            out = sums.aggregate(block, x, reduce=reduce)
            out.square().sum().backward()
            keep(f"{dtype} {reduce} {width}", out, x.grad)
            x.grad = None
        out = sums.aggregate(block, x, weight)
        out.square().sum().backward()
        keep(f"{dtype} weighted {width}", out, x.grad, weight.grad)
        x, gamma, beta = randn(900, width), randn(300, width), randn(300, width)
        out = film.film(block, x, gamma, beta)
        out.square().sum().backward()
        keep(f"{dtype} film {width}", out, x.grad, gamma.grad, beta.grad)
    for heads, columns in ((4, 8), (1, 16), (3, 5), (2, 33)):
        x, source, target = randn(900, heads, columns), randn(heads, columns), randn(heads, columns)
        out = attention.gat(block, x, source, target, 0.2)
        out.square().sum().backward()
        keep(f"{dtype} gat {heads} {columns}", out, x.grad, source.grad, target.grad)
        left, right, att = randn(900, heads, columns), randn(300, heads, columns), randn(heads, columns)
        out = attention.gatv2(block, left, right, att, 0.2)
        out.square().sum().backward()
        keep(f"{dtype} gatv2 {heads} {columns}", out, left.grad, right.grad, att.grad)
    mask = dropout.dropout_mask(500, 33, 0.4, torch.arange(500), 77, dtype)
    keep(f"{dtype} dropout", mask)


def dense():
    """Dense layers and their weights' gradients."""
    rng = np.random.default_rng(2)
    for rows, depth, columns in ((1, 1, 1), (700, 33, 47), (5000, 100, 128), (301, 64, 7)):
        x, w, g = (
            rng.standard_normal(s).astype(np.float32) for s in ((rows, depth), (columns, depth), (rows, columns))
        )
        y, gradient = np.empty((rows, columns), np.float32), np.empty((columns, depth), np.float32)
        _kernels.multiply(x, w, None, None, True, w[:, 0].copy(), g, y, 1)
        _kernels.multiply_transposed(g, x, gradient, 1)
        keep(f"dense {rows} {depth} {columns}", y, gradient)


def whole_numbers():
    """What is no floating-point sum: the same at every level."""
    half, out = np.random.default_rng(3).standard_normal((50, 37)).astype(np.float16), np.empty((20, 37), np.float32)
    _kernels.gather_rows(half.view(np.uint16), np.arange(0, 40, 2), out, None, 1)
    keep("exact gather of halves", out)
    with tempfile.TemporaryDirectory() as folder:
        rmat(Path(folder) / "graph", vertices=3000, edges=40_000, width=0, seed=3)
        graph = Graph.open(Path(folder) / "graph")
        for replace in (False, True):
            sample = NeighborSampler(graph, [7, 20], seed=5, replace=replace).sample(np.arange(0, 3000, 9), 0, 0)
            arrays = [array for block in sample.blocks for array in (block.indptr, block.src)]
            keep(f"exact sample {replace}", sample.vertices, *arrays)
        block = sample.blocks[0]
        member = (np.arange(block.num_src) % 3).astype(np.uint16)
        keep(
            "exact cover",
            cheapest_cover(block, member, 0, 3, 100.0, 64.0),
            cheapest_cover(block, member, 0, 3, 1, 1, -1),
        )


if __name__ == "__main__":
    merges(torch.float32)
    merges(torch.float64)
    dense()
    whole_numbers()
    told = {name: getattr(_kernels, name) for name in ("LEVEL", "LEVELS", "NATIVE")}
    print(json.dumps({"digests": digests, "sums": rounded, "file": _kernels.__file__} | told))
