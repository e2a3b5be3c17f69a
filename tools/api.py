"""Write docs/api.md: every name that users may import, how it is called, and its docstring's first line.

    python tools/api.py             # writes the page (tests/test_docs_pages.py holds it)

Signatures are read from the source, as they are written there: what Python tells of annotations at run time is longer.
"""

import ast
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import weft

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
FACES = (
    "graph",
    "plan",
    "sampling",
    "placements",
    "partition",
    "nn",
    "planner",
    "training",
    "exchange",
    "cluster",
    "lab",
)
BEGIN = """# Names

What users may import, with each docstring's first line: `help(weft.Loader)` in Python says more. This page is made by
`python tools/api.py`. How the parts are used together: [training](training.md#from-python), [a loop of one's
own](training.md#a-loop-of-ones-own), [parts of one's own](extending.md). Other names are Weft's own, and change
without notice.

## `weft`
"""
FURTHER = """
## Further names, by module

What is rarer: `from weft.training import load_model`. Names that `weft` has too are above.
"""


def page() -> str:
    """The whole page."""
    lines = [BEGIN]
    for name in weft.__all__:
        lines += [*_entry(name, getattr(weft, name)), ""]
    lines.append(FURTHER)
    for face in FACES:
        module = import_module(f"weft.{face}")
        further = [name for name in module.__all__ if name not in weft.__all__]
        lines += [f"### `weft.{face}`", "", *(_line(name, getattr(module, name)) for name in further), ""]
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, thing: Any) -> list[str]:
    """A heading, how it is called, what it is, and a class's public methods."""
    lines = [f"### `{name}`", "", f"    {_called(name, thing)}", "", _first_line(thing)]
    if not inspect.isclass(thing):
        return lines
    methods = [
        _method(node)
        for node in _node(thing).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node)
    ]
    return [*lines, "", *methods] if methods else lines


def _line(name: str, thing: Any) -> str:
    if isinstance(thing, str):
        return f"- `{name}`: the word `{thing!r}`"
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        kinds = [kind.__name__ for kind in get_args(thing)]
        return f"- `{name}`: any of {', '.join(kinds)}" if kinds else f"- `{name}(...)`: {_first_line(type(thing))}"
    return f"- `{_called(name, thing) if inspect.isfunction(thing) else name}`: {_first_line(thing)}"


def _method(node: ast.FunctionDef) -> str:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    is_value = bool(decorators & {"property", "cached_property"})
    said = (ast.get_docstring(node) or "").split("\n")[0]
    own = node.args.args if "staticmethod" in decorators else node.args.args[1:]
    return f"- `{node.name}`: {said}" if is_value else f"- `{node.name}({_arguments(node.args, own)})`: {said}"


def _called(name: str, thing: Any) -> str:
    """How it is called: a function's or constructor's arguments by name, with their defaults."""
    if inspect.isfunction(thing):
        node = _node(thing)
        return f"{name}({_arguments(node.args, node.args.args)})"
    for kind in thing.__mro__[:-1]:
        if not kind.__module__.startswith("weft."):
            break
        node = _node(kind)
        made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        if made:
            return f"{name}({_arguments(made[0].args, made[0].args.args[1:])})"
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            return f"{name}({', '.join(map(_field, filter(_is_field, node.body)))})"
    return f"{name}(text)" if issubclass(thing, Exception) else f"{name}()"


def _is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and "init=False" not in ast.unparse(node) and node.target.id[0] != "_"


def _field(node: ast.AnnAssign) -> str:
    if node.value is None:
        return node.target.id
    is_made = isinstance(node.value, ast.Call)  # field(default_factory=...)
    return f"{node.target.id}={'...' if is_made else ast.unparse(node.value)}"


def _arguments(arguments: ast.arguments, own: list[ast.arg]) -> str:
    """Arguments without their annotations; `own` are those by place, without self."""
    for argument in (*own, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    by_name = arguments.vararg, arguments.kwonlyargs, arguments.kw_defaults, arguments.kwarg
    return ast.unparse(ast.arguments([], own, *by_name, arguments.defaults))


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]


def _node(thing: Any) -> Any:
    """What defines a class or function, in its file's syntax tree."""
    tree = _tree(inspect.getsourcefile(thing))
    return next(node for node in tree.body if getattr(node, "name", None) == thing.__name__)


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
