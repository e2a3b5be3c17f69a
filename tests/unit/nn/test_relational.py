"""R-GCN and R-GAT on blocks equal plain PyG on the whole graph, in values and gradients, whatever their options."""

import numpy as np
import pytest
import torch
from test_models import CLASSES, WIDTH, make_graph, rand
from torch import nn
from torch_geometric.nn import FiLMConv, GCNConv, RGATConv, RGCNConv

from weft.errors import ConfigError, ModelError
from weft.nn import BlockModel, Layerwise, build
from weft.nn.conv import relations
from weft.nn.conv.relations import by_destination, by_source
from weft.placements import RELATION_COUNT
from weft.placements.push import mark_relations
from weft.sampling import Block, NeighborSampler

RELATIONS = 5  # the fourth has no edges
WIDE = 12


class One(nn.Module):
    """A model of one convolution."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_type=None):
        return self.conv(x, edge_index, edge_type)


def typed_graph():
    graph, edge_index = make_graph()
    rng = np.random.default_rng(5)
    types = rng.choice(RELATIONS, len(graph.indices), p=(0.5, 0.2, 0.2, 0.0, 0.1))
    types[edge_index[1].numpy() == 4] = 1  # a vertex with edges of one relation only
    graph.edge_type = types.astype(np.int32)
    return graph, edge_index


def assert_equals_pyg(model, fast=True, width=WIDE, node_type=None):
    """Outputs and all gradients, those of the inputs too, for some seeds of the graph, in float64."""
    model = model.double().eval()
    graph, edge_index = typed_graph()
    graph.vertex_type = None if node_type is None else node_type.numpy()
    types = torch.from_numpy(graph.edge_type).long()
    x = rand(120, width).requires_grad_()
    seeds = torch.randperm(120, generator=torch.Generator().manual_seed(1))[:40]
    upstream = rand(40, CLASSES, seed=2)
    given = {} if node_type is None else {"node_type": node_type}
    want = model(x, edge_index, edge_type=types, **given)[seeds]
    parameters = [x, *model.parameters()]
    want_grads = torch.autograd.grad((want * upstream).sum(), parameters, allow_unused=True)
    block_model = BlockModel(model, width)
    sample = NeighborSampler(graph, [-1] * block_model.depth).sample(seeds, 0, 0)
    got = block_model(x[sample.vertices.long()], sample)
    got_grads = torch.autograd.grad((got * upstream).sum(), parameters, allow_unused=True)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(got_grads, want_grads, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    assert all(line.endswith("(fast)") == fast for line in block_model.kinds())


@pytest.mark.parametrize("aggr", ["mean", "add", "sum"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_bases": 2}, {"num_blocks": 1}, {"root_weight": False}, {"bias": False, "num_bases": 7}],
    ids=str,
)
def test_rgcn_options(aggr, options):
    assert_equals_pyg(One(RGCNConv(WIDE, CLASSES, RELATIONS, aggr=aggr, **options)))


def test_block_diagonal_matrices():
    assert_equals_pyg(Two(RGCNConv(WIDE, 10, RELATIONS, num_blocks=2), RGCNConv(10, CLASSES, RELATIONS, num_blocks=5)))


class Two(nn.Module):
    """Two convolutions."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index, edge_type=None):
        return self.second(self.first(x, edge_index, edge_type).tanh(), edge_index, edge_type)


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 1},
        {"heads": 3, "concat": False},
        {"heads": 2, "concat": False, "num_bases": 3},
        {"heads": 2, "concat": False, "bias": False},
        {"heads": 1, "negative_slope": 0.01},
    ],
    ids=str,
)
def test_rgat_options(options):
    assert_equals_pyg(One(RGATConv(WIDE, CLASSES, RELATIONS, **options)))


def test_rgat_with_blocks():
    first = RGATConv(WIDE, 5, RELATIONS, heads=2, num_blocks=2)
    assert_equals_pyg(Two(first, RGATConv(10, CLASSES, RELATIONS, heads=2, concat=False, num_blocks=5)))


@pytest.mark.parametrize(
    "conv",
    [
        RGCNConv(WIDE, CLASSES, RELATIONS, aggr="max"),
        RGATConv(WIDE, CLASSES, RELATIONS, attention_mechanism="within-relation"),
        RGATConv(WIDE, CLASSES, RELATIONS, attention_mode="multiplicative-self-attention"),
        RGATConv(WIDE, CLASSES, RELATIONS, mod="additive"),
        FiLMConv(WIDE, CLASSES, RELATIONS),
    ],
    ids=str,
)
def test_other_kinds_are_black_boxes(conv):
    assert_equals_pyg(One(conv), fast=False)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
@pytest.mark.parametrize("options", [{}, {"bases": 2}, {"norm": "layer"}, {"norm": "batch", "layers": 3}], ids=str)
def test_models_by_name(name, options):
    model = build(name, WIDE, 8, CLASSES, **({"layers": 2} | options), relations=RELATIONS, seed=3)
    assert_equals_pyg(model)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_types_of_vertices(name):
    """Features of three widths, one of them none; what stands beyond a type's width is not read."""
    node_type = torch.arange(120) % 3
    model = build(name, WIDE, 8, CLASSES, 2, relations=RELATIONS, widths=(WIDE, 4, 0))
    assert_equals_pyg(model, node_type=node_type)
    graph, edge_index = typed_graph()
    x = rand(120, WIDE)
    given = {"edge_type": torch.from_numpy(graph.edge_type).long(), "node_type": node_type}
    changed = x.clone()
    changed[1::3, 4:], changed[2::3] = 7.0, 9.0
    assert torch.equal(model(x, edge_index, **given), model(changed, edge_index, **given))


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_dropout_does_not_depend_on_the_batch(name):
    model = build(name, WIDTH, 8, CLASSES, 2, relations=RELATIONS, dropout=0.4).double().train()
    graph, _ = typed_graph()
    x = rand(120, WIDTH)

    def run(seeds, key):
        sample = NeighborSampler(graph, [-1, -1]).sample(seeds, 0, 0)
        return BlockModel(model)(x[sample.vertices.long()], sample, (key,))

    together = run(torch.arange(50), 7)
    for seed in (0, 3, 49):
        torch.testing.assert_close(run(torch.tensor([seed]), 7)[0], together[seed])
    assert not torch.allclose(run(torch.arange(50), 8), together)


def test_a_batch_without_edges_has_zero_gradients():
    model = build("rgcn", WIDE, 8, CLASSES, 1, relations=RELATIONS).double()
    graph, _ = typed_graph()
    sample = NeighborSampler(graph, [-1]).sample(torch.tensor([119]), 0, 0)
    assert not sample.blocks[0].num_edges
    BlockModel(model, WIDE)(rand(1, WIDE), sample).sum().backward()
    assert model.convs[0].weight.grad.abs().max() == 0


@pytest.mark.parametrize(("destinations", "sources", "edges"), [(20, 50, 200), (20, 50, 0), (3, 3, 40), (1, 9, 1)])
def test_pairs_hold_every_edge_once(destinations, sources, edges):
    """Against the obvious: edges one by one."""
    dst = torch.randint(destinations, (edges,)).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=destinations).cumsum(0)])
    block = Block(indptr, torch.randint(sources, (edges,), dtype=torch.int32), sources)
    types = torch.randint(RELATIONS, (edges,))
    by = by_destination(block, lambda _: types, RELATIONS)
    wanted = {}
    for edge, (src, to, kind) in enumerate(zip(block.src.tolist(), dst.tolist(), types.tolist(), strict=True)):
        wanted.setdefault((kind, to), []).append((edge, src))
    of_pair = by.join.dst().long()[torch.argsort(by.join.src)].tolist() if edges else []
    got, relation = {}, np.searchsorted(by.bounds, np.arange(by.block.num_dst), side="right") - 1
    for pair, (first, end) in enumerate(zip(by.block.indptr.tolist(), by.block.indptr.tolist()[1:], strict=False)):
        listed = zip(by.edges[first:end].tolist(), by.block.src[first:end].tolist(), strict=True)
        got[int(relation[pair]), of_pair[pair]] = list(listed)
    assert got == wanted
    other = by_source(block, lambda _: types, RELATIONS)
    relation = np.searchsorted(other.bounds, np.arange(other.block.num_src), side="right") - 1
    found = [(int(relation[pair]), int(other.rows.src[pair])) for pair in other.block.src.tolist()]
    assert found == list(zip(types.tolist(), block.src.tolist(), strict=True))
    assert len(set(found)) == other.block.num_src


@pytest.mark.parametrize(("destinations", "sources", "edges"), [(20, 50, 200), (20, 50, 0), (3, 3, 40), (1, 9, 1)])
def test_pairs_are_the_same_whether_they_are_counted_or_sorted(monkeypatch, destinations, sources, edges):
    indptr = torch.randint(edges + 1, (destinations - 1,)).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), indptr, torch.tensor([edges])])
    src, types = torch.randint(sources, (edges,), dtype=torch.int32), torch.randint(RELATIONS, (edges,))

    def found():
        block = Block(indptr, src, sources)
        mark_relations(block, types)
        by, other = by_destination(block, lambda _: types, RELATIONS), by_source(block, lambda _: types, RELATIONS)
        blocks = by.block, by.join, other.rows, other.block
        tensors = [tensor for one in blocks for tensor in (one.indptr, one.src, torch.tensor(one.num_src))]
        return [*tensors, by.edges, block.values[RELATION_COUNT], torch.tensor([by.bounds, other.bounds])]

    counted = found()
    for module in ("nn.conv.relations", "placements.push"):
        monkeypatch.setattr(f"weft.{module}.are_few", lambda *_: False)
    for one, other in zip(counted, found(), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


def test_relations_without_edges_are_not_multiplied(monkeypatch):
    multiplied, linear = [], relations.linear
    monkeypatch.setattr(relations, "linear", lambda rows, matrix: multiplied.append(len(rows)) or linear(rows, matrix))
    rows, matrices = rand(6, 3), rand(5, 3, 4).requires_grad_()
    relations.products(rows, matrices, [0, 0, 4, 4, 6, 6]).sum().backward()
    assert multiplied == [0, 4, 2]  # of none the first alone, on which gradients hang
    assert [bool(of.any()) for of in matrices.grad] == [False, True, False, True, False]
    assert relations.products(rows[:0], matrices, [0] * 6).requires_grad


def test_memory_goes_by_the_pairs_that_there_are():
    """Of 2e10 possible ones."""
    edges, vertices, relations = 1000, 1_000_000, 20_000
    indptr = torch.cat([torch.arange(edges), torch.full((vertices - edges + 1,), edges)])
    block = Block(indptr, torch.randint(vertices, (edges,), dtype=torch.int32), vertices)
    types = torch.arange(edges) * 17 % relations
    mark_relations(block, types)
    assert block.values[RELATION_COUNT].tolist() == [1] * edges
    assert by_destination(block, lambda _: types, relations).block.num_dst == edges
    assert by_source(block, lambda _: types, relations).block.num_src == edges


CONVERTED = {
    "long": lambda types, x: types.long(),
    "int": lambda types, x: types.int(),
    "as they are": lambda types, x: types.clone().detach().contiguous().type_as(types),
    "to": lambda types, x: types.to(x.device).to(x.device, dtype=torch.long, non_blocking=True),
}


class Converted(One):
    def __init__(self, conv, how):
        super().__init__(conv)
        self.how = how

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index.to(x.device).long().contiguous(), self.how(edge_type, x))


@pytest.mark.parametrize("how", CONVERTED)
def test_types_may_be_converted_to_what_they_are(how):
    assert_equals_pyg(Converted(RGCNConv(WIDE, CLASSES, RELATIONS), CONVERTED[how]))


class TestMistakes:
    def test_types_that_are_computed_with(self):
        class Embeds(Converted):
            def __init__(self):
                super().__init__(GCNConv(WIDE, CLASSES), lambda types, x: self.weights(types).view(-1))
                self.weights = nn.Embedding(RELATIONS, 1)

        floats, alike = (
            Converted(GCNConv(WIDE, CLASSES), how) for how in (lambda t, x: t.float(), lambda t, x: t.type_as(x))
        )
        for model, name in ((Embeds(), "embedding"), (floats, "float"), (alike, "type_as")):
            with pytest.raises(ModelError, match=rf"edges outside of a convolution \({name} in "):
                assert BlockModel(model, WIDE).depth

    def test_more_types_than_relations(self):
        graph, _ = typed_graph()
        sample = NeighborSampler(graph, [-1]).sample(torch.arange(40), 0, 0)
        with pytest.raises(ModelError, match="num_relations = 5 or more"):
            BlockModel(One(RGCNConv(WIDE, CLASSES, 2)), WIDE)(torch.randn(len(sample.vertices), WIDE), sample)

    def test_a_graph_without_types(self):
        with pytest.raises(ConfigError, match="needs types of edges, and this graph has none"):
            build("rgcn", WIDE, 8, CLASSES)

    def test_blocks_that_do_not_divide(self):
        with pytest.raises(ConfigError, match=r"blocks = 4 does not divide a width of 5 \(layers are 12, 8, 5 wide\)"):
            build("rgcn", WIDE, 8, 5, relations=2, blocks=4)

    def test_heads_that_do_not_divide(self):
        with pytest.raises(ConfigError, match="use hidden = 12"):
            build("rgat", WIDE, 10, 5, relations=2)


def test_layer_by_layer():
    """Exact inference hands each chunk's types of vertices on."""
    model = build("rgcn", WIDE, 8, CLASSES, 2, relations=RELATIONS, widths=(WIDE, 4)).double().eval()
    graph, edge_index = typed_graph()
    x, node_type = rand(120, WIDE), torch.arange(120) % 2
    graph.vertex_type = node_type.numpy()
    layers, computed = Layerwise(model, graph, x.numpy(), torch.float64), []
    with torch.no_grad():
        while True:
            pending = layers.up_to_next(slice(0, 120), computed)
            if isinstance(pending, torch.Tensor):
                break
            rows = pending.inputs
            computed.append(layers.convolved(pending, (0, 120), lambda ids, rows=rows: rows[ids]).numpy())
        want = model(x, edge_index, torch.from_numpy(graph.edge_type).long(), node_type)
    torch.testing.assert_close(pending, want, rtol=1e-10, atol=1e-10)
