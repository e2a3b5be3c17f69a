"""What micro-batches save: peak memory and seconds of an epoch, by the pieces that a batch is computed in.

    python benchmarks/memory.py

GraphSAGE of three layers on a communities graph, one worker, each number of pieces in a process of its own. The peak is the
process's resident memory less what it held before training. The loss is that of the last epoch: the same in every row.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import watch

from weft.graph import Graph, communities
from weft.plan import Settings
from weft.training import Trainer, make_model

ROW = "{:>8}{:>12}{:>10}{:>14}{:>12}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--pieces", default="1,2,4,8,16")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    args = parser.parse_args()
    where = args.data / f"communities-{args.vertices}-{args.edges}"
    if not where.exists():
        communities(where, vertices=args.vertices, edges=args.edges)
    print(ROW.format("pieces", "peak MB", "seconds", "edges", "loss"))
    for pieces in args.pieces.split(","):
        job = [str(where), pieces, str(args.batch_size), str(args.hidden)]
        subprocess.run([sys.executable, __file__, "one", *job], check=True)


def one(where, pieces, batch_size, hidden):
    """One process's row of the table."""
    graph = Graph.open(where)
    settings = Settings.of(fanouts=(10, 10, 10), hidden=hidden, batch_size=batch_size, micro_batches=pieces, prefetch=1)
    trainer = Trainer(graph, make_model(settings, graph), settings)
    trainer.prepare()
    before = watch.peak()
    for epoch in range(2):
        start = time.perf_counter()
        edges, loss = trainer.train_epoch(epoch)
        seconds = time.perf_counter() - start
    peak = (watch.peak() - before) / (1 << 20)
    print(ROW.format(pieces, f"{peak:,.0f}", f"{seconds:.2f}", f"{edges:,}", f"{loss:.6f}"), flush=True)
    trainer.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
