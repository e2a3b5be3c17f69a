"""Convolutions written edge by edge: the same as the module's own forward, whatever the join."""

from contextlib import nullcontext
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from above import Above, Over
from test_models import CLASSES, WIDTH, make_graph, rand
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from weft import Graph, MessageConvolution, Split, check_split
from weft.errors import ConfigError, ModelError
from weft.nn import BlockModel
from weft.sampling import NeighborSampler


class Gated(MessagePassing):
    """Neighbours' rows through a gate that both ends open; merged as it is told."""

    def __init__(self, width, out, join):
        super().__init__(aggr={"softmax": "sum"}.get(join, join))
        self.value, self.gate, self.own = nn.Linear(width, out), nn.Linear(width, out), nn.Linear(width, out)
        self.join = join

    def forward(self, x, edge_index):
        return self.propagate(edge_index, value=self.value(x), gate=self.gate(x)) + self.own(x)

    def message(self, value_j, gate_i, index):
        said = value_j * gate_i.sigmoid()
        return said * softmax((value_j * gate_i).sum(1, keepdim=True), index) if self.join == "softmax" else said


def serving(join_by):
    class Serving(MessageConvolution):
        module = Gated
        join: ClassVar[str] = join_by

        def prepare(self, x):
            return self.conv.value(x)

        def describe(self, own):
            return self.conv.gate(own)

        def message(self, source, destination):
            return source * destination.sigmoid()

        def score(self, source, destination):
            return (source * destination).sum(1, keepdim=True)

        def finish(self, merged, own):
            return merged + self.conv.own(own)

    return Serving


@pytest.mark.parametrize("join", ["sum", "mean", "max", "softmax"])
def test_it_equals_the_module(join, monkeypatch):
    torch.manual_seed(0)
    conv = Gated(WIDTH, CLASSES, join).double()
    graph, edge_index = make_graph()
    x, seeds = rand(120, WIDTH).requires_grad_(), torch.arange(0, 120, 3)
    wanted = conv(x, edge_index)[seeds]
    gradients = torch.autograd.grad(wanted.sin().sum(), [x, *conv.parameters()])

    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: serving(join))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(seeds.numpy(), 0, 0)
    assert BlockModel(model, WIDTH).kinds()[0].endswith("(fast)")
    got = BlockModel(model, WIDTH)(x[sample.vertices.long()], sample)
    assert (got - wanted).abs().max() < 1e-12
    for one, other in zip(torch.autograd.grad(got.sin().sum(), [x, *conv.parameters()]), gradients, strict=True):
        assert (one - other).abs().max() < 1e-10


def test_columns_are_described_as_they_were_before_they_were_prepared(monkeypatch):
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: Over)
    graph, edge_index = make_graph()
    x, conv, seeds = rand(120, WIDTH), Above(), torch.arange(0, 120, 3)
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(seeds.numpy(), 0, 0)
    got = BlockModel(model, WIDTH)(x[sample.vertices.long()], sample)
    assert (got - conv(x, edge_index)[seeds]).abs().max() < 1e-12


class Stepping(MessagePassing):
    """Its map steps in training; it drops of its rows in place."""

    def __init__(self, width, out):
        super().__init__(aggr="sum")
        self.value = nn.utils.parametrizations.spectral_norm(nn.Linear(width, out))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.value(F.dropout(x, 0.5, self.training, inplace=True)))


def test_a_module_that_steps_in_training_equals_itself(monkeypatch):
    """What needs to be known of destinations is nothing, unless it is said."""

    class Serving(MessageConvolution):
        module = Stepping

        def prepare(self, x):
            return self.conv.value(F.dropout(x, 0.5, self.conv.training, inplace=True))

        def finish(self, merged, own):
            return merged

    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: Serving)
    graph, _ = make_graph()
    sample = NeighborSampler(graph, [-1]).sample(np.arange(0, 120, 3), 0, 0)
    for seed in range(6):
        torch.manual_seed(seed)
        model = nn.ModuleList([conv := Stepping(WIDTH, 64).double()])
        model.forward = lambda x, edge_index, conv=conv: conv(x, edge_index)
        rows = rand(120, WIDTH)[sample.vertices.long()]
        assert BlockModel(model, WIDTH)(rows, sample, (0, 0, 0)).shape == (40, 64)


class Keeping(MessagePassing):
    """Keeps something in training: the mean of its rows, which it takes away, or how often it ran, by which it grows."""

    def __init__(self, width, out, keeps):
        super().__init__(aggr="mean")
        self.lin, self.norm, self.keeps, self.steps = nn.Linear(width, out), nn.BatchNorm1d(width), keeps, 0
        self.register_buffer("mean", torch.zeros(width)) if keeps == "buffer" else setattr(
            self, "mean", torch.zeros(width)
        )

    def made(self, x):
        made = self.norm(x - self.mean.to(x)) * (1 + self.steps / 4)
        if self.training:
            self.steps += self.keeps != "how often on many" or len(x) > 8
            if self.keeps in ("buffer", "attribute"):
                self.mean = 0.9 * self.mean.to(x) + 0.1 * x.detach().mean(0)
        return made

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=self.made(x)))


class Declaring(Keeping):
    def weft_split(self):
        return Split(lambda merged, own: self.lin(merged), self.made, "mean")


class ServingIt(MessageConvolution):
    module, join = Keeping, "mean"

    def prepare(self, x):
        return self.conv.made(x)

    def finish(self, merged, own):
        return self.conv.lin(merged)


@pytest.mark.parametrize("keeps", ["buffer", "attribute", "how often on many", "steps"])
@pytest.mark.parametrize(
    ("kind", "served", "who"),
    [
        (Keeping, ServingIt, "ServingIt.prepare"),
        (Declaring, None, r"Declaring\(\): source of its split"),
        (Keeping, None, r"Keeping\(\)"),
    ],
)
def test_what_keeps_something_of_its_rows_is_refused(keeps, kind, served, who, monkeypatch):
    """Workers have others. What steps alike whatever the rows are, as averages of batch normalisation, may stay."""
    if served is not None:
        monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: served)
    torch.manual_seed(0)
    model = nn.ModuleList([conv := kind(WIDTH, CLASSES, keeps).double()])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    graph, _ = make_graph()
    sample = NeighborSampler(graph, [-1]).sample(np.arange(0, 120, 3), 0, 0)
    refused = pytest.raises(
        ModelError, match=f"^{who} keeps something of its rows for the next batches, as a running centre"
    )
    with nullcontext() if keeps == "steps" else refused:
        BlockModel(model, WIDTH)(rand(120, WIDTH)[sample.vertices.long()], sample, (0, 0, 0))
        assert conv.steps == 1
    if kind is Declaring:
        with nullcontext() if keeps == "steps" else refused:
            check_split(kind(WIDTH, CLASSES, keeps), WIDTH)


class Weighted(Gated):
    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, value=self.value(x), gate=self.gate(x), w=edge_weight) + self.own(x)

    def message(self, value_j, gate_i, w):
        return value_j * gate_i.sigmoid() * w[:, None]


def test_edge_weights_that_messages_do_not_know_leave_the_module_as_it_is(monkeypatch):
    torch.manual_seed(0)
    conv = Weighted(WIDTH, CLASSES, "sum").double()
    plain, _ = make_graph()
    weights = rand(len(plain.indices))
    graph = Graph(plain.indptr, plain.indices, edge_weight=weights.numpy())
    dst = torch.arange(120).repeat_interleave(torch.from_numpy(plain.indptr).diff())
    x, edge_index = rand(120, WIDTH), torch.stack([torch.from_numpy(plain.indices).long(), dst])
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: serving("sum"))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index, edge_weight=None: conv(x, edge_index, edge_weight)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0)
    got = BlockModel(model, WIDTH)(x[sample.vertices.long()], sample)
    assert (got - conv(x, edge_index, weights.float().double())[sample.vertices[:120].long()]).abs().max() < 1e-6


def test_a_join_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="join = 'avg' is not possible: choose one of sum, mean, max, softmax"):
        serving("avg").check_class()


def test_a_soft_max_needs_a_score():
    class Unscored(MessageConvolution):
        module, join = Gated, "softmax"

        def finish(self, merged, own):
            return merged

    with pytest.raises(ConfigError, match=r"join = 'softmax' needs a score\(source, destination\)"):
        Unscored.check_class()


@pytest.mark.parametrize("module", ["Gated", nn.Linear])
def test_what_is_served_is_a_convolution(module):
    kind = type("Other", (serving("sum"),), {"module": module})
    with pytest.raises(ConfigError, match="is no MessagePassing class: give that which it serves"):
        kind.check_class()


@pytest.mark.parametrize(
    ("part", "by", "said"),
    [
        ("prepare", lambda self, x: None, "prepare gives a NoneType: a tensor with a row for each"),
        ("prepare", lambda self, x: x - x.mean(0), "prepare mixes rows, of which each worker has others"),
        ("describe", lambda self, own: own[:, 0], r"describe gives a tensor of shape \[12\] for 12 rows"),
        ("message", lambda self, x, y: x[1:], r"message gives a tensor of shape \[59, \d+\] for 60 rows"),
        ("score", lambda self, x, y: x[:, :2].tile(1, 20), "score gives 40 heads for messages of"),
        ("finish", lambda self, merged, own: merged - merged.mean(0), "finish mixes rows"),
        ("finish", lambda self, merged, own: merged[:, :2], "gives rows of shape"),
        (
            "finish",
            lambda self, merged, own: merged,
            "differs from Gated.* itself by up to .*: make them compute the same",
        ),
    ],
)
def test_parts_that_make_another_convolution_are_refused(part, by, said, monkeypatch):
    torch.manual_seed(0)
    conv = Gated(WIDTH, CLASSES, "softmax").double()
    graph, _ = make_graph()
    kind = type("Other", (serving("softmax"),), {part: by})
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: kind)
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0)
    with pytest.raises(ModelError, match=said):
        BlockModel(model, WIDTH)(rand(120, WIDTH)[sample.vertices.long()], sample)


class Biased(Gated):
    """With a bias, which begins at nought; `roots`: and numbers of which random ones have no root."""

    def __init__(self, roots):
        super().__init__(WIDTH, CLASSES, "sum")
        self.bias = nn.Parameter(torch.zeros(CLASSES))
        self.scale = nn.Parameter(torch.ones(50)) if roots else None

    def forward(self, x, edge_index):
        out = super().forward(x, edge_index) + self.bias
        return out if self.scale is None else out * self.scale.sqrt().mean()


@pytest.mark.parametrize(("forgets", "roots"), [(True, False), (False, False), (True, True)])
def test_what_begins_at_nought_is_not_forgotten(forgets, roots, monkeypatch):
    """Where other parameters give no numbers, they tell nothing."""
    torch.manual_seed(0)
    conv = Biased(roots).double()
    graph, _ = make_graph()

    def finish(self, merged, own):
        return merged + self.conv.own(own) + (0.0 if forgets else self.conv.bias)

    monkeypatch.setattr(
        "weft.plugins.CONVOLUTIONS.find", lambda name: type("Other", (serving("sum"),), {"finish": finish})
    )
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample, run = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0), BlockModel(model, WIDTH)
    refused = pytest.raises(
        ModelError, match=r"Other differs from Biased.* itself by up to .*: make them compute the same"
    )
    with refused if forgets and not roots else nullcontext():
        run(rand(120, WIDTH)[sample.vertices.long()], sample)


def test_parts_that_do_not_run_with_other_parameters_are_compared_as_they_are(monkeypatch):
    """The module itself may."""
    torch.manual_seed(0)
    conv = Biased(roots=False).double()
    graph, _ = make_graph()

    def finish(self, merged, own):
        assert not self.conv.bias.any()
        return merged + self.conv.own(own)

    monkeypatch.setattr(
        "weft.plugins.CONVOLUTIONS.find", lambda name: type("Other", (serving("sum"),), {"finish": finish})
    )
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0)
    BlockModel(model, WIDTH)(rand(120, WIDTH)[sample.vertices.long()], sample)


@pytest.mark.parametrize(
    ("part", "by"),
    [
        ("message", lambda self, source, destination: source * destination.sigmoid()),
        (
            "message",
            lambda self, source, destination: F.dropout(source * destination.sigmoid(), 0.3, self.conv.training),
        ),
    ],
)
def test_dropout_that_is_left_out_or_another_is_refused(part, by, monkeypatch):
    class Dropping(Gated):
        def message(self, value_j, gate_i):
            return F.dropout(value_j * gate_i.sigmoid(), 0.5, self.training)

    torch.manual_seed(0)
    conv = Dropping(WIDTH, CLASSES, "sum").double()
    graph, _ = make_graph()
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: type("Other", (serving("sum"),), {part: by}))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample, block_model = NeighborSampler(graph, [-1]).sample(torch.arange(120).numpy(), 0, 0), BlockModel(model, WIDTH)
    x = rand(120, WIDTH)[sample.vertices.long()]
    model.eval()
    block_model(x, sample)
    model.train()
    with pytest.raises(
        ModelError, match=r"Other differs from Dropping\(\) itself in training .*: make them drop alike"
    ):
        block_model(x, sample)


def test_soft_max_where_there_are_no_edges(monkeypatch):
    torch.manual_seed(0)
    conv = Gated(WIDTH, CLASSES, "softmax").double()
    graph = Graph(torch.zeros(4, dtype=torch.int64).numpy(), torch.zeros(0, dtype=torch.int32).numpy())
    monkeypatch.setattr("weft.plugins.CONVOLUTIONS.find", lambda name: serving("softmax"))
    model = nn.ModuleList([conv])
    model.forward = lambda x, edge_index: conv(x, edge_index)
    sample, x = NeighborSampler(graph, [-1]).sample(torch.arange(3).numpy(), 0, 0), rand(3, WIDTH)
    assert (BlockModel(model, WIDTH)(x, sample) - conv.own(x)).abs().max() < 1e-12
