"""Bandwidths, sizes and ports as people write them: 1gbit, 16GiB, 29500-29600."""

import re
from math import ceil

from weft.errors import ConfigError

_BITS = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}  # a second
_BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def bandwidth_of(text: str) -> float | None:
    """Bytes a second of a text such as 100mbit or 1gbit; None where it makes no sense."""
    bits = _scaled(text, _BITS)
    return None if bits is None else bits / 8


def size_of(text: str) -> float | None:
    """Bytes of a text such as 16GiB or 64GB; None where it makes no sense."""
    return _scaled(text, _BYTES)


def port_range(text: str) -> range:
    """The ports of a text such as 29500-29600; both are among them."""
    found = re.fullmatch(r"\s*([1-9]\d{0,4})\s*-\s*([1-9]\d{0,4})\s*", text)
    first, last = (int(found[1]), int(found[2])) if found else (1, 0)
    if not first <= last < 1 << 16:
        raise ConfigError(f"ports = {text!r} is no range of ports: give one such as 29500-29600")
    return range(first, last + 1)


def as_bits(bandwidth: float) -> str:
    """A bandwidth in bytes a second as a person reads it, in bits."""
    bits = bandwidth * 8
    unit = next((name for name in reversed(_BITS) if bits >= _BITS[name]), "bit")
    return f"{bits / _BITS[unit]:.4g} {unit}"


def as_size(size: float) -> str:
    """A number of bytes as a person reads it."""
    unit = next((name for name in ("TiB", "GiB", "MiB", "KiB") if size >= _BYTES[name.lower()]), "B")
    return f"{size / _BYTES[unit.lower()]:.4g} {unit}"


def as_setting(size: float) -> str:
    """A number of bytes as a setting is given it, of two digits or more: so many, or a few more."""
    unit = next((name for name in ("TB", "GB", "MB", "KB") if size >= 10 * _BYTES[name.lower()]), "B")
    return f"{ceil(size / _BYTES[unit.lower()])}{unit}"


def as_seconds(seconds: float) -> str:
    """A short time as a person reads it."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def as_age(seconds: float) -> str:
    """A long time as a person reads it, in days, hours or minutes."""
    for name, unit in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= unit:
            count = int(seconds / unit)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a minute"


def _scaled(text: str, units: dict[str, float]) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    return float(found[1]) * units[found[2]] if found and found[2] in units else None
