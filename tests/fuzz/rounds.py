"""Rounds of damage, and what is wrong with how commands took it; `make fuzz` runs this file for an hour.

python tests/fuzz/rounds.py [--seconds 3600] [--seed 0]
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import pyarrow.parquet
import tables
from damage import WAYS, damaged
from outcomes import Commands, Here, Outcome

_TRAIN = ("--epochs", "1", "--hidden", "4", "--fanouts", "2", "--threads", "1", "--seed", "1", "--log", "json")
_ACCEPTED = {"refused": ("refused",), "same": ("same",), "either": ("refused", "same", "different")}
Found = tuple[str, str, str]  # the verdict, what was done, and what is wrong about it (nothing: all is well)


def contents(path: Path) -> dict[str, str] | None:
    """A sum of each file but manifests; None where there is nothing."""
    if not path.exists():
        return None
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    whole = [file for file in files if file.is_file() and file.name != "manifest.json"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in whole}


class GraphRounds:
    """Damaged graph directories under `weft info`, `verify`, `partition` and `train`."""

    def __init__(self, folder: Path, commands: Commands | Here, names: tuple[str, ...]) -> None:
        self._folder, self._commands, self._names = folder, commands, names
        self._sound: dict[tuple[str, str], object] = {}
        for kind, make in graphs.KINDS.items():
            make(folder / kind)
            for name in names:
                outcome, result = self._run(name, folder / kind)
                assert outcome.kind == "done", (kind, name, outcome)
                self._sound[kind, name] = result

    def one(self, number: int) -> Found:
        """Damage a graph in the way of this number, and run a command on it."""
        ways, kinds = sorted(WAYS), sorted(graphs.KINDS)
        kind, way = kinds[number % len(kinds)], ways[number // len(kinds) % len(ways)]
        name = self._names[number // len(kinds) // len(ways) % len(self._names)]
        copy = self._folder / "damaged"
        told = f"{name} {kind} {number}: {damaged(self._folder / kind, copy, way, number)}"
        before = contents(copy)
        outcome, result = self._run(name, copy)
        verdict = outcome.kind
        if verdict == "done":
            verdict = "same" if result == self._sound[kind, name] else "changed"
        wrong = "" if verdict in ("refused", "same", "damaged") else outcome.err[-300:] or "it was taken as sound"
        if contents(copy) != before:
            wrong = "the input was changed"
        return verdict, told, wrong

    def _run(self, name: str, graph: Path) -> tuple[Outcome, object]:
        model, out = self._folder / "model", self._folder / "out"
        for left in (model, out):
            shutil.rmtree(left, ignore_errors=True)
        if name == "train":
            outcome = self._commands.run("train", graph, *_TRAIN, "--out", model)
            return outcome, contents(model / "state.safetensors")
        if name == "partition":
            return self._commands.run("partition", graph, out, "--parts", 2, "--method", "random"), contents(out)
        outcome = self._commands.run(name, graph, *(["--json"] if name == "info" else []))
        lines = outcome.out.replace(str(graph), "").splitlines()
        return outcome, [
            line for line in lines if not line.startswith("manifest.json")
        ]  # laid out anew, it is the same


class TableRounds:
    """Tables and arrays that go wrong, under `weft import`."""

    def __init__(self, folder: Path, commands: Commands | Here) -> None:
        self._folder, self._commands = folder, commands
        self._sound = []
        for names in (False, True):
            source = self._fresh()
            for name, table in tables.sound(names).items():
                pyarrow.parquet.write_table(table, source / f"{name}.parquet")
            self._sound.append(self._import(tables.argv_of(source, "parquet", names)))
        source = self._fresh()
        for name, array in tables.arrays().items():
            np.save(source / f"{name}.npy", array)
        self._sound.append(self._import([str(source)]))

    def _fresh(self) -> Path:
        for left in self._folder.iterdir():
            shutil.rmtree(left)
        (self._folder / "source").mkdir()
        return self._folder / "source"

    def _import(self, argv: list[str]) -> dict[str, str] | None:
        outcome = self._commands.run("import", *argv, self._folder / "out")
        assert outcome.kind == "done", outcome
        return contents(self._folder / "out")

    def one(self, number: int) -> Found:
        """Import what the case of this number spoiled."""
        source = self._fresh()
        case = tables.KINDS[number % len(tables.KINDS)](source, np.random.default_rng([7, number]))
        outcome = self._commands.run("import", *case.argv, self._folder / "out")
        verdict = outcome.kind
        if verdict == "done":
            verdict = "same" if contents(self._folder / "out") in self._sound else "different"
        elif [path.name for path in self._folder.iterdir()] != ["source"]:
            verdict = "litter"
        wrong = "" if verdict in _ACCEPTED[case.expected] else f"expected {case.expected}: {outcome.err[-300:]}"
        return verdict, f"import {number}: {case.told}", wrong


def rounds(folder: Path, commands: Commands, seed: int = 0) -> Iterator[Found]:
    """Graphs and tables in turn, for ever."""
    for name in ("graphs", "tables"):
        (folder / name).mkdir()
    on_graphs = GraphRounds(folder / "graphs", commands, ("info", "verify", "partition", "train"))
    on_tables = TableRounds(folder / "tables", commands)
    number = seed
    while True:
        yield on_graphs.one(number)
        yield on_tables.one(number)
        number += 1


def run_for(seconds: float, seed: int = 0) -> tuple[Counter[str], list[Found]]:
    """How often each verdict came, and those that are wrong."""
    counts: Counter[str] = Counter()
    wrong = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as folder, Commands() as commands:
        for found in rounds(Path(folder), commands, seed):
            counts[found[0]] += 1
            wrong += [found] if found[2] else []
            if time.monotonic() > end:
                return counts, wrong
    raise AssertionError("rounds go on for ever")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    verdicts, failures = run_for(given.seconds, given.seed)
    print(*(f"{verdict}: {told}\n    {why}" for verdict, told, why in failures), sep="\n")
    print(f"{sum(verdicts.values())} cases: {dict(verdicts)}; {len(failures)} wrong")
    sys.exit(1 if failures else 0)
