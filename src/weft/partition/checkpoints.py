"""Finished steps of a long job, kept beside its target until that is there, so that a job that was stopped goes on."""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from weft.graph import forget_steps, named_errors, steps_folder, with_sum, without_sum, written_beside
from weft.threads import PARSING


class CheckpointedSteps:
    """Arrays that take long to compute, by name, in a hidden folder beside the target; a folder for each set of inputs."""

    def __init__(self, target: Path, inputs: Any) -> None:
        """`inputs`: all that results depend on, as plain data."""
        self._target = Path(target)
        self._folder = steps_folder(self._target, inputs)
        self._within = ""
        self.resumed: list[str] = []  # steps that were finished already

    def within(self, name: str) -> Self:
        """The same, for the steps of something that is a step itself."""
        inner = copy.copy(self)
        inner._within = f"{self._within}{name}-"
        return inner

    def once(self, name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """What `make` gives, or gave for the same inputs before."""
        name = self._within + name
        file = self._folder / f"{name}.npy"
        found = _read(file)
        if found is not None:
            self.resumed.append(name)
            return found
        found = make()
        data = io.BytesIO()
        np.save(data, found)
        with written_beside(file) as beside:
            beside.write_bytes(with_sum(data.getvalue()))
        return found

    def forget(self) -> None:
        """The target is there: drop the steps towards it, whatever the inputs."""
        forget_steps(self._target)


def _read(file: Path) -> np.ndarray | None:
    """A finished step; None where it is not there, or not as it was written: then it is made again."""
    if not file.exists():
        return None
    with named_errors(file, "reading"):
        data = without_sum(file.read_bytes())
    if data is None:
        return None
    with PARSING:
        return np.load(io.BytesIO(data), allow_pickle=False)
