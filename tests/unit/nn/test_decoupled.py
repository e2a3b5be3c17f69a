"""The decoupled variant as a module: dense layers, then mixing as PyG's convolutions themselves do it."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, RGCNConv, SAGEConv
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from weft.errors import ModelError
from weft.nn import Decoupled
from weft.nn.conv.relations import matrices_of

VERTICES, WIDTH, CLASSES = 40, 6, 3


@pytest.fixture(scope="module")
def graph():
    """Rows, edges with self-loops and repeats (the last vertices have none), and their weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(VERTICES, WIDTH, generator=generator, dtype=torch.float64)
    edges = torch.randint(VERTICES - 4, (2, 200), generator=generator)
    edges[:, :10] = edges[0, :10]
    return x, torch.cat([edges, edges[:, :20]], 1), torch.rand(220, generator=generator, dtype=torch.float64) + 0.1


def identity(conv):
    """A convolution that maps nothing, so that it only mixes."""
    for name, parameter in conv.double().named_parameters():
        with torch.no_grad():
            parameter.copy_(torch.eye(*parameter.shape) if name.endswith("weight") else torch.zeros(parameter.shape))
    return conv


class Dropping(nn.Module):
    """It drops of its inputs, and converts them to the type that they have."""

    def __init__(self, p):
        super().__init__()
        self.convs, self.p = nn.ModuleList([GCNConv(WIDTH, 5), GCNConv(5, CLASSES)]), p

    def forward(self, x, edge_index):
        x = F.dropout(x, self.p, self.training).double()
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_inputs_are_mixed_first_where_training_takes_them_as_they_are(graph):
    """In eval mode, where none are dropped, it is the same variant."""
    x, edge_index, _ = graph
    model, mixing = Dropping(0.5).double(), identity(GCNConv(CLASSES, CLASSES))
    first, last = model.convs
    h = last.lin((first.lin(x) + first.bias).relu()) + last.bias
    wanted = mixing(mixing(h, edge_index), edge_index)
    variant = Decoupled(model)
    torch.testing.assert_close(variant.eval()(x, edge_index), wanted, atol=1e-12, rtol=0)
    model = Dropping(0.0).double()
    torch.testing.assert_close(Decoupled(model)(x, edge_index), model(x, edge_index), atol=1e-12, rtol=0)
    assert (variant.enters, Decoupled(model).enters) == (False, True)


class OfAttributes(nn.Module):
    """What edges weigh is edge_attr to it, as PyG has it, and the edges come first."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, 5), GCNConv(5, CLASSES)])

    def forward(self, edge_index, x, edge_attr):
        return self.convs[1](self.convs[0](x, edge_index, edge_attr).relu(), edge_index, edge_attr)


def test_weights_are_given_as_attributes_of_edges(graph):
    x, edge_index, weight = graph
    model = OfAttributes().double()
    wanted = model(edge_index, x, weight)
    torch.testing.assert_close(Decoupled(model)(x, edge_index, weight), wanted, atol=1e-12, rtol=0)
    with pytest.raises(ModelError, match="asks for edge_attr"):
        Decoupled(model)(x, edge_index)


def of_two_layers(kind):
    """Its biases are not 0, as they are of a model that is not trained yet."""
    model = kind(WIDTH, 5, 2, CLASSES).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(2))
    return model


def test_with_two_layers_of_sage_it_is_the_model_itself(graph):
    """The inputs are mixed first, and the last convolution's rows behind its map: nothing is put off."""
    x, edge_index, _ = graph
    model = of_two_layers(GraphSAGE)
    torch.testing.assert_close(Decoupled(model)(x, edge_index), model(x, edge_index))


def test_with_two_layers_of_gcn_it_is_so_but_for_the_last_bias_which_is_mixed(graph):
    x, edge_index, weight = graph
    model = of_two_layers(GCN)
    bias = model.convs[1].bias
    mixed_bias = identity(GCNConv(CLASSES, CLASSES))(bias.expand(VERTICES, CLASSES), edge_index, weight)
    wanted = model(x, edge_index, edge_weight=weight) - bias + mixed_bias
    torch.testing.assert_close(Decoupled(model)(x, edge_index, weight), wanted)
    assert (mixed_bias - bias).abs().max() > 0.1
    with torch.no_grad():
        bias.zero_()
    torch.testing.assert_close(Decoupled(model)(x, edge_index, weight), model(x, edge_index, edge_weight=weight))


def test_gcn(graph):
    x, edge_index, weight = graph
    model = GCN(WIDTH, 5, 3, CLASSES).double()
    first, mixing = identity(GCNConv(WIDTH, WIDTH)), identity(GCNConv(CLASSES, CLASSES))
    for given in (None, weight):
        h = first(x, edge_index, given)
        for number, conv in enumerate(model.convs):
            h = conv.lin(h) + conv.bias
            h = h.relu() if number < 2 else h
        for _ in range(2):
            h = mixing(h, edge_index, given)
        torch.testing.assert_close(Decoupled(model)(x, edge_index, given), h, atol=1e-12, rtol=0)


def mean_of(width):
    return identity(SAGEConv(width, width, root_weight=False))


def test_sage(graph):
    """The last convolution's own rows are added to the mixed ones, as the convolution itself does."""
    x, edge_index, _ = graph
    model = GraphSAGE(WIDTH, 5, 3, CLASSES, norm="LayerNorm", norm_kwargs={"mode": "node"}).double()
    first, second, third = model.convs
    h = first.lin_l(mean_of(WIDTH)(x, edge_index)) + first.lin_r(x)
    h = model.norms[0](h).relu()
    h = model.norms[1](second.lin_l(h) + second.lin_r(h)).relu()
    mixing = mean_of(CLASSES)
    wanted = mixing(mixing(h @ third.lin_l.weight.T, edge_index), edge_index) + third.lin_r(h) + third.lin_l.bias
    torch.testing.assert_close(Decoupled(model)(x, edge_index), wanted, atol=1e-12, rtol=0)


def test_sage_without_own_rows_that_projects(graph):
    """Its inputs are mapped before they are mixed, so their mixing is put off like all others."""
    x, edge_index, _ = graph
    model = GraphSAGE(WIDTH, 5, 2, CLASSES, root_weight=False, project=True).double()
    first, second = model.convs
    h = second.lin(first.lin_l(first.lin(x).relu()).relu()).relu() @ second.lin_l.weight.T
    mixing = mean_of(CLASSES)
    wanted = mixing(mixing(h, edge_index), edge_index) + second.lin_l.bias
    torch.testing.assert_close(Decoupled(model)(x, edge_index), wanted)


@pytest.mark.parametrize("learned", [True, False])
def test_gin(graph, learned):
    x, edge_index, _ = graph
    model = GIN(WIDTH, 5, 2, CLASSES, train_eps=learned).double()
    with torch.no_grad():
        model.convs[1].eps.fill_(0.5)
    summed = [GINConv(nn.Identity(), eps=float(conv.eps.detach())).double() for conv in model.convs]
    each = torch.bincount(edge_index[1], minlength=VERTICES)[:, None] + 1
    h = x if learned else summed[0](x, edge_index)
    h = model.convs[1].nn(model.convs[0].nn(h).relu())
    for one in summed if learned else summed[1:]:
        h = one(h, edge_index) / each
    torch.testing.assert_close(Decoupled(model)(x, edge_index), h, atol=1e-12, rtol=0)


def attention(conv, x, edge_index):
    """Edges, and what each counts for by a GATConv's attention on rows x, by head."""
    _, ((src, dst), shares) = conv(x, edge_index, return_attention_weights=True)
    return src, dst, shares


def mixed_by(rows, src, dst, shares):
    """Rows [vertices, heads, columns], by head."""
    return torch.zeros_like(rows).index_add(0, dst, rows[src] * shares[:, :, None])


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("concat", [True, False])
def test_gat_mixes_its_last_heads_by_the_attention_of_every_layer(graph, loops, residual, concat):
    """Each layer's is made of its own rows, before anything is mixed."""
    x, edge_index, _ = graph
    options = {"heads": 4, "add_self_loops": loops, "residual": residual}
    model = GAT(WIDTH, 8, 3, CLASSES, **options).double()
    if concat:
        model.convs[2] = GATConv(8, 2, **options).double()
    h, attentions = x, []
    for number, conv in enumerate(model.convs):
        attentions.append(attention(conv, h, edge_index))
        rows, own = conv.lin(h).view(VERTICES, 4, -1), conv.bias + (conv.res(h) if residual else 0)
        h = (rows.flatten(1) + own).relu() if number < 2 else h
    for one in attentions:
        rows = mixed_by(rows, *one)
    wanted = (rows.flatten(1) if concat else rows.mean(1)) + own
    torch.testing.assert_close(Decoupled(model)(x, edge_index), wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("last", [GCNConv(8, CLASSES), GATConv(8, CLASSES, heads=2, concat=False)])
def test_rows_of_other_heads_are_mixed_by_an_attentions_mean_over_its_own(graph, last):
    x, edge_index, _ = graph
    model = GAT(WIDTH, 8, 2, CLASSES, heads=4).double()
    model.convs[1] = last.double()
    first = model.convs[0]
    src, dst, shares = attention(first, x, edge_index)
    h = (first.lin(x) + first.bias).relu()
    heads = getattr(last, "heads", 1)
    rows = (last.lin(h) + (last.bias if heads == 1 else 0)).view(VERTICES, heads, -1)
    rows = mixed_by(rows, src, dst, shares.mean(1, keepdim=True))
    if heads == 1:
        wanted = identity(GCNConv(CLASSES, CLASSES))(rows.flatten(1), edge_index)
    else:
        wanted = mixed_by(rows, *attention(last, h, edge_index)).mean(1) + last.bias
    torch.testing.assert_close(Decoupled(model)(x, edge_index), wanted, atol=1e-12, rtol=0)


def relations_by_hand(edge_index, edge_type):
    """Of each vertex, by relation: the neighbours that it gets rows of; and the relations that it sends along."""
    gets = [{} for _ in range(VERTICES)]
    sends = [set() for _ in range(VERTICES)]
    for src, dst, relation in zip(*edge_index.tolist(), edge_type.tolist(), strict=True):
        gets[dst].setdefault(relation, []).append(src)
        sends[src].add(relation)
    return gets, sends


@pytest.mark.parametrize("options", [{}, {"num_bases": 2}, {"num_blocks": 2}, {"root_weight": False, "bias": False}])
@pytest.mark.parametrize("layers", [1, 3])
def test_rgcn(graph, options, layers):
    """Vertex by vertex, relation by relation."""
    x, edge_index, _ = graph
    edge_type = torch.arange(edge_index.shape[1]) % 3
    sizes = [WIDTH, 8, 4, 4][: layers + 1]
    model = Sequence([RGCNConv(*pair, num_relations=4, **options) for pair in pairwise(sizes)]).double()
    gets, sends = relations_by_hand(edge_index, edge_type)
    h, own = x, 0
    for number, conv in enumerate(model.convs):
        matrices = matrices_of(conv)
        rows = torch.stack(
            [
                sum(row @ matrices[r] for r in of) / len(of) if of else 0 * (row @ matrices[0])
                for row, of in zip(h, sends, strict=True)
            ]
        )
        own = (0 if conv.root is None else h @ conv.root) + (0 if conv.bias is None else conv.bias)
        h = (rows + own).relu() if number < layers - 1 else rows
    for _ in range(layers):
        means = [[h[of].mean(0) for of in by_relation.values()] for by_relation in gets]
        h = torch.stack([sum(each) / len(each) if each else 0 * h[0] for each in means])
    torch.testing.assert_close(Decoupled(model)(x, edge_index, edge_type=edge_type), h + own, atol=1e-12, rtol=0)


def test_rgcn_whose_vertices_send_along_one_relation_and_get_by_one_is_the_coupled_layer(graph):
    x, _, _ = graph
    half = VERTICES // 2
    edge_index = torch.randint(half, (2, 90), generator=torch.Generator().manual_seed(1))
    edge_index[:, 45:] += half
    edge_type = (torch.arange(90) >= 45).long()
    model = Sequence([RGCNConv(WIDTH, CLASSES, 2)]).double()
    wanted = model(x, edge_index, edge_type)
    torch.testing.assert_close(Decoupled(model)(x, edge_index, edge_type=edge_type), wanted, atol=1e-12, rtol=0)


class Sequence(nn.Module):
    """Convolutions over relations, one after another."""

    def __init__(self, convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index, edge_type):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index, edge_type).relu()
        return self.convs[-1](x, edge_index, edge_type)


@pytest.mark.parametrize("heads", [1, 3])
def test_a_single_gat_layer_is_the_coupled_model(graph, heads):
    """Its attention is not taken to be even."""
    x, edge_index, _ = graph
    model = GAT(WIDTH, CLASSES, 1, heads=heads).double()
    torch.testing.assert_close(Decoupled(model)(x, edge_index), model(x, edge_index))


class Model(nn.Module):
    """Two convolutions, then something of the model's own."""

    def __init__(self, kind, side_by_side=False):
        super().__init__()
        self.convs = nn.ModuleList([kind(WIDTH, WIDTH), kind(WIDTH, WIDTH)])
        self.side_by_side = side_by_side
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        x = x + self.convs[0](x, edge_index).relu()
        if self.side_by_side:
            x = self.convs[0](x, edge_index) + self.convs[1](x, edge_index)
        else:
            x = self.convs[1](x, edge_index)
        return self.head(x).log_softmax(1)


def test_what_follows_the_last_convolution_comes_last(graph):
    x, edge_index, _ = graph
    model = Model(GCNConv).double()
    mixing = identity(GCNConv(WIDTH, WIDTH))
    h = x + (model.convs[0].lin(mixing(x, edge_index)) + model.convs[0].bias).relu()
    h = mixing(model.convs[1].lin(h) + model.convs[1].bias, edge_index)
    wanted = model.head(h).log_softmax(1)
    torch.testing.assert_close(Decoupled(model)(x, edge_index), wanted, atol=1e-12, rtol=0)


def test_it_is_another_model_with_the_same_parameters(graph):
    x, edge_index, _ = graph
    model = GCN(WIDTH, 5, 3, CLASSES).double()
    variant = Decoupled(model)
    assert [p.data_ptr() for p in variant.parameters()] == [p.data_ptr() for p in model.parameters()]
    assert "dense layers apart from 3 aggregations" in str(variant)
    assert (variant(x, edge_index) - model(x, edge_index)).abs().max() > 1e-4


@pytest.mark.parametrize(
    "conv",
    [
        lambda a, b: GATv2Conv(a, b),
        lambda a, b: SAGEConv(a, b, aggr="max"),
        lambda a, b: GATConv(a, b, edge_dim=2),
        lambda a, b: GINConv(nn.Linear(a, b), aggr="max"),
        lambda a, b: RGCNConv(a, b, 2, aggr="add"),
    ],
)
def test_what_cannot_be_decoupled_is_named(conv):
    with pytest.raises(ModelError, match=r"convs\.0.*can't be decoupled.*tp or halo"):
        Decoupled(Model(conv))


@pytest.mark.parametrize("made", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_a_last_matrix_that_is_made_anew_each_time_is_learned_or_refused(graph, made):
    x, edge_index, _ = graph
    model = GraphSAGE(WIDTH, 5, 2, CLASSES).double()
    model.convs[-1].lin_l = made(nn.Linear(5, CLASSES).double())
    if made is nn.utils.weight_norm:  # by a hook
        with pytest.raises(ModelError, match=r"lin_l is more than a matrix .*take torch.nn.utils.parametrizations"):
            Decoupled(model)(x, edge_index)
        return
    for _ in range(2):
        out = Decoupled(model)(x, edge_index)
        out.sum().backward()
        torch.testing.assert_close(out, model(x, edge_index))


def test_convolutions_side_by_side_are_refused(graph):
    with pytest.raises(ModelError, match="side by side"):
        Decoupled(Model(GCNConv, side_by_side=True).double())(*graph[:2])
