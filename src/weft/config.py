"""One configuration for Python, the command line and TOML: the fields of a dataclass, with help and limits.

What is given later wins: defaults, then a TOML file, then flags or keyword arguments. Unknown keys are errors that name
the nearest valid one.
"""

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from weft.errors import ConfigError, StorageError

T = TypeVar("T")


def setting(
    default: Any,
    help: str,
    group: str,
    *,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A field of a settings dataclass."""
    metadata = {"help": help, "group": group, "choices": choices, "low": low, "high": high}
    return dataclasses.field(default=default, metadata=metadata)


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise StorageError(f"the settings file {path} can't be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def make(kind: type[T], given: Mapping[str, Any], where: str = "settings") -> T:
    """The dataclass, its fields taken from `given`, names and values checked."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known ones are {', '.join(fields)}"
            raise ConfigError(f"{where}: there is no setting {name!r}; {hint}")
    return kind(**{name: _checked(fields[name], value, where) for name, value in given.items()})


def add_flags(parser: argparse.ArgumentParser, kind: type) -> None:
    """A flag for each field, in groups; none has a default here, so that a TOML file's values stand."""
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        name = field.metadata["group"]
        groups[name] = groups.get(name) or parser.add_argument_group(name)
        flag = "--" + field.name.replace("_", "-")
        text = f"{field.metadata['help']} (default {_shown(field.default)})".replace("%", "%%")
        if bool in _types(field):
            groups[name].add_argument(
                flag, dest=field.name, help=text, action=argparse.BooleanOptionalAction, default=None
            )
        else:
            choices = field.metadata["choices"]
            metavar = "{" + ",".join(choices) + "}" if choices else field.name.upper()
            groups[name].add_argument(flag, dest=field.name, help=text, metavar=metavar)


def flags_given(args: argparse.Namespace, kind: type) -> dict[str, Any]:
    """What the command line set."""
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def _types(field: dataclasses.Field) -> tuple[Any, ...]:
    return get_args(field.type) or (field.type,)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _checked(field: dataclasses.Field, value: Any, where: str) -> Any:
    """A value in the field's type and limits; strings (of the command line) are converted."""
    try:
        value = _converted(_types(field), value)
    except (ValueError, TypeError):
        raise ConfigError(f"{where}: {field.name} = {value!r} is not {_wanted(field)}") from None
    choices, low, high = (field.metadata[name] for name in ("choices", "low", "high"))
    if choices and value is not None and value not in choices:
        near = difflib.get_close_matches(str(value), choices, 1)
        raise ConfigError(
            f"{where}: {field.name} = {value!r} is not possible; {f'did you mean {near[0]!r}? ' if near else ''}"
            f"choose one of {', '.join(choices)}"
        )
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and (
            (low is not None and number < low) or (high is not None and number > high)
        ):
            limits = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{where}: {field.name} = {number} is out of range; it must be {limits}")
    return value


def _converted(types: tuple[Any, ...], value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in types):
        if type(None) not in types:
            raise ValueError
        return None
    if any(kind is not str and kind is not type(None) and hasattr(kind, "__origin__") for kind in types):
        return _whole_numbers(value)
    if bool in types:
        if not isinstance(value, bool):
            raise ValueError
        return value
    if isinstance(value, bool):
        raise ValueError
    if int in types and isinstance(value, int | str):
        return int(value)
    if float in types and isinstance(value, int | float | str):
        number = float(value)
        if number != number:
            raise ValueError
        return number
    if (str in types or Path in types) and isinstance(value, str | Path):
        return Path(value) if Path in types else str(value)
    raise ValueError


def _whole_numbers(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else list(value)
    if not parts or any(isinstance(part, bool | float) for part in parts):
        raise ValueError
    return tuple(-1 if str(part).strip() == "full" else int(part) for part in parts)


def _wanted(field: dataclasses.Field) -> str:
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a word",
        Path: "a path",
        type(None): "none",
    }
    return " or ".join(names.get(kind, "a list of whole numbers such as 10,10,5 (or full)") for kind in _types(field))
