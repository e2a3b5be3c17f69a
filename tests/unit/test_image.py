"""The Dockerfile, by what it says: it is not built here."""

import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from weft import cli
from weft.cluster.k8s import _USER

ROOT = Path(__file__).resolve().parents[2]


def stages():
    """The instructions of each stage: pairs of a word and the rest of its line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]
    starts = [at for at, (word, _) in enumerate(lines) if word == "FROM"]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def rest(stage, word):
    return [text for found, text in stage if found == word]


def test_the_wheel_is_built_in_a_stage_of_its_own():
    build, final = stages()
    assert rest(build, "FROM") == ["python:3.11-slim AS build"] and rest(final, "FROM") == ["python:3.11-slim"]
    assert any("make wheel" in line for line in rest(build, "RUN"))
    assert any(re.search(r"pip install .*dist/weft_gnn-\S*\.whl", line) for line in rest(build, "RUN"))
    assert rest(final, "COPY") == ["--from=build /opt/weft /opt/weft"]  # the environment alone, no compiler
    assert not any(re.search(r"pip|g\+\+", line) for line in rest(final, "RUN"))


def test_there_is_a_compiler_where_torch_is_for_devices():
    """Triton compiles what starts its kernels when it first runs."""
    _, final = stages()
    (line,) = [line for line in rest(final, "RUN") if "apt-get" in line]
    for torch, compiler in (("whl/cpu", False), ("whl/cu126", True)):
        shell = ["sh", "-c", line.replace("apt-get", "echo").replace("rm -rf", "echo")]
        told = subprocess.run(shell, env={"TORCH": torch}, capture_output=True, text=True, check=True).stdout
        assert ("gcc libc6-dev" in told) == compiler == bool(told)
    assert any(text.startswith("TORCH=") for text in rest(final, "ARG"))


def test_it_runs_as_the_user_of_the_manifests():
    _, final = stages()
    assert rest(final, "USER") == [f"{_USER}:{_USER}"]
    assert f"--uid {_USER}" in rest(final, "RUN")[0]


def test_its_health_is_asked_of_weft(capsys):
    _, final = stages()
    (check,) = rest(final, "HEALTHCHECK")
    program, *arguments = json.loads(check.split("CMD ", 1)[1])
    assert [program] == json.loads(rest(final, "ENTRYPOINT")[0]) == ["weft"]
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0 and "kernels: compiled by" in capsys.readouterr().out


def test_what_the_wheel_is_made_from_reaches_the_build():
    first, *lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    taken = {line[1:] for line in lines if line[0] == "!"}
    assert first == "*" and all((ROOT / name).exists() for name in taken)
    needed = (
        "CMakeLists.txt",
        "LICENSE",
        "Makefile",
        "README.md",
        "constraints.txt",
        "pyproject.toml",
        "kernels",
        "src",
    )
    assert {*needed, "tools"} <= taken
    assert not any(fnmatch(name, secret) for name in taken for secret in (".git*", "*.pem", ".venv", "*.env"))
