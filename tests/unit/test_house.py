"""The house: a folder imports only from those above it, and nothing reads pickles."""

import ast
from pathlib import Path

import weft

ROOT = Path(weft.__file__).parent
ROOMS = [
    "graph",
    "sampling",
    "partition",
    "exchange",
    "parallel",
    "features",
    "nn",
    "planner",
    "training",
    "cluster",
    "report",
    "commands",
]
LEAVES = {"errors", "keys", "config", "memory", "meter", "threads", "plugins", "_kernels", "__init__"}
DOORS = {"api": len(ROOMS), "cli": len(ROOMS)}  # modules below all rooms


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("weft"):
            parts = node.module.split(".")
            yield parts[1] if len(parts) > 1 else "__init__"


def level(name):
    if name in LEAVES:
        return -1
    return ROOMS.index(name) if name in ROOMS else DOORS[name]


def test_imports_point_upward():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        wrong += [f"{path}: {name}" for name in imports(path) if level(name) > level(own)]
    assert not wrong


def test_nothing_is_unpickled():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text
        assert "import pickle" not in text
        assert "torch.load(" not in text or "weights_only=True" in text
