"""What PyG generates for a convolution stays in memory, and TorchScript finds its text there."""

import inspect
import random
import subprocess
import sys
import tempfile

import torch
from torch_geometric.nn import MessagePassing, SAGEConv, Sequential

from weft.nn import build


class Doubling(MessagePassing):
    """A convolution that no other test makes."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return 2 * x_j


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    conv, edges = Doubling(), torch.tensor([[0, 1], [1, 1]])
    assert conv(torch.tensor([[1.0], [2.0]]), edges).tolist() == [[0.0], [6.0]]
    assert "Doubling_propagate" in type(conv).propagate.__module__
    assert "def propagate(" in inspect.getsource(type(conv).propagate)
    assert not list(tmp_path.iterdir())


def test_models_that_are_made_by_the_same_random_numbers_have_forwards_of_their_own():
    """PyG names what it makes for a sequential model by a number that it draws."""
    x, edges, found = torch.ones(2, 3), torch.tensor([[0, 1], [1, 1]]), []
    for layers in (1, 2):
        random.seed(0)
        found.append(Sequential("x, edge_index", [(Doubling(), "x, edge_index -> x")] * layers))
    assert [model(x, edges)[1, 0].item() for model in found] == [4.0, 8.0]


def test_a_script_that_is_run_once_more_while_its_model_is_made_goes_on(tmp_path):
    """PyG's Sequential makes a module that imports everything of the caller's file."""
    (tmp_path / "of_mine.py").write_text(
        "import weft.nn\n"
        "from torch_geometric.nn import GCNConv, Sequential\n"
        "Sequential('x, edge_index', [(GCNConv(4, 2), 'x, edge_index -> x')])\n"
    )
    done = subprocess.run([sys.executable, "of_mine.py"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_torchscript_finds_it():
    conv, x = SAGEConv(3, 2), torch.randn(4, 3)
    edges = torch.tensor([[0, 1, 2], [1, 3, 3]])
    assert torch.equal(torch.jit.script(conv)(x, edges), conv(x, edges))


def test_models_are_made_as_before():
    assert build("sage", 3, 4, 2, 2)(torch.randn(2, 3), torch.tensor([[0], [1]])).shape == (2, 2)
