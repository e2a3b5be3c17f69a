"""What docs/outputs.md says that commands print for programs, they print."""

import importlib.util
import json
from pathlib import Path

import pytest

from weft import cli
from weft.graph import communities

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(tmp_path_factory.mktemp("graphs") / "g", vertices=300, edges=3000, width=4, classes=3).path


@pytest.fixture(scope="module")
def told():
    """By command, the fields that the page has, and which of them may be left out."""
    spec = importlib.util.spec_from_file_location("outputs", ROOT / "tools" / "outputs.py")
    spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))
    return {
        " ".join(output.command.split("--json")[0].split()): [
            row for part in output.parts[:1] for row in tool.rows_of(part)
        ]
        + [*output.more]
        for output in tool.OUTPUTS
    }


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("weft info GRAPH", []),
        ("weft partition GRAPH", ["OUT", "--parts", "2", "--method", "random"]),
        ("weft verify FOLDER", []),
        ("weft doctor", []),
    ],
)
def test_fields_are_those_of_the_page(graph, told, tmp_path, capsys, command, more):
    words = {"GRAPH": str(graph), "FOLDER": str(graph), "OUT": str(tmp_path / "out")}
    assert cli.main([words.get(word, word) for word in [*command.split()[1:], *more, "--json"]]) == 0
    found = json.loads(capsys.readouterr().out)
    found = found[0] if isinstance(found, list) else found
    rows = told[command]
    needed = {row.name for row in rows if not row.kind.endswith("or not there")}
    assert needed <= found.keys() <= {row.name for row in rows}
