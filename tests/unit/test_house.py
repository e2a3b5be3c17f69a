"""The house: rooms in their order, reached through their faces; short files; one name for one thing."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = REPOSITORY / "docs" / "pictures"
# From top to bottom: a room imports only from those before it. Docs of each are in its face, its __init__.
ROOMS = [
    "graph",
    "plan",
    "sampling",
    "exchange",
    "features",
    "placements",
    "partition",
    "nn",
    "planner",
    "training",
    "cluster",
    "lab",
    "report",
    "commands",
]
LEAVES = {
    "errors",
    "keys",
    "config",
    "memory",
    "meter",
    "quantities",
    "threads",
    "place",
    "plugins",
    "garbage",
    "lazy",
    "own_process",
    "scratch",
    "stopping",
    "devices",
    "_kernels",
    "operations",
    "triton_kernels",
}  # anyone's
TOP = {"__init__", "__main__", "api", "cli"}  # what users and the command line come in by
PARSERS = {"np.load", "np.lib.format.open_memmap", "ast.parse", "ast.literal_eval"}
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 500, 60


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "data" not in path.parts)


def dotted(path: Path) -> str:
    parts = ["weft", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each module of Weft's that a module imports from, and the name that it imports; within functions too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "weft":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "weft")


def run_time_imports(path: Path) -> Iterator[tuple[str, str]]:
    """The same but for what only type checkers see."""
    tree = tree_of(path)
    for_types = {
        id(line)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for line in node.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types and (node.module or "").startswith("weft"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def level(room: str) -> int:
    return -1 if room in LEAVES else len(ROOMS) if room in TOP else ROOMS.index(room)


def test_every_folder_and_module_has_its_place():
    assert {room_of(dotted(path)) for path in modules()} <= {*ROOMS, *LEAVES, *TOP}


def test_imports_point_upward():
    wrong = []
    for path in modules():
        own = room_of(dotted(path))
        if own == "plugins":  # it names the bases of parts for type checkers, and imports none
            continue
        for module, name in imports(path):
            room = name if module == "weft" and name in LEAVES else room_of(module)
            if room != "__init__" and level(room) > level(own):
                wrong.append(f"{path.relative_to(ROOT)}: {module}")
    assert not wrong


def test_rooms_are_entered_by_their_face():
    wrong = []
    for path in modules():
        own = dotted(path)
        for module, name in imports(path):
            inside = len(module.split(".")) > 2 and room_of(module) != room_of(own)
            if inside or (name.startswith("_") and module != "weft"):
                wrong.append(f"{path.relative_to(ROOT)}: from {module} import {name}")
    assert not wrong


def faces() -> list[str]:
    return [room for room in ROOMS if (ROOT / room / "__init__.py").exists() and room != "commands"]


def exports(room: str) -> dict[str, str]:
    """The names of a face, and the module that each comes from."""
    found = imports(ROOT / room / "__init__.py")
    return {name: module for module, name in found if name and room_of(module) == room}


@pytest.mark.parametrize("room", faces())
def test_a_face_gives_what_it_says(room):
    face = import_module(f"weft.{room}")
    assert set(getattr(face, "__all__", ())) <= {*exports(room)}
    inside = {path.stem for path in (ROOT / room).iterdir()}
    for name, module in exports(room).items():
        assert name not in inside, f"weft.{room}.{name} would be the module of that name once this was imported"
        assert getattr(face, name) is getattr(import_module(module), name)
        assert name in dir(face)


def test_modules_do_not_import_each_other_in_a_circle():
    homes = {room: exports(room) for room in faces()}
    known = {dotted(path) for path in modules()}
    graph = defaultdict(set)
    for path in modules():
        if path.name == "__init__.py" and dotted(path).count(".") <= 1:
            continue  # faces stand for the modules that they name
        for module, name in run_time_imports(path):
            target = homes.get(room_of(module), {}).get(name, module) if module.count(".") == 1 else module
            target = f"{target}.{name}" if f"{target}.{name}" in known else target
            graph[dotted(path)].add(target)
    assert not [" ".join(circle) for circle in circles(graph) if len(circle) > 1]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts, by Tarjan."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            found.append(sorted(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def classes_and_aliases(tree: ast.Module) -> Iterator[str]:
    """Public names of classes, and of types that a module defines as `Name = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", target.id):
            yield target.id


def test_a_public_class_name_belongs_to_one_class():
    homes = defaultdict(list)
    for path in modules():
        for name in classes_and_aliases(tree_of(path)):
            homes[name].append(str(path.relative_to(ROOT)))
    wrong = [f"{name}: {', '.join(paths)}" for name, paths in homes.items() if len(paths) > 1]
    assert not wrong


def test_modules_say_what_they_are():
    assert not [str(path) for path in modules() if not ast.get_docstring(tree_of(path))]


def test_nothing_is_unpickled():
    for path in modules():
        text = path.read_text()
        assert "allow_pickle=True" not in text
        assert "import pickle" not in text
        assert "torch.load(" not in text or "weights_only=True" in text


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert not [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > LINES_OF_A_FILE]


def test_functions_fit_on_a_screen():
    wrong = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LINES_OF_A_FUNCTION:
                    wrong.append(f"{path.relative_to(ROOT)}: {node.name}, {lines} lines")
    assert not wrong


@pytest.mark.parametrize("script", ["import weft", "from weft import Graph"])
def test_reading_a_graph_does_not_wait_for_torch(script):
    check = "import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"{script}\n{check}"], check=True)


def test_properties_do_not_make_threads_wait() -> None:
    """Python 3.11's cached properties hold a lock while they compute: workers that are threads would wait for ever."""
    users = [path for path in modules() for module in ast.walk(tree_of(path)) if is_from_functools(module)]
    assert users == []


def test_files_of_arrays_are_parsed_by_one_thread_at_a_time() -> None:
    """Python 3.11 counts how deep it parses for all threads together: workers that are threads upset each other's count."""
    for path in modules():
        nodes = [*ast.walk(tree_of(path))]
        held = [node for node in nodes if isinstance(node, ast.With) and "PARSING" in map(item_of, node.items)]
        within = {id(inner) for node in held for inner in ast.walk(node)}
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PARSERS:
                assert id(node) in within, f"{path}: line {node.lineno} parses without PARSING"


def item_of(item: ast.withitem) -> str:
    return ast.unparse(item.context_expr)


def is_from_functools(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.ImportFrom)
        and node.module == "functools"
        and any(alias.name == "cached_property" for alias in node.names)
    )


def test_the_design_names_files_that_are_there():
    known = {path.relative_to(ROOT).as_posix() for path in modules()} | {
        path.relative_to(REPOSITORY).as_posix()
        for path in (*REPOSITORY.glob("kernels/*"), *REPOSITORY.glob("tests/**/*"))
    }
    known |= {name.rsplit("/", 1)[-1] for name in known} | {f"pictures/{path.name}" for path in PICTURES.iterdir()}
    named = set(re.findall(r"`([\w/]+\.(?:py|cpp|h|txt))`", (REPOSITORY / "docs" / "design.md").read_text()))
    named |= set(re.findall(r"\w+/[\w/]+\.py", (PICTURES / "batch.txt").read_text()))
    named |= set(re.findall(r"`([\w/]+\.py)`", (REPOSITORY / "CONTRIBUTING.md").read_text()))
    missing = {name for name in named if name not in known and name.removeprefix("src/weft/") not in known}
    assert not {name for name in missing if not (REPOSITORY / name).exists()}


def test_pictures_are_what_their_text_says():
    for text in PICTURES.glob("*.txt"):
        drawn = subprocess.run([sys.executable, PICTURES / "draw.py", "--print", text], check=True, capture_output=True)
        assert text.with_suffix(".svg").read_bytes() == drawn.stdout, f"run python docs/pictures/draw.py {text}"


def test_tests_mirror_the_rooms() -> None:
    folders = {path.name for path in Path(__file__).parent.iterdir() if any(path.glob("test_*.py"))}
    assert folders <= {*ROOMS, "triton_kernels"}
