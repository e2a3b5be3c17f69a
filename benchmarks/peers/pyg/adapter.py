"""PyG with torch_sparse as a peer: its neighbour sampler alone, or an epoch with NeighborLoader and its own models."""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from protocol import serve


def load(folder, *names):
    return [torch.from_numpy(np.load(Path(folder) / f"{name}.npy")) for name in names]


def sampling(job):
    """torch_sparse's neighbor_sample, which PyG's NeighborSampler calls where pyg-lib is missing."""
    import torch_sparse  # noqa: F401

    torch.set_num_threads(job["threads"])
    indptr, indices = load(job["folder"], "indptr", "indices")
    indices = indices.long()
    batches = list(torch.from_numpy(np.load(job["batches"])).long())

    def run(_):
        start, edges = time.perf_counter(), 0
        for seeds in batches:
            _, row, _, _ = torch.ops.torch_sparse.neighbor_sample(indptr, indices, seeds, job["fanouts"], False, True)
            edges += len(row)
        return {"seconds": time.perf_counter() - start, "edges": edges}

    return run


def homogeneous(folder):
    """The graph as PyG's Data, and its training seeds."""
    from torch_geometric.data import Data

    indptr, indices, features, labels, train = load(folder, "indptr", "indices", "features", "labels", "train")
    dst = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return Data(x=features, y=labels.long(), edge_index=torch.stack([indices.long(), dst])), train


def epoch(job):
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn.models import GAT, GraphSAGE

    torch.set_num_threads(job["threads"])
    data, train = homogeneous(job["folder"])
    options = {"batch_size": job["batch_size"], "shuffle": True, "num_workers": job["workers"]}
    options["pin_memory"] = job["device"] != "cpu"
    loader = NeighborLoader(data, job["fanouts"], input_nodes=train, persistent_workers=job["workers"] > 0, **options)
    kind, extra = (GraphSAGE, {}) if job["model"] == "sage" else (GAT, {"heads": 4})
    model = kind(data.x.shape[1], job["hidden"], len(job["fanouts"]), job["classes"], **extra).to(job["device"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def run(_):
        start, waiting, edges = time.perf_counter(), 0.0, 0
        before = time.perf_counter()
        for batch in loader:
            waiting += time.perf_counter() - before
            edges += batch.edge_index.shape[1]
            batch = batch.to(job["device"], non_blocking=True)
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = time.perf_counter()
        return {"seconds": time.perf_counter() - start, "waiting": waiting, "edges": edges, "loss": float(loss)}

    return run


if __name__ == "__main__":
    serve(lambda job: {"sampling": sampling, "epoch": epoch}[job["what"]](job))
