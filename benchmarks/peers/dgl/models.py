"""The models of the comparisons in DGL's own layers."""

import torch

KINDS = ("sage", "gcn", "gat")


class Model(torch.nn.Module):
    """GraphSAGE (mean), GCN or GAT (heads concatenated, averaged in the last layer), as PyG's models of that name."""

    def __init__(self, dgl, kind, width, hidden, classes, layers, heads=4):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"the DGL peer has no model {kind!r}, only {', '.join(KINDS)}")
        self.kind = kind
        widths = [width, *[hidden] * (layers - 1)]
        outs = [*[hidden] * (layers - 1), classes]
        last = [False] * (layers - 1) + [True]
        if kind == "sage":
            convs = [dgl.nn.SAGEConv(a, b, "mean") for a, b in zip(widths, outs, strict=True)]
        elif kind == "gcn":
            convs = [dgl.nn.GraphConv(a, b, allow_zero_in_degree=True) for a, b in zip(widths, outs, strict=True)]
        else:
            convs = [
                dgl.nn.GATConv(a, b if end else b // heads, heads, allow_zero_in_degree=True)
                for a, b, end in zip(widths, outs, last, strict=True)
            ]
        self.convs = torch.nn.ModuleList(convs)

    def forward(self, blocks, x):
        for i, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            end = i == len(self.convs) - 1
            x = conv(block, x)
            if self.kind == "gat":
                x = x.mean(1) if end else x.flatten(1)
            if not end:
                x = x.relu()
        return x
