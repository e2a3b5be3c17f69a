"""Allocations against the clock: what each costs to make, and what training then waits for; needs root (namespaces).

    python benchmarks/allocation.py --minutes 10      # again and again, until all runs are measured
    python benchmarks/allocation.py --report          # with the --unequal or --link of what was measured

Each graph is allocated by each method; GraphSAGE then trains on that many hosts of a sandbox, a worker and a thread each,
without preparing batches ahead, so that what a worker waits for rows is not hidden behind its work. Links are slow enough
that rows are waited for, and not other workers' turns on the processors that all share here; epochs are repeated until they
have taken `--seconds`. Communication is the time that the slowest worker spends fetching and exchanging rows in an epoch;
with sums, gradients too.
Real graphs are read from `--shared`.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from papers.adagl.task import SERVERS

from weft.graph import Graph, communities, rmat
from weft.lab import Sandbox
from weft.partition import BalanceWeights, Traces, TrainingTask, allocate, fit, measure, write_partitioned
from weft.plan import Plan

WORKER = Path(__file__).resolve().parent / "peers" / "weft" / "plans.py"
GRAPHS = {"debian": 128, "facebook-johns": 32, "communities": 256, "rmat": 256}  # seeds a worker
LINKS = {"debian": "20mbit", "facebook-johns": "20mbit", "communities": "20mbit", "rmat": "50mbit"}
FANOUTS, HIDDEN = (10, 10), 32
PLANS = ("leap", "split", "push", "pull")
OURS = ("traffic", "traffic-cover", "traffic-pull", "traffic-push")  # for leap, and for each placement of all layers
TRAINING = "-training"  # after a method: balanced by training vertices alone, not by all vertices too
METHODS = ("random", "metis", f"metis{TRAINING}", "kaminpar", "adagl", "evolution", *OURS)
ROWS = ("fetch", "exchange")  # stages that wait for rows
CLOCKS = {"communication": "waiting for rows", "with sums": "waiting for rows and gradients", "seconds": "epoch"}
UNTOLD = ("random", "metis", f"metis{TRAINING}", "kaminpar")  # of hosts that are not equal
TOLD = SERVERS.told
# What such hosts are given to do, so that processors and links both count, and shares of processors bind: faster links, so
# many seeds a worker, and a width between layers.
UNEQUAL = {
    "links": {"debian": "50mbit", "facebook-johns": "20mbit", "communities": "50mbit", "rmat": "200mbit"},
    "seeds": {"debian": 2048, "facebook-johns": 512, "communities": 1024, "rmat": 4096},
    "hidden": 256,
}
COLUMNS = {"CPU s": 8, "cut": 8, "leap s": 9, "waiting": 9, "MB": 8, "best mix": 10, "s": 8, " waiting": 9, " MB": 8}


def graph_of(name, args):
    path = args.data / f"allocation-{name}"
    if path.exists():
        return Graph.open(path)
    if name == "communities":
        return communities(path, vertices=240_000, edges=5_000_000)
    if name == "rmat":
        return rmat(path, vertices=2_000_000, edges=30_000_000, width=100, train=0.01)
    folder = args.shared / name
    if not folder.exists():
        raise SystemExit(f"{folder} is not there: give the folder of real graphs with --shared, or leave out {name}")
    real(folder).save(path)
    return Graph.open(path)


def real(folder):
    """A graph as it lies in a folder of arrays, made undirected."""
    edges, split, labels = (np.load(folder / f"{name}.npy") for name in ("edge_index", "split", "label"))
    if (folder / "feat.npy").exists():
        features = np.load(folder / "feat.npy").astype(np.float32)
    else:
        width = int(np.load(folder / "n_features.npy")) if (folder / "n_features.npy").exists() else None
        features = np.unpackbits(np.load(folder / "feat_bits.npy"), axis=1, count=width).astype(np.float32)
    both = np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)
    both = np.unique(both[:, both[0] != both[1]], axis=1)
    known = {"features": features, "labels": labels, "split": split}
    return Graph.from_arrays(both, num_vertices=len(split), **known)


def seeds_of(name, unequal):
    return UNEQUAL["seeds"][name] if unequal else GRAPHS[name]


def hidden_of(unequal):
    return UNEQUAL["hidden"] if unequal else HIDDEN


def task_of(graph, name, parts, unequal, method="traffic"):
    placement = method.removesuffix(TRAINING).partition("-")[2]
    layers = (placement,) * len(FANOUTS) if placement else ()
    between = [float(hidden_of(unequal))] * (len(FANOUTS) - 1)
    widths = (float(graph.num_features), *between, float(graph.num_classes))
    seed = 1  # training has another one: its rows are not known
    return TrainingTask(FANOUTS, seeds_of(name, unequal) * parts, seed, layers, widths)


def told_of(method, unequal):
    if unequal and method not in UNTOLD:
        return TOLD
    return {"balance": BalanceWeights(vertices=0.0)} if method.endswith(TRAINING) else {}


def directory(name, parts, method, unequal):
    return f"allocation-{name}-{method}-{parts}{'-unequal' if told_of(method, unequal) is TOLD else ''}"


def allocated(graph, name, parts, method, args):
    """The partitioned graph, and what making it took: seconds, kept beside it."""
    told, path = told_of(method, args.unequal), args.data / directory(name, parts, method, args.unequal)
    note = path.with_suffix(".json")
    if not (path.exists() and note.exists()):
        start, busy = time.perf_counter(), time.process_time()
        task = task_of(graph, name, parts, args.unequal, method)
        owners = allocate(graph, parts, method.partition("-")[0], task=task, threads=args.threads, **told)
        took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}
        np.save(path.with_suffix(".npy"), owners)
        write_partitioned(graph, owners, parts, path, shares=told.get("shares"), overwrite=True)
        note.write_text(json.dumps(took))
    return path, np.load(path.with_suffix(".npy")), json.loads(note.read_text())


def measured(graph, name, parts, method, args):
    path, owners, took = allocated(graph, name, parts, method, args)
    settings = {"batch_size": seeds_of(name, args.unequal), "fanouts": FANOUTS, "hidden": hidden_of(args.unequal)}
    settings |= {"prefetch": 0}
    job = {"graph": str(path), "cluster": None, "known": [], "named": args.plans, "settings": settings}
    job |= {"rounds": args.rounds, "epochs": args.epochs, "enough": args.seconds, "slow": 100.0}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "job.json", Path(folder) / "out.txt"
        file.write_text(json.dumps(job))
        with sandbox_of(parts, link_of(name, args), args) as sandbox, open(out, "w") as output:
            code = sandbox.run([sys.executable, str(WORKER), str(file)], output=output, timeout=args.timeout)
        lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    if code or not lines:
        return None
    plans = {}
    for plan, figures in json.loads(lines[-1])["plans"].items():
        waits, sent = (
            [sum(w[what].get(s, 0) for s in ROWS) for w in figures["workers"]] for what in ("stages", "sent")
        )
        sums = [w["stages"].get("sync", 0) for w in figures["workers"]]
        plans[plan] = {
            "seconds": figures["seconds"],
            "communication": max(waits),
            "with sums": max(map(sum, zip(waits, sums, strict=True))),
            "processor": [sum(w["processor"].values()) for w in figures["workers"]],
            "bytes": sum(sent),
            "most": max(sent),
        }
    return {
        "plans": plans,
        "took": took,
        "figures": measure(graph, owners, parts),
        "simulated": simulated(graph, name, parts, method, owners, args.unequal),
    }


def link_of(name, args):
    return args.link or (UNEQUAL["links"] if args.unequal else LINKS)[name]


def sandbox_of(parts, link, args):
    """Hosts that are equal, or four with processors 2:2:1:1 and the last one's link at a fifth."""
    if not args.unequal:
        return Sandbox(hosts=parts, link=link)
    return Sandbox(hosts=len(SERVERS.shares), link=link, links=SERVERS.links(link), shares=SERVERS.processors())


def simulated(graph, name, parts, method, owners, unequal):
    """Rows of an epoch as training draws them, seeds at home and evened: what the busiest host's link carries, in or out.

    What comes and what goes is compared batch by batch. A row on a link at a fifth counts as five.
    """
    traces = Traces(graph, task_of(graph, name, parts, unequal), batches=10**6)
    rows = traces.rows(owners, parts, shares=told_of(method, unequal).get("shares"), slack=Plan.slack)
    rows[:, range(parts), range(parts)] = 0
    bandwidths = TOLD["bandwidths"] if unequal else np.ones(parts)
    busiest = (np.maximum(rows.sum(axis=1), rows.sum(axis=2)) / bandwidths).sum(axis=0).max()
    return {"rows": int(rows.sum()), "busiest": float(busiest), "batches": len(rows)}


def finished(args):
    """What was measured already on such hosts, the last of each."""
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    same = (r for r in map(json.loads, lines) if (r["unequal"], r["link"]) == (args.unequal, link_of(r["graph"], args)))
    return {(r["graph"], r["parts"], r["method"]): r for r in same}


def run(args):
    start, longest, done = time.monotonic(), 0.0, finished(args)
    if args.unequal and args.parts != [4]:
        raise SystemExit("unequal hosts are four: give --parts 4")
    if "leap" not in args.plans or len(args.plans) < 2:
        raise SystemExit("leap is compared with the best of other plans: give --plans leap and at least one more")
    runs = [(g, p, m) for p in args.parts for g in args.graphs for m in args.methods]
    for name, parts, method in [one for one in runs if one not in done]:
        begun = time.monotonic()
        if args.minutes and begun - start + longest > 60 * args.minutes:
            print("there is more to measure: call again")
            return
        print(f"{name}, {parts} parts, {method}:", end=" ", flush=True)
        record = measured(graph_of(name, args), name, parts, method, args)
        longest = max(longest, time.monotonic() - begun)
        if record is None:
            print("failed", flush=True)
            continue
        what = {"graph": name, "parts": parts, "method": method, "link": link_of(name, args), "unequal": args.unequal}
        with open(args.out, "a") as out:
            out.write(json.dumps(what | record) + "\n")
        print(f"{time.monotonic() - begun:.0f} s", flush=True)


def write_measured(records, file):
    """What each allocation waited for under each plan, as `weft report partition --measured` reads it."""
    with open(file, "w") as out:
        for r in records:
            name = directory(r["graph"], r["parts"], r["method"], r["unequal"])
            for plan, figures in r["plans"].items():
                out.write(json.dumps({"allocation": name, "plan": plan, "seconds": figures["communication"]}) + "\n")


def together(records):
    """The records of each graph and number of parts."""
    groups = {}
    for r in records:
        groups.setdefault((r["graph"], r["parts"]), []).append(r)
    return groups


def report(records):
    for (name, parts), rows in together(records).items():
        by = {r["method"]: r for r in rows}
        hidden = UNEQUAL["hidden"] if rows[0]["unequal"] else HIDDEN
        print(
            f"\n{name}, {parts} hosts with links of {rows[0]['link']}, GraphSAGE {hidden}, fanouts {FANOUTS}: an epoch"
        )
        columns = "".join(f"{title:>{width}}" for title, width in COLUMNS.items())
        print(f"{'':23}{columns}")
        for method, record in by.items():
            mix = best_mix(record, "communication")
            leap, best = record["plans"]["leap"], record["plans"][mix]
            print(
                f"{method:23}{record['took']['cpu']:8.1f}{record['figures']['cut']:8.1%}{leap['seconds']:9.2f}"
                f"{leap['communication']:9.2f}{leap['bytes'] / 1e6:8.1f}{mix:>10}{best['seconds']:8.2f}"
                f"{best['communication']:9.2f}{best['bytes'] / 1e6:8.1f}"
            )
        for other in ("metis", f"metis{TRAINING}", "random"):
            ours = [by[m] for m in by if m.startswith("traffic") and m.endswith(TRAINING) == other.endswith(TRAINING)]
            if other in by and ours:
                for figure, meant in CLOCKS.items():
                    gains = ", ".join(f"{what} {gain(ours, by[other], what, figure):+.1%}" for what in ("leap", "mix"))
                    print(f"our best, as balanced, against {other}, {meant}: {gains}")
    errors(records)


def best_mix(record, figure):
    return min((plan for plan in record["plans"] if plan != "leap"), key=lambda p: record["plans"][p][figure])


def seconds_of(record, what, figure):
    return record["plans"]["leap" if what == "leap" else best_mix(record, figure)][figure]


def gain(ours, other, what, figure):
    return min(seconds_of(one, what, figure) for one in ours) / seconds_of(other, what, figure) - 1


def errors(records):
    """The simulator's seconds, with alpha and beta fitted from the other allocations of that graph, against leap's.

    A worker whose rows are all handed to its sockets goes on to its gradients, which then share its link with the rows: what
    others wait longer for rows they wait less for gradients. So rows are held against waiting with and without gradients.
    """
    for figure, meant in CLOCKS.items():
        found = []
        for rows in together(records).values():
            found += [error(one, [r for r in rows if r is not one], figure) for one in rows if len(rows) > 2]
        if found:
            mean = statistics.mean(found)
            print(f"\nsimulated against measured, leap's {meant}, {len(found)} allocations: error {mean:.1%} (mean)")


def error(one, others, figure):
    each = np.array([r["simulated"]["busiest"] / r["simulated"]["batches"] for r in others])
    spent = np.array([r["plans"]["leap"][figure] / r["simulated"]["batches"] for r in others])
    alpha, beta = fit(each, spent)
    told = alpha * one["simulated"]["batches"] + beta * one["simulated"]["busiest"]
    return abs(told / one["plans"]["leap"][figure] - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/allocation.jsonl"))
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="the folder of real graphs")
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=list(GRAPHS))
    parser.add_argument("--parts", type=lambda text: [*map(int, text.split(","))], default=[4, 8])
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--plans", type=lambda text: text.split(","), default=list(PLANS))
    parser.add_argument("--unequal", action="store_true", help="hosts with processors 2:2:1:1, one link at a fifth")
    parser.add_argument("--link", help="of each host (default: by graph)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--epochs", type=int, default=20, help="of a plan in a round, at most")
    parser.add_argument("--seconds", type=float, default=8.0, help="that they take together, at least")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="start no run that would likely end later")
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--measured", type=Path, help="write a file for `weft report partition --measured`")
    parser.add_argument("--report", action="store_true", help="only print the tables of what was measured")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.data.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hosts without names are no news
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that sandboxes are removed
    if not args.report:
        run(args)
    records = list(finished(args).values())
    report(records)
    if args.measured:
        write_measured(records, args.measured)


if __name__ == "__main__":
    main()
