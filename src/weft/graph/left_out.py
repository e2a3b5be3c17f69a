"""Nothing that a graph brings is dropped in silence: what Weft does not use must be left out by name."""

from collections.abc import Collection, Iterable

from weft.errors import InputError


def check_left_out(where: str, unused: Iterable[str], leave_out: Collection[str]) -> None:
    """Refuse what is not used and not left out, and names to leave out that are not there."""
    unused = list(dict.fromkeys(unused))
    if dropped := [name for name in unused if name not in leave_out]:
        raise InputError(
            f"{where} has {', '.join(dropped)}, which Weft does not use: leave it out by name "
            f"(leave_out={tuple(dropped)!r}, or --leave-out {','.join(dropped)})"
        )
    for name in leave_out:
        if name not in unused:
            raise InputError(f"{where} has no {name!r} that Weft does not use: do not leave it out")
