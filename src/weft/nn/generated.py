"""Nothing of PyG's stays in the temporary directory: the modules that it generates for convolutions are kept in memory."""

import importlib.util
import sys
import threading
from hashlib import sha256
from importlib import import_module
from importlib.abc import InspectLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from jinja2 import Environment, FileSystemLoader
from torch_geometric.nn.conv import message_passing

from weft.scratch import remove_cache_of_torch

_LOCK = threading.RLock()  # a module that is generated for a script may run that once more


class _Source(InspectLoader):
    """Loads a module from its text, and shows the text to `inspect`, which TorchScript reads it with."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:
        return self._text

    def get_code(self, name: str) -> CodeType:
        return self.source_to_code(self._text, f"{name}.py (generated)")


def module_from_template(module_name: str, template_path: str, tmp_dirname: str, **values: Any) -> ModuleType:
    """As PyG's function of this name; one thread at a time.

    Sequential models are named by a number that PyG draws, and who seeds Python's generator draws it again for another one.
    """
    with _LOCK:
        if module_name not in sys.modules or tmp_dirname == "sequential":
            path = Path(template_path)
            text = Environment(loader=FileSystemLoader(path.parent)).get_template(path.name).render(**values)
            if tmp_dirname == "sequential":
                module_name += f"_{sha256(text.encode()).hexdigest()}"
        if module_name not in sys.modules:
            spec = importlib.util.spec_from_loader(module_name, _Source(text))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        return sys.modules[module_name]


for user in (message_passing, import_module("torch_geometric.nn.sequential")):
    vars(user)["module_from_template"] = module_from_template
remove_cache_of_torch()
