"""The settings of a run as flags of a command."""

import argparse
from dataclasses import fields
from pathlib import Path

from weft.config import key_of, read_toml, types_of
from weft.plan import Settings
from weft.plan.settings import GROUPS, PLACES, flattened


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting, in groups; none has a default here, so that a TOML file's values stand."""
    parser.add_argument("--config", type=Path, help="a TOML file of settings; flags override it")
    for group, kind in GROUPS.items():
        flags = parser.add_argument_group(group, kind.__doc__)
        for field in fields(kind):
            key = key_of(field)
            flag = "--" + key.replace("_", "-")
            text = f"{field.metadata['help']} (default {_shown(field.default)})".replace("%", "%%")
            if bool in types_of(field):
                flags.add_argument(flag, dest=key, help=text, action=argparse.BooleanOptionalAction, default=None)
            else:
                choices = field.metadata["choices"]
                metavar = "{" + ",".join(choices) + "}" if choices else key.upper()
                flags.add_argument(flag, dest=key, help=text, metavar=metavar)


def settings_given(args: argparse.Namespace, where: str) -> Settings:
    """The settings that the file and the flags say; flags win. `where`: they were given, for errors."""
    from_file = flattened(read_toml(args.config), str(args.config)) if args.config else {}
    flags = {key: value for key in PLACES if (value := getattr(args, key)) is not None}
    return Settings.read(from_file | flags, where)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
