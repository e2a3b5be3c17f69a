"""A PyG `HeteroData` trained as it is: authors with 16 features, papers with 32, and whose topic a paper is of.

python examples/hetero_data.py                                       one worker
torchrun --nproc-per-node 2 examples/hetero_data.py                  the same model, trained by two
"""

import os

import torch
from torch_geometric.data import HeteroData

import weft

AUTHORS, PAPERS, TOPICS = 500, 2000, 4


def make_data() -> HeteroData:
    """Papers of an author share a topic, of which their own features tell little."""
    random = torch.Generator().manual_seed(0)
    topic = torch.randint(TOPICS, (AUTHORS,), generator=random)
    author = torch.randint(AUTHORS, (PAPERS,), generator=random)
    data = HeteroData()
    data["author"].x = torch.randn(AUTHORS, 16, generator=random)
    data["author"].x[torch.arange(AUTHORS), topic] += 2
    data["paper"].x = torch.randn(PAPERS, 32, generator=random)
    data["paper"].y = topic[author]
    part = torch.rand(PAPERS, generator=random)
    masks = {"train_mask": part < 0.5, "val_mask": part > 0.75, "test_mask": (part >= 0.5) & (part <= 0.75)}
    data["paper"].update(masks)
    papers = torch.arange(PAPERS)
    data["author", "writes", "paper"].edge_index = torch.stack([author, papers])
    data["paper", "written_by", "author"].edge_index = torch.stack([papers, author])
    return data


if __name__ == "__main__":
    each = 128 // int(os.environ.get("WORLD_SIZE", "1"))  # of each worker, so that batches are as large on any number
    result = weft.train(weft.Graph.from_pyg(make_data()), model="rgcn", hidden=32, epochs=10, batch_size=each)
    print(f"test accuracy {result.test:.1%}")
