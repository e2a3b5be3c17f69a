"""The code of a user's own classes, told apart from what it was when a model was saved."""

import inspect
from collections.abc import Mapping
from hashlib import sha256
from weakref import WeakKeyDictionary

from torch import nn

_WITH_WEFT = ("torch", "torch_geometric", "weft")  # of which versions are another matter
# Found when a run begins: files may be edited while it goes on.
_DIGESTS: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def code_of(model: nn.Module) -> dict[str, str]:
    """A digest of the code of each class of a model that comes with neither torch nor PyG nor Weft, by its name."""
    found: dict[str, list[str]] = {}
    for kind in {kind for module in model.modules() for kind in type(module).__mro__ if issubclass(kind, nn.Module)}:
        if kind.__module__.split(".")[0] not in _WITH_WEFT and (digest := _digest(kind)):
            found.setdefault(kind.__qualname__, []).append(digest)
    return {name: " ".join(sorted(digests)) for name, digests in sorted(found.items())}


def edited(then: Mapping[str, str], model: nn.Module) -> list[str]:
    """The classes whose code is not what it was then, as far as that is known."""
    return [name for name, now in code_of(model).items() if then.get(name, now) != now]


def _digest(kind: type) -> str:
    """Of its methods; nothing, where these are in no file that can be read: typed into a shell, or half-written.

    Not of the class in one piece, which Python finds by a syntax tree: two threads may not make these at once.
    """
    if kind not in _DIGESTS:
        methods = [getattr(value, "fget", getattr(value, "__func__", value)) for value in vars(kind).values()]
        try:
            code = "".join(inspect.getsource(method) for method in methods if inspect.isfunction(method))
            _DIGESTS[kind] = sha256(code.encode()).hexdigest()[:16]
        except (OSError, TypeError, SyntaxError):
            _DIGESTS[kind] = ""
    return _DIGESTS[kind]
