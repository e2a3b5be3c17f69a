"""What models do with rows between convolutions, each made of itself alone; and batch normalisation inside convolutions."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import EdgeConv, GATConv, GENConv, MessagePassing, SAGEConv

import weft
from weft.errors import ModelError
from weft.nn import check_rows
from weft.training import Loader  # before modules are made, so that what PyG generates for them is kept in memory

VERTICES, EDGES = 60, 300


@pytest.fixture(scope="module")
def data():
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(0, VERTICES, (2, EDGES), generator=random)
    return Data(torch.randn(VERTICES, 4, generator=random).double(), edges, y=torch.arange(VERTICES) % 2)


class Between(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.first, self.second, self.between = SAGEConv(4, 4), SAGEConv(4, 2), between

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index)


def in_pairs(turn):
    return lambda x: turn(x.view(-1, 2, 2)).flatten(1)


BY_ROW = {
    "stacked side by side": lambda x: torch.stack([x, 2 * x], 1).sum(1),
    "sort": lambda x: x.sort(1).values,
    "sort by default": lambda x: torch.sort(x)[0],
    "sort, named": lambda x: torch.sort(x, dim=-1, descending=True).values,
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(1), 1),
    "flip": lambda x: torch.flip(x, dims=[-1]),
    "roll": lambda x: x.roll(1, 1),
    "index_select": lambda x: x.index_select(1, torch.tensor([3, 1, 2, 0])),
    "permute": in_pairs(lambda x: x.permute(0, 2, 1)),
    "permute, of torch": in_pairs(lambda x: torch.permute(x, (0, 2, 1))),
    "transpose": in_pairs(lambda x: x.transpose(1, -1)),
    "mT": in_pairs(lambda x: x.mT),
}
OTHERWISE = {
    "sort": lambda x: x.sort(0).values,
    "msort": lambda x: x.msort(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "roll both": lambda x: x.roll((1, 2), (0, 1)),
    "permute": in_pairs(lambda x: x.permute(1, 0, 2)),
    "gather": lambda x: x.gather(0, x.argsort(0)),
    "T": lambda x: x.T,
}


def rows_in_batches(data, model, **options):
    loader = Loader(data, [-1, -1], 13, seeds=torch.arange(VERTICES), dtype="float64", **options)
    run, rows = weft.parallel(model, loader), torch.empty(VERTICES, 2, dtype=torch.float64)
    for batch in loader:
        rows[batch.seeds] = run(batch).detach()
    run.close()
    return rows


@pytest.mark.parametrize("name", BY_ROW)
def test_what_is_done_along_a_row(data, name):
    model = Between(BY_ROW[name]).double()
    torch.testing.assert_close(rows_in_batches(data, model), model(data.x, data.edge_index), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_moves_rows_is_refused(data, name):
    with pytest.raises(ModelError, match=r"in place of the vertices' rows|mixes the rows|does not run on rows"):
        rows_in_batches(data, Between(OTHERWISE[name]).double())


@pytest.mark.parametrize(
    ("last", "remedy"),
    [
        (lambda x: torch.stack([x, x]).mean(0), r"^the model's .* write torch.stack\(\[x, y\], 1\).sum\(1\)"),
        (lambda x: torch.stack([x, x], -3).mean(0), r"write torch.stack\(\[x, y\], 1\).sum\(1\)"),
        (lambda x: (x, x), r"gave a tuple .* torch.cat\(\[mu, logstd\], 1\), .* = run\(batch\).chunk\(2, 1\)"),
        (lambda x: {"mu": x}, r"gave a dict .* torch.cat"),
    ],
)
def test_results_that_are_no_rows_are_refused_with_what_to_write(last, remedy):
    class Last(Between):
        def forward(self, x, edge_index):
            return last(super().forward(x, edge_index))

    with pytest.raises(ModelError, match=remedy):
        check_rows(Last(torch.relu))


def test_learned_rows_in_place_of_vertices_are_refused_with_what_to_write():
    class Learned(Between):
        def __init__(self):
            super().__init__(torch.relu)
            self.rows = nn.Embedding(VERTICES, 4)

        def forward(self, x, edge_index):
            return super().forward(self.rows.weight, edge_index)

    with pytest.raises(ModelError, match=r"begins with nn.Embedding\(n, width"):
        check_rows(Learned())


def written_in_columns(rows, deeper):
    both = rows.new_zeros(rows.size(0), 8)
    both[:, :4] = deeper(rows)
    both[:, 4:] = rows
    return both[:, :4] + both[:, 4:]


def added_there(rows, deeper):
    rows = rows * 1
    rows.add_(deeper(rows.clone()))
    return rows


def added_to_itself(rows, deeper):
    rows = rows * 1
    rows += deeper(rows.clone())
    return rows


def set_as_data(rows, deeper):
    rows = rows.detach()
    rows.data = deeper(rows.clone()).detach()
    return rows


def as_out(rows, deeper):
    rows = rows.detach()
    torch.add(rows, deeper(rows).detach(), out=rows)
    return rows


class Written(nn.Module):
    """Writes what a convolution gives into rows from before it."""

    def __init__(self, write):
        super().__init__()
        self.first, self.second, self.write = SAGEConv(4, 4), SAGEConv(4, 2), write

    def forward(self, x, edge_index):
        return self.second(self.write(x, lambda rows: self.first(rows, edge_index)), edge_index)


@pytest.mark.parametrize("write", [written_in_columns, added_there, added_to_itself, set_as_data, as_out])
def test_rows_that_are_written_into_others_from_before_are_refused(data, write):
    with pytest.raises(ModelError, match=r"writes what a convolution gave into rows from before it .*: make new rows"):
        rows_in_batches(data, Written(write).double())


def test_a_model_without_values_is_refused(data):
    with torch.device("meta"):
        model = Between(torch.relu)
    for options in ({"fanouts": [2, 2]}, {"full_graph": True}):
        with pytest.raises(ModelError, match=r"no values yet \(first.* is on the meta device\): build it on the CPU"):
            weft.parallel(model, Loader(data, seeds=torch.arange(9), **options))


class Normalised(MessagePassing):
    """Normalises sources before their messages, and destinations after them."""

    def __init__(self, width):
        super().__init__(aggr="sum")
        self.before, self.after = nn.BatchNorm1d(width), nn.BatchNorm1d(width, affine=False)

    def forward(self, x, edge_index):
        return self.after(self.propagate(edge_index, x=self.before(x))).tanh() + x


def of_edges(width):
    return nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU())


class Two(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index), edge_index)


INSIDE = {
    "GENConv": lambda: Two(GENConv(4, 4, norm="batch"), GENConv(4, 2, norm="batch")),
    "before and after": lambda: Two(Normalised(4), Normalised(4)),
    "of edges": lambda: Two(EdgeConv(of_edges(4)), EdgeConv(of_edges(2))),
}


def norms(of):
    return {name: value for name, value in of.state_dict().items() if "running" in name}


@pytest.mark.parametrize("name", INSIDE)
def test_normalisation_inside_black_boxes_is_pygs_on_the_whole_graph(data, name):
    torch.manual_seed(0)
    model, plain = INSIDE[name]().double(), INSIDE[name]().double()
    plain.load_state_dict(model.state_dict())
    loader = Loader(data, [-1, -1], VERTICES, seeds=torch.arange(VERTICES), dtype="float64")
    run = weft.parallel(model, loader)
    for batch in loader:
        wanted = plain(data.x, data.edge_index)[batch.seeds]
        torch.testing.assert_close(run(batch), wanted, rtol=0, atol=1e-10)
    for average, wanted in zip(norms(model).values(), norms(plain).values(), strict=True):
        torch.testing.assert_close(average, wanted, rtol=0, atol=1e-10)
    run.close()


def by_destinations(conv, x, edges, destinations, monkeypatch):
    """A convolution on the whole graph, whose normalisation takes the statistics of some vertices, or of their edges."""

    def normalised(rows, mean, var, weight, bias, training, momentum, eps):
        chosen = rows[destinations] if len(rows) == VERTICES else rows[torch.isin(edges[1], destinations)]
        out = (rows - chosen.mean(0)) / (chosen.var(0, correction=0) + eps).sqrt()
        return out if weight is None else out * weight + bias

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "batch_norm", normalised)
        return conv(x, edges)


@pytest.mark.parametrize("name", INSIDE)
def test_normalisation_inside_black_boxes_counts_destinations(data, name, monkeypatch):
    torch.manual_seed(0)
    model = INSIDE[name]().double()
    loader = Loader(data, [-1, -1], VERTICES, seeds=np.arange(0, VERTICES, 9), dtype="float64")
    run = weft.parallel(model, loader)
    for batch in loader:
        rows, whose = data.x, batch.part.program.vertices
        for conv, vertices in zip((model.first, model.second), whose[1:], strict=True):
            rows = by_destinations(conv, rows, data.edge_index, vertices.long(), monkeypatch)
        torch.testing.assert_close(run(batch), rows[batch.seeds], rtol=0, atol=1e-10)
    run.close()


def test_normalisation_inside_a_black_box_of_one_destination(data):
    loader = Loader(data, [-1, -1], 1, seeds=[7], dtype="float64")
    run = weft.parallel(INSIDE["GENConv"]().double(), loader)
    assert all(run(batch).isfinite().all() for batch in loader)
    run.close()


class ByFeature(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GATConv(4, 4, edge_dim=1), GATConv(4, 2, edge_dim=1)

    def forward(self, x, edge_index, edge_weight):
        x = self.first(x, edge_index, edge_attr=edge_weight).relu()
        return self.second(x, edge_index, edge_attr=edge_weight)


def test_weights_of_edges_as_a_convolutions_features(data):
    """In the model's precision, whatever the graph has them in."""
    weighted = data.clone()
    weighted.edge_weight = torch.rand(EDGES, generator=torch.Generator().manual_seed(1))
    model = ByFeature().double()
    wanted = model(data.x, data.edge_index, weighted.edge_weight.double())
    torch.testing.assert_close(rows_in_batches(weighted, model), wanted, rtol=0, atol=1e-10)
