"""Fixtures that all tests share."""

from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def shared_data():
    """A function from a data set's name to its folder in ../shared/data; skips the test where the folder is missing."""

    def find(name: str) -> Path:
        folder = _REPOSITORY.parent / "shared" / "data" / name
        if not folder.is_dir():
            pytest.skip(f"real graph {name!r} is not in {folder.parent} (it is not part of the project)")
        return folder

    return find
