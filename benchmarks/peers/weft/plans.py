"""Plans side by side in one run: `python plans.py JOB.json` as every worker; figures of all of them from rank 0.

The planner is asked first, if the job names a cluster's file, and its choice trained by as in a run, until nothing is left
to try, with nothing kept of earlier runs; and again, as the next run would ask, with what that one kept. Then the named
plans are measured with caches, too, of the sizes that it looks at. Then rounds over the plans, every other one backwards:
each plan is switched to, warms up for an epoch and is timed for some more, the same ones for all; fewer where they are long.
A plan that the first round finds much slower than the fastest is left out of later ones. Where the job has seconds, rounds
end when so many were timed, but not before the third.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from weft.errors import ConfigError
from weft.exchange import World
from weft.graph import Graph
from weft.own_process import set_up_own_process
from weft.plan import NAMED, Plan, Settings, mixed
from weft.training import Trainer, make_model

_FIELD = 3  # plans that the planner finds fastest, which are measured beside the named ones
_CACHES = 2  # sizes of caches that these are measured with, the largest ones
TIGHT, ROOM = (
    0.5,
    1.1,
)  # of the memory that the fastest plan takes, and at least of the lightest one's, where it is tight


def main(job):
    os.environ["WEFT_CACHE"] = "off"
    set_up_own_process()  # as the workers of a run do, whose planning this times
    world = World.join(300)
    graph = Graph.open(job["graph"])
    settings = Settings.of(
        threads=1, epochs=job.get("run", 1), **job["settings"] | {"fanouts": tuple(job["settings"]["fanouts"])}
    )
    model = make_model(settings, graph)
    usual = named(
        len(settings.sampling.fanouts),
        cache=settings.plan.cache,
        slack=settings.plan.slack,
        prefetch=settings.plan.prefetch,
    )
    trainer = Trainer(graph, model, settings, world=world, plan=usual["gdp"])
    trainer.prepare()
    wanted = [usual[name] for name in job.get("named", usual)] + [*map(Plan.from_dict, job.get("plans", ()))]
    known = [Plan.from_dict(plan) for plan in job["known"]]
    asked, found, sizes = None, [], ()
    if job["cluster"]:
        asked, found, stays, later, predict, sizes = ask(trainer, settings, graph, model, world, job)
    plans = {label(plan, usual): plan for plan in [*wanted, *with_caches(wanted, sizes), *found, *known]}
    figures = measure(trainer, {name: plan for name, plan in plans.items() if plan not in known}, job)
    made = {name: {"plan": plan.as_dict()} | summary(figures.get(name)) for name, plan in plans.items()}
    if asked is not None:
        asked |= {"first": label(found[0], usual), "chosen": label(stays, usual)}
        asked["again"]["chosen"] = label(later, usual)
        for name, plan in plans.items():
            made[name]["predicted"] = predict(plan)
    if world.rank == 0:
        print(json.dumps({"planner": asked, "plans": made}), flush=True)
    trainer.close()
    world.leave()


def named(depth, **options):
    """The plans that are always measured."""
    plans = {name: NAMED[name](depth, **options) for name in ("gdp", "nfp", "snp", "dnp", "split", "leap")}
    return plans | {name: mixed(*[name] * depth, **options) for name in ("push", "pull")}


def with_caches(plans, sizes):
    """The same plans with caches, those that can have one."""
    for plan in plans:
        for size in sizes:
            if "columns" not in plan.layers:
                with suppress(ConfigError):
                    yield replace(plan, cache=size)


def label(plan, usual):
    """A named plan's name, or the placements; and every option that differs from the task's."""
    like = {name: p for name, p in usual.items() if (p.layers, p.seeds) == (plan.layers, plan.seeds)}
    shared = {key: getattr(usual["gdp"], key) for key in ("cache", "slack", "prefetch")}
    name, base = next(iter(like.items()), ("+".join(plan.layers), mixed(*plan.layers, **shared)))
    options, defaults = plan.as_dict(), base.as_dict()
    return " ".join([name, *(f"{key}={options[key]}" for key in options if options[key] != defaults[key])])


def limited(settings, graph, model, world, cluster, comm):
    """The settings with a limit of memory: half of what the fastest plan would take, or what the lightest needs."""
    from weft.training import answer_for_all, planner_for

    answer = answer_for_all(planner_for(settings, graph, model, world), cluster, comm)
    least = min(p.memory for p in answer.predictions if p.excluded is None)
    return settings.changed(memory=f"{max(TIGHT * answer.best.memory, ROOM * least) / 1e6}MB")


@contextmanager
def kept_there():
    """Within it what runs find is kept in a folder of its own, that of the first worker."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = folder
        yield
        os.environ["WEFT_CACHE"] = "off"


def asked_once(settings, graph, model, world, cluster, comm):
    """The planner, its answer, and seconds of both."""
    from weft.training import answer_for_all, planner_for

    comm.barrier()
    start = time.perf_counter()
    planner = planner_for(settings, graph, model, world)
    answer = answer_for_all(planner, cluster, comm)
    comm.barrier()
    return planner, answer, time.perf_counter() - start


def ask(trainer, settings, graph, model, world, job):
    """The planner's answer and what it took, the plans that it finds fastest (its choice first) or that a run tries, the one
    that the run goes on by, what predicts others, and the sizes of caches that it looks at; and the next run's plan.

    All workers ask together.
    """
    from weft.planner import read_cluster

    cluster, comm = read_cluster(Path(job["cluster"])), trainer.run.comm
    settings = limited(settings, graph, model, world, cluster, comm) if job["tight"] else settings
    with kept_there():
        planner, answer, seconds = asked_once(settings, graph, model, world, cluster, comm)
        trial, stays, tried = trained(trainer, settings, planner, cluster, answer)
        _, later, again = asked_once(settings, graph, model, world, cluster, comm)
    others = [p.plan for p in answer.predictions if p.excluded is None and p.plan != answer.best.plan]
    found = [answer.best.plan, *others[: _FIELD - 1]]
    asked = {"seconds": seconds, "took": answer.took, "looked_at": answer.looked_at, "error": answer.error}
    asked |= {"trial": trial, "reasons": answer.reasons, "again": {"seconds": again}}
    sizes = [size for size in planner.space.choices["cache"] if size][:_CACHES]

    def predict(plan):
        prediction = asdict(planner.predict(plan, cluster))
        return {key: value for key, value in prediction.items() if key != "plan"}

    found += sorted(({later.best.plan} | tried).difference(found), key=str)
    return asked, found, stays, later.best.plan, predict, sizes


def trained(trainer, settings, planner, cluster, answer):
    """What trying others took in training by an answer, the plan that goes on, and all that were in use."""
    from weft.training.start import watch_over

    start = time.perf_counter()
    trainer.use(answer.best.plan)
    trainer.watch = watch_over(trainer, planner, cluster, answer, time.perf_counter() - start)
    tried, epochs, start = {answer.best.plan}, 0, time.perf_counter()
    while trainer.watch.trial is not None and epochs < settings.optimisation.epochs:
        epochs += 1
        trainer.train_epoch(epochs - 1)
        tried.add(trainer.parallel)
    trainer.watch = None
    trial = {"plans": len(tried) - 1, "epochs": epochs, "seconds": time.perf_counter() - start}
    return trial, trainer.parallel, tried


def measure(trainer, plans, job):
    """What it took to get ready for each plan, each time; and timed epochs: of each one, every worker's figures."""
    timed, ready = ({name: [] for name in plans} for _ in range(2))
    for number in range(job["rounds"]):
        middle = {name: statistics.median(map(elapsed, epochs)) for name, epochs in timed.items() if epochs}
        slowest = job["slow"] * min(middle.values(), default=0)
        for name in list(plans) if number % 2 == 0 else reversed(plans):
            if not number or middle[name] <= min(slowest, 2 * job["enough"]):  # long ones vary little
                took, epochs = a_round(trainer, plans[name], job)
                ready[name].append(took)
                timed[name] += epochs
                if trainer.world.rank == 0:
                    print(f"{name} {elapsed(timed[name][-1]):.2f}", end=" ", file=sys.stderr, flush=True)
        spent = sum(elapsed(epoch) for epochs in timed.values() for epoch in epochs)
        if number >= 2 and spent >= job.get("seconds", float("inf")):
            break
    return {name: (ready[name], epochs) for name, epochs in timed.items()}


def a_round(trainer, plan, job):
    """Seconds to get ready for a plan, and some epochs, fewer where they are long; all go by the first one's clock."""
    start = time.perf_counter()
    trainer.use(plan)
    trainer.run.comm.barrier()
    took = time.perf_counter() - start
    trainer.train_epoch(0)
    timed = []
    for epoch in range(1, job["epochs"] + 1):
        timed.append(gathered(trainer.run.comm, epoch_figures(trainer, epoch)))
        if sum(map(elapsed, timed)) >= job["enough"]:
            break
    return took, timed


def elapsed(workers):
    return workers[0]["elapsed"]


def epoch_figures(trainer, epoch):
    """One epoch: elapsed and processor seconds of this worker, and by stage both and the bytes it sent."""
    comm = trainer.run.comm
    comm.barrier()
    before = counted(trainer)
    start, cpu = time.perf_counter(), time.process_time()
    trainer.train_epoch(epoch)
    comm.barrier()
    figures = {"elapsed": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    after = counted(trainer)
    return figures | {
        what: {stage: value - before[what].get(stage, 0) for stage, value in by_stage.items()}
        for what, by_stage in after.items()
    }


def counted(trainer):
    sent = {stage: sum(by_peer) for stage, by_peer in trainer.world.traffic.sent().items()}
    return {"stages": trainer.meter.seconds(), "processor": trainer.meter.processor(), "sent": sent}


def gathered(comm, figures):
    """Every worker's figures, on all of them."""
    mine = np.frombuffer(json.dumps(figures).encode(), dtype=np.uint8)
    (pieces,) = comm.gather_arrays([mine], "sync")
    return [json.loads(piece.tobytes()) for piece in pieces]


def summary(figures):
    """What is kept of a plan's epochs: medians of what all workers did together, and of each worker by stage."""
    if figures is None:
        return {}
    ready, epochs = figures
    times = [*map(elapsed, epochs)]
    return {
        "ready": statistics.median(ready),
        "seconds": statistics.median(times),
        "epochs": times,
        "cpu": statistics.median(sum(worker["cpu"] for worker in workers) for workers in epochs),
        "bytes": statistics.median(sum(sum(worker["sent"].values()) for worker in workers) for workers in epochs),
        "workers": [
            {what: medians([worker[what] for worker in of_one]) for what in ("stages", "processor", "sent")}
            for of_one in zip(*epochs, strict=True)
        ],
    }


def medians(many):
    values = defaultdict(list)
    for one in many:
        for key, value in one.items():
            values[key].append(value)
    return {key: statistics.median(found) for key, found in values.items()}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
