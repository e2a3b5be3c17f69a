"""Which convolution serves a module: that of its class, or of one that its class changes in nothing but how it is built."""

from typing import TYPE_CHECKING

from torch_geometric.nn import MessagePassing

from weft.plugins import CONVOLUTIONS

if TYPE_CHECKING:
    from weft.nn.convolution import Convolution

_BUILDS = {"__init__", "reset_parameters", "__repr__", "extra_repr"}
_OF_PYG = ("_orig_", "_jinja_")  # begin names that PyG gives each class


def serving(conv: MessagePassing) -> "type[Convolution] | None":
    """The class of the convolution; None: there is none, or the module's class may compute something else."""
    classes = type(conv).__mro__
    for place, base in enumerate(classes[: classes.index(MessagePassing)]):
        if (found := CONVOLUTIONS.find(base)) is not None:
            return None if any(_computes(of, base) for of in classes[:place]) else found
    return None


def _computes(of: type, base: type) -> bool:
    """Does a class override what its base class has, or say by a property what it keeps?"""
    return any(
        isinstance(value, property) or (hasattr(base, name) and callable(value) and not _is_generated(of, value))
        for name, value in vars(of).items()
        if name not in _BUILDS and not name.startswith(_OF_PYG)
    )


def _is_generated(of: type, value: object) -> bool:
    """Is it what PyG made for this class, of what it inherits?"""
    return str(getattr(value, "__module__", "")).startswith(f"{of.__module__}_{of.__name__}_")
