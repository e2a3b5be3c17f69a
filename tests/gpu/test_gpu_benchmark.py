"""What of benchmarks/gpu.py needs no device: its arguments, its arithmetic, and that it says so in a sentence."""

import gpu
import pretended
import pytest
import torch

from weft.graph import communities
from weft.plan import Settings
from weft.training import loader


def test_bytes_that_a_kernel_needs():
    assert gpu.needed_bytes(rows=2, edges=5, width=3, itemsize=4) == 5 * 12 + 2 * 12 + 3 * 8 + 5 * 4


def test_a_share_is_of_the_bandwidth():
    one = gpu.Timed("sum", 128, seconds=0.5, bytes=700)
    assert one.share(2000) == 0.7
    assert gpu.table([one], 2000).splitlines()[1].split() == ["sum", "128", "500.000", "0", "70%"]


def test_peers_are_held_against_the_aims():
    assert gpu.verdicts({"weft": 2.0, "pyg": 6.0, "graphbolt": 2.5}) == (
        "pyg takes 3.0x as long (at least 3.0x); graphbolt takes 1.2x as long (less than 1.3x)"
    )
    assert gpu.verdicts({"weft": 2.0}) == "no peer to compare with"


def test_arguments(capsys):
    args = gpu.arguments(["--parts", "kernels,draws", "--widths", "4,8"])
    assert (args.parts, args.widths, args.peers) == (
        ["kernels", "draws"],
        [4, 8],
        ["weft", "pyg", "pyg-workers", "graphbolt"],
    )
    with pytest.raises(SystemExit):
        gpu.arguments(["--peers", "dgl"])
    assert "'dgl' is none of weft, pyg, pyg-workers, graphbolt" in capsys.readouterr().err


def test_a_block_of_the_kernels_is_sound():
    block = gpu.random_block(rows=4, degree=3, sources=7)
    assert block.indptr.tolist() == [0, 3, 6, 9, 12]
    assert 0 <= int(block.src.min()) <= int(block.src.max()) < 7


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled for the CUDA device here, not interpreted")
def test_an_epoch_by_a_cache_and_where_neighbours_are_drawn(monkeypatch, tmp_path):
    """On a device that there is none of."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    graph = communities(tmp_path / "graph", vertices=200, edges=1600, width=6, classes=4, train=0.4, seed=1)
    with pretended.here() as device:
        monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
        pretended.interpret(monkeypatch)
        given = {"hidden": 8, "fanouts": (3, 3), "batch_size": 40, "threads": 1, "epochs": 2, "device": "cuda"}
        found = [
            gpu.epochs_by(graph, Settings.of(sample_on=place, cache=share, **given), 1)
            for place in ("cpu", "device")
            for share in (0.0, 0.25, 1.0)
        ]
    assert all(seconds > 0 for seconds, _ in found)
    hits = [share for _, share in found]
    assert hits[:3] == hits[3:]  # the same neighbours, wherever they are drawn
    assert hits[0] == 0.0 and 0.25 < hits[1] < 1.0 and hits[2] == 1.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_it_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    with pytest.raises(SystemExit, match="needs a CUDA device, and torch finds none here"):
        gpu.main()
