"""What each worker of the tests of switching does: trains by one plan and by many, watched and not, and says what it saw."""

import os
import shutil
import threading
import time
import weakref

import torch

from weft.graph import Graph
from weft.plan import Plan, Settings, gdp
from weft.planner import Answer, Prediction
from weft.training import Trainer, make_model
from weft.training import trial as trials
from weft.training.trial import Trial
from weft.training.watch import Pace, Watch

PLANS = [
    Plan(("local", "local"), cache=0.3),
    Plan(("push", "local")),
    Plan(("cover", "cover"), seeds="home", topology="partitioned"),
    Plan(("columns", "local")),
    Plan(("local", "local"), seeds="home", group="host", cache=0.2),
    Plan(("local", "local"), seeds="home", models="migrate", merge="none"),
]
SETTINGS = Settings.of(
    hidden=8, fanouts=(4, 3), epochs=5, dtype="float64", lr=0.01, dropout=0.2, threads=1, batch_size=20
)


def trainer_for(graph, world, listen=None, **changed):
    settings = SETTINGS.changed(**changed)
    return Trainer(graph, make_model(settings, graph), settings, listen, world, gdp(2))


def parameters(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).numpy()


def held(before=None):
    """Open files and connections, and threads: the fewest and the most within a moment, as some may just come or end.

    Where there are more than `before`, the moment is as long as a busy machine may take to end them.
    """
    found, end = [], time.monotonic() + 10
    while len(found) < 10 or (before and exceeds(found, before) and time.monotonic() < end):
        found.append((len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))))
        time.sleep(0.02)
    return [[of(each) for each in zip(*found, strict=True)] for of in (min, max)]


def exceeds(found, before):
    return any(min(each) > most for each, most in zip(zip(*found, strict=True), before, strict=True))


def stay(graph, world, switches):
    trainer = trainer_for(graph, world)
    for epoch in range(switches + 1):
        trainer.train_epoch(epoch)
    trainer.close()
    return parameters(trainer)


def switch(graph, world, switches):
    """A switch after each epoch, while batches of the next one are on their way."""
    trainer, seen, left = trainer_for(graph, world), [], 0
    trainer.prepare()
    trainer.train_epoch(0)
    for epoch in range(1, switches + 1):
        before = [
            weakref.ref(one) for one in (trainer.loader.feed.store, trainer.loader.feed, trainer.loader.feed.team)
        ]
        trainer.use(PLANS[epoch % len(PLANS)])
        left += sum(one() is not None for one in before)
        trainer.train_epoch(epoch)
        seen.append(held(seen[len(PLANS) + (epoch - 1) % len(PLANS)][1] if epoch > 2 * len(PLANS) else None))
    trainer.close()
    return parameters(trainer), seen, left


def answer_of(first, second):
    named = [Prediction(str(plan.layers), plan, s, {}, {"links": s}, {}, 0.0, 1.0) for plan, s in (first, second)]
    return Answer("", min(named, key=lambda one: one.seconds), named, [], 4, 4, 0.0, 0.0)


def watched(graph, world, plan, folder, resume=False, **changed):
    """`fit` with a planner that says another plan whenever it is asked; only the first worker's word counts."""
    told = []
    trainer = trainer_for(graph, world, told.append, checkpoint=folder, resume=resume, keep=100, **changed)
    first = trainer.parallel
    other = plan if world.rank == 0 else PLANS[1]

    def replan(left):
        comm = world.communicator()  # as a probe does: all together, and no batch is on its way meanwhile
        assert all(ready.done() for _, ready in trainer.loader.feed._begun)
        comm.barrier()
        comm.close()
        return answer_of((first, 1.0), (other, 0.5))

    expected = 1e-6 if world.rank == 0 else 1e6
    present = Prediction("gdp", first, expected, {}, {"links": 1.0}, {}, 0.0, 1.0)
    trainer.watch = Watch(present, replan, lambda: "its reason")
    trainer.fit()
    return parameters(trainer), [getattr(event, "text", "") for event in told], str(trainer.parallel)


def tried(graph, world):
    """`fit` with two rivals, each on trial for some batches of seven epochs."""
    told = []
    trainer = trainer_for(graph, world, told.append, epochs=7)
    first, *others = (
        Prediction(
            str(number), plan, 100.0, {}, {"links": 100.0}, {}, 0.0, 1.0
        )  # so long that a busy machine is no slower
        for number, plan in enumerate((trainer.parallel, *PLANS[2:4]))
    )
    trials._COLD, trials._FEW, trials._LOOK, trials._MANY = 2, 3, 3, 3
    trials._COST = 1e9  # a run as short as this is not worth a trial
    trial = Trial(others, batches=len(trainer.loader), change=0.0, off=1.0)
    # Should a busy machine have it look again, later, the plan that was found is the best.
    trainer.watch = Watch(first, lambda left: answer_of(*[(trainer.parallel, 1.0)] * 2), trial=trial)
    trainer.watch._pace = Pace(None)  # epochs this short are not predicted
    trainer.fit()
    return parameters(trainer), [getattr(event, "text", "") for event in told], str(trainer.parallel)


def train_and_switch(world, graph, out, switches):
    """Parameters, and what was said and held, by what was done."""
    graph = Graph.open(graph)
    arrays, said = {"stayed": stay(graph, world, switches)}, {"switches": switches}
    arrays["switched"], said["held"], said["left"] = switch(graph, world, switches)
    undisturbed = trainer_for(graph, world)
    undisturbed.fit()
    arrays["fitted"] = parameters(undisturbed)
    arrays["calm"], said["calm"], said["calm plan"] = watched(graph, world, PLANS[2], out / "calm", watch=False)
    longer = trainer_for(graph, world, epochs=7)
    longer.fit()
    arrays["fitted longer"] = parameters(longer)
    arrays["tried"], *said["tried"] = tried(graph, world)
    for number in (2, 5):
        folder = out / f"watched-{number}"
        arrays[folder.name], *said[folder.name] = watched(graph, world, PLANS[number], folder)
    for step in (
        sorted(folder.glob("step-*"))[2:] if world.rank == 0 else []
    ):  # as if it had been lost in the third epoch
        shutil.rmtree(step)
    arrays["resumed"], *said["resumed"] = watched(graph, world, PLANS[2], folder, resume=True)
    return arrays, said
