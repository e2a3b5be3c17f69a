"""The code of a user's own classes, told apart from what it was when a model was saved."""

import inspect
from collections.abc import Mapping
from hashlib import sha256

from torch import nn

_WITH_WEFT = ("torch", "torch_geometric", "weft")  # of which versions are another matter


def code_of(model: nn.Module) -> dict[str, str]:
    """A digest of the code of each class of a model that comes with neither torch nor PyG nor Weft, by its name."""
    classes = {type(module) for module in model.modules()}
    own = [kind for kind in classes if kind.__module__.split(".")[0] not in _WITH_WEFT]
    found = {}
    for kind in sorted(own, key=lambda kind: kind.__qualname__):
        try:
            found[kind.__qualname__] = sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
        except (OSError, TypeError):  # of no file: typed into a shell
            continue
    return found


def edited(then: Mapping[str, str], model: nn.Module) -> list[str]:
    """The classes whose code is not what it was then, as far as that is known."""
    return [name for name, now in code_of(model).items() if then.get(name, now) != now]
