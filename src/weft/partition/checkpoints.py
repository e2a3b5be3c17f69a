"""Finished steps of a long job, kept beside its target until that is there, so that a job that was stopped goes on."""

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from weft.graph import named_errors

Once = Callable[[str, Callable[[], np.ndarray]], np.ndarray]  # what a step of that name gives, or gave before


def without_checkpoints(_name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
    """The step made, and kept nowhere."""
    return make()


class CheckpointedSteps:
    """Arrays that take long to compute, by name, in a hidden folder beside the target; a folder for each set of inputs."""

    def __init__(self, target: Path, inputs: Any) -> None:
        """`inputs`: all that results depend on, as plain data."""
        text = json.dumps(inputs, sort_keys=True, default=str)
        self._target = Path(target)
        self._folder = self._hidden(hashlib.sha256(text.encode()).hexdigest()[:16])
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
        if file.exists():
            with named_errors(file, "reading"):
                found: np.ndarray = np.load(file, allow_pickle=False)
            self.resumed.append(name)
            return found
        found, unfinished = make(), file.with_suffix(".unfinished")
        with named_errors(file, "writing"):
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(unfinished, "wb") as out:
                np.save(out, found)
            unfinished.rename(file)
        return found

    def forget(self) -> None:
        """The target is there: drop the steps towards it, whatever the inputs."""
        for folder in self._target.parent.glob(self._hidden("*").name):
            shutil.rmtree(folder, ignore_errors=True)

    def _hidden(self, key: str) -> Path:
        return self._target.parent / f".{self._target.name}.steps-{key}"
