"""The parser of commands: what it can't read is told with the usage of the called one, and with what was likely meant."""

import argparse
from collections.abc import Iterable
from typing import Any

from weft.config import nearest


class CommandParser(argparse.ArgumentParser):
    """A parser of a command, and of commands below it. It reads all words: none are left over."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What the words say; argparse would have the uppermost parser tell of those that a command does not know."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}{self._hint(left)}")
        return found, left

    def _hint(self, left: list[str]) -> str:
        """The option that the first of these was likely meant to be; many are known by other names in other libraries."""
        from weft.plan import OUR_NAMES  # here, as help need not wait for it

        flag = next((word.partition("=")[0] for word in left if word.startswith("--")), "")
        name = OUR_NAMES.get(flag[2:].replace("-", "_"), flag[2:]).replace("_", "-")
        return _near(name, [option[2:] for option in self._option_string_actions if option.startswith("--")], "--")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _near(value, action.choices or ())
            raise


def _near(word: str, known: Iterable[str], before: str = "") -> str:
    found = nearest(word, known)
    return f"; did you mean {before}{found}?" if found else ""
