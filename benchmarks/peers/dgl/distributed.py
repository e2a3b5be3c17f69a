"""DistDGL as a peer: `partition` cuts the graph; on each host of a sandbox a server and one trainer run `host`.

python distributed.py partition FOLDER PARTS        FOLDER holds indptr, indices, features, labels, train (.npy)
python distributed.py host JOB.json                 RANK and the like as torchrun sets them; results on stdout of rank 0
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F


def partition(folder, parts):
    import dgl

    arrays = {
        n: torch.from_numpy(np.load(folder / f"{n}.npy")) for n in ("indptr", "indices", "features", "labels", "train")
    }
    graph = dgl.graph(("csc", (arrays["indptr"], arrays["indices"].long(), [])))
    graph.ndata["x"], graph.ndata["y"] = arrays["features"], arrays["labels"].long()
    mask = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    mask[arrays["train"]] = True
    graph.ndata["train_mask"] = mask
    where = str(folder / f"distdgl-{parts}")
    dgl.distributed.partition_graph(graph, "graph", parts, where, part_method="metis", balance_ntypes=mask, num_hops=1)


def host(job):
    """A server in the background, the trainer here."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    common = os.environ | {
        "DGL_DIST_MODE": "distributed",
        "DGL_IP_CONFIG": job["ip_config"],
        "DGL_CONF_PATH": job["partition"],
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_SAMPLER": str(job["samplers"]),
        "DGL_NUM_CLIENT": str(size * (1 + job["samplers"])),
        "DGL_GRAPH_FORMAT": "csc",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    here = [sys.executable, __file__]
    server = subprocess.Popen(
        [*here, "server", job["file"]], env=common | {"DGL_ROLE": "server", "DGL_SERVER_ID": str(rank)}
    )
    trainer = subprocess.Popen([*here, "client", job["file"]], env=common | {"DGL_ROLE": "client"})
    code = trainer.wait()
    if code:
        server.kill()
    server.wait()
    sys.exit(code)


def client(job):
    import dgl
    from models import Model

    torch.set_num_threads(1)
    dgl.distributed.initialize(job["ip_config"])
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("graph", part_config=job["partition"])
    seeds = dgl.distributed.node_split(graph.ndata["train_mask"], graph.get_partition_book(), force_even=True)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(job["fanouts"])))  # the last one is the seeds'
    loader = dgl.dataloading.DistNodeDataLoader(
        graph, seeds, sampler, batch_size=job["batch_size"], shuffle=True, drop_last=False
    )
    torch.manual_seed(0)
    width = graph.ndata["x"].shape[1]
    model = Model(dgl, job["model"], width, job["hidden"], job["classes"], len(job["fanouts"]))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=job.get("lr", 0.003))
    rank = torch.distributed.get_rank()
    for epoch in range(job["epochs"]):
        torch.distributed.barrier()
        start, cpu = time.perf_counter(), processor_seconds()
        loading = 0.0
        with model.join():
            for inputs, outputs, blocks in loader:
                before = time.perf_counter()
                x, y = graph.ndata["x"][inputs], graph.ndata["y"][outputs].long()
                loading += time.perf_counter() - before
                loss = F.cross_entropy(model(blocks, x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        torch.distributed.barrier()
        seconds = torch.tensor([processor_seconds() - cpu])
        torch.distributed.all_reduce(seconds)
        if rank == 0:
            figures = {
                "epoch": epoch,
                "seconds": time.perf_counter() - start,
                "cpu_seconds": float(seconds),
                "load": loading,
            }
            if "weights" in job:
                arrays = {name: value.numpy() for name, value in model.module.state_dict().items()}
                np.savez(Path(job["weights"]) / f"{epoch}.npz", **arrays)
            print(json.dumps(figures), flush=True)


def processor_seconds():
    """Of this trainer and its server (a sibling)."""
    total = 0.0
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(pid) == os.getpid() or (int(stat[1]) == os.getppid()):
                total += (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return total


def server(job):
    import dgl

    dgl.distributed.initialize(job["ip_config"])


if __name__ == "__main__":
    if sys.argv[1] == "partition":
        partition(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        {"host": host, "client": client, "server": server}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))
