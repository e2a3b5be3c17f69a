"""Kernels compile to machine code for devices that are not here, without floats that are added in any order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

SCRIPT = Path(__file__).parent / "compiling.py"


def compiled(capability, *dtypes):
    """What is said of each kernel; in a process of its own, for here kernels are interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(SCRIPT), str(capability), *dtypes]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("capability", "dtypes"),
    [
        pytest.param(80, ["float32", "once"], id="80"),
        pytest.param(90, ["bfloat16"], id="90", marks=pytest.mark.slow),
        pytest.param(80, ["float64", "bfloat16"], id="80-other-types", marks=pytest.mark.slow),
        pytest.param(90, ["float32", "float64", "once"], id="90-other-types", marks=pytest.mark.slow),
    ],
)
def test_kernels_compile(capability, dtypes, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    told = compiled(capability, *dtypes)
    assert {of["kernel"].split(".")[0] for of in told} >= {"sums", "film_sums", "attention", "attention_v2"}
    for of in told:
        assert of["target"].startswith(f"sm_{capability}"), of
        assert of["bytes"] > 0, of
        assert of["float_atomics"] == 0, of
        assert of["local"] == 0, of
