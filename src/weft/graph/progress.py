"""How long work says how far it is."""

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int], None]  # stage, done, total (0: not known yet)
