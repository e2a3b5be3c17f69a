"""Where a layer stands in a plan, and how the rows above and below it are held."""

from dataclasses import dataclass

# How rows are held between two layers: by their owners, each once; or where they were asked for. Inputs are fetched.
OWNER, REQUEST, INPUT = "owner", "request", "input"
Held = str  # one of these


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    index: int  # 0: nearest the inputs
    above: Held  # how the rows that it makes are held: OWNER or REQUEST
    below: Held  # how the rows that it takes are

    @property
    def first(self) -> bool:
        """Does it take the inputs?"""
        return self.index == 0
