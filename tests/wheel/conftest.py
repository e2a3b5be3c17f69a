"""Wheels as users get them: each installed into a fresh environment, outside of the checkout and without a compiler.

`make test-wheel` names the wheels' folder in WEFT_WHEELS, and the Pythons to try in WEFT_WHEEL_PYTHONS; else all is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Installed:
    """A wheel in an environment of its own."""

    def __init__(self, wheel, python, folder):
        self.wheel, self.folder = wheel, folder
        self._bin = folder / "environment" / "bin"
        subprocess.run([python, "-m", "venv", str(self._bin.parent)], check=True)
        # Dependencies are pinned, so that they come from pip's cache.
        constraints = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        self._run("pip", "install", "--quiet", str(wheel), "torch==2.13.0", timeout=900, **constraints)

    def weft(self, *arguments, **environment):
        """A command of the command line."""
        return self._run("weft", *arguments, **environment)

    def python(self, file, *arguments, **environment):
        """What a script prints, as JSON."""
        return json.loads(self._run("python", str(file), *arguments, **environment).stdout)

    def _run(self, program, *arguments, timeout=250, fails=False, **environment):
        """With nothing on the path but the environment: no compiler, no other weft."""
        env = {
            name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("HOME", "TMPDIR")
        }
        env |= {"PATH": str(self._bin), "OMP_NUM_THREADS": "1"} | environment
        command = [self._bin / program, *arguments]
        done = subprocess.run(command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=timeout)
        assert fails or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done


def _pairs():
    """Each Python with the wheel that is for it."""
    wheels = sorted((ROOT / os.environ.get("WEFT_WHEELS", "none")).glob("*.whl"))
    for python in os.environ.get("WEFT_WHEEL_PYTHONS", sys.executable).split():
        says = "import sys; print(*sys.version_info[:2])"
        found = subprocess.run([python, "-c", says], capture_output=True, text=True)
        if found.returncode:
            continue
        minor = int(found.stdout.split()[1])
        tag = "cp311-cp311" if minor == 11 else "cp312-abi3"
        yield from (pytest.param((wheel, python), id=f"3.{minor}") for wheel in wheels if tag in wheel.name)


@pytest.fixture(scope="session", params=list(_pairs()) if "WEFT_WHEELS" in os.environ else [])
def installed(request, tmp_path_factory):
    """A wheel, installed."""
    return Installed(*request.param, tmp_path_factory.mktemp("wheel"))
