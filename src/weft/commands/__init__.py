"""The commands of the command line, one file each, and the parser that reads their words."""

from weft.commands.parser import CommandParser

__all__ = ["CommandParser"]
