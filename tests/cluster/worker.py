"""A worker of the sandbox's tests: trains an epoch by each plan, without evaluation, and says what all sent meanwhile."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from weft.exchange import World
from weft.graph import Graph
from weft.plan import Settings
from weft.training import Trainer, make_model


@dataclass
class Counted:
    """Bytes that this worker has sent since it began, when all have come so far."""

    exchange: int
    everything: int
    interface: int  # of these and of their headers

    @classmethod
    def now(cls, world, trainer):
        trainer.run.comm.sum(torch.zeros(1))
        sent = {stage: sum(by_peer) for stage, by_peer in world.traffic.sent().items()}
        (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if "eth0:" in line)
        return cls(sent.get("exchange", 0), sum(sent.values()), int(line.split(":")[1].split()[8]))


def main(job):
    world = World.join(60)
    graph = Graph.open(job["graph"])
    for plan in job["plans"]:
        settings = Settings.of(plan=plan, **job["settings"] | {"fanouts": tuple(job["settings"]["fanouts"])})
        trainer = Trainer(graph, make_model(settings, graph), settings, world=world)
        before = Counted.now(world, trainer)
        trainer.train_epoch(0)
        after = Counted.now(world, trainer)
        mine = [getattr(after, name) - getattr(before, name) for name in ("exchange", "everything", "interface")]
        mine.append(trainer.loader.read["remote"] * graph.num_features * 4)
        exchange, everything, interface, fetched = trainer.run.comm.sum(
            torch.tensor(mine, dtype=torch.float64)
        ).tolist()
        if world.rank == 0:
            told = {"exchange": exchange, "fetch_rows": fetched, "all": everything, "interface": interface}
            print(json.dumps(told), flush=True)
        trainer.close()
    world.leave()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
