"""Memory of the decoupled model's epochs: the peak against the formula, with and without a budget, on one worker.

    python benchmarks/budget.py

Each row is a process of its own that trains some epochs. Its peak is the anonymous memory that it held at most, less what it
held before; pages of mapped files, which the system takes back as it likes, are not in it. The loss is the last epoch's.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from weft.graph import Graph, communities
from weft.plan import Settings
from weft.training import Trainer, make_model

ROW = "{:>10}{:>12}{:>12}{:>9}{:>14}{:>8}{:>8}{:>10}{:>12}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument(
        "--budgets", default="none,3/4,1/2,3/8", help="parts of what it takes without a budget, or sizes"
    )
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="an object a row")
    args = parser.parse_args()
    where = args.data / f"communities-{args.vertices}-{args.edges}-1.0"
    if not where.exists():
        communities(where, vertices=args.vertices, edges=args.edges, train=1.0)
    if not args.json:
        print(
            ROW.format(
                "budget MB", "formula MB", "peak MB", "off", "activations", "mapped", "rounds", "seconds", "loss"
            )
        )
    whole = None
    for budget in args.budgets.split(","):
        numerator, _, denominator = budget.partition("/")
        if denominator:
            assert whole is not None, "what there is a part of is measured first: begin with a size"
            budget = f"{whole * int(numerator) // int(denominator)}b"
        job = {"graph": str(where), "memory": budget, "epochs": args.epochs}
        job |= {"model": args.model, "hidden": args.hidden, "layers": args.layers}
        done = subprocess.run([sys.executable, __file__, "one", json.dumps(job)], check=True, stdout=subprocess.PIPE)
        row = json.loads(done.stdout)
        whole = row["formula"] if whole is None else whole
        print(json.dumps(row) if args.json else told(row), flush=True)


def told(row):
    sizes = [f"{row[name] / 1e6:,.0f}" for name in ("budget", "formula", "peak")]
    off = f"{row['peak'] / row['formula'] - 1:+.0%}"
    how = row["activations"], "yes" if row["mapped"] else "no", row["rounds"]
    return ROW.format(*sizes, off, *how, f"{row['seconds']:.2f}", f"{row['loss']:.6f}")


def one(job):
    """One process's row."""
    graph = Graph.open(job["graph"])
    named = {name: job[name] for name in ("model", "hidden", "layers", "memory")}
    settings = Settings.of(full_graph=True, plan="tp-decoupled", threads=1, **named)
    model = make_model(settings, graph)
    with Peak() as peak:
        trainer = Trainer(graph, model, settings)
        trainer.prepare()
        for epoch in range(job["epochs"]):
            start = time.perf_counter()
            _, loss = trainer.train_epoch(epoch)
            seconds = time.perf_counter() - start
    run = trainer.run.forward
    row = {"budget": settings.budget, "formula": sum(run.needs.values()), "needs": run.needs, "peak": peak.bytes}
    row |= {"activations": run.fit.activations, "mapped": run.fit.mapped, "rounds": run.fit.rounds}
    print(json.dumps(row | {"seconds": seconds, "loss": loss}))
    trainer.close()


class Peak:
    """The most anonymous memory that this process holds while this lasts, beyond what it holds at the beginning."""

    def __enter__(self):
        self._ended, self._most, self._before = threading.Event(), 0, held()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()
        self.bytes = self._most - self._before

    def _look(self):
        while not self._ended.wait(0.001):
            self._most = max(self._most, held())


def held():
    """Anonymous bytes of this process (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(json.loads(sys.argv[2]))
    else:
        main()
