"""Parts from outside are planned, priced and shown in tables: `weft plan` with one of each."""

import pytest

from weft import cli
from weft.graph import communities
from weft.partition import allocate, write_partitioned
from weft.planner import KINDS, Cluster, Host, write_cluster

MODEL = """
from torch import nn
from torch_geometric.nn import ResGatedGraphConv


class Net(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.convs = nn.ModuleList([ResGatedGraphConv(width, 8), ResGatedGraphConv(8, classes)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def make_model(in_channels, out_channels):
    return Net(in_channels, out_channels)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planned")
    graph = communities(folder / "g", vertices=1500, edges=6000, width=64, classes=4, train=0.2, block=100)
    write_partitioned(graph, allocate(graph, 2, "random"), 2, folder / "parts")
    work = dict.fromkeys(KINDS, 1e-9) | {"pace": 1e-3, "busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}
    hosts = tuple(Host(f"h{n}", 1e5, 1e12) for n in (1, 2))
    write_cluster(folder / "two.toml", Cluster(hosts, 1e-4, 1e-4, 1e10, work | {"cover": 1e-2}))
    (folder / "model.py").write_text(MODEL)
    return folder


@pytest.fixture
def plan(folder, capsys):
    """What `weft plan` says."""

    def call(*flags):
        run = ["plan", str(folder / "parts"), "--cluster", str(folder / "two.toml"), "--threads", "1", "--cache", "0"]
        assert cli.main([*run, "--fanouts", "4,3", "--batch-size", "30", *flags]) == 0
        return " ".join(capsys.readouterr().out.split())

    return call


def test_a_placement_is_chosen_where_it_is_best(plan):
    """Links are slow here and covers cost much."""
    told = plan("--hidden", "8")
    assert "plan push+shared seeds=home" in told
    assert "shared in layer 2: 108 kB instead of 109 kB" in told


def test_a_convolution_is_split_like_others(folder, plan):
    told = plan("--model", str(folder / "model.py"))
    assert "snp" in told and "split" in told and "shared" in told  # of black boxes none can be pushed


def test_a_sampler_is_planned_for(plan):
    one, other = plan("--hidden", "8", "--sampler", "window"), plan("--hidden", "8")
    assert "leap" in one and one != other  # other neighbours are drawn


def test_an_objective_is_planned_for(plan):
    assert "leap" in plan("--hidden", "8", "--task", "degree")


def test_other_numbers_of_hosts_are_partitioned_by_its_method(plan):
    assert "hosts" in plan("--hidden", "8", "--hosts", "1..4", "--method", "ranges")
