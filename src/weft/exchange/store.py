"""What workers read and write before they are connected: torch.distributed's store, of which these methods are used."""

from collections.abc import Sequence
from typing import Protocol


class Store(Protocol):
    """Keys and values that all workers of a run see."""

    def set(self, key: str, value: str) -> None:
        """Set a value."""

    def get(self, key: str) -> bytes:
        """A value, once it is set."""

    def check(self, keys: Sequence[str]) -> bool:
        """Are all keys set?"""
