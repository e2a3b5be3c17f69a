"""Weft trains graph neural networks on many workers: a PyG model and a graph in, an exact plan out, and run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.api import train
    from weft.errors import WeftError
    from weft.graph import Graph
    from weft.nn import Convolution, LinkPredictor, MessageConvolution, Split, check_split
    from weft.placements import Placement
    from weft.plan import Plan, Settings
    from weft.plugins import register
    from weft.training import Result, Trainer, infer

__version__ = "0.1.0"
__all__ = [
    "Convolution",
    "Graph",
    "LinkPredictor",
    "MessageConvolution",
    "Placement",
    "Plan",
    "Result",
    "Settings",
    "Split",
    "Trainer",
    "WeftError",
    "check_split",
    "infer",
    "register",
    "train",
]

_HOMES = {
    "Convolution": "weft.nn",
    "MessageConvolution": "weft.nn",
    "Placement": "weft.placements",
    "Graph": "weft.graph",
    "LinkPredictor": "weft.nn",
    "Plan": "weft.plan",
    "Result": "weft.training",
    "Settings": "weft.plan",
    "Split": "weft.nn",
    "Trainer": "weft.training",
    "WeftError": "weft.errors",
    "check_split": "weft.nn",
    "infer": "weft.training",
    "register": "weft.plugins",
    "train": "weft.api",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: `weft info` need not wait for PyG."""
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
