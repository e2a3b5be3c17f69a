"""A worker of the sandbox's tests: trains epochs without evaluation, and says what it and the others sent."""

import json
import sys
from pathlib import Path

import torch

from weft.exchange import World
from weft.graph import Graph
from weft.plan import Settings
from weft.training import Trainer, make_model


def main(job):
    world = World.join(60)
    graph = Graph.open(job["graph"])
    settings = Settings.of(**job["settings"] | {"fanouts": tuple(job["settings"]["fanouts"])})
    trainer = Trainer(graph, make_model(settings, graph), settings, world=world)
    for epoch in range(job["epochs"]):
        trainer.train_epoch(epoch)
    sent = {stage: sum(by_peer) for stage, by_peer in world.traffic.sent().items()}
    rows = trainer.loader.read["remote"] * graph.num_features * 4
    mine = [sent.get("exchange", 0), rows, sum(sent.values())]
    exchange, fetched, everything = trainer.run.comm.sum(torch.tensor(mine, dtype=torch.float64)).tolist()
    if world.rank == 0:
        print(json.dumps({"exchange": exchange, "fetch_rows": fetched, "all": everything}))
    trainer.close()
    world.leave()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
