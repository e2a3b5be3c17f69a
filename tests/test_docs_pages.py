"""What pages of the docs say of the source is so: messages, names that may be imported, files that are linked."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def test_messages_of_the_docs_are_weft_s():
    quoted = re.findall(r"\*\*`(.+?)`\*\*", (DOCS / "troubleshooting.md").read_text())
    assert len(quoted) > 60
    said = "\n".join(code_of(path.read_text()) for path in (ROOT / "src").rglob("*.py"))
    assert not [message for message in quoted if not re.search(in_a_line(message), said)]


def code_of(source):
    """A module without docstrings, each text of several pieces in a line."""
    return re.sub(r'"\s*\n\s*f?"', "", re.sub(r'""".*?"""', "", source, flags=re.DOTALL))


def in_a_line(message):
    """The words of a message in their order, with anything for each `...`."""
    return ".*?".join(re.escape(words.strip()) for words in message.split("...") if words.strip())


@pytest.mark.parametrize("name", ["api", "outputs"])
def test_pages_made_of_the_source_are_as_it_is(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))
    assert tool.page() == tool.PAGE.read_text(), f"run python tools/{name}.py"


def test_the_index_has_every_page():
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text())
    assert sorted(linked) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")
