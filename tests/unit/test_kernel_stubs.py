"""The hand-kept stub file names exactly what the compiled module offers."""

import ast
from pathlib import Path

import weft
from weft import _kernels


def test_stub_names_what_is_there():
    tree = ast.parse((Path(weft.__file__).parent / "_kernels.pyi").read_text())
    named = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    named |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert named == {name for name in dir(_kernels) if not name.startswith("_")}
