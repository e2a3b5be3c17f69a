"""Faces of rooms whose names are imported when they are first used: a command's help need not wait for PyTorch."""

import ast
import inspect
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from weft.garbage import importing
from weft.threads import PARSING


def lazy_face(package: str) -> Callable[[str], object]:
    """A `__getattr__` for a package that imports its names under `if TYPE_CHECKING:`, for type checkers to see.

    The same import lines say from which module each name comes when it is used. What users may import is in a face's
    `__all__`; the other names are for Weft's rooms.
    """
    face = sys.modules[package]
    homes = _homes(inspect.getsource(face))
    vars(face)["__dir__"] = lambda: sorted({*vars(face), *homes})  # for completion by tab

    def __getattr__(name: str) -> object:
        if name not in homes:
            spec = find_spec(f"{package}.{name}")
            if spec is not None and spec.submodule_search_locations:  # a room: weft.nn after `import weft`
                return import_module(spec.name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        drawn = random.getstate()
        with importing():
            value = getattr(import_module(homes[name]), name)
        random.setstate(drawn)  # rich draws while it is imported
        setattr(face, name, value)
        return value

    return __getattr__


def _homes(source: str) -> dict[str, str]:
    """The module of each name that is imported under `if TYPE_CHECKING:`."""
    with PARSING:
        tree = ast.parse(source)
    blocks = (node for node in tree.body if isinstance(node, ast.If))
    lines = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module for node in lines if node.module for alias in node.names}
