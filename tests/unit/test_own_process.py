"""What Weft sets where a process is its own."""

import os
import subprocess
import sys

import pytest

_WORDS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_TOLD = f"""
import gc, os, weft
from weft.cli import main
main(["info", "/of-no-graph"])
weft.Settings
print([os.environ.get(name) for name in {_WORDS}], gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, ["passive", "1000", None]),
        ({"GOMP_SPINCOUNT": "300000"}, [None, "300000", None]),
        ({"KMP_BLOCKTIME": "200"}, [None, None, "200"]),
        ({"OMP_WAIT_POLICY": "active"}, ["active", None, None]),
    ],
)
def test_threads_that_wait_sleep_unless_the_environment_says_how_they_wait(told, found):
    environment = {name: value for name, value in os.environ.items() if name not in _WORDS} | told
    command = [sys.executable, "-c", _TOLD]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == f"{found} True"


def test_a_users_process_is_left_alone():
    environment = {name: value for name, value in os.environ.items() if name not in _WORDS}
    code = (
        f"import gc, os, weft; weft.Settings; print([os.environ.get(name) for name in {_WORDS}], gc.get_freeze_count())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == "[None, None, None] 0"
