"""Models that differ from PyG's by what was done to their modules: they equal PyG on the whole graph, or are refused."""

import copy
import inspect
import random
import re
from contextlib import closing, nullcontext

import numpy as np
import pytest
import torch
from test_models import CLASSES, WIDTH, assert_equals_pyg, make_graph, rand
from torch import nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GraphConv,
    Linear,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    TAGConv,
    TransformerConv,
)

from weft.errors import ModelError
from weft.exchange import simulate
from weft.graph import Graph, communities
from weft.nn import BlockModel, check_hooks, check_rows, passage, row_by_row, walk
from weft.nn.rows import Pass, Rows
from weft.nn.small_graph import alike
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.sampling import NeighborSampler
from weft.training import Trainer


class Two(nn.Module):
    def __init__(self, first, second, between=torch.relu):
        super().__init__()
        self.first, self.second, self.between = first, second, between

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index)


class InputsAgain(Two):
    """Each worker's slice of columns has another mean."""

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index) + x.mean(1, keepdim=True), edge_index)


class Tanh(Linear):
    def forward(self, x):
        return super().forward(x).tanh()


def hooked(conv):
    conv.lin.register_forward_hook(lambda module, given, out: out.tanh())
    return conv


def replaced(conv, lin):
    conv.lin = lin
    return conv


class TestWhatIsDoneToConvolutions:
    def test_a_dense_layer_that_is_not_just_a_matrix(self):
        lin = Tanh(WIDTH, 4, bias=False), nn.Sequential(nn.Linear(4, CLASSES), nn.Tanh())
        assert_equals_pyg(Two(replaced(GCNConv(WIDTH, 4), lin[0]), replaced(GCNConv(4, CLASSES), lin[1])))
        assert_equals_pyg(Two(hooked(GCNConv(WIDTH, 12)), hooked(GATConv(12, CLASSES))))
        weighed = GCNConv(WIDTH, CLASSES)
        torch.nn.utils.parametrizations.weight_norm(weighed.lin)
        assert_equals_pyg(Two(SAGEConv(WIDTH, WIDTH), weighed))

    @pytest.mark.parametrize("lin", [Linear(WIDTH, CLASSES, bias=False), nn.Linear(WIDTH, CLASSES, bias=False)])
    def test_a_norm_that_steps_when_its_weight_is_read(self, lin):
        torch.nn.utils.parametrizations.spectral_norm(lin)
        model = Two(replaced(GCNConv(WIDTH, CLASSES), lin), SAGEConv(CLASSES, CLASSES)).double()
        graph, edge_index = make_graph()
        norm, x = lin.parametrizations.weight[0], rand(120, WIDTH)
        then = copy.deepcopy(norm.state_dict())
        model(x, edge_index)
        once = norm._u.clone()
        norm.load_state_dict(then)
        BlockModel(model)(x, NeighborSampler(graph, [-1, -1]).sample(torch.arange(120), 0, 0))
        torch.testing.assert_close(norm._u, once)

    @pytest.mark.parametrize(
        "model, why",
        [
            (
                lambda: Two(hooked(GCNConv(WIDTH, 4)), GCNConv(4, CLASSES)),
                "needs whole rows, so its layer can't be placed",
            ),
            (
                lambda: Two(hooked(GATConv(WIDTH, 4)), GATConv(4, CLASSES)),
                "needs whole rows, so its layer can't be placed",
            ),
            (
                lambda: InputsAgain(SAGEConv(WIDTH, 4), SAGEConv(4, CLASSES)),
                "computes with its inputs outside of its first",
            ),
        ],
        ids=["gcn", "gat", "inputs"],
    )
    def test_what_columns_can_not_be_cut_of(self, tmp_path, model, why):
        whole = communities(tmp_path / "1", vertices=100, edges=600, width=WIDTH, classes=CLASSES)
        write_partitioned(whole, allocate(whole, 2, "metis"), 2, tmp_path / "2")
        parts = Graph.open(tmp_path / "2")
        settings = Settings.of(fanouts=(2, 2), batch_size=20, plan="nfp", threads=1)

        def train(world):
            with closing(Trainer(parts, model(), settings, world=world)) as trainer:
                trainer.train_epoch(0)

        with pytest.raises(ModelError, match=why):
            simulate(2, train)

    def test_a_step_that_has_a_hook_or_is_replaced(self):
        first, second = SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)
        first.register_message_forward_hook(lambda conv, given, out: 2 * out)
        second.message = lambda x_j: 3 * x_j
        kinds = assert_equals_pyg(Two(first, second)).kinds()
        assert all("black box" in kind for kind in kinds)

    def test_a_size_that_is_the_rows_number(self):
        class Sized(Two):
            def forward(self, x, edge_index):
                x = self.first(x, edge_index, size=(len(x), x.size(0)))
                return self.second(x, edge_index, size=(len(x), len(x)))

        kinds = assert_equals_pyg(Sized(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES))).kinds()
        assert all("fast" in kind for kind in kinds)


def test_results_with_names_keep_them():
    def between(x):
        return x.topk(4, 1).values - x.max(dim=1, keepdim=True).values

    assert_equals_pyg(Two(SAGEConv(WIDTH, 8), SAGEConv(4, CLASSES), between))


def test_a_forward_that_takes_edges_first():
    class EdgesFirst(Two):
        def forward(self, edge_index, x):
            return super().forward(x, edge_index)

    model, (graph, edge_index) = EdgesFirst(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)).double(), make_graph()
    x, seeds = rand(120, WIDTH), torch.arange(30)
    sample = NeighborSampler(graph, [-1, -1]).sample(seeds, 0, 0)
    torch.testing.assert_close(BlockModel(model)(x[sample.vertices.long()], sample), model(edge_index, x)[seeds])


def test_what_forwards_take_is_read_once_and_again_where_one_is_replaced(monkeypatch):
    class Replaced(Two):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index)

    model, (graph, _) = Replaced(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)).double(), make_graph()
    x, seeds, read, signature = rand(120, WIDTH), torch.arange(30), [], inspect.signature
    sample, block_model = NeighborSampler(graph, [-1, -1]).sample(seeds, 0, 0), BlockModel(model)
    want = block_model(x[sample.vertices.long()], sample)
    monkeypatch.setattr(inspect, "signature", lambda of: read.append(of) or signature(of))
    torch.testing.assert_close(block_model(x[sample.vertices.long()], sample), want)
    assert not read
    monkeypatch.setattr(Replaced, "forward", lambda self, edge_index, x: Two.forward(self, x, edge_index))
    torch.testing.assert_close(block_model(x[sample.vertices.long()], sample), want)
    model.forward = lambda edge_index, x: 2 * Two.forward(model, x, edge_index)
    torch.testing.assert_close(block_model(x[sample.vertices.long()], sample), 2 * want)
    assert len(read) == 2


def test_rows_are_counted_without_a_function_of_torch(monkeypatch):
    rows = Rows.of(rand(120, WIDTH), 0, Pass([120]))
    monkeypatch.setattr(Rows, "__torch_function__", None)
    assert len(rows) == 120


class LooksAround(MessagePassing):
    """What a vertex gets hangs on rows beside it, too."""

    def __init__(self, how):
        super().__init__(aggr="sum")
        self.lin, self.how = nn.Linear(WIDTH, CLASSES), how

    def forward(self, x, edge_index):
        return self.how(self.propagate(edge_index, x=self.lin(x)))

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize(
    "conv",
    [
        LooksAround(lambda x: x - x.mean(0)),
        LooksAround(lambda x: x / len(x)),
        LooksAround(lambda x: x / x.norm()),
        SAGEConv(WIDTH, CLASSES, aggr="lstm"),  # its padding hangs on the longest list beside it
    ],
    ids=["mean", "number", "norm", "lstm"],
)
def test_black_boxes_that_look_at_other_rows_are_refused(conv):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    model, (graph, _), x = One().double(), make_graph(), rand(120, WIDTH)
    sample = NeighborSampler(graph, [-1]).sample(torch.arange(10), 0, 0)
    with pytest.raises(ModelError, match="at all rows or edges at once"):
        BlockModel(model)(x[sample.vertices.long()], sample)


def test_draws_by_numpy_and_python_are_told_from_those_of_another_worker():
    """Workers that are threads share these generators: what another one drew while a model was tried is not its own."""

    def check(draws):
        trials = iter(range(100))

        class Drawing(Two):
            def forward(self, x, edge_index):
                for _ in range(draws(len(x), next(trials))):
                    random.random()
                return super().forward(x, edge_index)

        check_rows(Drawing(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)), WIDTH, several=True)

    check(lambda rows, trial: trial in (0, 5))
    check(lambda rows, trial: 3)
    with pytest.raises(ModelError, match="the model draws random numbers by numpy or Python"):
        check(lambda rows, trial: rows)


def test_a_look_at_how_rows_go_through_a_model_leaves_all_generators():
    """It is taken in the midst of a batch, whose own draws (a layer that is dropped) come after it."""

    class Drawing(Two):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index) * random.random() * float(np.random.rand() + torch.rand(()))

    model = Drawing(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES))
    for look in (passage, check_hooks):
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        look(model, WIDTH)
        assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


class WithTable(Two):
    """Looks up rows in a table that is a buffer; writes something of all rows into it, if it `writes`."""

    def __init__(self, writes):
        super().__init__(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES))
        self.writes = writes
        self.register_buffer("table", torch.ones(500, WIDTH))

    def forward(self, x, edge_index):
        if self.writes and self.training:
            self.table.data[400:] += x.detach().sum(0)
        return super().forward(x + nn.functional.embedding(x[:, 0].abs().long(), self.table), edge_index)


@pytest.mark.parametrize("writes", [False, True])
def test_a_table_is_compared_where_it_is_written_into_alone(monkeypatch, writes):
    compared = []
    monkeypatch.setattr(row_by_row, "_TABLE", 100)
    monkeypatch.setattr(row_by_row, "alike", lambda x, y: compared.append(x.numel()) or alike(x, y))
    model = WithTable(writes)
    with pytest.raises(ModelError, match="the buffer table mixes the rows") if writes else nullcontext():
        check_rows(model, WIDTH, 3)
    assert compared and (max(compared) >= model.table.numel()) == writes
    assert torch.equal(model.table, torch.ones(500, WIDTH))


class Held(nn.Module):
    """Hands its convolution values that it holds itself."""

    def __init__(self, conv, values):
        super().__init__()
        self.conv, self.values = conv, nn.Parameter(values, values.is_floating_point())

    def forward(self, x, edge_index):
        return self.conv(x, edge_index, self.values)


class LooksUp(MessagePassing):
    """Multiplies what an edge brings by numbers that are its own, or its source's."""

    def __init__(self, of_edges=False):
        super().__init__(aggr="mean")
        self.lin, self.of_edges = nn.Linear(WIDTH, CLASSES), of_edges

    def forward(self, x, edge_index, numbers):
        each = numbers if self.of_edges else numbers[edge_index[0] % len(numbers)]
        return self.propagate(edge_index, x=self.lin(x), each=each)

    def message(self, x_j, each):
        return each * x_j


class Ones(nn.Module):
    """Hands its convolution a number for each row, and a weight for all edges."""

    def __init__(self):
        super().__init__()
        self.first, self.second = LooksUp(), GraphConv(CLASSES, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index, torch.ones(len(x), 1)), edge_index, torch.tensor([0.5]))


class Within(LooksUp):
    """Holds these numbers itself."""

    def __init__(self, how, values):
        super().__init__(of_edges=True)
        if how == "buffer":
            self.register_buffer("weights", values)
        else:
            self.weights = nn.Parameter(values) if how == "parameter" else values

    def forward(self, x, edge_index):
        return super().forward(x, edge_index, self.weights)


class Only(nn.Module):
    """One convolution."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class TestValuesThatAModelHolds:
    @pytest.mark.parametrize(
        ("conv", "shape", "named"),
        [
            (lambda: GraphConv(WIDTH, CLASSES), (700,), "edge_weight"),
            (lambda: GCNConv(WIDTH, CLASSES), (700,), "edge_weight"),
            (lambda: TAGConv(WIDTH, CLASSES, K=1), (700,), "edge_weight"),
            (lambda: TransformerConv(WIDTH, CLASSES, edge_dim=1), (700, 1), "edge_attr"),
            (lambda: RGCNConv(WIDTH, CLASSES, 3), (700,), "edge_type"),
        ],
    )
    def test_of_each_edge_are_refused_before_anything_is_run(self, conv, shape, named):
        values = torch.zeros(shape, dtype=torch.int64) if named == "edge_type" else torch.rand(shape)
        told = (
            rf"^{conv().__class__.__name__}\(.*\) is given {named} \({re.escape(str([*shape]))}\) that does not come of"
        )
        with pytest.raises(ModelError, match=f"{told} the graph.*: give these values to the graph"):
            walk(Held(conv(), values), WIDTH)

    @pytest.mark.parametrize("of_edges", [True, False])
    def test_are_refused_where_they_would_be_paired_with_others(self, of_edges):
        graph, edge_index = make_graph()
        x, sample = rand(120, WIDTH), NeighborSampler(graph, [-1]).sample(torch.arange(120), 0, 0)
        model = Held(LooksUp(of_edges), rand(700 if of_edges else 120, 1)).double()
        if not of_edges:
            torch.testing.assert_close(BlockModel(model)(x, sample), model(x, edge_index))
        graph.original_ids = np.arange(120)[::-1].copy()
        with pytest.raises(ModelError, match=r"is given numbers \(\[(700|120), 1\]\) that does not come of"):
            BlockModel(model)(x, sample)

    @pytest.mark.parametrize("how", ["parameter", "buffer", "attribute"])
    def test_are_refused_within_a_convolution_too(self, how):
        model, x = Within(how, rand(700, 1)).double(), rand(120, WIDTH)
        sample = NeighborSampler(make_graph()[0], [-1]).sample(torch.arange(120), 0, 0)
        with pytest.raises(
            ModelError, match=r"^Within\(\) holds weights \(\[700, 1\]\) that does not come of the graph"
        ):
            BlockModel(Only(model))(x, sample)

    def test_are_taken_where_a_matrix_has_as_many_rows_as_there_are_edges(self):
        graph, edge_index = make_graph()
        conv, x = GraphConv(WIDTH, CLASSES, aggr="max"), rand(120, WIDTH)
        conv.lin_rel = nn.Sequential(nn.Linear(WIDTH, 700), nn.Linear(700, CLASSES))
        sample = NeighborSampler(graph, [-1]).sample(torch.arange(120), 0, 0)
        model = Only(conv).double()
        torch.testing.assert_close(BlockModel(model)(x, sample), model(x, edge_index))

    def test_are_taken_where_all_are_alike(self):
        graph, edge_index = make_graph()
        graph.original_ids = np.arange(120)[::-1].copy()
        x, sample = rand(120, WIDTH), NeighborSampler(graph, [-1, -1]).sample(torch.arange(120), 0, 0)
        model = Ones().double()
        torch.testing.assert_close(BlockModel(model)(x, sample), model(x, edge_index))


class TestRefusals:
    def test_the_module_before_which_rows_are_mixed(self):
        with pytest.raises(ModelError, match=r"^Two.forward, before second \(SAGEConv\(8, 5, aggr=mean\)\), mixes the"):
            check_rows(Two(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES), lambda x: x.softmax(0)))

    def test_compiled_models(self):
        for compiled in (
            torch.compile(Two(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)), backend="eager"),
            torch.jit.script(Two(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES))),
        ):
            with pytest.raises(
                ModelError, match=r"is compiled \(torch.(compile|jit)\), and .*: pass the model as it was"
            ):
                check_rows(compiled, WIDTH)

    def test_what_is_wrong_with_rows_is_told_before_what_is_wrong_without(self):
        narrow = Two(SAGEConv(WIDTH, 8), SAGEConv(9, CLASSES), lambda x: x / x.amax())  # of no rows there is no largest
        with pytest.raises(ModelError, match="mat1 and mat2 shapes"):
            walk(narrow, WIDTH)

    def test_forwards_of_another_kind(self):
        class OfTypes(Two):
            def forward(self, x, edge_index):
                return super().forward(x["paper"], edge_index)

        class Rated(Two):
            def forward(self, x, edge_index):
                return self.first(x, edge_index, return_attention_weights=True)[0]

        class EdgesFirst(MessagePassing):
            def forward(self, edge_index, x):
                return self.propagate(edge_index, x=x)

        class ByName(Two):
            def forward(self, x, edge_index):
                return self.first(x=x, edge_index=edge_index)

        with pytest.raises(ModelError, match=r"OfTypes does not run as forward\(x, edge_index\), on 9 features"):
            check_rows(OfTypes(SAGEConv(WIDTH, 8), SAGEConv(8, CLASSES)))
        with pytest.raises(ModelError, match=r"GATConv\(9, 8, heads=1\) gave a tuple: a convolution must give one row"):
            check_rows(Rated(GATConv(WIDTH, 8), SAGEConv(8, CLASSES)))
        with pytest.raises(
            ModelError, match=r"EdgesFirst.forward takes edge_index, x: let a convolution take rows first"
        ):
            check_rows(ByName(EdgesFirst(), SAGEConv(WIDTH, CLASSES)))
