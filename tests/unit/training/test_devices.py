"""Devices without one: what is moved, what is refused, and that the pretended one (tests/pretended.py) catches mistakes."""

import gc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pretended
import pytest
import torch
from torch_geometric.nn.models import GraphSAGE

import weft
from weft.cli import main
from weft.devices import Movable, copied_together, memory_of, moved, tensors_of, used_here
from weft.errors import ConfigError
from weft.exchange import World
from weft.exchange.meeting import backends_for
from weft.operations import choice
from weft.plan import Settings, check_device
from weft.sampling import Block
from weft.training import evaluation, run, staging
from weft.training.staging import device_of


@pytest.fixture
def device():
    with pretended.here() as device:
        yield device


class Part(Movable):
    stays = frozenset({"ids"})

    def __init__(self, x, *others):
        self.x, self.ids, self.others, self.name = x, torch.arange(3), list(others), "part"


def test_all_of_it_moves_and_what_is_shared_stays_shared(device):
    x = torch.randn(4, 3)
    inner = Part(x)
    whole = Part(x.int(), inner, {"again": (inner, x)}, None)
    there = whole.to(device)
    found, table, none = there.others
    assert (there.x.device, found.x.device, there.name, none) == (device, device, "part", None)
    assert table["again"][0] is found and table["again"][1] is found.x
    assert torch.equal(found.x.cpu(), x) and whole.others[0] is inner and inner.x is x
    assert there.ids is whole.ids


def test_a_moved_thing_knows_its_twin(device):
    here = Part(torch.arange(5))
    there = here.to(device)
    assert there.host is here and here.host is here
    assert there.to("cpu") is here and here.to("cpu") is here
    made = there.from_host(lambda part: [part.x[part.x > 2], len(part.x)])
    assert made[0].device == device and made[0].cpu().tolist() == [3, 4] and made[1] == 5


def test_what_is_found_in_a_moved_thing_is_on_the_device(device):
    """Streams are told of its tensors, which those of its twin have no use for."""
    block = Block(torch.tensor([0, 2, 2, 5]), torch.tensor([1, 3, 2, 2, 4], dtype=torch.int32), 5, torch.arange(5))
    there = block.to(device)
    there.transposed()
    found = tensors_of([there, Part(torch.arange(5)).to(device)])
    assert len(found) > 2 and {tensor.device for tensor in found} == {device}
    used_here(found)


def test_copies_that_go_together_are_copies():
    tensors = [torch.arange(7, dtype=torch.int32), torch.randn(3, 2).T, torch.empty(0, 4), torch.tensor([True, False])]
    tensors += [torch.randn(300_000), torch.tensor(2.5, dtype=torch.float64)]
    there = copied_together(tensors, torch.device("cpu"), pinned=False)
    for one, other in zip(tensors, there, strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype and one.shape == other.shape
    assert (
        len({tensor.untyped_storage().data_ptr() for tensor in there if tensor.nbytes and tensor.nbytes < 1 << 20}) == 1
    )
    assert moved({"none": None}, lambda tensors: tensors) == {"none": None}


def test_blocks_on_the_device_are_those_of_the_host(device):
    block = Block(torch.tensor([0, 2, 2, 5]), torch.tensor([1, 3, 2, 2, 4], dtype=torch.int32), 5, torch.arange(5))
    there = block.to(device)
    for one, other in zip(block.transposed(), there.transposed(), strict=True):
        assert torch.equal(one, other.cpu()) and one.dtype == other.dtype
    looped, theirs = block.with_self_loops(), there.with_self_loops()
    assert torch.equal(looped.src, theirs.src.cpu()) and torch.equal(looped.indptr, theirs.indptr.cpu())
    assert torch.equal(block.dst(), there.dst().cpu()) and torch.equal(block.places(), there.places().cpu())


@pytest.mark.parametrize(
    ("wanted", "told"), [("cuda:7", r"device 'cuda:7' is not here \(.*\): choose device = 'cpu'"), ("meta", "'meta'")]
)
def test_a_device_that_is_not_there_is_refused(wanted, told):
    with pytest.raises(ConfigError, match=told):
        device_of(wanted, World())


def test_workers_without_a_device_for_themselves_compute_on_processors(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    world = World(1, 2, lacking="2 workers on host a have 1 CUDA device, and each needs one for itself")
    assert device_of("auto", world) == torch.device("cpu")
    with pytest.raises(
        ConfigError, match=r"^2 workers on host a .* for itself: start as many .* or set device = 'cpu'"
    ):
        device_of("cuda", world)


def test_a_device_with_a_number_is_the_workers_own_or_refused(one_device, monkeypatch):
    """Loader(device="cuda:0"), as scripts have it, means the same device to each of several workers."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(staging, "why_no_kernels", lambda: "")
    first, second, alone = World(0, 2, [0, 0]), World(1, 2, [0, 0]), World()
    assert [str(device_of("cuda", world)) for world in (first, second, alone)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert [str(device_of(torch.device("cuda:1"), world)) for world in (second, alone)] == ["cuda:1", "cuda:1"]
    with pytest.raises(ConfigError, match=r"^device = 'cuda:0' is for a host's one worker, and worker 1 has cuda:1"):
        device_of("cuda:0", second)
    lacking = World(0, 2, lacking="2 workers on host a have 1 CUDA device, and each needs one for itself")
    with pytest.raises(ConfigError, match=r"^2 workers on host a have 1 CUDA device"):
        device_of("cuda:0", lacking)


@pytest.fixture
def one_device(monkeypatch):
    """A device of CUDA's, as far as anybody asks."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: torch.empty(1))


def test_where_triton_can_start_no_kernels_a_device_is_refused_in_a_sentence(one_device, monkeypatch, capsys):
    """It needs a C compiler, and images often have none."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    from triton.runtime import driver

    def broken(self):
        raise RuntimeError("Failed to find C compiler.\nmore")

    monkeypatch.setattr(type(driver), "active", property(broken))
    choice.why_no_kernels.cache_clear()
    with pytest.raises(
        ConfigError, match=r"on cuda:0 \(Failed to find C compiler\): install gcc and .*set device = 'cpu'"
    ):
        device_of("cuda", World())
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "which can't start here: Failed to find C compiler\n" in capsys.readouterr().out
    choice.why_no_kernels.cache_clear()


def test_what_torch_keeps_of_freed_memory_is_left_for_a_run(monkeypatch):
    """Or a notebook's second run would have no cache, as the first one's memory is not given back."""
    for name, found in (("mem_get_info", (14, 80)), ("memory_reserved", 65), ("memory_allocated", 5)):
        monkeypatch.setattr(torch.cuda, name, lambda device, found=found: found)
    assert memory_of(torch.device("cuda", 0)) == 14 + 60


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_auto_takes_what_is_there():
    assert device_of("auto", World()) == torch.device("cpu")


def test_what_means_nothing_where_a_run_is_is_refused():
    check_device(Settings.of(products="bf16"), "cuda", 1)
    check_device(Settings.of(full_graph=True, plan="tp", overlap=False), "cuda", 1)
    with pytest.raises(
        ConfigError, match="products means nothing to a run on cpu: drop it, or set device = 'cuda' on a"
    ):
        check_device(Settings.of(products="tf32"), "cpu", 1)
    check_device(Settings.of(sample_on="device"), "cuda", 1)
    check_device(Settings.of(sample_on="auto"), "cpu", 1)
    with pytest.raises(ConfigError, match="sample_on means nothing to a run on cpu: drop it, or set device = 'cuda'"):
        check_device(Settings.of(sample_on="device"), "cpu", 1)
    for given in ({"overlap": True}, {"memory": "2GB"}):
        with pytest.raises(
            ConfigError, match=rf"{next(iter(given))} means nothing to a run on cuda: drop it, or set device"
        ):
            check_device(Settings.of(full_graph=True, plan="tp", **given), "cuda", 1)
    with pytest.raises(ConfigError, match="products means nothing to arithmetic in float64: drop it, or set dtype"):
        Settings.of(products="bf16", dtype="float64")


@pytest.fixture
def rounding(device, monkeypatch):
    """A function that makes a run on the device whose products are in some precision."""
    monkeypatch.setattr(run, "check_device", lambda settings, kind, workers: None)
    lists, features = np.arange(5), np.ones((4, 3), dtype=np.float32)
    graph = weft.Graph(lists, np.zeros(4, dtype=np.int32), features=features)

    def run_in(products):
        loader = weft.Loader(graph, [2], seeds=np.arange(4), products=products, device=device)
        return weft.parallel(GraphSAGE(3, 4, 1, 2), loader)

    return run_in


def test_tf32_is_asked_of_torch_until_the_last_such_run_is_closed(rounding):
    before = torch.get_float32_matmul_precision()
    first, full, second = (rounding(products) for products in ("tf32", "full", "tf32"))
    for closed, found in ((full, "high"), (first, "high"), (second, before), (second, before)):
        closed.close()
        assert torch.get_float32_matmul_precision() == found


def test_tf32_is_not_asked_for_once_the_run_is_gone(rounding):
    before, left = torch.get_float32_matmul_precision(), rounding("tf32")
    assert torch.get_float32_matmul_precision() == "high"
    del left
    gc.collect()
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("products", ["tf32", "full"])
def test_exact_evaluation_rounds_no_products(rounding, monkeypatch, products):
    """Another run's neither."""
    rounded, measured, seen = rounding("tf32"), rounding(products), []

    def inferred(*given):
        seen.append(torch.get_float32_matmul_precision())
        return SimpleNamespace(outputs=np.zeros((4, 2)))

    monkeypatch.setattr(evaluation, "inferred", inferred)
    evaluation._inferred(measured, np.arange(2))
    assert seen == ["highest"] and torch.get_float32_matmul_precision() == "high"
    for one in (measured, rounded):
        one.close()


def test_rows_on_devices_go_by_nccl_others_by_what_was_chosen():
    assert backends_for("sockets", False) == ""
    assert backends_for("sockets", True) == "cuda:nccl"
    assert backends_for("gloo", False) == "cpu:gloo"
    assert backends_for("gloo", True) == "cpu:gloo,cuda:nccl"


def run_as_weft(text, **given):
    """Runs a function's text as if it were a part of Weft: the check asks where code stands."""
    exec(compile(text, f"{Path(weft.__file__).parent}/nn/made_up.py", "exec"), given)


CAUGHT = {
    "a tensor left behind": ("x + host", "at least two devices"),
    "rows left behind": ("torch.index_select(host, 0, x)", "left in host memory"),
    "an index left behind": ("x[host]", "a copy to the device"),
    "item": ("x.sum().item()", "_local_scalar_dense waits for the device, in nn/made_up.py: f"),
    "float": ("float(x.sum())", "_local_scalar_dense"),
    "an if": ("1 if x.any() else 2", "_local_scalar_dense"),
    "tolist": ("x.tolist()", "a copy from the device"),
    "cpu": ("x.cpu()", "a copy from the device"),
    "nonzero": ("x.nonzero()", "nonzero"),
    "a mask as index": ("x[x > 1]", "nonzero"),
    "a mask that is set by a tensor": ("x.__setitem__(x > 1, x)", "by a mask"),
    "unique": ("x.unique()", "unique"),
    "bincount": ("torch.bincount(x)", "bincount"),
    "repeat_interleave": ("x.repeat_interleave(x)", "repeat_interleave"),
    "a new tensor of a list": ("x.new_tensor([1, 2])", "a copy to the device"),
}


@pytest.mark.parametrize("case", CAUGHT)
def test_the_device_finds_what_would_fail_or_wait(device, case):
    code, told = CAUGHT[case]
    x = torch.arange(3).to(device)
    with pytest.raises((pretended.DeviceError, RuntimeError), match=told):
        run_as_weft(f"def f(x, host): {code}\nf(x, host)", x=x, host=torch.arange(3), torch=torch)


@pytest.mark.parametrize("code", ["x[1:].sum()", "x.masked_fill(x > 1, 0)", "x.__setitem__(x > 1, 5)", "x + 1", "x[x]"])
def test_the_device_lets_the_rest_pass(device, code):
    run_as_weft(f"def f(x): {code}\nf(x)", x=torch.arange(3).to(device))


def test_numpy_is_refused_as_by_any_device(device):
    with pytest.raises(TypeError, match="can't convert pretended:0 device type tensor to numpy"):
        torch.arange(3).to(device).numpy()


def test_memory_lives_as_long_as_what_was_made_of_it(device):
    rows = torch.randn(100, 3).to(device)[50:]
    wanted = rows.cpu()
    for _ in range(20):
        torch.randn(100, 3).to(device)
    assert torch.equal(rows.cpu(), wanted)
