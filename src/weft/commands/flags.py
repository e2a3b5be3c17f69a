"""What several commands take: a graph, the settings of a run as flags (the usual ones in the first help, all of them in
--help-all), lists of words and numbers with commas between, and sizes."""

import argparse
from collections.abc import Sequence
from dataclasses import Field, fields

import weft.graph
from weft.config import key_of, path_here, read_toml, types_of
from weft.errors import ConfigError
from weft.plan import GROUPS, PLACES, Settings, flattened
from weft.quantities import size_of


def add_graph(parser: argparse.ArgumentParser, text: str = "a graph directory", *, nargs: str | None = None) -> None:
    """A graph: a directory, or an address, of which what is needed comes to the user's cache; `nargs`: is it optional?"""
    text = f"{text}, or the address of one (s3://...)"
    parser.add_argument("graph", type=weft.graph.graph_place, nargs=nargs, help=text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting, in groups; none has a default here, so that a TOML file's values stand."""
    parser.add_argument("--config", type=path_here, help="a TOML file of settings; flags override it")
    parser.add_argument(
        "--set", metavar="GROUP.NAME=VALUE", action="append", default=[], help="any setting; may be repeated"
    )
    hidden: dict[argparse.Action, str] = {}
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, hidden=hidden, help="show the flags of all settings")
    for group, kind in GROUPS.items():
        flags = parser.add_argument_group(group, kind.__doc__)
        for field in fields(kind):
            flag = _add(flags, field)
            if not field.metadata["usual"]:
                hidden[flag], flag.help = flag.help or "", argparse.SUPPRESS


def add_number(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, flag: str, default: int | float, help: str
) -> None:
    """A flag for a number, of the kind that its default is."""
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    parser.add_argument(flag, type=type(default), default=default, help=f"{help} (default {shown})")


def options_given(given: Sequence[str]) -> dict[str, str]:
    """What NAME=VALUE says of a launcher's or a method's own options; a name alone has an empty value."""
    options: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name in options:
            raise ConfigError(f"--option {name} is given twice: {options[name]} and {value}; drop one of them")
        options[name] = value
    return options


def settings_given(args: argparse.Namespace, where: str) -> Settings:
    """The settings that the file and the flags say. `where`: they were given, for errors."""
    return Settings.read(values_given(args, where), where)


def values_given(args: argparse.Namespace, where: str) -> dict[str, object]:
    """What the file and the flags say, by key; flags win."""
    from_file = flattened(read_toml(args.config), str(args.config)) if args.config else {}
    flags = flattened({key: value for key in PLACES if (value := getattr(args, key)) is not None}, where)
    said = flattened(_tables(args.set, where), where)  # apart, for some flags have the name of a group
    for key in flags.keys() & said.keys():
        raise ConfigError(
            f"{where}: {key} is set twice, by its flag and --set {'.'.join(PLACES[key])}: drop one of them"
        )
    return from_file | flags | said


def _tables(settings: Sequence[str], where: str) -> dict[str, dict[str, str]]:
    """What `--set` says, by group and name."""
    tables: dict[str, dict[str, str]] = {}
    for text in settings:
        place, is_set, value = text.partition("=")
        group, dot, name = place.partition(".")
        if not (is_set and dot and group in GROUPS):
            known = f"--set {'.'.join(PLACES[place])}={value}" if place in PLACES else "--set optimisation.lr=0.01"
            raise ConfigError(f"{where}: --set {text} is not GROUP.NAME=VALUE: write it like {known}")
        table = tables.setdefault(group, {})
        if name in table:
            raise ConfigError(f"{where}: --set {place} is given twice: {table[name]} and {value}")
        table[name] = value
    return tables


class _HelpAll(argparse.Action):
    """Shows the help with the flags that are hidden at first."""

    def __init__(self, hidden: dict[argparse.Action, str], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._hidden = hidden

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        for flag, text in self._hidden.items():
            flag.help = text
        parser.print_help()
        parser.exit()


def _add(flags: argparse._ArgumentGroup, field: Field) -> argparse.Action:
    key = key_of(field)
    name = "--" + key.replace("_", "-")
    text = f"{field.metadata['help']} (default {_shown(field.default)})".replace("%", "%%")
    if bool in types_of(field):
        return flags.add_argument(name, dest=key, help=text, action=argparse.BooleanOptionalAction, default=None)
    choices = field.metadata["choices"]
    return flags.add_argument(
        name, dest=key, help=text, metavar="{" + ",".join(choices) + "}" if choices else key.upper()
    )


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def words(text: str) -> tuple[str, ...]:
    """The words of a list, blanks around them dropped."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def whole_numbers(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers; `full` is -1, all neighbours, where a fanout is meant."""
    try:
        return tuple(-1 if word == "full" else int(word) for word in words(text))
    except ValueError:
        raise ConfigError(f"--{flag} {text} is not a list of whole numbers, such as 2,10") from None


def numbers(flag: str, text: str) -> tuple[float, ...]:
    """Numbers, whole or not."""
    try:
        return tuple(float(word) for word in words(text))
    except ValueError:
        raise ConfigError(f"--{flag} {text} is not a list of numbers, such as 2,2,1,1") from None


def size_given(flag: str, text: str) -> int:
    """Bytes: 6GiB, 6G, or a number of them."""
    size = size_of(text) or size_of(f"{text}iB") or size_of(f"{text}B")
    if not size:
        raise ConfigError(f"{flag} {text!r} is not a size: write it like 6GiB or 500MB")
    return int(size)
