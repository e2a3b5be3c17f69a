"""What runs are told to take, on a machine that is made up."""

from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.models import GCN

from weft.graph import communities
from weft.nn import Met, Split, build, convolution_of, convolutions
from weft.placements import ColumnLayer, EdgesById, SplitLayer, WholeLayer
from weft.planner import kept, model_cost
from weft.planner.counts import Shape
from weft.planner.loads import LayerCost
from weft.planner.made_up import random_block
from weft.planner.task import dealt
from weft.sampling import block

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_often_as_in_ordinary_use(layers_are_timed_briefly, monkeypatch):
    """That is asked here."""
    for name, number in layers_are_timed_briefly.items():
        monkeypatch.setattr(model_cost, name, number)


@pytest.fixture
def machine(monkeypatch):
    """A clock that only runs by what is done: pieces take a millisecond, on a machine that is now faster, now slower."""
    of = SimpleNamespace(now=0.0, slower=lambda n: 1.0, faults=0, runs=0)

    def work(seconds, grows=lambda n: 0):
        of.runs += 1
        of.now += seconds * of.slower(of.runs)
        of.faults += grows(of.runs)

    of.work = work
    monkeypatch.setattr(model_cost, "_piece", lambda device: lambda: work(1e-3))
    monkeypatch.setattr(model_cost.time, "thread_time", lambda: of.now)
    monkeypatch.setattr(model_cost, "getrusage", lambda who: SimpleNamespace(ru_minflt=of.faults))
    return of


def test_a_run_is_told_in_pieces_of_work(machine):
    assert model_cost.timed(lambda: machine.work(3e-3)) == pytest.approx(3.0)
    assert model_cost.timed(lambda: machine.work(0.0)) == 0.0


def test_a_machine_that_slows_down_for_a_while_tells_the_same(machine):
    machine.slower = lambda n: 1.0 if n < 9 else 2.5
    assert model_cost.timed(lambda: machine.work(3e-3)) == pytest.approx(3.0)
    machine.slower = lambda n: 4.0 if n % 11 == 7 else 1.0  # one run or piece of some is held up
    assert model_cost.timed(lambda: machine.work(3e-3)) == pytest.approx(3.0)


def test_pieces_that_find_their_rows_gone_after_a_run_are_not_counted(machine, monkeypatch):
    since = count(9)  # pieces since a run of many rows, which left its own near the processor

    def piece():
        machine.work(1e-3 * (1.7, 1.2, 1.06, 1.0)[min(next(since), 3)])

    def run():
        nonlocal since
        since = count()
        machine.work(12e-3)

    monkeypatch.setattr(model_cost, "_piece", lambda device: piece)
    assert model_cost.timed(run) == pytest.approx(12.0)


def test_runs_that_agree_and_long_ones_are_repeated_less(machine):
    def runs(run):
        machine.runs = 0
        model_cost.timed(run)
        return machine.runs

    some = runs(lambda: machine.work(5e-4))
    every = runs(lambda: machine.work(5e-4 * (1 + machine.runs % 7)))
    assert runs(lambda: machine.work(1.0)) < some < every


def test_runs_in_which_memory_grew_are_not_counted(machine):
    number = count()

    def run():
        first = next(number) < 5
        machine.work(30e-3 if first else 20e-3, lambda n: 10_000 if first else 0)

    assert model_cost.timed(run) == pytest.approx(20.0)


def test_runs_in_which_memory_always_grows_are_told_all_the_same(machine):
    assert model_cost.timed(lambda: machine.work(30e-3, lambda n: 10_000)) == pytest.approx(30.0)
    assert machine.runs < 50


class Declared(MessagePassing):
    """Says how it can be split by functions that know the module they are of."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin = torch.nn.Linear(8, 4)

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=x))

    def weft_split(self):
        return Split(finish=lambda merged, own: self.lin(merged))


def test_a_copy_is_timed_whatever_a_convolution_is_made_of(tmp_path, monkeypatch):
    graph, conv, ran = communities(tmp_path / "g", vertices=200, edges=1000, width=8), Declared(), []
    monkeypatch.setattr(model_cost, "timed", lambda run, device: ran.append(run()) or 1.0)
    bench = model_cost._Bench(
        graph, Met(convolution_of(conv), 8, 4), 1, Shape(90, 40, 200, 80, 9, 0.5, 9), 4, CPU, False
    )
    bench.whole()
    assert len(ran) == 4 and all(parameter.grad is None for parameter in conv.parameters())


@pytest.mark.parametrize("conv", [GCNConv, GATConv])
def test_what_a_batch_makes_of_its_edges_is_timed_with_it(tmp_path, monkeypatch, conv):
    """On the full graph, where edges stay, it is made once."""
    graph, turned, make = communities(tmp_path / "g", vertices=200, edges=1000, width=8), [], block.turned
    monkeypatch.setattr(block, "turned", lambda one: turned.append(one) or make(one))
    monkeypatch.setattr(model_cost, "timed", lambda run, device: [run() for _ in range(3)] and 1.0)
    found, shape = Met(convolution_of(conv(8, 4)), 8, 4), Shape(90, 40, 200, 80, 9, 0.5, 9)

    def lists(stays):
        turned.clear()
        model_cost._Bench(graph, found, 1, shape, 4, CPU, stays).whole()
        return len(turned)

    assert lists(stays=False) == 3 * lists(stays=True) > 0


def test_what_a_forward_left_on_a_model_is_no_hindrance(tmp_path):
    """As attention that is kept, or a list of rows: a copy has it without the way it was computed."""
    conv = GCNConv(8, 3)
    conv.kept = conv(torch.ones(4, 8), torch.zeros(2, 1, dtype=torch.int64))
    conv.all = [conv.kept, {"more": (conv.kept * 2,)}]
    other = model_cost.copied(conv)
    assert torch.equal(other.kept, conv.kept) and other.kept.grad_fn is None and len(other.all) == 2
    assert other.lin.weight is not conv.lin.weight


class Mapped(torch.nn.Module):
    """Inputs are mapped before the first convolution, to other widths."""

    def __init__(self, features):
        super().__init__()
        self.before, self.conv = torch.nn.Sequential(torch.nn.Linear(features, 12), torch.nn.ReLU()), GCNConv(12, 3)

    def forward(self, x, edge_index):
        return self.conv(self.before(x), edge_index)


@pytest.mark.parametrize("make, depth", [(Mapped, 1), (lambda features: build("deepgcn", features, 16, 3, 2), 2)])
def test_models_that_map_inputs_first_are_timed_from_their_inputs_on(tmp_path, monkeypatch, make, depth):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    monkeypatch.setattr(model_cost, "timed", lambda run, device: run() or 1.0)
    model = make(graph.num_features)
    layers = convolutions(model, graph.num_features)
    found = model_cost.model_cost(graph, model, layers, [Shape(90, 40, 200, 80, 9, 0.5, 9)] * depth, 2)
    assert len(found.layers) == depth and found.widths[0] in (12, 16)


def test_frozen_parameters_have_no_gradients(tmp_path, monkeypatch):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    monkeypatch.setattr(model_cost, "timed", lambda run, device: run() or 1.0)
    (model := Mapped(8)).before.requires_grad_(False)
    found = model_cost.model_cost(graph, model, convolutions(model, 8), [Shape(90, 40, 200, 80, 9, 0.5, 9)], 2)
    whole, frozen = (sum(p.nbytes for p in module.parameters()) for module in (model, model.before))
    assert (found.parameters, found.frozen) == (whole, frozen) and found.learning == whole + 5 * (whole - frozen)


class Counted(torch.nn.Linear):
    """Counts the rows that it maps."""

    rows = 0

    def forward(self, x):
        Counted.rows += len(x)
        return super().forward(x)


class Encoded(torch.nn.Module):
    """Its inputs are mapped first, and rows between its layers, if there are two."""

    def __init__(self, features, depth):
        super().__init__()
        self.before, self.between = (Counted(wide, 12) for wide in (features, 12))
        self.layers = torch.nn.ModuleList(SAGEConv(12, 12) for _ in range(depth))

    def forward(self, x, edge_index):
        x = self.layers[0](self.before(x), edge_index)
        return x if len(self.layers) == 1 else self.layers[1](self.between(x), edge_index)


@pytest.mark.parametrize("depth", [1, 2])
def test_what_a_model_does_with_inputs_is_told_by_their_rows(tmp_path, monkeypatch, depth):
    """Not by those between its layers, of which there are as many here: so many are timed at most."""

    def timed(run, device):
        Counted.rows = 0
        run()
        return float(Counted.rows)

    monkeypatch.setattr(model_cost, "timed", timed)
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    model, shapes = Encoded(8, depth), [Shape(300_000, 60_000, 600_000, 250_000, 9, 0.5, 9)] * depth
    layers = convolutions(model, 8)
    found = model_cost.model_cost(graph, model, layers, shapes, 1, maps=True)
    assert found.inputs == 1.0 and found.between == pytest.approx(depth - 1, rel=0.01)
    assert model_cost.model_cost(graph, model, layers, shapes, 1).inputs == 0.0


@pytest.mark.parametrize("workers", [4, 256])
@pytest.mark.parametrize("width", [64, 1024])
def test_no_run_has_more_rows_than_tell_what_a_layer_costs(tmp_path, monkeypatch, width, workers):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=width)
    shape = Shape(30_000, 9_000, 60_000, 27_000, 5_000, 0.5, 8_000)
    seen, most = [], model_cost.most_rows((width, 16))
    run = model_cost._Bench(
        graph, Met(convolution_of(GCNConv(width, 16)), width, 16, learned=False), 0, shape, workers, CPU, False
    )
    monkeypatch.setattr(run, "_time", lambda layer, x=None: seen.append(layer.here.block) or 1.0)
    run.cost(True)
    run.by_column()
    by_column = seen.pop(-2)  # slices of all workers' rows; then comes the run with few
    assert by_column.num_src / 4 <= max(block.num_src for block in seen) == most < 27_000
    assert by_column.num_src / by_column.num_dst == pytest.approx(workers * 27_000 / 9_000, rel=0.05)
    assert by_column.num_edges * workers <= 4.5 * run._edges


def test_what_a_layer_takes_whatever_its_edges_is_no_cost_of_an_edge(tmp_path, monkeypatch):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=64)
    shape = Shape(30_000, 9_000, 60_000, 27_000, 5_000, 0.5, 8_000)
    run = model_cost._Bench(graph, Met(convolution_of(GCNConv(64, 16)), 64, 16, learned=False), 0, shape, 4, CPU, False)
    monkeypatch.setattr(run, "_time", lambda layer, x=None: 1.0 if isinstance(layer, WholeLayer) else 5.0)
    assert run.split(0.0, 0.0)[:2] == [0.0] * 2 and run.by_column() == 0.0


def test_a_pushed_edge_is_told_without_what_rows_take(tmp_path, monkeypatch):
    """The same as if whole rows were timed beside it."""
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=64)
    shape = Shape(30_000, 9_000, 60_000, 27_000, 5_000, 0.5, 8_000)
    run = model_cost._Bench(graph, Met(convolution_of(GCNConv(64, 16)), 64, 16, learned=False), 0, shape, 4, CPU, False)

    def time(layer, x):
        edges = sum(part.block.num_edges for part in layer.parts)
        by_edge = 0.05 if isinstance(layer, WholeLayer) else 0.1 if isinstance(layer.parts[0], EdgesById) else 0.08
        return 5.0 + 0.03 * layer.here.block.num_src + 0.02 * layer.num_dst + by_edge * edges

    monkeypatch.setattr(run, "_timed", time)
    found = run.cost(True)
    assert (found.source, found.destination, found.edge) == pytest.approx((0.03, 0.02, 0.05))
    assert (found.pushed, found.asked) == pytest.approx((0.08, 0.1), rel=0.01)


def test_what_several_threads_do_not_spare_is_found_by_runs_with_one_and_with_several(tmp_path, machine, monkeypatch):
    graph, before = communities(tmp_path / "g", vertices=200, edges=1000, width=64), torch.get_num_threads()
    shape = Shape(60_000, 9_000, 60_000, 27_000, 5_000, 0.5, 8_000)
    run = model_cost._Bench(graph, Met(convolution_of(GCNConv(64, 16)), 64, 16, learned=False), 0, shape, 4, CPU, False)
    rows = []

    def go(layer, x):
        rows.append(layer.here.block.num_src)
        machine.work(1.0 + 1e-3 * rows[-1] * (0.3 + 0.7 / torch.get_num_threads()))

    monkeypatch.setattr(run, "_run", go)
    monkeypatch.setattr(model_cost.time, "perf_counter", lambda: machine.now)
    assert run.alone(4) == pytest.approx(0.3) and torch.get_num_threads() == before
    assert max(rows) == 60_000  # as many as the layer has, which threads need
    assert run.cost(False).alone == 1.0  # where it was not timed
    monkeypatch.setattr(run, "_run", lambda layer, x: machine.work(1.0 + 1e-3 * torch.get_num_threads()))
    assert run.alone(2) == 1.0


@pytest.mark.parametrize("sizes, workers", [((2, 8, 8, 8, 3), 4), ((5, 4, 3, 3, 3), 2), ((1,), 3), ((2, 8, 8), 1)])
def test_no_worker_times_much_more_than_another(sizes, workers):
    of_each = dealt(sizes, workers)
    assert sorted(job for jobs in of_each for job in jobs) == list(range(len(sizes))) and len(of_each) == workers
    loads = [sum(sizes[job] for job in jobs) for jobs in of_each]
    assert max(loads) <= max(max(sizes), 4 / 3 * sum(sizes) / workers)


class ById(torch.nn.Module):
    """Its first feature is an id."""

    def __init__(self):
        super().__init__()
        self.table, self.conv = torch.nn.Embedding(1, 12), GCNConv(12, 3)

    def forward(self, x, edge_index):
        assert len(x) < 3 or len(x[:, 1].unique()) > 2
        return self.conv(self.table(x[:, 0].long() - 1), edge_index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_are_made_up_differ_and_ids_among_them_are_ones(tmp_path, dtype):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    assert model_cost.step_time(graph, ById().to(dtype), [40, 8]) > 0
    assert len(model_cost.some_rows(100, 8, dtype).unique()) > 10


def test_made_up_edges_are_as_many_to_each_as_they_can_be():
    for destinations in range(1, 70):
        for edges in range(70):
            made = random_block(5, destinations, edges)
            assert made.indptr.tolist() == [at * edges // destinations for at in range(destinations + 1)]


@pytest.mark.parametrize("stays", [False, True])
def test_layers_are_timed_as_batches_have_them(tmp_path, monkeypatch, stays):
    """On the full graph none by column, for slices are timed by themselves there, and none by request."""
    graph, kinds = communities(tmp_path / "g", vertices=200, edges=1000, width=8), []
    model, shape = GCN(8, 16, 2, 4), Shape(90, 40, 200, 80, 9, 0.5, 9)

    def forward(self, layer, x):
        kinds.append((type(layer), any(isinstance(edges, EdgesById) for edges in layer.parts)))
        return x

    monkeypatch.setattr(model_cost._Bench, "_forward", forward)
    monkeypatch.setattr(model_cost, "timed", lambda run, device: run() or 1.0)
    model_cost.model_cost(graph, model, convolutions(model, 8), [shape] * 2, 4, stays=stays)
    assert (ColumnLayer in dict(kinds), (SplitLayer, True) in kinds) == (not stays, not stays)
    assert (SplitLayer, False) in kinds


@pytest.mark.parametrize("workers", [4, 64, 1024])
def test_what_columns_take_by_edge_is_found_for_any_number_of_workers(tmp_path, monkeypatch, workers):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    met = Met(convolution_of(GCNConv(8, 4)), 8, 4, learned=False)
    shape = Shape(30_000, 9_000, 60_000, 27_000, 5_000, 0.5, 8)
    run = model_cost._Bench(graph, met, 0, shape, workers, CPU, False)

    def time(layer, x=None):
        return 5.0 + 1e-4 * sum(edges.block.num_edges for edges in layer.parts)

    monkeypatch.setattr(run, "_time", time)
    assert run.by_column() == pytest.approx(1e-4)


def test_a_pushed_edge_costs_no_less_than_one_that_is_not(tmp_path, monkeypatch):
    graph = communities(tmp_path / "g", vertices=200, edges=1000, width=8)
    met, shape = Met(convolution_of(GCNConv(8, 4)), 8, 4), Shape(90, 40, 200, 80, 9, 0.5, 9)
    run = model_cost._Bench(graph, met, 0, shape, 4, CPU, False)
    monkeypatch.setattr(run, "whole", lambda: [1.0, 0.1, 0.2, 0.3, 0.4])
    monkeypatch.setattr(run, "split", lambda source, destination: [0.0, 0.5, 1.25, 0.7, 0.8])
    assert run.cost(True) == LayerCost(1.0, 0.1, 0.2, 0.3, 0.3, 0.5, 0.0, 0.4, 0.0, 0.7, 0.8, more=0.25)


def test_what_was_kept_goes_by_how_layers_are_timed(monkeypatch):
    before = kept.traits_of_machine()
    monkeypatch.setattr(kept, "TIMED", kept.TIMED + 1)
    assert kept.traits_of_machine() != before


def test_pieces_are_the_same_work_each_time():
    piece = model_cost._piece(CPU)
    assert piece is model_cost._piece(CPU) and (piece() == piece()).all()
    assert 0 < model_cost.pace() < 1
