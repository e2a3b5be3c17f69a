"""The workers of a script: met once, however many loaders and runs it has, and left when Python ends."""

import atexit

from weft.exchange import Traffic, World
from weft.meter import Meter

_joined: list[World] = []  # a process can meet the others only once


def joined(timeout: float, transport: str) -> World:
    """All workers, as torchrun (or another launcher) says in the environment; without one, this worker alone.

    Seconds and bytes are counted from now on.
    """
    if not _joined:
        world = World.join(timeout, transport)
        if world.size == 1:
            return world
        _joined.append(world)
        atexit.register(world.leave)
    world = _joined[0]
    world.meter, world.traffic = Meter(), Traffic(world.size)
    return world
