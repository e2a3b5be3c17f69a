"""Where a graph is: a directory, or an address that fsspec knows. Apart, for a command's help needs no more."""

import re
from pathlib import Path
from typing import TypeGuard


def is_address(where: object) -> TypeGuard[str]:
    """Is it an address, and no path?"""
    return isinstance(where, str) and "://" in where


def without_passwords(text: str) -> str:
    """A text whose addresses may be told: `https://me:password@host` as `https://me@host`."""
    return re.sub(r"(://[^/\s@:]*):[^/\s@]*@", r"\1@", text)


def directory_of(place: Path | str) -> Path | None:
    """The directory that all hosts must have; None: they fetch what they need."""
    return None if is_address(place) else Path(place)


def graph_place(text: str) -> Path | str:
    """What a command's user names: a directory, or the address of one."""
    return text if is_address(text) else Path(text)


def name_at(place: Path | str) -> Path:
    """The last part of a path or an address, without what a server is asked besides."""
    return Path(place) if isinstance(place, Path) else Path(place.partition("?")[0].rpartition("/")[2])
