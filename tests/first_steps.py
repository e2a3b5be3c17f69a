"""From a wheel to predictions, by the commands that the docs give: on one machine, and as steps of Slurm."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PAGES = {"local": "installing.md", "slurm": "clusters.md"}
_DOCS = Path(__file__).resolve().parents[1] / "docs"
_STEPS = {"venv": "environment", "pip": "installation", "import": "import", "partition": "partition"}
_STEPS |= {"train": "training", "embed": "predictions"}


def first_steps(where):
    """The commands of a page's block that begins with an environment, by what each is."""
    (block,) = re.findall(r"^```sh\n(python3 -m venv .*?)^```$", (_DOCS / PAGES[where]).read_text(), re.M | re.S)
    lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
    words = {line: {word.rpartition("/")[2] for word in shlex.split(line)} for line in lines}
    return {next(step for word, step in _STEPS.items() if word in words[line]): line for line in lines}


def write_tables(folder, vertices, edges):
    """Papers of eight topics with sixteen numbers that hint at it, and who cites whom, mostly of the own topic."""
    rng = np.random.default_rng(0)
    topics = np.sort(rng.integers(0, 8, vertices))
    hints = rng.normal(size=(8, 16))[topics] + rng.normal(scale=3, size=(vertices, 16))
    names = pa.array([f"paper {name}" for name in rng.permutation(vertices)])
    parts = rng.choice(["train", "validation", "test"], vertices, p=[0.6, 0.2, 0.2])
    rows = {"id": names, "topic": pa.array([f"topic {topic}" for topic in topics]), "part": parts}
    rows |= {f"f{column}": hints[:, column].astype(np.float32) for column in range(16)}
    pq.write_table(pa.table(rows), folder / "nodes.parquet")
    dst, first = rng.integers(0, vertices, edges), np.searchsorted(topics, np.arange(9))
    low, high = first[topics[dst]], first[topics[dst] + 1]
    src = np.where(rng.random(edges) < 0.7, rng.integers(low, high), rng.integers(0, vertices, edges))
    pq.write_table(
        pa.table({"src": names.take(pa.array(src)), "dst": names.take(pa.array(dst))}), folder / "edges.parquet"
    )


def bare_environment(folder, python):
    """Variables with which commands find a Python of this name, and what they install, but no compiler and no other Weft."""
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(os.path.realpath(python))} "$@"\n')
    (folder / "python3").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("HOME", "TMPDIR")}
    return kept | {"PATH": str(folder)}


def run_here(line, folder, environment):
    """A command of the docs in a shell; what it prints."""
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout
