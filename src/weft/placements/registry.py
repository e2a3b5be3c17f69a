"""Placements by name: those that come with Weft, and strangers'."""

from functools import cache

from weft import plugins
from weft.placements.placement import Placement


@cache
def placement_named(name: str) -> Placement:
    """The placement of a name; there is one of each."""
    found: Placement = plugins.PLACEMENTS.get(name)()
    return found
