"""Sums over all workers: everything to everyone, or by pieces in two exchanges; needs root (network namespaces).

    python benchmarks/sums.py                  2, 4 and 8 hosts, links of 20, 200 and 1000 Mbit/s, and unshaped

Sums of 4 kB to 1 MB one after the other, both ways in turn; medians. A star marks the way that Weft takes.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time

import torch

from weft.exchange import World
from weft.exchange import communicator as code
from weft.lab import Sandbox

SIZES = [1 << k for k in range(12, 21, 2)]  # bytes
WAYS = {"whole": True, "pieces": False}
chosen = code.sent_whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="2,4,8")
    parser.add_argument("--links", default="20mbit,200mbit,1gbit,none")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a sum")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    if args.worker:
        return work(sizes, args.rounds)
    print(
        f"{'':17}" + "".join(f"{f'{size / 1e3:.0f} kB':>17}" for size in sizes) + "  milliseconds, whole and by pieces"
    )
    for link in args.links.split(","):
        for hosts in map(int, args.hosts.split(",")):
            found = measured(hosts, link, args)
            told = (
                f"{'/'.join(f'{took:.2f}{star}' for took, star in zip(pair, stars(size, hosts), strict=True)):>17}"
                for size, pair in zip(sizes, found, strict=True)
            )
            print(f"{link:>8} {hosts} hosts" + "".join(told), flush=True)


def stars(size, hosts):
    return ["*" if chosen(size, hosts) == way else "" for way in WAYS.values()]


def measured(hosts, link, args):
    """Milliseconds of each way, by size."""
    me = [sys.executable, __file__, "--worker", "--sizes", args.sizes, "--rounds", str(args.rounds)]
    with tempfile.TemporaryFile("w+") as output, Sandbox(hosts=hosts, link=link) as sandbox:
        ended = sandbox.run(me, output=output, timeout=600)
        output.seek(0)
        told = output.read()
    if ended:
        raise SystemExit(f"{hosts} hosts at {link} ended with code {ended}:\n{told}")
    return next(json.loads(line) for line in told.splitlines() if line.startswith("["))


def work(sizes, rounds):
    torch.set_num_threads(1)
    world = World.join(60)
    comm = world.communicator()
    found = [[one_size(comm, torch.ones(size // 4), way, rounds) for way in WAYS.values()] for size in sizes]
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    world.leave()


def one_size(comm, x, whole, rounds):
    """The median of rounds, each of as many sums as fill a tenth of a second at the pace of the first."""
    code.sent_whole = lambda size, workers: whole
    once = some(comm, x, 3)
    times = max(3, round(0.1 / float(comm.sum(torch.tensor(once)) / comm.size)))
    return 1e3 * statistics.median(some(comm, x, times) for _ in range(rounds))


def some(comm, x, times):
    """Seconds of a sum, of as many one after the other."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(times):
        comm.sum(x.clone())
    return (time.perf_counter() - start) / times


if __name__ == "__main__":
    main()
