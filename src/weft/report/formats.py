"""Numbers as a person reads them; units are decimal: 1 MB is a million bytes."""

from collections.abc import Mapping
from math import isfinite

NONE = "–"
RECORD_VERSION = 1  # of what `weft train --log json` writes
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def figure(value: float) -> str:
    """A number in two or three significant digits: 1,234, 32.1, 3.21, 0.32, 0.032."""
    if not isfinite(value):
        return NONE
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if 0 < size < 0.0005:
        return "<0.001"
    digits = next(digits for bound, digits in ((9.995, 1), (0.0995, 2), (0.00995, 3), (0, 4)) if size >= bound)
    return f"{value:.{digits}f}" if size else "0"


def seconds(value: float) -> str:
    """A time, as 3.21 s."""
    return f"{figure(value)} s" if isfinite(value) else NONE


def amount(count: float) -> str:
    """A number of bytes, as 3.1 MB."""
    if not isfinite(count):
        return NONE
    for size, unit in _BYTES:
        if (scaled := count / size) >= 0.9995:
            return f"{scaled:,.0f} {unit}" if scaled >= 9.95 else f"{scaled:.1f} {unit}"
    return f"{count:.0f} B"


def share(part: float) -> str:
    """A signed share, as +12% or −5.6%; a decimal where it is small."""
    if not isfinite(part):
        return NONE
    text = f"{part:+,.0%}" if abs(part) >= 0.0995 else f"{part:+.1%}"
    return text.replace("-", "−")


def error_of_seconds(predicted: float, measured: float) -> str:
    """The error of a time, as a share of what was measured."""
    return share(predicted / measured - 1) if measured else NONE


def rows_read(rows: Mapping[str, int]) -> str:
    """Feature rows by where they were read, if any were."""
    whole = sum(rows.values())
    return f"feature rows read: {whole:,} ({', '.join(f'{at} {count / whole:.1%}' for at, count in rows.items() if count)})"
