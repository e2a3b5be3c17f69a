"""What tests of Triton's kernels share: small blocks, and the CPU's tensors going to other kernels."""

import pytest
from small_blocks import BLOCKS, random_block

from weft import triton_kernels
from weft.operations import choice, plain


@pytest.fixture(params=BLOCKS)
def block(request):
    return random_block(*BLOCKS[request.param])


@pytest.fixture(params=["triton", "torch"])
def on_device(request, monkeypatch):
    """A function that runs another as if the CPU's tensors were on a device, by Triton's kernels or by torch alone."""
    there = {"triton": triton_kernels, "torch": plain}[request.param]

    def run(function, *args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(choice, "compiled", there)
            choice.operations_on.cache_clear()
            try:
                return function(*args, **options)
            finally:
                choice.operations_on.cache_clear()

    return run


@pytest.fixture(autouse=True)
def short_strides(request, monkeypatch):
    """Loops take two or four edges at once, but where blocks have a hub: the interpreter goes through absent edges too."""
    if "block" not in request.fixturenames or request.getfixturevalue("block").num_edges != BLOCKS["a hub"][2]:
        for module in ("sums", "film_sums"):
            monkeypatch.setattr(f"weft.triton_kernels.{module}._AHEAD", 2)
        monkeypatch.setattr("weft.triton_kernels.launch._EDGES", 4)
        for module in ("attention", "attention_v2"):  # several programs, though there are few rows
            monkeypatch.setattr(f"weft.triton_kernels.{module}._ROWS", 8)
