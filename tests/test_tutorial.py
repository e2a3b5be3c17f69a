"""The tutorial's steps, one after the other, as its reader runs them."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from launcher import anew, ran

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
TOLD = {  # what a reader is to see of some steps
    "weft info graph": "3,000",
    "python compare.py": "the greatest difference",
    "python own_model.py": "accuracy on the test split: 0.",
    "python read.py": "'p0'",
    "weft partition graph parts --parts 2": "halo",
}


def steps():
    """The tutorial's blocks: their language and their text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", [ran, pytest.param(anew, marks=pytest.mark.slow)])
def test_every_step(run, probed, tmp_path, monkeypatch):
    """All but `weft probe`, which has been run just so, on a smaller graph."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun leaves its own logs
    told = {}
    for language, text in steps():
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text)[1]
            (tmp_path / name).write_text(text)
        for command in text.splitlines() if language == "sh" else []:
            if command == "weft probe --workers 2 --out cluster.toml":
                shutil.copy(probed[1], "cluster.toml")
                continue
            program, *arguments = shlex.split(command)
            more = ["--standalone"] if program == "torchrun" else []
            done = run([program, *more, *arguments])
            assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
            told[command] = done.stdout
    assert {command for command, text in TOLD.items() if text not in told[command]} == set()
    assert "epoch 3  loss" in told["torchrun --nproc-per-node 2 own_loop.py parts split"]
