"""docs/extending.md shows the very code that the other tests of this folder run, and its example runs here."""

import re
from pathlib import Path

import pytest

from weft.graph import communities

HERE = Path(__file__).resolve().parent
DOCS = (HERE.parents[1] / "docs" / "extending.md").read_text()
FILES = {path.stem: path.read_text() for path in (HERE / "plugin").rglob("*.py") if path.name != "__init__.py"}
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS, re.S)


@pytest.mark.parametrize("name", FILES)
def test_each_part_is_in_the_docs(name):
    assert FILES[name] in BLOCKS


def test_the_example_shows_that_they_are_exact(tmp_path):
    (example,) = (block for block in BLOCKS if block not in FILES.values())
    found = {}
    exec(compile(example, "docs/extending.md", "exec"), found)
    found["check"](communities(tmp_path / "g", vertices=400, edges=3000, width=4, classes=3, train=0.4), tmp_path)
