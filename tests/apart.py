"""Processes on a sandbox's hosts that are no workers of its own: other systems' daemons, and commands to these."""

_PLACE = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WEFT_SECRET",
)


def started_apart(box, command, host, environment, out, errors=None):
    """A process on a host; what it says goes into an open file, and so does what it warns of, or into another."""
    given = [*(f"-u{name}" for name in _PLACE), *(f"{name}={value}" for name, value in environment.items())]
    return box.start(["env", *given, *map(str, command)], host, output=out, errors=out if errors is None else errors)
