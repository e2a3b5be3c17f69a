"""PyG with DistributedDataParallel: `python distributed.py JOB.json` as every worker; figures from rank 0.

As PyG's own examples do it: every process has the whole graph, its share of the seeds and a NeighborLoader.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from adapter import homogeneous
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models import GAT, GraphSAGE


def main(job):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    data, train = homogeneous(job["arrays"])
    own = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))][rank::size]
    loader = NeighborLoader(data, job["fanouts"], input_nodes=own, batch_size=job["batch_size"], shuffle=True)
    kind, extra = (GraphSAGE, {}) if job["model"] == "sage" else (GAT, {"heads": 4})
    model = kind(data.x.shape[1], job["hidden"], len(job["fanouts"]), job["classes"], **extra)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(job["epochs"]):
        dist.barrier()
        start, cpu = time.perf_counter(), time.process_time()
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        spent = torch.tensor([time.process_time() - cpu])
        dist.all_reduce(spent)
        if rank == 0:
            seconds = time.perf_counter() - start
            print(json.dumps({"epoch": epoch, "seconds": seconds, "cpu_seconds": float(spent)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
