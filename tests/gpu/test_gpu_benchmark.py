"""What of benchmarks/gpu.py needs no device: its arguments, its arithmetic, and that it says so in a sentence."""

import gpu
import pytest
import torch


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
    assert (args.parts, args.widths, args.peers) == (["kernels", "draws"], [4, 8], ["weft", "pyg", "graphbolt"])
    with pytest.raises(SystemExit):
        gpu.arguments(["--peers", "dgl"])
    assert "'dgl' is none of weft, pyg, graphbolt" in capsys.readouterr().err


def test_a_block_of_the_kernels_is_sound():
    block = gpu.random_block(rows=4, degree=3, sources=7)
    assert block.indptr.tolist() == [0, 3, 6, 9, 12]
    assert 0 <= int(block.src.min()) <= int(block.src.max()) < 7


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_it_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    with pytest.raises(SystemExit, match="needs a CUDA device, and torch finds none here"):
        gpu.main()
