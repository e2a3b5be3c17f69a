"""Weft trains graph neural networks on many workers: a PyG model and a graph in, an exact plan out, and run."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.api import train
    from weft.errors import WeftError
    from weft.graph import Graph
    from weft.nn import Convolution, LinkPredictor, MessageConvolution, Split, check_split
    from weft.partition import PartitionMethod
    from weft.placements import Placement
    from weft.plan import Plan, Settings
    from weft.plugins import register
    from weft.sampling import ListSampler
    from weft.stopping import Interrupted
    from weft.training import Loader, Objective, Result, Run, Trainer, VertexObjective, infer, parallel
else:
    __getattr__ = lazy_face(__name__)  # `weft info` need not wait for PyG

__version__ = "0.2.0.dev0"
__all__ = [
    "Convolution",
    "Graph",
    "Interrupted",
    "LinkPredictor",
    "ListSampler",
    "Loader",
    "MessageConvolution",
    "Objective",
    "PartitionMethod",
    "Placement",
    "Plan",
    "Result",
    "Run",
    "Settings",
    "Split",
    "Trainer",
    "VertexObjective",
    "WeftError",
    "check_split",
    "infer",
    "parallel",
    "register",
    "train",
]
