"""A package from outside (plugin/), as if it had been installed: Weft finds its parts by their entry points."""

from pathlib import Path

import pytest

from weft import plugins

PLUGIN = str(Path(__file__).parent / "plugin")


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """Only while a test of this folder runs: others list the names that come with Weft."""
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", PLUGIN, prepend=":")  # of commands in processes of their own
    for door in plugins.DOORS:
        monkeypatch.setattr(door, "_added", {})
    plugins.load_plugins.cache_clear()
    yield
    plugins.load_plugins.cache_clear()
