"""A device that there is none of: its tensors are in host memory, but torch takes them for those of another device.

So what runs on it gives real numbers, while what would fail or wait on a real device fails here:

- operations on tensors of the device and of host memory together, but for single numbers;
- copies between both, and operations that wait for the device to know a number or a size (`item`, `tolist`, `nonzero`, masks
  as indices, ...), anywhere but in the few functions that may (`MAY`), and in what these call.

It is torch's device for backends in Python (PrivateUse1), with one fallback for all operations; memory gets its device by a
DLPack capsule that says so. A process has it from the first call of `pretend` on.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

import weft

NAME = "pretended"
_ROOT = str(Path(weft.__file__).parent) + "/"
_DLPACK_CPU, _DLPACK_EXTERNAL = 1, 12  # DLPack's numbers: of host memory, and of devices that it does not know
_CPU = torch.device("cpu")

# The functions that may wait for the device, or copy: what they are for is in their names.
MAY = {
    "devices.py: copying",  # the one way from host memory to the device
    "devices.py: copied_together",
    "training/trainer.py: _end_epoch",  # looks once whether parameters are numbers
    "sampling/device_sampler.py: draw_hops",  # a hop waits to know how many edges and vertices it has
    "commands/embed.py: run",
    "training/loader.py: __init__",
    "training/run.py: __init__",
    "training/run_state.py: _copied",  # checkpoints
    "training/run_state.py: take_best",
    "training/run_state.py: resume",
    "training/checkpoint.py: save",
    "training/inference.py: infer",
    "training/evaluation.py: measure",
    "training/evaluation.py: _inferred",  # which is of it, in a thread of its own
    "training/staging.py: device_of",
    "api.py: _as_worker",  # what a script has workers train travels by way of host memory
    "api.py: _on_workers",
    "training/batches.py: __post_init__",  # the whole graph, once
    "placements/rounds.py: __post_init__",  # slices of the whole graph, once
    "placements/rounds.py: _by_round",
    "training/gradients.py: sum_gradients",  # once a step: the loss, and who has gradients
    "nn/coefficients.py: _constant",  # once
    "training/migration.py: pass_on",  # which gradients a model brings
    "nn/depths.py: _walk",  # before training
    "nn/conv/declared.py: _check_by_row",  # once a module, on its first rows
    "nn/depths.py: passage",  # once a model, on its first rows
    "nn/conv/blackbox.py: _is_of_edges",  # once a module, before its first rows
    "nn/row_by_row.py: other_parameters",  # as well
    "planner/model_cost.py: model_cost",  # likewise: layers are timed,
    "planner/probe_devices.py: probe_device",  # and devices
    "nn/models.py: forward",  # rows by their vertices' types
}
_WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "bincount",
    "unique_dim",
    "unique_consecutive",
    "_unique",
    "_unique2",
    "histc",
    "is_nonzero",
    "allclose",
}
_COPIES = {"_copy_from", "_copy_from_and_resize"}


class DeviceError(Exception):
    """What would fail, or wait, on a real device."""


@cache
def pretend() -> torch.device:
    """The device, from now on there in this process."""
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    _LIBRARY.fallback(_run, "PrivateUse1")
    _LIBRARY.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype in ((_IN_BF16, torch.bfloat16), (_IN_FULL, torch.float32)):
        for name in names:
            _OPERATIONS.impl(name, _cast(name, dtype), "AutocastPrivateUse1")
    device = torch.device(NAME, 0)
    _ = 1 - torch.empty(1, device=device)  # torch imports more of itself now: threads that do at once may crash
    return device


@contextmanager
def here() -> Iterator[torch.device]:
    """The device, with backward passes in the thread that calls them, as ranks that are threads need it."""
    with torch.autograd.set_multithreading_enabled(False):
        yield pretend()


def interpret(monkeypatch: Any) -> None:
    """Have Triton's interpreter run kernels on the device's memory, one at a time, wherever this process is to have them."""
    from weft.planner import probe_devices
    from weft.training import staging
    from weft.triton_kernels import draws, launch

    one, run = threading.Lock(), launch.launch

    def launched(kernel: Any, grid: Any, *args: Any, **constants: Any) -> None:
        with one:
            run(kernel, grid, *(_memory(x) if isinstance(x, Tensor) else x for x in args), **constants)

    monkeypatch.setattr(draws, "launch", launched)
    for module in (staging, probe_devices):
        monkeypatch.setattr(module, "has_kernels", lambda device: True)
    monkeypatch.setattr(staging, "memory_of", lambda device: 1 << 30)


class _Module(torch.utils.backend_registration._DummyBackendModule):
    """What torch.autocast asks of a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_LIBRARY, _OPERATIONS = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
# What autocast does in which precision, as on CUDA's devices; of those that a model may use.
_IN_BF16 = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "mv")
_IN_FULL = (
    "layer_norm",
    "exp",
    "log",
    "rsqrt",
    "reciprocal",
    "sum",
    "sum.dim_IntList",
    "softplus",
    "cumsum",
    "log_softmax.int",
    "nll_loss",
)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _cast(name: str, dtype: torch.dtype) -> Any:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.dtype in (torch.float32, torch.bfloat16) else x

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return op(*tree_map(cast, args), **tree_map(cast, kwargs))

    return run


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _moved(x: Tensor, device: int) -> Tensor:
    """The same memory on another device, by DLPack's number."""
    capsule = torch._C._to_dlpack(x)
    ctypes.c_int32.from_address(_pointer(capsule, b"dltensor") + 8).value = device
    return torch._C._from_dlpack(capsule)


def _there(x: Tensor) -> Tensor:
    """The same memory, on the device."""
    return _moved(x.detach(), _DLPACK_EXTERNAL)


def _memory(x: Tensor) -> Tensor:
    """The same memory, in the host's hands."""
    if not x.numel():  # which may be given memory
        return torch.empty(0, dtype=x.dtype).set_(torch.UntypedStorage(), 0, x.size(), x.stride())
    return _moved(x, _DLPACK_CPU)


def _place(x: Tensor) -> tuple[object, ...]:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


class _Signature(NamedTuple):
    """What is to be known of an operation, once."""

    name: str
    changes: bool  # some of what it is given
    tensors: tuple[int, ...]  # places of arguments that are tensors


@cache
def _signature(op: Any) -> _Signature:
    said = op._schema
    tensors = (place for place, one in enumerate(said.arguments) if one.type.kind() == "TensorType")
    return _Signature(said.name.removeprefix("aten::"), said.is_mutable, tuple(tensors))


_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype))  # what is the same anywhere
Known = dict[int, tuple[Tensor, Tensor]]  # by id of what has a tensor's memory on the host: that, and the tensor


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation on the device: checked, and done on its memory."""
    name, changes, tensors = _signature(op)
    if name == "is_set_to":
        return _place(args[0]) == _place(args[1])
    mine: Known = {}
    others: list[Tensor] = []
    with torch._C._InferenceMode(False):  # its tensors are ordinary ones
        args = _inside(args, mine, others)
        kwargs = {key: _inside(value, mine, others) for key, value in kwargs.items()}
        _check(name, args, kwargs, others)
        if name in _COPIES:
            source, target = args[:2]
            target.copy_(source)
            return next((x for memory, x in mine.values() if memory is target), target)
        # A number that stood for a tensor comes as such.
        numbers = any(isinstance(args[place], float | int) for place in tensors if place < len(args))
        results = (op.overloadpacket if numbers else op)(*args, **kwargs)
        for memory, x in mine.values() if changes else ():
            if memory.shape != x.shape or memory.data_ptr() != x.data_ptr():  # an output that was resized
                x.data = _there(memory)
        return _outside(results, mine)


def _inside(thing: Any, mine: Known, others: list[Tensor]) -> Any:
    """The same in host memory, and so what is in it."""
    if type(thing) in _PLAIN:
        return thing
    if isinstance(thing, Tensor):
        if thing.device.type != NAME:
            others.append(thing)
            return thing
        memory = _memory(thing)
        mine[id(memory)] = memory, thing
        return memory
    if isinstance(thing, list | tuple):
        return type(thing)([_inside(one, mine, others) for one in thing])
    return _CPU if isinstance(thing, torch.device) else thing


def _outside(result: Any, mine: Known) -> Any:
    if isinstance(result, list | tuple):
        return type(result)([_outside(one, mine) for one in result])
    if not isinstance(result, Tensor):
        return result
    return mine[id(result)][1] if id(result) in mine else _there(result)


def _check(name: str, args: Any, kwargs: Any, others: list[Tensor]) -> None:
    if name in _COPIES:
        if others:
            _only_where_it_may(f"a copy {'to' if others[0] is args[0] else 'from'} the device")
        return
    if left := [x for x in others if x.dim()]:
        raise DeviceError(f"{name} of the device got a tensor {tuple(left[0].shape)} that was left in host memory")
    if name in _WAITS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _only_where_it_may(f"{name} waits for the device")
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        masks = any(x is not None and x.dtype == torch.bool for x in args[1])
        if masks and not (name != "index" and args[2].numel() == 1):  # a number goes in without a look at the mask
            _only_where_it_may(f"{name} by a mask waits for the device")


def _only_where_it_may(what: str) -> None:
    frame, where = sys._getframe(1), []
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_qualname
        if file.startswith(_ROOT):
            where.append(f"{file.removeprefix(_ROOT)}: {function.split('.<locals>')[0].split('.')[-1]}")
        elif not where and file.startswith(str(Path(__file__).parent)) and file != __file__:
            return  # a test's own code looks at what came out
        frame = frame.f_back
    if where and not any(place in MAY for place in where):
        raise DeviceError(f"{what}, in {' < '.join(where[:4])}")
