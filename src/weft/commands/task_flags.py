"""Flags of several commands that say what will be trained, and on which machines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import weft.partition
import weft.planner
from weft.commands.flags import add_number, whole_numbers, words
from weft.config import path_here
from weft.errors import ConfigError
from weft.plan import Plan, halo, plan_of, split
from weft.quantities import bandwidth_of

if TYPE_CHECKING:
    import numpy as np

_NO_MATTER = ("gdp", "nfp")  # plans for which it hardly matters where vertices are
USUAL: dict[str, Any] = {  # what is trained, if no flag says it
    "fanouts": "10,10,10",
    "sampler": "neighbor",
    "batch_size": 1024,
    "hidden": 128,
    "plan": None,
    "cache": 0.0,
}


def add_task_flags(parser: argparse.ArgumentParser, *, plan: bool) -> None:
    """Declare the flags, in a group of their own; `plan`: also the one for the plan to allocate for."""
    group = parser.add_argument_group("what will be trained, and where")
    group.add_argument(
        "--fanouts",
        metavar="LIST",
        default=USUAL["fanouts"],
        help="neighbours drawn, from the seeds outwards (10,10,10)",
    )
    group.add_argument(
        "--sampler", default=USUAL["sampler"], help="what draws them, as in weft train (default neighbor)"
    )
    add_number(group, "--batch-size", USUAL["batch_size"], "seeds in a batch, for each worker")
    add_number(group, "--hidden", USUAL["hidden"], "width between layers")
    if plan:
        group.add_argument(
            "--plan",
            help="the plan to allocate for: leap, split, snp, dnp (by their first layer alone, as seeds are dealt out), a "
            "placement a layer such as pull+push+local (inputs first), or halo, for the full graph (default: pull in every "
            "layer, which keeps neighbours together whatever is trained)",
        )
        add_number(
            group,
            "--cache",
            USUAL["cache"],
            "the share of all rows that each worker will keep of others', as in weft train: traffic leaves out what is "
            "read most",
        )
    else:
        parser.set_defaults(plan=USUAL["plan"], cache=USUAL["cache"])
    group.add_argument(
        "--cluster", type=path_here, help="a cluster file (weft probe): hosts, their processors and links"
    )
    group.add_argument("--hosts", type=int, help="so many hosts with equally many parts each (default: a host a part)")
    group.add_argument(
        "--bandwidths",
        metavar="LIST",
        help="of the hosts' links: gbit a second such as 1,1,1,0.2, or 200mbit; one for all, or one for each host "
        "(default 1)",
    )


def task_given(args: argparse.Namespace, graph: weft.Graph, parts: int) -> weft.partition.TrainingTask:
    """What will be trained; widths are bytes a row."""
    fanouts = whole_numbers("fanouts", args.fanouts)
    if args.batch_size < 1 or args.hidden < 1:
        raise ConfigError("--batch-size and --hidden are out of range: they must be at least 1")
    stored = 4 if graph.features is None else graph.features.itemsize
    inner = [4.0 * args.hidden] * (len(fanouts) - 1)
    widths = (float(max(1, graph.num_features) * stored), *inner, 4.0 * max(1, graph.num_classes))
    plan = _plan(args, max(1, len(fanouts)))  # no fanouts are refused by the task
    return weft.partition.TrainingTask(
        fanouts,
        args.batch_size * parts,
        args.seed,
        plan.layers,
        widths,
        plan.cache,
        plan.scope == "graph",
        args.sampler,
        plan.seeds,
        stored / 4,
    )


def parts_given(args: argparse.Namespace, known: int | None = None) -> int:
    """How many parts: as told, else a worker of the cluster each, else as many as are known."""
    if args.parts is not None:
        if args.parts < 1:
            raise ConfigError(f"{args.parts} parts are not possible: give at least 1")
        return int(args.parts)
    if args.cluster is not None:
        return weft.planner.read_cluster(args.cluster).workers
    if known is None:
        raise ConfigError("how many parts? Give --parts, or --cluster with a file that names the workers")
    return known


def cluster_given(args: argparse.Namespace, parts: int) -> weft.planner.Cluster:
    """The machines: those of the file, or hosts that differ in nothing but their links."""
    if args.cluster is None:
        workers = weft.partition.equal_hosts(parts, parts if args.hosts is None else args.hosts)
        if args.bandwidths is not None and len(workers) == 1:
            raise ConfigError("--bandwidths means nothing to one host, which has no links to others: drop it")
        links = _bandwidths("1" if args.bandwidths is None else args.bandwidths, len(workers))
        hosts = [weft.planner.Host(f"h{n + 1}", links[n], 0.0, count, float(count)) for n, count in enumerate(workers)]
        return weft.planner.Cluster(tuple(hosts), 0.0, 0.0, weft.planner.NEVER)
    if args.hosts is not None or args.bandwidths is not None:
        raise ConfigError("--cluster says what --hosts and --bandwidths would: give it, or these")
    cluster = weft.planner.read_cluster(args.cluster)
    if cluster.workers != parts:
        raise ConfigError(
            f"{args.cluster} has {cluster.workers} workers for {parts} parts: give --parts {cluster.workers}, or another "
            f"file"
        )
    return cluster


def allocated(
    args: argparse.Namespace,
    graph: weft.Graph,
    method: str,
    cluster: weft.planner.Cluster,
    task: weft.partition.TrainingTask,
    **others: Any,
) -> np.ndarray:
    """The part of each vertex, for these machines and what will be trained; `others`: what else `allocate` takes."""
    asked = {"seed": args.seed, "threads": args.threads, "task": task}
    return weft.partition.allocate(graph, cluster.workers, method, **cluster.of_parts() | asked | others)


def _plan(args: argparse.Namespace, depth: int) -> Plan:
    """The plan to allocate for; of the full graph, one whose rows come."""
    if args.plan in _NO_MATTER:
        raise ConfigError(
            f"--plan {args.plan} reads rows wherever they are: allocate for another plan, such as leap or split"
        )
    options: dict[str, Any] = {"cache": args.cache} if args.cache else {}
    if args.plan == "halo":
        return halo(depth, "pull", **options)
    return split(depth, "pull", **options) if args.plan is None else plan_of(args.plan, depth, options)


def _bandwidths(text: str, hosts: int) -> list[float]:
    """Bytes a second for each host."""
    found = [bandwidth_of(word) or bandwidth_of(f"{word}gbit") for word in words(text)]
    given = [bandwidth for bandwidth in found if bandwidth]
    if len(given) < len(found):
        raise ConfigError(f"--bandwidths {text} is not a list of bandwidths, such as 1gbit,200mbit or 1,0.2")
    if len(given) not in (1, hosts):
        raise ConfigError(f"--bandwidths {text} does not fit {hosts} hosts: give one for all, or one for each")
    return given * hosts if len(given) == 1 else given
