"""One worker of a test of predictions: trains an epoch by each plan, and tells bytes by stage, predicted and sent.

python predict.py RANK SIZE PORT JOB.json OUT.json — started by test_predictions.py.
"""

import json
import os
import sys
from pathlib import Path

import torch

from weft.exchange import World
from weft.graph import Graph
from weft.plan import Plan, Settings
from weft.planner import Cluster, Host
from weft.planner.work import KINDS
from weft.training import Trainer, make_model, planner_for

WORK = dict.fromkeys(KINDS, 1e-6) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}


def main(rank, size, port, job, out):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size}
    os.environ["GROUP_RANK"] = rank
    world = World.join(60)
    graph = Graph.open(job["graph"])
    cluster = Cluster(tuple(Host(f"h{n + 1}", 1e8, 1e10) for n in range(world.size)), 1e-4, 1e-4, 1e9, WORK)
    told = []
    for model in job["models"]:
        options = {"wire": "float16"} if model == "gin" else {}
        given = job["settings"] | {"fanouts": tuple(job["settings"].get("fanouts", ())) or None}
        settings = Settings.of(model=model, hidden=8, threads=1, **given, **options)
        options |= {} if settings.sampling.full_graph else {"prefetch": 0}
        trainer = Trainer(graph, make_model(settings, graph), settings, world=world)
        planner = planner_for(settings, graph, trainer.model, world)
        for fields in job["plans"]:
            plan = Plan.from_dict(fields | options)
            predicted = planner.predict(plan, cluster)
            if predicted.excluded:
                told.append([model, str(plan), predicted.excluded, {}])
                continue
            trainer.use(plan)
            if settings.sampling.full_graph:
                trainer.train_epoch(0)  # what is done once
            before = sent(world)
            trainer.train_epoch(1 if settings.sampling.full_graph else 0)
            stages = {stage: count - before.get(stage, 0) for stage, count in sent(world).items()}
            mine = torch.tensor([float(stages.get(stage, 0)) for stage in predicted.sent], dtype=torch.float64)
            whole = torch.stack(trainer.run.comm.gather(mine)).sum(0).tolist()
            told.append([model, str(plan), predicted.sent, dict(zip(predicted.sent, whole, strict=True))])
        answer = planner.answer(cluster)
        told.append([model, "best", answer.best.name, {}])
        trainer.close()
    Path(out).write_text(json.dumps(told))
    world.leave()


def sent(world):
    return {stage: sum(by_peer) for stage, by_peer in world.traffic.sent().items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:4], json.loads(Path(sys.argv[4]).read_text()), sys.argv[5])
