"""DGL 2.1 as a peer: GraphBolt's sampler alone, or an epoch of training with DGL's own layers and loaders."""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from models import Model
from protocol import serve


def load(folder, *names):
    return [torch.from_numpy(np.load(Path(folder) / f"{name}.npy")) for name in names]


def sampling(job):
    """Blocks by GraphBolt: sample_neighbors and unique_and_compact per hop, called as its NeighborSampler calls them."""
    import dgl.graphbolt as gb

    torch.set_num_threads(job["threads"])
    indptr, indices = load(job["folder"], "indptr", "indices")
    if job["ids"] == "int64":
        indices = indices.long()
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    fanouts = [torch.tensor([fanout]) for fanout in job["fanouts"]]
    batches = [seeds.to(indices.dtype) for seeds in torch.from_numpy(np.load(job["batches"]))]

    def run(_):
        start, edges = time.perf_counter(), 0
        for seeds in batches:
            frontier = seeds
            for fanout in fanouts:
                sub = graph.sample_neighbors(frontier, fanout)
                frontier, compacted = gb.unique_and_compact_csc_formats(sub.sampled_csc, frontier)
                edges += len(compacted.indices)
        return {"seconds": time.perf_counter() - start, "edges": edges}

    return run


def epoch(job):
    import dgl

    torch.set_num_threads(job["threads"])
    indptr, indices, features, labels, train = load(job["folder"], "indptr", "indices", "features", "labels", "train")
    graph = dgl.graph(("csc", (indptr, indices.long(), [])))
    graph.ndata["x"], graph.ndata["y"] = features, labels.long()
    model = Model(dgl, job["model"], features.shape[1], job["hidden"], job["classes"], len(job["fanouts"]))
    model = model.to(job["device"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    if job["pipeline"] == "graphbolt":
        batches = graphbolt_batches(indptr, indices, features, labels, train, job)
    else:
        sampler = dgl.dataloading.NeighborSampler(
            list(reversed(job["fanouts"])), prefetch_node_feats=["x"], prefetch_labels=["y"]
        )
        options = {"batch_size": job["batch_size"], "shuffle": True, "num_workers": job["workers"]}
        loader = dgl.dataloading.DataLoader(graph, train, sampler, **options)

        def batches():
            for _, _, blocks in loader:
                yield blocks, blocks[0].srcdata["x"], blocks[-1].dstdata["y"]

    def run(_):
        start, waiting, edges = time.perf_counter(), 0.0, 0
        before = time.perf_counter()
        for blocks, x, y in batches():
            waiting += time.perf_counter() - before
            edges += sum(block.num_edges() for block in blocks)
            loss = F.cross_entropy(model(blocks, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = time.perf_counter()
        return {"seconds": time.perf_counter() - start, "waiting": waiting, "edges": edges, "loss": float(loss)}

    return run


def graphbolt_batches(indptr, indices, features, labels, train, job):
    """GraphBolt's own data pipe: sampled and fetched on the CPU, and copied to the device."""
    import dgl.graphbolt as gb

    graph = gb.fused_csc_sampling_graph(indptr, indices)
    store = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(features)})
    items = gb.ItemSet((train.int(), labels[train].long()), names=("seed_nodes", "labels"))
    pipe = gb.ItemSampler(items, batch_size=job["batch_size"], shuffle=True)
    pipe = pipe.sample_neighbor(graph, [torch.tensor([f]) for f in reversed(job["fanouts"])])
    pipe = pipe.fetch_feature(store, node_feature_keys=["x"])
    pipe = pipe if job["device"] == "cpu" else pipe.copy_to(torch.device(job["device"]))
    loader = gb.DataLoader(pipe, num_workers=job["workers"])

    def batches():
        for batch in loader:
            yield batch.blocks, batch.node_features["x"], batch.labels

    return batches


serve(lambda job: {"sampling": sampling, "epoch": epoch}[job["what"]](job))
