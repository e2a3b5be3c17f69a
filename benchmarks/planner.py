"""The planner against the clock: what a run by its choice takes beside the best of all plans; needs root (namespaces).

    python benchmarks/planner.py --minutes 10        # again and again, until all tasks are measured
    python benchmarks/planner.py --report --half held-out

Tasks are drawn from all combinations of graph (made or real), partition, model, hidden width, fanouts, links (unequal ones,
and a slow processor, too), hosts and memory, so that values and pairs of values come up evenly. Half of them, by a hash of
their names, are for tuning; the others are set aside (--half). Each is one run of four workers with a thread each: the
planner is asked, trained by as in a run until nothing is left to try, and then the named plans, with caches of its sizes and
without, its choice, its runners-up and what it tried are measured in turn. A finished task is a line of the file, and is
skipped when the command is started again. What the tables need of it goes to a second file, in the project (--kept). The
cluster is probed once for each kind of links and hosts, into files beside the first.

Regret is by the seconds of a run: planning, what trying others took longer, filling the cache, and so many epochs (--run),
beside the least that any plan takes for its cache and its epochs alone. The fastest of thirty plans is partly the luckiest:
--finals measures the chosen and the fastest plans of finished tasks again, in many short turns, and regret is then told by
these epochs alone.

Machines run faster and slower from hour to hour. --add probes before each task and adds that to the file, which becomes the
mean of more and more minutes.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from allocation import real
from cluster import graphs, spread
from papers.records import commit, machine
from planner_tables import RUN, brief, finalists, report, tell

from weft.graph import Graph
from weft.lab import Sandbox

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "benchmarks" / "peers" / "weft" / "plans.py"
KEPT, PAGE = ROOT / "benchmarks" / "records" / "planner.jsonl", ROOT / "docs" / "planner-tasks.md"
WORKERS = 4
VALUES = {
    "graph": ["communities", "rmat", "debian", "facebook-johns"],
    "partition": ["metis", "random"],
    "model": ["sage", "gat", "gcn"],
    "hidden": [16, 64, 256],  # of GAT: of all its four heads together
    "fanouts": ["10,5", "10,10,10"],
    "link": ["100mbit", "1gbit", "none", "1gbit,h2=100mbit", "1gbit,h2=0.5cpu"],
    "hosts": ["4x1", "2x2"],  # and the workers of each
    "memory": ["free", "tight"],  # tight: half of what the fastest plan would take, if that is enough for any
}
SEEDS = {"debian": 1600, "facebook-johns": 100}  # of a worker in a batch, where they are not --batch-size: six batches
SCALE = ("vertices", "edges", "batch_size")
HALVES = ("tuning", "held-out")


def tasks(count):
    """So many of all combinations, the same every time: always the one whose pairs of values came up least so far."""
    left = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
    of_each, seen, found = [pairs(task) for task in left], Counter(), []
    while left and len(found) < count:
        at = min(range(len(left)), key=lambda at: sum(map(seen.__getitem__, of_each[at])))
        found.append(left.pop(at))
        seen.update({pair: len(VALUES[pair[0][0]]) * len(VALUES[pair[1][0]]) for pair in of_each.pop(at)})
    return found


def pairs(task):
    return list(itertools.combinations(task.items(), 2))


def name_of(task):
    return "/".join(str(task[key]) for key in VALUES)


def half_of(name):
    """Which half a task is in: that of all tasks by which the planner is tuned, or the one set aside."""
    return HALVES[hashlib.sha256(name.encode()).digest()[1] % 2]


def finished(files, scale):
    """The records of this scale by task: the last of each, the oldest first."""
    found = {}
    for record in itertools.chain(*map(every, files)):
        if record["scale"] == scale:
            found.pop(record["name"], None)
            found[record["name"]] = record
    return found


def known(args):
    """The finished tasks: whole records, or what is kept of others."""
    return finished((args.kept, args.out), scale_of(args))


def every(file):
    """All records in a file, but for a line that a stopped run left unfinished."""
    for line in file.read_text().splitlines() if file.exists() else []:
        with suppress(ValueError):
            yield json.loads(line)


def append(file, record):
    with open(file, "a+b") as out:
        if out.tell() and file.read_bytes()[-1:] != b"\n":
            out.write(b"\n")
        out.write(json.dumps(record).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def keep(file, record, scale):
    """A task in place of its earlier record, in a file of short ones; it is whole at any time."""
    stamped = brief(record) | {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "machine": machine(),
        "commit": commit(),
    }
    others = [other for other in every(file) if (other["name"], other["scale"]) != (record["name"], scale)]
    made = file.with_suffix(".new")
    made.write_text("".join(json.dumps(one) + "\n" for one in [*others, stamped]))
    made.replace(file)


def stamp():
    """When, on what and of which commit something is measured."""
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "machine": machine(), "commit": commit()}


def wanted(args, done):
    """The tasks that this call is for, without those that are finished; with --again all, the longest finished first."""
    chosen = [task for task in tasks(args.tasks) if asked_for(name_of(task), args)][args.slice[0] - 1 :: args.slice[1]]
    order = {name: number for number, name in enumerate(done)}
    if args.finals:
        return [task for task in chosen if name_of(task) in done and "finals" not in done[name_of(task)]]
    if args.again:
        return sorted(chosen, key=lambda task: order.get(name_of(task), -1)) * args.again
    return [task for task in chosen if name_of(task) not in done]


def asked_for(name, args):
    return re.search(args.only, name) and args.half in ("all", half_of(name))


def cluster_of(task, args):
    """The file that describes a task's sandbox; probed if it is not there, or is to be added to."""
    link = f"{task['link']}-{task['hosts']}"
    file = args.out.parent / f"cluster-{link}.toml"
    if args.add or not file.exists():
        with sandbox_of(task) as sandbox:
            command = [sys.executable, "-m", "weft.cli", "probe", "--rounds", str(args.rehearsals), "--out", str(file)]
            command += ["--add"] * args.add
            if sandbox.run(command, timeout=args.timeout):
                raise SystemExit(f"the cluster with links {link} could not be probed: see above")
    return file


def sandbox_of(task):
    """Hosts with links such as 1gbit, or 1gbit,h2=0.5cpu."""
    hosts, workers = map(int, task["hosts"].split("x"))
    usual, *others = task["link"].split(",")
    named = dict(other.split("=") for other in others)
    shares = {host: float(value.removesuffix("cpu")) for host, value in named.items() if value.endswith("cpu")}
    links = {host: value for host, value in named.items() if host not in shares}
    return Sandbox(hosts=hosts, workers_per_host=workers, link=usual, links=links, shares=shares)


def measured(task, earlier, args):
    """A task's record, or None if the run failed. Plans that an earlier record has are not measured again."""
    graph, parts = graph_of(task, args)
    made = by_all_workers(
        task,
        parts,
        args,
        cluster=str(cluster_of(task, args)),
        known=[plan["plan"] for plan in earlier["plans"].values()] if earlier else [],
    )
    if made is None:
        return None
    if earlier:
        made["plans"] = {name: earlier["plans"].get(name, {}) | plan for name, plan in made["plans"].items()}
        made["before"] = [*earlier.get("before", ()), earlier["planner"]]
    batches = -(-len(graph.seeds("train")) // (seeds_of(task, args) * WORKERS))
    return {"name": name_of(task), "task": task, "scale": scale_of(args), "batches": batches, **made}


def finals(record, args):
    """The record with the epochs of its finalists, measured in turn; None if the run failed."""
    plans = [record["plans"][name]["plan"] for name in finalists(record)]
    turns = {"rounds": 1000, "seconds": args.finals, "epochs": 2, "slow": float("inf")}
    _, parts = graph_of(record["task"], args)
    made = by_all_workers(record["task"], parts, args, cluster=None, known=[], named=[], plans=plans, **turns)
    return made and record | {"finals": {name: plan["epochs"] for name, plan in made["plans"].items()}}


def by_all_workers(task, parts, args, **job):
    """What the workers of a sandbox measured, or None if they failed."""
    job = {name: getattr(args, name) for name in ("rounds", "epochs", "enough", "slow", "run")} | {
        "graph": str(parts),
        "tight": task["memory"] == "tight",
        "settings": {
            "batch_size": seeds_of(task, args),
            "fanouts": [int(fanout) for fanout in task["fanouts"].split(",")],
            **{key: task[key] for key in ("model", "hidden")},
        },
        **job,
    }
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "job.json", Path(folder) / "out.txt"
        file.write_text(json.dumps(job))
        with sandbox_of(task) as sandbox, open(out, "w") as output:
            code = sandbox.run([sys.executable, str(WORKER), str(file)], output=output, timeout=args.timeout)
        lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    return None if code or not lines else json.loads(lines[-1])


def seeds_of(task, args):
    return SEEDS.get(task["graph"], args.batch_size)


def graph_of(task, args):
    """A task's graph, and where its parts are."""
    kind, method = task["graph"], task["partition"]
    if kind in ("communities", "rmat"):
        graph, _, parts = graphs(args.data, args.vertices, args.edges, WORKERS, method, kind=kind)
        return graph, parts
    path = args.data / f"real-{kind}"
    if not path.exists():
        real(args.shared / kind).save(path)
    graph = Graph.open(path)
    return graph, spread(graph, args.data, path.name, WORKERS, method)[1]


def scale_of(args):
    return {key: getattr(args, key) for key in SCALE}


def run(args):
    """Measure what there is time for; how many tasks failed."""
    done, start, longest, failed = known(args), time.monotonic(), 0.0, 0
    todo = wanted(args, done)
    for number, task in enumerate(todo):
        begun = time.monotonic()
        if args.minutes and begun - start + longest > 60 * args.minutes:
            print(f"{len(todo) - number} tasks are left for another call")
            break
        print(f"{number + 1} of {len(todo)}: {name_of(task)}", end=" ", flush=True)
        earlier = done.get(name_of(task))
        record = finals(earlier, args) if args.finals else measured(task, earlier, args)
        longest = max(longest, time.monotonic() - begun)
        failed += record is None
        if record is not None:
            append(args.out, record)
            keep(args.kept, record, scale_of(args))
            done[record["name"]] = record
        print(f"{'failed after' if record is None else 'took'} {time.monotonic() - begun:.0f} s", flush=True)
    return failed


def part(text):
    number, _, of = text.partition("/")
    if not (of.isdigit() and number.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text} is not N/M with 1 <= N <= M")
    return int(number), int(of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/planner.jsonl"))
    parser.add_argument("--kept", type=Path, default=KEPT, help="short records of finished tasks (%(default)s)")
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data", help="real graphs")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--half", choices=("all", *HALVES), default="all", help="which tasks are measured, or reported")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="tasks whose name it is found in (--list shows them)"
    )
    parser.add_argument("--slice", type=part, default=(1, 1), metavar="N/M", help="every M-th task, from the N-th")
    parser.add_argument("--minutes", type=float, help="start no task that would likely end later")
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="TIMES",
        help="ask so many times more about finished tasks, to see whether the choice flips; measure only new plans",
    )
    parser.add_argument(
        "--finals",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="instead: finished tasks' finalists, for so long a task",
    )
    parser.add_argument("--list", action="store_true", help="only list the tasks that would be run")
    parser.add_argument("--report", action="store_true", help="only print the tables of what was measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="timed in each round, after one that is not")
    parser.add_argument(
        "--enough",
        type=float,
        default=8.0,
        help="seconds of timed epochs that end a plan's round; its last, if twice that",
    )
    parser.add_argument(
        "--slow", type=float, default=2.0, help="leave out of later rounds what takes so many times the best"
    )
    parser.add_argument("--run", type=int, default=RUN, help="epochs of the run that is planned for")
    parser.add_argument("--rehearsals", type=int, default=3, help="times that a cluster is rehearsed on")
    parser.add_argument("--add", action="store_true", help="probe before each task, and add that to the cluster file")
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=200, help="a worker; 4,800 seeds are six batches then")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one task")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hosts without names are no news
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that sandboxes are removed
    if args.list:
        print("\n".join(map(name_of, wanted(args, known(args)))))
        return
    failed = 0 if args.report else run(args)
    records = [record for name, record in known(args).items() if asked_for(name, args)]
    if args.kept == KEPT and len(records) == len(known(args)):
        tell(PAGE, "The planner against the clock", "python benchmarks/planner.py --report", records, report)
    else:
        report(records)
    if failed:
        raise SystemExit(f"{failed} tasks failed: see above, then start the command again")


if __name__ == "__main__":
    main()
