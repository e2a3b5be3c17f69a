"""What to expect of a graph before anything is trained on it: figures from samples, by which plans are chosen."""

from weft.planner.locality import Locality, Micrographs, Misses, locality
from weft.planner.samplers import SAMPLERS, SamplerFactory, samplers_named
from weft.planner.scope import Scope

__all__ = [
    "SAMPLERS",
    "Locality",
    "Micrographs",
    "Misses",
    "SamplerFactory",
    "Scope",
    "locality",
    "samplers_named",
]
