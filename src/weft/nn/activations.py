"""What a model's dense part keeps for its gradients: all of it; nothing, and it is computed again; or all, in a file."""

import os
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import StorageError
from weft.exchange import bytes_of
from weft.keys import GeneratorStates, generators_kept
from weft.nn.kept_state import KeptState, state_kept

_SMALL = 1 << 12  # bytes that are not worth a trip to a file

# Some rows' results, tensors of a row each; a function of the first and the last of these rows.
Make = Callable[[int, int], tuple[Tensor, ...]]


def again(make: Make, rows: int, at_once: int, model: nn.Module) -> tuple[Tensor, ...]:
    """What `make` gives for all rows, `at_once` of them at a time; backward each piece is made again, and nothing is kept.

    Only parameters get gradients, and they must be the model's. Each piece, backward too, begins with the random numbers and
    with what the model keeps, that the first one began with: together they are one forward.
    """
    pieces = [(first, min(first + at_once, rows)) for first in range(0, max(rows, 1), at_once)]
    return _Again.apply(make, pieces, model, *(p for p in model.parameters() if p.requires_grad))


def by_rows(model: nn.Module) -> bool:
    """Does a model's dense part treat each row by itself? Batch normalisation sees all of them at once."""
    return not any(isinstance(module, _BatchNorm) for module in model.modules())


class _Again(torch.autograd.Function):
    """Forward: piece by piece. Backward: piece by piece once more, with a gradient that goes straight to the parameters."""

    @staticmethod
    def forward(
        ctx: Any, make: Make, pieces: list[tuple[int, int]], model: nn.Module, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.pieces, ctx.model, states = pieces, model, (KeptState(model), GeneratorStates())

        def begun(first: int, end: int) -> tuple[Tensor, ...]:
            for state in states:
                state.put_back()
            return make(first, end)

        ctx.make, made = begun, [begun(*piece) for piece in pieces]
        return tuple(torch.cat(parts) for parts in zip(*made, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        with generators_kept(), state_kept(ctx.model):
            for first, end in ctx.pieces:
                with torch.enable_grad():
                    made = ctx.make(first, end)
                wanted = [(rows, g[first:end]) for rows, g in zip(made, gradients, strict=True) if rows.requires_grad]
                if wanted:
                    rows, of_rows = zip(*wanted, strict=True)
                    torch.autograd.backward(rows, of_rows)
        return (None,) * len(ctx.needs_input_grad)


@dataclass(frozen=True, eq=False)
class Written:
    """What is in a file: from which byte on, and how to read it."""

    at: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Spilled:
    """While this lasts, what is kept for gradients goes to a file, and is read back where it is needed."""

    def __init__(self, stay: list[Tensor]) -> None:
        """`stay`: what is in memory anyway. The file is gone when the process is."""
        self._stay = {tensor.untyped_storage().data_ptr() for tensor in stay}
        self._file, name = tempfile.mkstemp(prefix="weft-activations-")
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)
        self._end, self._held = 0, weakref.WeakSet[Written]()  # what a gradient may still be made of
        self._hooks = saved_tensors_hooks(self._write, self._read)

    def __enter__(self) -> None:
        self._end = self._end if self._held else 0
        self._hooks.__enter__()

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _write(self, kept: Tensor) -> Tensor | Written:
        if kept.nbytes < _SMALL or kept.untyped_storage().data_ptr() in self._stay:
            return kept
        plain = kept.detach().as_subclass(Tensor).cpu().contiguous()
        at, self._end = self._end, self._end + plain.nbytes
        data = bytes_of(plain).numpy().data
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], at + written)
        except OSError as error:
            raise StorageError(
                f"what the dense layers keep can't be written to a temporary file ({error.strerror}): make room on its "
                f"disk, or set TMPDIR to a folder with more"
            ) from None
        found = Written(at, kept.shape, kept.dtype, kept.device)
        self._held.add(found)
        return found

    def _read(self, held: Tensor | Written) -> Tensor:
        if isinstance(held, Tensor):
            return held
        out = torch.empty(held.shape, dtype=held.dtype)
        data = bytes_of(out).numpy().data
        read = 0
        while read < len(data):
            read += os.preadv(self._file, [data[read:]], held.at + read)
        return out.to(held.device)


def kept_by(run: Callable[[], object], stay: list[Tensor]) -> int:
    """Bytes that a forward pass keeps for its gradients, without what is in memory anyway."""
    known = {tensor.untyped_storage().data_ptr() for tensor in stay}
    found: dict[int, Tensor] = {}

    def note(kept: Tensor) -> Tensor:
        at = kept.untyped_storage().data_ptr()
        if at not in known:
            found[at] = kept  # held, so that its place is nobody else's meanwhile
        return kept

    with saved_tensors_hooks(note, lambda kept: kept):
        run()
    return sum(kept.untyped_storage().nbytes() for kept in found.values())
