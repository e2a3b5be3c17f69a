"""Commands that the docs show are commands: their words are known, and are where they may be."""

import re
import shlex
from pathlib import Path

import pytest

from weft import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINE = re.compile(r'^    (?:sudo env PATH="\$PATH" )?weft (?!-)(.*)$', re.MULTILINE)


def test_commands_of_the_docs_are_understood(capsys):
    texts = {page.name: page.read_text().replace("\\\n", " ") for page in PAGES}
    found = [(page, line) for page, text in texts.items() for line in LINE.findall(text) if "[" not in line]
    assert len(found) > 40
    for page, line in found:
        try:
            understood(shlex.split(line, comments=True))
        except SystemExit:
            pytest.fail(f"{page}: weft {line}\n{capsys.readouterr().err}")


def understood(argv):
    """The words as a command takes them."""
    words = 2 if " ".join(argv[:2]) in cli.COMMANDS else 1
    command = " ".join(argv[:words])
    return cli._parser(command).parse_args([command, *cli.joined_lists(argv[words:])])
