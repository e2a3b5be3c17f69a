"""The planner's choice for the full graph against the clock, over 12 tasks on four hosts of a sandbox (root).

    python benchmarks/full_graph_choice.py --minutes 10        # again and again, until all tasks are measured
    python benchmarks/full_graph_choice.py --report

Tasks are GCN and GAT of 2 to 4 layers, links of 100 Mbit/s and 1 Gbit/s; half of them have wide hidden rows, half an R-MAT
graph in place of communities. Each is one `weft plan --full-graph --measure`: halo, tp and what else was searched are
predicted, and trained for some epochs in one run. tp-decoupled trains another model, and is never chosen: it is measured by
itself. The cluster is probed once for each link, into files beside the graphs. A finished task is a line of the records, in
the project, and is skipped when the command is started again.
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from statistics import mean, median

from cluster import graphs
from papers.commands import printed
from planner import ROOT, append, finished, stamp
from planner_tables import tell

from weft.errors import ConfigError

KEPT, PAGE = ROOT / "benchmarks" / "records" / "full_graph_choice.jsonl", ROOT / "docs" / "full-graph-tasks.md"
HOSTS, OTHER_MODEL = 4, "tp-decoupled"
MODELS, GRAPHS, WIDTHS, LINKS = ("gcn", "gat"), ("communities", "rmat"), (16, 128), ("100mbit", "1gbit")


def tasks():
    """All of them by name."""
    found = {}
    for layers, wide, fast in itertools.product((2, 3, 4), (False, True), (False, True)):
        model, graph = MODELS[(layers + wide + fast) % 2], GRAPHS[(layers + wide) % 2]
        hidden, link = WIDTHS[wide], LINKS[fast]
        task = {"graph": graph, "model": model, "layers": layers, "hidden": hidden, "link": link}
        found["/".join(map(str, task.values()))] = task
    return found


def measure(args):
    """Measure what there is time for."""
    start, longest, done = time.monotonic(), 0.0, finished([args.out], scale_of(args))
    for name, task in tasks().items():
        if name in done:
            continue
        begun = time.monotonic()
        if args.minutes and begun - start + longest > 60 * args.minutes:
            print("there are tasks left for another call")
            return
        print(name, end=" ", flush=True)
        exact, other = answer(task, args), answer(task, args, "--plan", OTHER_MODEL)
        plans = {**plans_of(exact), OTHER_MODEL: plans_of(other)[OTHER_MODEL]}
        figures = {"chosen": exact["best"]["name"], "planning": exact["took"], "plans": plans}
        append(args.out, {"name": name, "task": task, "scale": scale_of(args)} | figures | stamp())
        longest = max(longest, time.monotonic() - begun)
        print(f"took {time.monotonic() - begun:.0f} s", flush=True)


def scale_of(args):
    return {"vertices": args.vertices, "edges": args.edges}


def answer(task, args, *more):
    """What `weft plan` prints on the task's hosts."""
    _, _, parts = graphs(args.data, args.vertices, args.edges, HOSTS, "metis", kind=task["graph"])
    flags = [f"--{name}={task[name]}" for name in ("model", "layers", "hidden")]
    cluster = cluster_of(task["link"], args)
    command = ["plan", str(parts), "--full-graph", "--threads=1", f"--cluster={cluster}", f"--measure={args.epochs}"]
    return json.loads(on_hosts(task["link"], [*command, "--json", *flags, *more])[-1])


def cluster_of(link, args):
    """The file that describes such hosts, probed if it is not there."""
    file = args.data / f"cluster-{link}-{HOSTS}.toml"
    if not file.exists():
        on_hosts(link, ["probe", "--rounds=2", f"--out={file}"])
    return file


def on_hosts(link, command):
    """Run a command of Weft as all workers; the lines that the first one prints."""
    try:
        return printed(command, HOSTS, link).splitlines()
    except ConfigError as error:
        raise SystemExit(str(error)) from error


def plans_of(answer):
    """Predicted and measured seconds of an epoch by plan."""
    told = {one["name"]: one["seconds"] for one in answer["predictions"]}
    return {name: {"predicted": told[name], "seconds": one["seconds"]} for name, one in answer["measured"].items()}


def report(records):
    """The sheet: regret by task, and errors of prediction by plan."""
    if not records:
        print("nothing was measured yet")
        return
    print(f"{'task':32}{'chosen':16}{'s':>8}  {'best measured':16}{'s':>8}{'regret':>8}")
    regrets, off = [], {}
    for record in records:
        plans, chosen = record["plans"], record["chosen"]
        exact = {name: plan["seconds"] for name, plan in plans.items() if name != OTHER_MODEL}
        best = min(exact, key=exact.__getitem__)
        regrets.append(exact[chosen] / exact[best] - 1)
        print(
            f"{record['name']:32}{chosen:16.16}{exact[chosen]:8.3f}  {best:16.16}{exact[best]:8.3f}{regrets[-1]:8.1%}"
        )
        for name, plan in plans.items():
            error = plan["predicted"] / plan["seconds"] - 1
            for group in ("all", name if name in ("halo", "tp", OTHER_MODEL) else "others"):
                off.setdefault(group, []).append(error)
    print(f"\nregret of {len(records)} tasks: mean {mean(regrets):.1%}, worst {max(regrets):.1%}")
    for group, errors in off.items():
        sizes = median(map(abs, errors)), median(errors)
        print(f"error of prediction, {group:14} median {sizes[0]:6.1%}, signed {sizes[1]:+7.1%}, plans {len(errors):4}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=5, help="measured by each plan")
    parser.add_argument("--minutes", type=float, default=0, help="start no task that would likely end later; 0: all")
    parser.add_argument("--report", action="store_true", help="measure nothing, print what was measured")
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    if not args.report:
        measure(args)
    records = [*finished([args.out], scale_of(args)).values()]
    if args.out == KEPT:
        command = "python benchmarks/full_graph_choice.py --report"
        tell(PAGE, "The planner's choice for the full graph", command, records, report)
    else:
        report(records)


if __name__ == "__main__":
    main()
