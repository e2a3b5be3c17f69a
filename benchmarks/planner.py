"""The planner against the clock: named plans and the planner's, measured over a matrix of tasks; needs root (namespaces).

    python benchmarks/planner.py --minutes 10        # again and again, until all tasks are measured
    python benchmarks/planner.py --report

Tasks are drawn from all combinations of graph, partition, model, hidden width, fanouts, links and cache, so that values and
pairs of values come up evenly. Each is one run on four hosts with a worker and a thread each: the planner is asked, trained
by as in a run until nothing is left to try, and then the named plans, its choice, its two runners-up and what it tried are
measured in turn. A finished task is a line of the file, and is skipped when the command is started again. The cluster is
probed once for each speed of links, into files beside it.

The fastest of ten plans is partly the luckiest: --finals measures the chosen and the fastest plans of finished tasks again,
in many short turns, and regret is then told by these epochs alone.

Machines run faster and slower from hour to hour. --add probes before each task and adds that to the file, which becomes the
mean of more and more minutes.
"""

import argparse
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cluster import graphs
from planner_tables import RUN, calibration, finalists, report

from weft.lab import Sandbox

WORKER = Path(__file__).resolve().parent / "peers" / "weft" / "plans.py"
VALUES = {
    "graph": ["communities", "rmat"],
    "partition": ["metis", "random"],
    "model": ["sage", "gat"],
    "hidden": [8, 32, 128, 512],  # of GAT: of all its four heads together
    "fanouts": ["10,5", "10,10,10"],
    "link": ["100mbit", "1gbit", "none"],
    "cache": [0.0, 0.05, 0.25],
}
SCALE = ("vertices", "edges", "batch_size")
UNEQUAL = ["1gbit,h3=100mbit", "1gbit,h2=0.5cpu", "1gbit,h3=100mbit,h2=0.5cpu"]  # links; a slow one, half a processor


def tasks(count, unequal=False):
    """So many of all combinations, the same every time: always the one whose pairs of values came up least so far.

    `unequal`: instead, models and partitions of one kind on hosts and links that are not equal.
    """
    if unequal:
        usual = {"graph": "communities", "fanouts": "10,10,10", "cache": 0.0}
        kinds = itertools.product(UNEQUAL, (("sage", 32), ("gat", 32)), ("metis", "random"))
        made = ({**usual, "link": link, "model": m, "hidden": h, "partition": p} for link, (m, h), p in kinds)
        return [{key: task[key] for key in VALUES} for task in made]
    left = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
    seen, found = Counter(), []
    while left and len(found) < count:
        task = min(left, key=lambda task: sum(seen[pair] for pair in pairs(task)))
        left.remove(task)
        found.append(task)
        seen.update({pair: len(VALUES[pair[0][0]]) * len(VALUES[pair[1][0]]) for pair in pairs(task)})
    return found


def pairs(task):
    return list(itertools.combinations(task.items(), 2))


def name_of(task):
    return "/".join(str(task[key]) for key in VALUES)


def finished(file, scale):
    """The records of this scale by task: the last of each, the oldest first."""
    found = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a line that a stopped run left unfinished
        if record["scale"] == scale:
            found.pop(record["name"], None)
            found[record["name"]] = record
    return found


def append(file, record):
    with open(file, "a+b") as out:
        if out.tell() and file.read_bytes()[-1:] != b"\n":
            out.write(b"\n")
        out.write(json.dumps(record).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def wanted(args, done):
    """The tasks that this call is for, without those that are finished; with --again all, the longest finished first."""
    every = tasks(args.tasks, args.unequal)
    chosen = [task for task in every if re.search(args.only, name_of(task))][args.slice[0] - 1 :: args.slice[1]]
    order = {name: number for number, name in enumerate(done)}
    if args.finals:
        return [task for task in chosen if name_of(task) in done and "finals" not in done[name_of(task)]]
    if args.again:
        return sorted(chosen, key=lambda task: order.get(name_of(task), -1))
    return [task for task in chosen if name_of(task) not in done]


def cluster_of(link, args):
    """The file that describes the sandbox with such links; probed if it is not there, or is to be added to."""
    file = args.out.parent / f"cluster-{link}.toml"
    if args.add or not file.exists():
        with sandbox_of(link, args) as sandbox:
            command = [sys.executable, "-m", "weft.cli", "probe", "--rounds", str(args.rehearsals), "--out", str(file)]
            command += ["--add"] * args.add
            if sandbox.run(command, timeout=args.timeout):
                raise SystemExit(f"the cluster with links {link} could not be probed: see above")
    return file


def sandbox_of(link, args):
    """Hosts with links such as 1gbit, or 1gbit,h3=100mbit,h2=0.5cpu."""
    usual, *others = link.split(",")
    named = dict(other.split("=") for other in others)
    shares = {host: float(value.removesuffix("cpu")) for host, value in named.items() if value.endswith("cpu")}
    links = {host: value for host, value in named.items() if host not in shares}
    return Sandbox(hosts=args.hosts, link=usual, links=links, shares=shares)


def measured(task, earlier, args):
    """A task's record, or None if the run failed. Plans that an earlier record has are not measured again."""
    graph, parts = graph_of(task, args)
    made = by_all_workers(
        task,
        parts,
        args,
        cluster=None if args.no_planner else str(cluster_of(task["link"], args)),
        known=[plan["plan"] for plan in earlier["plans"].values()] if earlier else [],
    )
    if made is None:
        return None
    if earlier:
        made["plans"] = {name: earlier["plans"].get(name, {}) | plan for name, plan in made["plans"].items()}
    batches = -(-len(graph.seeds("train")) // (args.batch_size * args.hosts))
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
        "settings": {
            "batch_size": args.batch_size,
            "fanouts": [int(fanout) for fanout in task["fanouts"].split(",")],
            **{key: task[key] for key in ("model", "hidden", "cache")},
        },
        **job,
    }
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "job.json", Path(folder) / "out.txt"
        file.write_text(json.dumps(job))
        with sandbox_of(task["link"], args) as sandbox, open(out, "w") as output:
            code = sandbox.run([sys.executable, str(WORKER), str(file)], output=output, timeout=args.timeout)
        lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    return None if code or not lines else json.loads(lines[-1])


def graph_of(task, args):
    """A task's graph, and where its parts are."""
    graph, _, parts = graphs(args.data, args.vertices, args.edges, args.hosts, task["partition"], kind=task["graph"])
    return graph, parts


def scale_of(args):
    return {key: getattr(args, key) for key in SCALE}


def run(args):
    """Measure what there is time for; how many tasks failed."""
    done, start, longest, failed = finished(args.out, scale_of(args)), time.monotonic(), 0.0, 0
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
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--tasks", type=int, default=36)
    parser.add_argument("--unequal", action="store_true", help="instead: tasks on unequal hosts and links")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="tasks whose name it is found in (--list shows them)"
    )
    parser.add_argument("--slice", type=part, default=(1, 1), metavar="N/M", help="every M-th task, from the N-th")
    parser.add_argument("--minutes", type=float, help="start no task that would likely end later")
    parser.add_argument("--again", action="store_true", help="ask again about finished tasks; measure only new plans")
    parser.add_argument(
        "--finals",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="instead: finished tasks' finalists, for so long a task",
    )
    parser.add_argument("--no-planner", action="store_true", help="measure only the named plans")
    parser.add_argument("--list", action="store_true", help="only list the tasks that would be run")
    parser.add_argument("--report", action="store_true", help="only print the tables of what was measured")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="write seconds by plan, worker and stage there"
    )
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
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--edges", type=int, default=1_250_000)
    parser.add_argument("--batch-size", type=int, default=200, help="a worker; 4,800 seeds are six batches then")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one task")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hosts without names are no news
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that sandboxes are removed
    if args.list:
        print("\n".join(map(name_of, wanted(args, finished(args.out, scale_of(args))))))
        return
    failed = 0 if args.report else run(args)
    records = [record for name, record in finished(args.out, scale_of(args)).items() if re.search(args.only, name)]
    if args.calibration:
        args.calibration.write_text("".join(f"{json.dumps(line)}\n" for line in calibration(records)))
    report(records)
    if failed:
        raise SystemExit(f"{failed} tasks failed: see above, then start the command again")


if __name__ == "__main__":
    main()
