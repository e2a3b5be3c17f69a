"""The workers of this process's own loops: met once, when the first loader is made, and left when Python ends."""

import atexit
from functools import cache

from weft.exchange import World


def joined(timeout: float, transport: str) -> World:
    """All workers, as torchrun (or another launcher) says in the environment; without one, this worker alone."""
    return _join(timeout, transport)


@cache
def _join(timeout: float, transport: str) -> World:
    world = World.join(timeout, transport)
    atexit.register(world.leave)
    return world
