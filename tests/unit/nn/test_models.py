"""Unchanged PyG models on blocks: on full neighbourhoods they equal PyG on the whole graph, in values and gradients."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import (
    ARMAConv,
    ChebConv,
    ClusterGCNConv,
    FastRGCNConv,
    GATConv,
    GatedGraphConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    LayerNorm,
    MessagePassing,
    NNConv,
    PairNorm,
    ResGatedGraphConv,
    SAGEConv,
    Sequential,
    TAGConv,
    TransformerConv,
)
from torch_geometric.utils import add_self_loops, degree, dropout_edge

from weft.errors import ConfigError, ModelError
from weft.graph import Graph, SelfLoops
from weft.nn import BlockModel, build, check_rows
from weft.sampling import NeighborSampler

WIDTH, CLASSES = 9, 5


@dataclass
class Lists:
    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray | None = None
    edge_type: np.ndarray | None = None
    original_ids: np.ndarray | None = None
    self_loops: SelfLoops = field(init=False)

    def __post_init__(self):
        self.self_loops = SelfLoops(self.indptr, self.indices, self.edge_weight)


def make_graph(vertices=120, edges=700, seed=0, weighted=False):
    """In-neighbour lists with hubs, repeated edges, self-loops, isolated vertices; and PyG's edge_index of the same."""
    rng = np.random.default_rng(seed)
    dst = np.sort((vertices * 0.9 * rng.random(edges) ** 1.5).astype(np.int64))
    src = rng.integers(0, vertices, edges).astype(np.int32)
    loops = rng.choice(edges, 20, replace=False)
    src[loops] = dst[loops]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=vertices))]).astype(np.int64)
    weight = rng.random(edges).astype(np.float32) + 0.1 if weighted else None
    edge_index = torch.from_numpy(np.stack([src.astype(np.int64), dst]))
    return Lists(indptr, src, weight), edge_index


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_equals_pyg(model, weighted=False, layers=None):
    """Outputs and all parameter gradients, for some seeds of the graph, in float64."""
    model = model.double()
    graph, edge_index = make_graph(weighted=weighted)
    x = rand(120, WIDTH)
    seeds = torch.randperm(120, generator=torch.Generator().manual_seed(1))[:40]
    upstream = rand(40, CLASSES, seed=2)
    options = {"edge_weight": torch.from_numpy(graph.edge_weight).double()} if weighted else {}
    names, attributes = list(model.state_dict()), [set(vars(module)) for module in model.modules()]

    want = model(x, edge_index, **options)[seeds]
    want_grads = torch.autograd.grad((want * upstream).sum(), list(model.parameters()), allow_unused=True)
    block_model = BlockModel(model)
    sample = NeighborSampler(graph, [-1] * (layers or block_model.depth)).sample(seeds, 0, 0)
    got = block_model(x[sample.vertices.long()], sample)
    got_grads = torch.autograd.grad((got * upstream).sum(), list(model.parameters()), allow_unused=True)

    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(got_grads, want_grads, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    assert list(model.state_dict()) == names
    assert [set(vars(module)) for module in model.modules()] == attributes
    return block_model


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gatv2", "gin", "deepgcn", "film"])
def test_named_models_equal_pyg(name):
    model = build(name, WIDTH, 8, CLASSES, seed=3)
    model.eval()  # GIN's MLPs have batch norm, whose training statistics are a batch's own
    block_model = assert_equals_pyg(model)
    assert all("(fast)" in line for line in block_model.kinds())


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gin"])
@pytest.mark.parametrize("jk", ["cat", "max", "lstm", "last"])
def test_jumping_knowledge(name, jk):
    assert_equals_pyg(build(name, WIDTH, 8, CLASSES, 2, jk=jk, norm="layer").eval())


@pytest.mark.parametrize("aggr", ["mean", "sum", "add", "max"])
@pytest.mark.parametrize(
    "options", [{}, {"normalize": True}, {"root_weight": False}, {"project": True}, {"bias": False}]
)
def test_sage_options(aggr, options):
    assert_equals_pyg(
        Sequential("x, edge_index", [(SAGEConv(WIDTH, CLASSES, aggr=aggr, **options), "x, edge_index -> x")])
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"improved": True}, {"add_self_loops": False}, {"normalize": False}, {"bias": False}],
    ids=["plain", "improved", "no loops", "no norm", "no bias"],
)
def test_gcn_options(weighted, options):
    assert_equals_pyg(Weighed(GCNConv, **options), weighted=weighted)


class Weighed(nn.Module):
    """Two convolutions that are given what edges weigh; the second one as a column, if it is to be."""

    def __init__(self, conv, column=False, **options):
        super().__init__()
        self.first, self.second, self.column = conv(WIDTH, 16, **options), conv(16, CLASSES, **options), column

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight).relu()
        return self.second(x, edge_index, edge_weight=edge_weight.view(-1, 1) if self.column else edge_weight)


@pytest.mark.parametrize(("weighted", "column"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("options", [{}, {"aggr": "mean"}, {"aggr": "sum", "bias": False}, {"aggr": "max"}], ids=str)
def test_graph_conv_options(weighted, column, options):
    kinds = assert_equals_pyg(Weighed(GraphConv, column, **options), weighted=weighted).kinds()
    assert all(kind.endswith("(fast)") == (options.get("aggr") != "max") for kind in kinds)


def test_a_graph_conv_whose_maps_are_not_just_matrices():
    model = Weighed(GraphConv)
    model.first.lin_rel.register_forward_hook(lambda module, given, out: out.tanh())
    model.second.lin_root = nn.Linear(16, CLASSES)
    assert_equals_pyg(model, weighted=True)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize(
    "options", [{"concat": False}, {"residual": True}, {"add_self_loops": False}, {"bias": False}, {"heads": 1}]
)
def test_attention_options(v2, options):
    from torch_geometric.nn import GATv2Conv

    conv = (GATv2Conv if v2 else GATConv)(WIDTH, CLASSES, **({"heads": 3, "concat": False} | options))
    assert_equals_pyg(Sequential("x, edge_index", [(conv, "x, edge_index -> x")]))


class TutorialConv(MessagePassing):
    """A user's own: mean of transformed neighbours and itself, as PyG's tutorial teaches to write one."""

    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.lin, self.own = nn.Linear(width, out, bias=False), nn.Linear(width, out)

    def forward(self, x, edge_index):
        own = self.own(x)
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        norm = 1 / degree(edge_index[1], x.size(0), dtype=x.dtype)[edge_index[1]]
        return own + self.propagate(edge_index, x=self.lin(x), norm=norm)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Skips(nn.Module):
    """A user's model with everything that joins rows of different depth."""

    def __init__(self, conv=TutorialConv):
        super().__init__()
        self.encode = nn.Linear(WIDTH, 8)
        self.convs = nn.ModuleList([conv(8, 8) for _ in range(3)])
        self.parallel = conv(8, 8)
        self.head = nn.Linear(8 * 4 + WIDTH, CLASSES)

    def forward(self, x, edge_index):
        raw, kept = x, []
        x = self.encode(x)
        for i, conv in enumerate(self.convs):
            kept.append(x)
            y = conv(x, edge_index)
            if i == 1:
                y = y + self.parallel(x, edge_index)
            x = F.elu(y) + x
            x = x - x.mean(dim=-1, keepdim=True)
        stacked = torch.stack([*kept, x], dim=1)
        return self.head(torch.cat([raw, *stacked.unbind(1)], dim=-1))


@pytest.mark.parametrize("conv", [TutorialConv, SAGEConv])
def test_a_users_model_with_skips(conv):
    block_model = assert_equals_pyg(Skips(conv))
    assert block_model.depth == 3


def test_black_boxes_are_told():
    assert [line.endswith("(black box)") for line in BlockModel(Skips()).kinds()] == [True] * 4


class Initialised(GCNConv):
    """GCN, but for how its parameters begin and what it is called."""

    def __init__(self, width, out):
        super().__init__(width, out, improved=True)

    def reset_parameters(self):
        super().reset_parameters()
        nn.init.normal_(self.bias)

    def extra_repr(self):
        return "initialised"

    def norm(self):
        return self.lin.weight.norm()


class Again(Initialised):
    """Adds nothing."""


class Hops(TAGConv):
    """Adds nothing, and is taken apart."""


class Doubles(GCNConv):
    def propagate(self, edge_index, **given):
        return 2 * super().propagate(edge_index, **given)


class Says(GCNConv):
    @property
    def says(self):
        return True


def test_subclasses_that_compute_nothing_else_are_served_like_their_class():
    for model in (Skips(Again), Skips(Initialised), Skips(partial(Hops, K=2))):
        assert all(line.endswith("(fast)") for line in assert_equals_pyg(model).kinds())
    assert BlockModel(Skips(partial(Hops, K=2))).depth == 6
    for conv in (Doubles(4, 4), Says(4, 4), FastRGCNConv(4, 4, 2)):
        assert "black box" in BlockModel(nn.ModuleList([conv])).kinds()[0]


def test_cached_subclasses_and_edge_features_are_no_fast_path():
    class Mine(SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    assert_equals_pyg(Sequential("x, edge_index", [(Mine(WIDTH, CLASSES), "x, edge_index -> x")]))
    assert "black box" in BlockModel(nn.ModuleList([Mine(4, 4)])).kinds()[0]


@pytest.mark.parametrize(
    "conv",
    [
        TransformerConv(WIDTH, CLASSES),
        ResGatedGraphConv(WIDTH, CLASSES),
        GraphConv(WIDTH, CLASSES, "max"),
        ClusterGCNConv(WIDTH, CLASSES),
        ARMAConv(WIDTH, CLASSES),
        SAGEConv(WIDTH, CLASSES, aggr=["mean", "max"]),
        SAGEConv(WIDTH, CLASSES, aggr="softmax"),
        GINConv(nn.Linear(WIDTH, CLASSES), aggr="std"),
    ],
    ids=str,
)
def test_black_boxes_that_look_at_each_vertexs_own_edges(conv):
    assert_equals_pyg(Sequential("x, edge_index", [(conv, "x, edge_index -> x")]))


@pytest.mark.parametrize(
    "conv",
    [
        ChebConv(WIDTH, CLASSES, 2),
        GatedGraphConv(WIDTH, 2),
    ],
    ids=str,
)
def test_black_boxes_that_look_further_need_a_whole_graph(conv):
    """More hops, or degrees of neighbours: a block has these edges only if its sources are its destinations."""
    model = Sequential("x, edge_index", [(conv, "x, edge_index -> x")]).double().train()
    graph, edge_index = make_graph()
    x = rand(120, WIDTH)
    torch.testing.assert_close(run_model(model, graph, x, torch.arange(120), 1), model(x, edge_index))
    state = torch.get_rng_state()
    with pytest.raises(ModelError, match="looks further than at the edges of each vertex"):
        run_model(model, graph, x, torch.arange(10), 1)
    assert conv.training and torch.equal(torch.get_rng_state(), state)


def test_models_with_other_arguments_are_refused():
    class OfEdges(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GINEConv(nn.Linear(WIDTH, CLASSES), edge_dim=3)

        def forward(self, x, edge_index, edge_attr):
            return self.conv(x, edge_index, edge_attr)

    with pytest.raises(ModelError, match=r"Sequential.forward takes input alone, and no edge_index"):
        _ = BlockModel(nn.Sequential(SAGEConv(WIDTH, CLASSES))).depth
    graph, _ = make_graph(weighted=True)
    with pytest.raises(
        ModelError, match=r"OfEdges.forward takes edge_attr, features of edges, or what they weigh, .* edge_dim=1"
    ):
        run_model(OfEdges().double(), graph, rand(120, WIDTH), torch.arange(10), 1)


class Asks(nn.Module):
    """For something of the edges, between two convolutions."""

    def __init__(self, asked):
        super().__init__()
        self.first, self.last, self.asked = SAGEConv(WIDTH, 8), GATConv(8, CLASSES), asked

    def forward(self, x, edge_index, edge_weight):
        h = self.first(x, edge_index)
        return self.last(h * self.asked(edge_index, edge_weight, h), edge_index)


@pytest.mark.parametrize(
    "asked",
    [
        lambda edges, weight, h: edges.size(1),
        lambda edges, weight, h: edges.shape[1] > 0,
        lambda edges, weight, h: weight.size(0),
        lambda edges, weight, h: weight.view(-1, 1).shape[0],
        lambda edges, weight, h: edges.shape == (2, 5),
        lambda edges, weight, h: sum(edges.size()),
        lambda edges, weight, h: edges.shape.numel(),
        lambda edges, weight, h: edges.shape < (2, 9),
        lambda edges, weight, h: (1, *weight.shape)[1],
        lambda edges, weight, h: h.new_ones(weight.shape).sum(),
        lambda edges, weight, h: edges.T.shape[1],
        lambda edges, weight, h: torch.ones(weight.shape).sum(),  # which torch refuses
    ],
)
def test_how_many_edges_there_are_is_no_models_business(asked):
    with pytest.raises(
        ModelError, match=r"asks how many edges there are|edges outside of a convolution|negative dimension"
    ):
        _ = BlockModel(Asks(asked)).depth


@pytest.mark.parametrize("training", [True, False])
def test_edges_that_are_dropped_before_a_convolution_are_refused_with_what_draws_others(training):
    with pytest.raises(ModelError, match=r"in dropout_edge\).*in place of dropout_edge lower fanouts, by which each"):
        _ = BlockModel(Asks(lambda edges, weight, h: dropout_edge(edges, 0.2, training=training)[0])).depth


@pytest.mark.parametrize(
    "asked",
    [
        lambda edges, weight, h: edges.size(0) - 1,
        lambda edges, weight, h: edges.dim() - 1 + edges.shape[0] - 2,
        lambda edges, weight, h: h.to(weight.dtype) / h.clamp(min=1),
        lambda edges, weight, h: weight.view(-1, 1).size(-1) if weight.unsqueeze(1).dim() == 2 else None,
    ],
)
def test_what_does_not_hang_on_that_may_be_asked(asked):
    assert BlockModel(Asks(asked)).depth == 2


class Between(nn.Module):
    """Something between two convolutions."""

    def __init__(self, between):
        super().__init__()
        self.first, self.between, self.last = SAGEConv(WIDTH, 8), between, GATConv(8, CLASSES)

    def forward(self, x, edge_index):
        return self.last(self.between(self.first(x, edge_index)), edge_index)


class Does(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


MIXES = {
    "graph norm": LayerNorm(8),
    "pair norm": PairNorm(),
    "mean": Does(lambda x: x - x.mean(0)),
    "soft-max": Does(lambda x: x.softmax(0)),
    "maximum": Does(lambda x: x / x.abs().max()),
    "first": Does(lambda x: x + x[0]),
    "cumulative": Does(lambda x: x.cumsum(0)),
    "products": Does(lambda x: x @ (x.t() @ x)),
}


@pytest.mark.parametrize("mixes", MIXES)
def test_models_that_mix_rows_between_convolutions_are_refused(mixes):
    """What they compute of a vertex would hang on which others are in its batch; the module at fault is named."""
    model = Between(MIXES[mixes]).train()
    model.last.eval()
    with pytest.raises(ModelError, match=r"^between \((LayerNorm|PairNorm|Does)\(.*\)\) mixes the rows of"):
        check_rows(model, WIDTH)
    assert model.training and model.first.training and not model.last.training
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    "between",
    [
        LayerNorm(8, mode="node"),
        nn.BatchNorm1d(8),
        nn.LayerNorm(8),
        nn.Dropout(0.5),
        Does(lambda x: 0.0 * x),
        nn.ReLU(),
    ],
    ids=str,
)
def test_rows_by_themselves_are_not_mixed(between):
    check_rows(Between(between), WIDTH)


@pytest.mark.parametrize(
    "scale",
    [2.0, torch.tensor(2.0), nn.Parameter(torch.tensor(2.0)), torch.tensor([2.0])],
    ids=["float", "tensor", "parameter", "of one"],
)
@pytest.mark.parametrize("learned", [False, True])
def test_a_convolution_may_ask_for_numbers(scale, learned):
    class Scaled(MessagePassing):
        def __init__(self):
            super().__init__(aggr="mean")
            self.lin = nn.Linear(WIDTH, CLASSES)

        def forward(self, x, edge_index, scale):
            return scale * self.propagate(edge_index, x=self.lin(x))

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.log = Scaled(), nn.Parameter(torch.tensor(0.3))
            self.scale = scale.double() if isinstance(scale, torch.Tensor) else scale

        def forward(self, x, edge_index):
            return self.conv(x, edge_index, self.scale * self.log.exp() if learned else self.scale)

    assert_equals_pyg(Twice())


def test_hooks_run_and_forward_is_restored_after_an_error():
    model = build("sage", WIDTH, 8, CLASSES, 2)
    graph, _ = make_graph()
    seen = []
    model.convs[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    sample = NeighborSampler(graph, [-1, -1]).sample(torch.arange(5), 0, 0)
    BlockModel(model)(torch.randn(len(sample.vertices), WIDTH), sample)
    assert seen == [torch.Size([sample.blocks[0].num_dst, 8])]
    with pytest.raises(RuntimeError):
        BlockModel(model)(torch.randn(len(sample.vertices), WIDTH + 1), sample)
    assert all("forward" not in vars(module) for module in model.modules())


def run_model(model, graph, x, seeds, layers, key=None, epoch=0):
    sample = NeighborSampler(graph, [-1] * layers).sample(seeds, epoch, 0)
    return BlockModel(model)(x[sample.vertices.long()], sample, key)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gatv2", "deepgcn", "film"])
def test_dropout_does_not_depend_on_the_batch(name):
    """A seed's row in training is the same alone and among others; another key gives another."""
    model = build(name, WIDTH, 8, CLASSES, 2, dropout=0.4, norm="layer").double().train()
    graph, _ = make_graph()
    x = rand(120, WIDTH)
    together = run_model(model, graph, x, torch.arange(50), 2, key=(7,))
    for seed in (0, 3, 49):
        torch.testing.assert_close(run_model(model, graph, x, torch.tensor([seed]), 2, key=(7,))[0], together[seed])
    assert not torch.allclose(run_model(model, graph, x, torch.arange(50), 2, key=(8,)), together)


def by_its_arguments(x, p, training):
    return F.dropout(input=x, p=p, training=training)


def by_torch(x, p, training):
    return torch.dropout(x, p, train=training)


def by_torch_and_its_arguments(x, p, training):
    return torch.dropout(train=training, p=p, input=x)


class DropsBy(MessagePassing):
    """Drops of its edges, and the model of its rows, by any function of torch that does."""

    def __init__(self, drop):
        super().__init__(aggr="mean")
        self.drop = drop

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.drop(x, 0.3, self.training)) + x

    def message(self, x_j):
        return self.drop(x_j, 0.5, self.training)


@pytest.mark.parametrize("drop", [by_its_arguments, by_torch, by_torch_and_its_arguments])
def test_dropout_is_the_same_by_whatever_name_its_arguments_are_given(drop):
    class Net(nn.Module):
        def __init__(self, drop):
            super().__init__()
            self.conv, self.drop = DropsBy(drop), drop

        def forward(self, x, edge_index):
            return self.drop(self.conv(x, edge_index), 0.4, self.training)

    graph, x, seeds = make_graph()[0], rand(120, WIDTH), torch.arange(50)
    check_rows(Net(drop), WIDTH, several=True)
    for training in (True, False):
        usual, other = (
            run_model(Net(by).double().train(training), graph, x, seeds, 1, key=(7,)) for by in (F.dropout, drop)
        )
        assert torch.equal(usual, other) and bool((usual == 0).any()) == training


def test_dropout_inside_black_boxes_does_not_depend_on_the_batch():
    class Dropping(MessagePassing):
        def __init__(self):
            super().__init__(aggr="mean")

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=F.dropout(x, 0.3, self.training)) + x

        def message(self, x_j):
            return F.dropout(x_j, 0.5, self.training)

    model = (
        Sequential("x, edge_index", [(Dropping(), "x, edge_index -> x"), nn.Linear(WIDTH, CLASSES)]).double().train()
    )
    graph, _ = make_graph()
    x = rand(120, WIDTH)
    together = run_model(model, graph, x, torch.arange(50), 1, key=(7,))
    for seed in (0, 3, 49):
        torch.testing.assert_close(run_model(model, graph, x, torch.tensor([seed]), 1, key=(7,))[0], together[seed])
    assert not torch.allclose(together, run_model(model.eval(), graph, x, torch.arange(50), 1))


@pytest.mark.parametrize("name", ["sage", "gin"])  # between convolutions, and within them
def test_batch_norm_of_a_single_row_takes_the_running_averages(name):
    graph = Graph.from_arrays(np.array([[0, 1, 2], [1, 2, 3]]), num_vertices=4, features=np.eye(4, 3, dtype=np.float32))
    model = build(name, 3, 4, 2, layers=2, norm="batch")
    sample = NeighborSampler(graph, [-1, -1]).sample(np.array([0]), 0, 0)  # nobody's destination: one row throughout
    x = torch.from_numpy(graph.features)[sample.vertices.long()]
    got = BlockModel(model.train())(x, sample, 1)
    assert torch.equal(got, BlockModel(model.eval())(x, sample, 1))
    assert all(int(m.num_batches_tracked) == 0 for m in model.modules() if isinstance(m, torch.nn.BatchNorm1d))


def test_dropout_without_a_key_is_refused():
    model = build("sage", WIDTH, 8, CLASSES, 2, dropout=0.5).double().train()
    with pytest.raises(ModelError, match="draws dropout for batches of training only"):
        run_model(model, make_graph()[0], rand(120, WIDTH), torch.arange(3), 2)


class AlwaysDrops(nn.Module):
    """As F.dropout does by default; in its convolution, or behind it."""

    def __init__(self, within):
        super().__init__()
        self.within, self.conv = within, SAGEConv(WIDTH, CLASSES, aggr="median" if within else "mean")
        if within:
            self.conv.message = lambda x_j: F.dropout(x_j)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h if self.within else F.dropout(h)


@pytest.mark.parametrize("within", [False, True])
def test_dropout_in_eval_mode_is_refused_with_what_to_give(within):
    with pytest.raises(ModelError, match=r"eval mode.*give F.dropout training=self.training|give .*in eval mode, too"):
        run_model(AlwaysDrops(within).double().eval(), make_graph()[0], rand(120, WIDTH), torch.arange(3), 1)


def test_sampled_gcn_is_unbiased():
    """The mean of one sampled layer over many epochs comes close to the full layer: sums are scaled by degree / drawn."""
    graph, edge_index = make_graph()
    torch.manual_seed(0)
    model = Sequential("x, edge_index", [(GCNConv(WIDTH, CLASSES), "x, edge_index -> x")]).double()
    x, seeds = rand(120, WIDTH), torch.arange(60)
    full = model(x, edge_index)[seeds]
    total, copies = torch.zeros_like(full), 40  # of the graph side by side, each of which draws its own
    at, edges = np.arange(copies)[:, None], len(graph.indices)
    indptr = np.append(0, (graph.indptr[1:] + edges * at).ravel())
    many = Lists(indptr, (graph.indices + 120 * at).ravel().astype(np.int32))
    sampler, run, every = NeighborSampler(many, [3]), BlockModel(model), (seeds + 120 * torch.from_numpy(at)).flatten()
    with torch.no_grad():
        for epoch in range(2000 // copies):
            sample = sampler.sample(every, epoch, 0)
            total += run(x[sample.vertices.long() % 120], sample).view(copies, *full.shape).sum(0)
    assert (total / 2000 - full).abs().max() < 0.15
    assert (total / 2000 - full).abs().mean() < 0.02


def test_building_is_seeded_and_leaves_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (build("gat", 4, 8, 3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


class TestMistakes:
    graph = make_graph()[0]

    def sample(self, layers):
        return NeighborSampler(self.graph, [-1] * layers).sample(torch.arange(4), 0, 0)

    @pytest.mark.parametrize("layers", [1, 3])
    def test_wrong_number_of_fanouts(self, layers):
        model, sample = build("sage", WIDTH, 8, CLASSES, 2), self.sample(layers)
        with pytest.raises(ModelError, match=r"2 (or more )?convolutions deep, but the sample has \d blocks"):
            BlockModel(model)(torch.randn(len(sample.vertices), WIDTH), sample)

    def test_forwards_that_are_missing_or_take_no_rows(self):
        class Coder(nn.Module):
            def encode(self, x, edge_index):
                return x

        class Rowless(nn.Module):
            def forward(self, edge_index, edge_type):
                return edge_type

        class Odd(nn.Module):
            def forward(self, x, y, edge_index):
                return x

        for model, said in {
            Coder(): r"Coder has no forward: write forward\(self, x, edge_index\)",
            Rowless(): r"and edge_type, and no rows .* forward\(self, x, edge_index, edge_type\).*Embedding",
            Odd(): "asks for edge_index: besides rows and edge_index, the first two, it may",
        }.items():
            model.conv = SAGEConv(WIDTH, CLASSES)
            with pytest.raises(ModelError, match=said):
                _ = BlockModel(model).depth

    def test_forwards_may_be_set_on_a_model(self):
        class Set(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = SAGEConv(WIDTH, CLASSES)
                self.forward = self.run

            def run(self, x, edge_index):
                return self.conv(x, edge_index)

        assert BlockModel(Set()).depth == 1

    def test_convolutions_that_do_not_run_in_training(self):
        class Later(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.conv = nn.Linear(WIDTH, CLASSES), SAGEConv(CLASSES, CLASSES)

            def forward(self, x, edge_index):
                return self.lin(x) if self.training else self.conv(self.lin(x), edge_index)

        sample = self.sample(1)
        with pytest.raises(ModelError, match="runs no convolution in training mode"):
            BlockModel(Later())(torch.randn(len(sample.vertices), WIDTH), sample)

    def test_edges_outside_of_a_convolution(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = SAGEConv(WIDTH, CLASSES)

            def forward(self, x, edge_index):
                return self.conv(x, edge_index[:, edge_index[0] != edge_index[1]])

        sample = self.sample(1)
        with pytest.raises(ModelError, match="outside of a convolution"):
            BlockModel(Model())(torch.randn(len(sample.vertices), WIDTH), sample)

    def test_pooling(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = SAGEConv(WIDTH, CLASSES)

            def forward(self, x, edge_index):
                return self.conv(x, edge_index).mean(0)

        sample = self.sample(1)
        with pytest.raises(ModelError, match="row for each vertex"):
            BlockModel(Model())(torch.randn(len(sample.vertices), WIDTH), sample)

    @pytest.mark.parametrize(
        ("conv", "weighted", "remedy"),
        [
            (TransformerConv(WIDTH, CLASSES, edge_dim=1), False, r"edges have no weights: import some"),
            (NNConv(WIDTH, CLASSES, nn.Linear(1, WIDTH * CLASSES)), False, r"edges have no weights: import some"),
            (
                TransformerConv(WIDTH, CLASSES, edge_dim=1),
                True,
                "let the model's forward take edge_attr, and hand it on",
            ),
        ],
    )
    def test_a_convolution_that_needs_values_of_edges(self, conv, weighted, remedy):
        model = Sequential("x, edge_index", [(conv, "x, edge_index -> x")])
        sample = NeighborSampler(make_graph(weighted=weighted)[0], [-1]).sample(np.arange(4), 0, 0)
        with pytest.raises(ModelError, match=f"failed without edge_attr .*{remedy}"):
            BlockModel(model)(torch.randn(len(sample.vertices), WIDTH), sample)

    def test_no_convolution(self):
        sample = self.sample(1)
        with pytest.raises(ModelError, match="no MessagePassing convolution"):
            BlockModel(nn.Linear(WIDTH, 2))(torch.randn(len(sample.vertices), WIDTH), sample)

    def test_cached(self):
        with pytest.raises(ModelError, match="cached=False"):
            BlockModel(Sequential("x, edge_index", [(GCNConv(4, 4, cached=True), "x, edge_index -> x")]))

    def test_names(self):
        with pytest.raises(ConfigError, match="'gnc' is not known"):
            build("gnc", 4, 8, 2)
        with pytest.raises(ConfigError, match="use hidden = 12"):
            build("gat", 4, 10, 2)
