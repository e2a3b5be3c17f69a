"""Each kernel against torch's ways of doing the same, and against a plain copy of as many bytes: medians, by threads.

python benchmarks/kernels.py

What limits the kernels that move rows is memory: the last column is the bandwidth reached (bytes read and written once,
over the time) as a share of what a copy of large arrays reaches. Dense layers are limited by arithmetic: GF/s.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

from weft import _kernels
from weft.features import gather
from weft.nn import sums
from weft.nn.attention import gat
from weft.sampling import Block

ROUNDS = 9


def median(call):
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copy_rate():
    """Bytes a second that a copy of 256 MiB reads and writes."""
    source = torch.ones(64 << 20)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median(lambda: target.copy_(source))


def random_block(num_dst, num_src, edges):
    dst = torch.randint(num_dst, (edges,)).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=num_dst).cumsum(0)])
    return Block(indptr, torch.randint(num_src, (edges,), dtype=torch.int32), num_src)


def rows(threads, limit):
    """Gathering 300,000 random rows of 100 floats from 2 million."""
    table, ids = torch.randn(2_000_000, 100), torch.randint(2_000_000, (300_000,))
    out = torch.empty(300_000, 100)
    show("gather 300k x 100", threads, median(lambda: gather(table.numpy(), ids, out, threads)), 2 * out.nbytes, limit)
    show(
        "  index_select(out=)",
        threads,
        median(lambda: torch.index_select(table, 0, ids, out=out)),
        2 * out.nbytes,
        limit,
    )
    show("  index_select", threads, median(lambda: table.index_select(0, ids)), 2 * out.nbytes, limit)


def aggregation(threads, limit):
    """The mean of 611,000 edges of 100 floats, forward, and forward with backward."""
    block = random_block(61_100, 300_000, 611_000)
    x = torch.randn(300_000, 100)
    leaf = x.clone().requires_grad_()
    touched = 4 * 100 * (611_000 + 61_100)
    csr = torch.sparse_csr_tensor(block.indptr, block.src.long(), torch.ones(611_000), (61_100, 300_000))
    dst, src = block.dst().long(), block.src.long()

    def scatter():
        return torch.zeros(61_100, 100).index_add_(0, dst, x[src])

    def train():
        leaf.grad = None
        sums.aggregate(block, leaf, reduce="mean").sum().backward()

    show("mean 611k edges x 100", threads, median(lambda: sums.aggregate(block, x, reduce="mean")), touched, limit)
    show("  torch.sparse.mm", threads, median(lambda: torch.sparse.mm(csr, x, reduce="mean")), touched, limit)
    show("  gather, index_add", threads, median(scatter), touched, limit)
    show("mean, with backward", threads, median(train), 3 * touched, limit)


def attention(threads, limit):
    """GAT over a million edges, 4 heads of 8 or 32 columns, forward with backward."""
    block = random_block(100_000, 300_000, 1_000_000)
    for columns in (8, 32):
        x = torch.randn(300_000, 4, columns, requires_grad=True)
        att = torch.randn(2, 4, columns, requires_grad=True)

        def train(x=x, att=att):
            gat(block, x, att[0], att[1], 0.2).sum().backward()

        touched = 3 * 4 * 4 * columns * (1_000_000 + 100_000)
        show(f"GAT 1M edges, 4 x {columns}", threads, median(train), touched, limit)


def dense(threads, _):
    """75,000 rows times 100 x 128, as a layer and as its weights' gradient."""
    x, weight, g = torch.randn(75_000, 100), torch.randn(128, 100), torch.randn(75_000, 128)
    y, gradient = torch.empty(75_000, 128), torch.empty(128, 100)
    flops = 2 * 75_000 * 100 * 128
    product = lambda: _kernels.multiply(x.numpy(), weight.numpy(), None, None, True, None, None, y.numpy(), threads)  # noqa: E731
    outer = lambda: _kernels.multiply_transposed(g.numpy(), x.numpy(), gradient.numpy(), threads)  # noqa: E731
    sides = {
        "dense 75k x 100 x 128": product,
        "  torch.mm(out=)": lambda: torch.mm(x, weight.t(), out=y),
        "its weights' gradient": outer,
        "  torch.mm": lambda: torch.mm(g.t(), x),
    }
    for name, call in sides.items():
        seconds = median(call)
        print(
            f"{name:26} {threads} thread{'s' * (threads > 1):1}  {seconds * 1e3:8.2f} ms  {flops / seconds / 1e9:6.0f} GF/s"
        )


def freed_memory(threads, _):
    """Taking and freeing 80 MB, as a training step does, before and after keep_freed_memory."""
    call = lambda: F.relu(torch.empty(20 << 20).fill_(1))  # noqa: E731
    before = median(call)
    _kernels.keep_freed_memory()
    print(f"two fresh tensors of 80 MB: {before * 1e3:.1f} ms; with freed memory kept: {median(call) * 1e3:.1f} ms")


def show(name, threads, seconds, touched, limit):
    share = touched / seconds / limit
    print(
        f"{name:26} {threads} thread{'s' * (threads > 1):1}  {seconds * 1e3:8.2f} ms  {share:6.0%} of a copy's bandwidth"
    )


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.manual_seed(0)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        limit = copy_rate()
        print(f"\na copy moves {limit / 1e9:.1f} GB/s with {threads} thread{'s' * (threads > 1)}")
        for bench in (rows, aggregation, attention, dense):
            bench(threads, limit)
    freed_memory(2, None)


if __name__ == "__main__":
    main()
