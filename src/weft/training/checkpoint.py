"""Checkpoints: a folder each, of one safetensors file and one JSON file, written all or nothing, checked when read.

A run is a function of its settings and its state at a batch, as all randomness is keyed: a checkpoint holds parameters,
buffers, the optimiser's tensors and a few numbers, and a run resumed from it ends in the same bits.
"""

import json
import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from weft.errors import TrainingError, WeftError
from weft.graph import named_errors, written_beside

VERSION = 1
_TENSORS, _STATE = "state.safetensors", "state.json"


def save(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint folder, replacing one that is there."""
    with written_beside(folder) as beside:
        beside.mkdir()
        data = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        (beside / _TENSORS).write_bytes(data)
        state = {"version": VERSION, "crc32": zlib.crc32(data), **state}
        (beside / _STATE).write_text(json.dumps(state, indent=1))


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint folder; one that is damaged is an error that says so."""
    with named_errors(folder, "reading the checkpoint"):
        text, data = (folder / _STATE).read_bytes(), (folder / _TENSORS).read_bytes()
    try:
        state = json.loads(text)
        if state["version"] != VERSION:
            raise TrainingError(
                f"{folder} is a checkpoint of version {state['version']}, this Weft reads {VERSION}: upgrade Weft"
            )
        if zlib.crc32(data) != state["crc32"]:
            raise TrainingError(f"the checkpoint {folder} is damaged: its checksum differs; resume from another one")
        return load_tensors(data), state
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise TrainingError(f"the checkpoint {folder} is damaged ({error}): resume from another one") from None


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


def save_step(folder: Path, keep: int, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write the checkpoint of a step into a run's folder, then drop all but the newest few."""
    save(folder / f"step-{step:09d}", tensors, state)
    for old in _steps(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint in a run's folder that can be read; None where there is none."""
    problems: list[str] = []
    for step in reversed(_steps(folder)):
        try:
            return Checkpoint(step, *load(step), problems)
        except TrainingError as error:
            problems.append(str(error))
    if problems:
        raise TrainingError(f"no checkpoint in {folder} can be read ({problems[0]}): train from the beginning")
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


def _steps(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"step-\d{9}", path.name))
