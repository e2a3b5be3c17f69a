"""All errors that a user can act on, as one tree; the command line prints the text and exits with 2.

A text says what was wrong, where, and what to do. Mistakes of Weft itself are assertions, not these.

    WeftError
    |- InputError         a table, array or id that makes no sense
    |- GraphFormatError   a graph directory that is missing, damaged or of a newer version
    |- StorageError       a path that can't be read or written, or a full disk
    |- ConfigError        settings that are unknown, contradictory or out of range
    |- ModelError         a model that can't be run on blocks
    |- ClusterError       workers that can't be started, are missing or stopped answering
    `- TrainingError      a run that can't go on: NaN loss, no seeds, a checkpoint of another run
"""

import inspect


def reason_of(error: BaseException) -> str:
    """What an error of another library says, as part of a sentence: its first line, or its name if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


class WeftError(Exception):
    """The root of all errors that name a remedy."""


class InputError(WeftError):
    """A table, array or id that makes no sense."""


class GraphFormatError(WeftError):
    """A graph directory that is missing, damaged or of a newer version."""


class StorageError(WeftError):
    """A path that can't be read or written, or a full disk."""


class ConfigError(WeftError):
    """Settings that are unknown, contradictory or out of range."""


class ModelError(WeftError):
    """A model that can't be run on blocks."""


class SlicesError(ModelError):
    """A model that can't be run on slices of its inputs."""


class AllRowsError(ModelError):
    """A model that can only be run on all vertices at once."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        """`remedy`: where it is run on some at a time."""
        super().__init__(f"{reason}: {remedy}" if remedy else reason)
        self.reason = reason


class ClusterError(WeftError):
    """Workers that can't be started, are missing or stopped answering."""


class TrainingError(WeftError):
    """A run that can't go on."""


def kind_of(error: WeftError) -> type[WeftError]:
    """Which of these it is, if it is of a kind of its own."""
    return next(kind for kind in type(error).mro() if kind.__module__ == __name__)


def caller_outside(*packages: str) -> str:
    """The function by which some packages are called here; of PyG's helpers, the one that is called from elsewhere."""
    frame, name = inspect.currentframe(), ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        helper = module.startswith("torch_geometric.utils")
        if module.partition(".")[0] not in packages:
            if name and not helper:
                break
            name = frame.f_code.co_qualname
            if not helper:
                break
        frame = frame.f_back
    return name or "its forward"
