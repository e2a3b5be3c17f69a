"""Checkpoints: a folder each, of one safetensors file and one JSON file, each with its sum, written all or nothing.

A run is a function of its settings and its state at a batch, as all randomness is keyed: a checkpoint holds parameters,
buffers, the optimiser's tensors and a few numbers, and a run resumed from it ends in the same bits.
"""

import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from weft.config import check_writable
from weft.errors import StorageError, TrainingError, WeftError, reason_of
from weft.graph import check_free, named_errors, place_of_processes, remove_all_leftovers, remove_whole, written_beside
from weft.plan import CheckpointSettings

VERSION = 2  # 1, of 0.1.0: state.json has no sum of its own
_TENSORS, _STATE, _SUM = "state.safetensors", "state.json", b',\n "sum": '
_LOCK = ".lock"  # of a run's folder
BEST = "best"  # in it, the best model so far
_LEASE = 100.0  # seconds: file servers keep the locks of a host that is gone for up to 90


class Kind(NamedTuple):
    """What a folder is to its reader, and what to do where it can't be read."""

    name: str
    remedy: str


_CHECKPOINT = Kind("checkpoint", ": resume from another one")
MODEL = Kind("trained model", ": train it again, or take a copy")


class NewerError(TrainingError):
    """A checkpoint is whole, but of a version that is not known yet."""


def save(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint folder, replacing one that is there."""
    with written_beside(folder) as beside:
        beside.mkdir()
        data = save_tensors(_apart(tensors))
        (beside / _TENSORS).write_bytes(data)
        state = {"version": VERSION, "crc32": zlib.crc32(data), **state}
        # On one line: laid out, a long history would take several times its size meanwhile.
        text = json.dumps(state).removesuffix("}").encode()
        (beside / _STATE).write_bytes(text + _sum_of(text))


def check_place(folder: Path, checkpoints: Path | None = None) -> None:
    """Refuse a place for a trained model where something else is, before anything long is computed for it.

    `checkpoints`: where those of the same run go.
    """
    with named_errors(folder, "looking at"):
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"{folder} is a file, and a trained model is a folder: choose another name")
        others = sorted({entry.name for entry in folder.iterdir()} - {_TENSORS, _STATE}) if folder.is_dir() else []
        if others:
            raise StorageError(
                f"{folder} is no trained model (there is {others[0]}), so it will not be replaced: choose another name"
            )
        if _is_checkpoint(folder):
            raise StorageError(f"{folder} is a run's checkpoint, so it will not be replaced: choose another name")
        check_writable(folder)
    if checkpoints is not None:
        out, kept = (Path(os.path.realpath(place)) for place in (folder, checkpoints))
        if out == kept or out in kept.parents or kept in out.parents:
            raise StorageError(
                f"the trained model can't be saved at {folder}, as checkpoints go to {checkpoints}: name another"
            )


def check_room(folder: Path, model: nn.Module) -> None:
    """Refuse a place for a trained model where it has no room, before it is trained."""
    need = sum(tensor.nbytes for tensor in model.state_dict().values())
    check_free("the trained model", need, folder, folder.absolute())


def check_new(kept: CheckpointSettings) -> None:
    """Refuse a folder with an earlier run's checkpoints, which this run does not go on from; and what is itself one."""
    folder = kept.folder
    if folder is None:
        return
    with named_errors(folder, "looking at"):
        itself, earlier = (folder / _STATE).exists() or (folder / _TENSORS).exists(), bool(_steps(folder))
    if itself:
        what = "a checkpoint" if _is_checkpoint(folder) else "a trained model"
        raise TrainingError(f"{folder} is {what} itself: name the folder that a run's checkpoints are in, or another")
    if earlier and not kept.resume:
        raise TrainingError(
            f"{folder} holds checkpoints of an earlier run: go on from them with --resume (in Python resume=True), or "
            f"choose another folder"
        )


def claimed(folder: Path) -> tuple[int, bool]:
    """A folder of checkpoints as this run's alone, while the file that is given stays open; and whether its lock was got."""
    with named_errors(folder, "making"):
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"{folder} is a file, and checkpoints go to a folder: choose another name")
        folder.mkdir(parents=True, exist_ok=True)
    lock = folder / _LOCK
    with named_errors(lock, "writing"):  # a file, opened for writing: NFS locks no others for all hosts
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            return file, _locked(file, lock)
        except BaseException:
            os.close(file)
            raise


def _locked(file: int, lock: Path) -> bool:
    """Lock a file for as long as it is open; no: there are no locks here. Where it was locked elsewhere, this may wait."""
    here, end = place_of_processes().encode(), time.monotonic() + _LEASE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if os.pread(file, len(here), 0) in (here, b"") or time.monotonic() > end:
                raise TrainingError(
                    f"another run writes its checkpoints to {lock.parent}: choose another folder, or wait until it has "
                    f"ended (if its host is gone for good, remove {lock})"
                ) from None
            time.sleep(1)
        except OSError:
            return False
        else:
            os.pwrite(file, here, 0)
            return True


def load(folder: Path, kind: Kind = _CHECKPOINT) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint folder; one that is damaged is an error that says so."""
    try:
        with named_errors(folder, "reading the checkpoint"):
            missing = [name for name in (_STATE, _TENSORS) if folder.is_dir() and not (folder / name).exists()]
            if len(missing) == 2:
                raise TrainingError(f"{folder} is no checkpoint and no trained model: it has no {_STATE}")
            if missing:
                raise ValueError(f"{missing[0]} is missing")
            text, data = (folder / _STATE).read_bytes(), (folder / _TENSORS).read_bytes()
        said, found, _ = text.rpartition(_SUM)
        state = json.loads(text)
        if text != said + _sum_of(said) if found else state["version"] != 1:
            raise ValueError(f"the checksum of {_STATE} differs")
        if state["version"] > VERSION:
            raise NewerError(
                f"{folder} is a checkpoint of version {state['version']}, this Weft reads {VERSION}: upgrade Weft"
            )
        if zlib.crc32(data) != state["crc32"]:
            raise ValueError("its checksum differs")
        return load_tensors(data), state
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise TrainingError(f"the {kind.name} {folder} is damaged ({error}){kind.remedy}") from None


@contextmanager
def sensible(folder: Path, kind: Kind = _CHECKPOINT) -> Iterator[None]:
    """While a checkpoint is made use of: what no run would have written, with sums that fit, is an error that says so."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise TrainingError(
            f"the {kind.name} {folder} holds what no run of Weft writes ({reason_of(error)}){kind.remedy}"
        ) from None


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in memory that no two of them share, as a file needs them; layers may share parameters."""
    found, taken = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        memory = own.untyped_storage().data_ptr()
        found[name] = own.clone() if memory in taken else own
        taken.add(memory)
    return found


def _sum_of(text: bytes) -> bytes:
    """The end of a JSON object, with the sum of all before."""
    return _SUM + b"%d\n}\n" % zlib.crc32(text)


def checkpoint_damage(folder: Path) -> str:
    """What is wrong with a checkpoint or a trained model; nothing if it is sound."""
    try:
        load(folder)
    except WeftError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read."""

    folder: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    problems: list[str]  # with newer ones, which were passed over

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by what comes after."""
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def save_step(
    folder: Path,
    keep: int,
    step: int,
    tensors: dict[str, Tensor],
    state: dict[str, Any],
    passed_over: set[Path] | None = None,
) -> None:
    """Write the checkpoint of a step into a run's folder, then drop all but the newest few.

    `passed_over`: those that could not be read when the run went on from an earlier one, which don't count until they are
    written again.
    """
    new, passed_over = folder / f"step-{step:09d}", passed_over or set()
    save(new, tensors, state)
    passed_over.discard(new)
    with named_errors(folder, "removing old checkpoints in"):
        for old in [one for one in _steps(folder) if one not in passed_over][:-keep]:
            remove_whole(old)
    tidy(folder, alone=False)


def tidy(folder: Path, alone: bool) -> None:
    """Remove what runs that were killed have left half written, or half removed; `alone`: nobody writes there elsewhere.

    What else is in the folder has another writer.
    """
    with named_errors(folder, "removing leftovers in"):
        for ours in (BEST, "step-*"):
            remove_all_leftovers(folder, ours, alone)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint in a run's folder that can be read; None where there is none."""
    problems: list[str] = []
    for step in reversed(_steps(folder)):
        try:
            return Checkpoint(step, *load(step), problems)
        except NewerError:
            raise
        except (TrainingError, StorageError) as error:
            problems.append(str(error).removesuffix(_CHECKPOINT.remedy))
    if problems:
        raise TrainingError(
            f"no checkpoint in {folder} can be read ({'; '.join(problems)}): choose another folder, or remove "
            f"this one, to train from the beginning"
        )
    return None


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{number}.{name}": value
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put saved tensors back into an optimiser of the same parameters."""
    whole = optimizer.state_dict()
    whole["state"] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            whole["state"].setdefault(int(number), {})[key] = value
    optimizer.load_state_dict(whole)


def _is_checkpoint(folder: Path) -> bool:
    """Are its files a run's, as far as they can be read, and not a trained model's?"""
    try:
        return "features" not in json.loads((folder / _STATE).read_bytes())
    except (OSError, ValueError):
        return False


def _steps(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"step-\d{9}", path.name))
