"""What to expect of a graph before anything is trained on it: figures from samples, by which plans are chosen."""

from weft.planner.locality import Locality, Micrographs, Misses, locality
from weft.planner.scope import Scope

__all__ = [
    "Locality",
    "Micrographs",
    "Misses",
    "Scope",
    "locality",
]
