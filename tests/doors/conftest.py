"""A package from outside (plugin/), as if it had been installed: Weft finds its parts by their entry points."""

import sys
from pathlib import Path

import pytest

from weft import plugins

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="session")
def _installed():
    sys.path.insert(0, str(PLUGIN))
    yield
    sys.path.remove(str(PLUGIN))


@pytest.fixture(autouse=True)
def _plugged(_installed, monkeypatch):
    """Only while a test of this folder runs: others list the names that come with Weft."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN), prepend=":")  # of commands in processes of their own
    for door in plugins.DOORS:
        monkeypatch.setattr(door, "_added", {})
    plugins.load_plugins.cache_clear()
    yield
    plugins.load_plugins.cache_clear()
