"""What a CUDA device makes of it: kernels against its memory's bandwidth, draws against the CPU's, an epoch against peers'.

    benchmarks/peers/build.sh && python benchmarks/gpu.py

Kernels: sums, means and maxima of rows and attention over a block of random edges, forward, and backward; a rate is the
bytes that must move (each edge's row once, each result once, the lists) by the time, and its share is that of what a copy
within the device's memory reaches. Draws: million edges a second of blocks of an RMAT graph. Epoch: GraphSAGE (3 layers,
hidden 128) and GAT (4 heads x 8), fanouts 10,10,10, batches of 1,024, of Weft, PyG's NeighborLoader (in its process, and
with eight workers) and GraphBolt; peers that are not built are left out. Tiers: Weft's epoch of GraphSAGE, neighbours
drawn on the CPU or the device, which caches no rows, some, or all, and the share of rows that came from there. Loaders:
the same by how many threads prepare batches. The aims are 70% of the bandwidth, and that PyG's epoch takes 3 times as
long, and GraphBolt's 1.3 times.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from driver import Peer, interleave
from epoch import HIDDEN, export

from weft import triton_kernels
from weft.graph import Graph, communities, rmat
from weft.nn import sums
from weft.nn.attention import gat
from weft.plan import Settings
from weft.sampling import Block, NeighborSampler
from weft.training import Trainer, make_model

PARTS = ("kernels", "draws", "tiers", "loaders", "epoch")
SIDES = {
    "weft": ("weft", {}),
    "pyg": ("pyg", {}),
    "pyg-workers": ("pyg", {"workers": 8}),
    "graphbolt": ("dgl", {"pipeline": "graphbolt"}),
}
OPERATIONS = ("sum", "mean", "max", "gat")
LOADERS = (1, 2, 4, 8)
CACHES = (0.0, 0.05, 0.25, 1.0)  # shares of all rows that the device keeps
AIMS = {"pyg": 3.0, "pyg-workers": 3.0, "graphbolt": 1.3}


@dataclass(frozen=True)
class Timed:
    """A kernel's time, and the bytes that it can't do without."""

    name: str
    width: int
    seconds: float
    bytes: int

    def share(self, bandwidth: float) -> float:
        """Of a bandwidth in bytes a second."""
        return self.bytes / self.seconds / bandwidth


def needed_bytes(rows: int, edges: int, width: int, itemsize: int) -> int:
    """Each edge's row is read, each result written, and the lists read (offsets of 64 bits, sources of 32)."""
    return (edges + rows) * width * itemsize + (rows + 1) * 8 + edges * 4


def table(timed: list[Timed], bandwidth: float) -> str:
    """A line a kernel: milliseconds, GB/s, and the share of the device's bandwidth."""
    lines = [f"{'':20}{'width':>6}{'ms':>9}{'GB/s':>8}{'share':>7}"]
    for one in timed:
        rate = one.bytes / one.seconds / 1e9
        lines.append(f"{one.name:20}{one.width:6}{one.seconds * 1e3:9.3f}{rate:8.0f}{one.share(bandwidth):7.0%}")
    return "\n".join(lines)


def verdicts(seconds: dict[str, float]) -> str:
    """How many times Weft's epoch each peer's takes, and whether that is as much as was aimed at."""
    told = []
    for peer, aim in AIMS.items():
        if peer in seconds:
            ratio = seconds[peer] / seconds["weft"]
            told.append(f"{peer} takes {ratio:.1f}x as long ({'at least' if ratio >= aim else 'less than'} {aim}x)")
    return "; ".join(told) or "no peer to compare with"


def timed(work: Callable[[], object], repeats: int) -> float:
    """Seconds of one call on the device, the median of some, after two that warm up."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats + 2)]
    for before, after in events:
        before.record()
        work()
        after.record()
    torch.cuda.synchronize()
    return sorted(before.elapsed_time(after) / 1e3 for before, after in events[2:])[repeats // 2]


def copied_bandwidth(repeats: int) -> float:
    """Bytes a second that a copy within the device's memory reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / timed(lambda: target.copy_(source), repeats)


def random_block(rows: int, degree: int, sources: int) -> Block:
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(sources, (rows * degree,), generator=generator, dtype=torch.int32)
    return Block(torch.arange(0, len(src) + 1, degree), src, sources)


def of_kernel(name: str, block: Block, width: int, repeats: int) -> list[Timed]:
    """Forward, and backward, whose sums go over the lists turned around."""
    x = torch.randn(block.num_src, width, device="cuda", requires_grad=True)
    there = block.to("cuda")
    there.transposed()
    heads = x.view(len(x), 4, -1) if name == "gat" else x
    atts = torch.randn(2, 4, heads.shape[-1], device="cuda") if name == "gat" else None

    def forward() -> torch.Tensor:
        if atts is None:
            return sums.aggregate(there, x, reduce=name)
        return gat(there, heads, atts[0], atts[1], 0.2)

    out = forward()
    g = torch.randn_like(out)
    ahead = needed_bytes(block.num_dst, block.num_edges, width, 4)
    back = needed_bytes(block.num_src, block.num_edges, width, 4)
    return [
        Timed(name, width, timed(forward, repeats), ahead),
        Timed(
            f"{name}, backward", width, timed(lambda: torch.autograd.grad(out, x, g, retain_graph=True), repeats), back
        ),
    ]


def kernels(args: argparse.Namespace) -> None:
    bandwidth = copied_bandwidth(args.repeats)
    print(f"\nkernels: a copy within the device's memory reaches {bandwidth / 1e9:.0f} GB/s", flush=True)
    block = random_block(args.rows, args.degree, args.rows * 4)
    found = [one for name in OPERATIONS for width in args.widths for one in of_kernel(name, block, width, args.repeats)]
    print(table(found, bandwidth), flush=True)


def draws(args: argparse.Namespace) -> None:
    folder = args.data / "gpu-rmat"
    graph = Graph.open(folder) if folder.exists() else rmat(folder, vertices=2_000_000, edges=60_000_000, width=0)
    indptr, indices = (torch.from_numpy(part[:]).cuda() for part in (graph.indptr, graph.indices))
    seeds = torch.randperm(graph.num_vertices, generator=torch.Generator().manual_seed(0))[:4096].to(indices.dtype)
    sampler, there = NeighborSampler(graph, [10, 10, 10]), seeds.cuda()

    def on_device() -> int:
        _, blocks = triton_kernels.sample(indptr, indices, there, [10, 10, 10], [1, 2, 3], None, False, 0)
        return sum(len(block[1]) for block in blocks)

    edges = on_device()
    start = time.perf_counter()
    for batch in range(args.repeats):
        here = sampler.sample(seeds, 0, batch)
    seconds = (time.perf_counter() - start) / args.repeats
    rates = edges / timed(on_device, args.repeats) / 1e6, sum(block.num_edges for block in here.blocks) / seconds / 1e6
    print(
        f"\ndraws, million edges a second: {rates[0]:.0f} on the device, {rates[1]:.0f} by one thread of the CPU",
        flush=True,
    )


def graph_of_epochs(data: Path) -> Graph:
    where = data / "communities-240000-5000000"
    return Graph.open(where) if where.exists() else communities(where, vertices=240_000, edges=5_000_000)


def sage_on_device(args: argparse.Namespace, **more: object) -> Settings:
    """GraphSAGE's epochs on the device, a round to warm up included."""
    given = {"hidden": HIDDEN["sage"], "fanouts": (10, 10, 10), "device": "cuda", "threads": args.threads}
    return Settings.of(epochs=args.rounds + 1, **given, **more)


def epochs_by(graph: Graph, settings: Settings, rounds: int) -> tuple[float, float]:
    """Seconds of an epoch, the median of some after one that warms up; and the share of rows that came from the cache."""
    trainer = Trainer(graph, make_model(settings, graph), settings)
    trainer.prepare()
    seconds = []
    for number in range(rounds + 1):
        start = time.perf_counter()
        trainer.train_epoch(number)
        seconds.append(time.perf_counter() - start)
    read = trainer.loader.read
    trainer.close()
    return statistics.median(seconds[1:]), read["cache"] / sum(read.values())


def tiers(args: argparse.Namespace) -> None:
    graph = graph_of_epochs(args.data)
    print(f"\n{'drawn on':10}{'cache':>7}{'epoch':>9}{'from the cache':>16}", flush=True)
    for place, share in product(("cpu", "device"), CACHES):
        seconds, hits = epochs_by(graph, sage_on_device(args, sample_on=place, cache=share), args.rounds)
        print(f"{place:10}{share:7.0%}{seconds:7.2f} s{hits:16.1%}", flush=True)


def loaders(args: argparse.Namespace) -> None:
    graph = graph_of_epochs(args.data)
    print(f"\n{'drawn on':10}{'loaders':>9}{'epoch':>9}", flush=True)
    for place, number in product(("cpu", "device"), LOADERS):
        seconds, _ = epochs_by(
            graph,
            sage_on_device(args, sample_on=place, cache=0.0, loaders=number, prefetch=max(number, 2)),
            args.rounds,
        )
        print(f"{place:10}{number:9}{seconds:7.2f} s", flush=True)


def epoch(args: argparse.Namespace) -> None:
    graph = graph_of_epochs(args.data)
    where = args.data / "communities-240000-5000000"
    folder = export(graph, args.data / f"{where.name}-arrays")
    for model in args.models:
        job = {"what": "epoch", "graph": str(where), "folder": str(folder), "model": model, "hidden": HIDDEN[model]}
        job |= {
            "classes": graph.num_classes,
            "fanouts": [10, 10, 10],
            "batch_size": 1024,
            "device": "cuda",
            "workers": 0,
        }
        peers = []
        for name in args.peers:
            adapter, more = SIDES[name]
            try:
                peers.append(Peer(name, adapter, job | more, args.threads))
            except SystemExit as missing:
                print(f"{name} is left out: {missing}", flush=True)
        interleave(peers, args.rounds)
        seconds = {peer.name: peer.median("seconds") for peer in peers}
        told = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
        print(f"\n{model}, one epoch: {told}; {verdicts(seconds)}", flush=True)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """What was asked for; refused in a sentence where it is not possible."""

    def among(known: tuple[str, ...]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            if wrong := [name for name in text.split(",") if name not in known]:
                raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(known)}")
            return text.split(",")

        return parse

    def sizes(text: str) -> list[int]:
        return [int(size) for size in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--parts", type=among(PARTS), default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--peers", type=among(tuple(SIDES)), default=list(SIDES), help=f"of {','.join(SIDES)}")
    parser.add_argument("--models", type=among(tuple(HIDDEN)), default=list(HIDDEN), help=f"of {','.join(HIDDEN)}")
    parser.add_argument("--widths", type=sizes, default=[32, 100, 128, 256], help="of rows, multiples of 4")
    parser.add_argument("--rows", type=int, default=200_000, help="destinations of the kernels' block")
    parser.add_argument("--degree", type=int, default=15, help="edges into each of them")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args(argv)


def main() -> None:
    args = arguments()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py needs a CUDA device, and torch finds none here: run it where there is one")
    print(f"{torch.cuda.get_device_name()}; torch {torch.__version__}")
    args.data.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        {"kernels": kernels, "draws": draws, "tiers": tiers, "loaders": loaders, "epoch": epoch}[part](args)


if __name__ == "__main__":
    main()
