"""Settings as typed dataclasses: each field has a help text and limits, and is checked wherever its value comes from."""

import dataclasses
import difflib
import errno
import math
import os
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from weft.errors import ConfigError, StorageError

T = TypeVar("T")
N = TypeVar("N", int, float)
_MOUNTS = Path("/proc/self/mountinfo")
_NAME = 200  # bytes of a name, beside which one is written that is longer
_SHORT = 80  # characters of a value that is told as it is
_MOST = 1 << 63  # from which on no kernel or file holds a number
TYPES: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    Path: "a path",
    type(None): "none",
}


def setting(
    default: T,
    help: str,
    *,
    key: str = "",
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    usual: bool = False,
    binds: str = "",
    off: T | None = None,
    others: str = "",
    resumed: str = "",
) -> T:
    """A field of a group of settings.

    `key`: its name where groups are not named, if that is another one. `usual`: is it shown in a command's first help?
    `binds`: names of the conditions under which it has an effect. `off`: the value that says there is none of it, which is
    true anywhere; None: the usual one, if that is nothing. `others`: where what is not among the choices goes. `resumed`:
    how a run that goes on from a checkpoint may change it (plan/settings.py), if not as all of its group.
    """
    limits = {"choices": choices, "others": others, "low": low, "high": high}
    conditions = {"binds": binds.split(), "off": (off,) if off is not None else () if default else (default,)}
    metadata = {"help": help, "key": key, "usual": usual, "resumed": resumed, **conditions, **limits}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Group:
    """Settings that belong together. Values are checked; those of a command line, which are text, are converted."""

    resumed: ClassVar[str] = "same"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(field, getattr(self, field.name)))


def key_of(field: dataclasses.Field) -> str:
    """The name of a setting where groups are not named."""
    return str(field.metadata["key"] or field.name)


def types_of(field: dataclasses.Field) -> tuple[object, ...]:
    """The types that a setting's value may have."""
    return get_args(field.type) or (field.type,)


def checked(field: dataclasses.Field, value: object) -> object:
    """A value in the field's type and limits; strings (of the command line) are converted."""
    name = key_of(field)
    try:
        value = _converted(types_of(field), value)
    except OverflowError:
        raise ConfigError(f"{name} is out of range; it must be a number below 2^63") from None
    except (ValueError, TypeError):
        known = f"; {_known(field)}" if field.metadata["choices"] else ""
        raise ConfigError(f"{name} = {_shortly(value)} is not {_wanted(field)}{known}") from None
    choices, low, high = (field.metadata[name] for name in ("choices", "low", "high"))
    if choices and value is not None and value not in choices:
        hint = near(str(value), choices)
        raise ConfigError(f"{name} = {value!r} is not possible; {hint}{_known(field)}")
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and (
            (low is not None and number < low) or (high is not None and number > high)
        ):
            limits = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{name} = {number} is out of range; it must be {limits}")
    return value


def path_here(text: str | Path) -> Path:
    """A path, of what is read or written on this machine; an address is refused, which would make folders of that name."""
    if isinstance(text, str) and "://" in text:
        raise ConfigError(
            f"{text} is an address, where only graphs and the tables of an import may be: name a path, and copy from or to "
            f"the address"
        )
    if "\0" in str(text):
        raise ConfigError(f"the path {str(text)!r} holds a NUL character, which none can: name another")
    if not str(text).strip():  # which would be the present folder: of a variable that is not set
        raise ConfigError("a path is empty: name one")
    return Path(text)


def file_to_write(text: str | Path) -> Path:
    """A path of a file that will be written: refused before anything is computed, where it can't be."""
    path = path_here(text)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path} is in a folder that is not there: make it, or name another")
    check_writable(path)
    return path


def typed(path: str | Path) -> str:
    """A path as it is typed in a command: quoted where it must be, and no option where it begins with a dash."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def joined_lists(words: Iterable[str]) -> list[str]:
    """A command's words with `--fanouts -1,5` as `--fanouts=-1,5`: else argparse takes the list for an option."""
    found: list[str] = []
    for word in words:
        if re.fullmatch(r"-\d+(,.*)", word) and found and found[-1].startswith("--") and "--" not in found:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def is_device(path: Path) -> bool:
    """Is it a device or a pipe, which is written into? What is a file or a folder is replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: Path) -> None:
    """Refuse a path that can't be made or replaced: the disk is read-only, the folder is another's, or a disk is mounted."""
    if len(os.fsencode(path.name)) > _NAME:
        raise StorageError(
            f"{path} has a name of more than {_NAME} bytes, beside which nothing can be written: shorten it"
        )
    places = [path]
    if not is_device(path):
        if _ends_nowhere(path):
            raise StorageError(f"{path} goes through links that lead to themselves: name another place")
        real = Path(os.path.realpath(path))  # what a link points to is replaced
        if _is_mount_point(real):
            raise StorageError(f"{path} is a mount point, which can't be replaced: name a place within it")
        above = next(folder for folder in real.parents if folder.exists())
        if not above.is_dir():
            raise StorageError(f"{path} can't be written, as {above} is a file: name another place")
        places = [above, real] if real.exists() else [above]
    for there in places:
        if not os.access(there, os.W_OK):
            raise StorageError(
                f"{path} can't be written, as {there} is read-only or another user's: name another place"
            )


def _ends_nowhere(path: Path) -> bool:
    """Does a path go through links that go round in a circle?"""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _is_mount_point(path: Path) -> bool:
    """Is something mounted there? A file or a folder may be, of the same disk too, which only the system's table tells."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:  # a system without one
        return os.path.ismount(path)
    named = (re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), line.split()[4]) for line in lines)
    return os.fsencode(path) in named


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that looks most like this one; an empty one where none does."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")


def near(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that looks most like this one, if there is one; it ends in a blank."""
    found = nearest(word, known)
    return f"did you mean {found!r}? " if found else ""


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))  # TOML's encoding, whatever this system's is
    except RecursionError:
        raise ConfigError(f"{path} is not what is expected: tables within tables within tables; write keys") from None
    except OSError as error:
        raise StorageError(f"the settings file {path} can't be read ({error.strerror}): check the path") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _plain(value: Any) -> Any:
    """A number of numpy's or torch's as one of Python's; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _converted(types: tuple[object, ...], value: object) -> object:
    value = _plain(value)
    if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in types):
        if type(None) not in types:
            raise ValueError
        return None
    if any(hasattr(kind, "__origin__") for kind in types):
        return _whole_numbers(value)
    if bool in types:
        return _truth(value)
    if isinstance(value, bool):
        raise ValueError
    if int in types and isinstance(value, int | str):
        return _fits(int(value))
    if float in types and isinstance(value, int | float | str):
        number = float(value)
        if math.isnan(number):
            raise ValueError
        return _fits(number)
    if str in types and isinstance(value, int):  # as a flag has it: what such a word must be is told of it
        return str(value)
    if (str in types or Path in types) and isinstance(value, str | Path):
        return path_here(value) if Path in types else str(value)
    raise ValueError


def _truth(value: object) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False, "on": True, "off": False}.get(value.lower())
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole_numbers(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else [*map(_plain, value)]
    if not parts or any(isinstance(part, bool | float) for part in parts):
        raise ValueError
    return tuple(-1 if str(part).strip() == "full" else _fits(int(part)) for part in parts)


def _fits(number: N) -> N:
    if not abs(number) < _MOST:
        raise OverflowError
    return number


def _shortly(value: object) -> str:
    """A value as it was written, or of what class it is, where that would be lines of text."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    told = repr(value)
    return told if len(told) <= _SHORT and "\n" not in told else f"an object of {type(value).__name__}"


def _known(field: dataclasses.Field) -> str:
    choices, others = field.metadata["choices"], field.metadata["others"]
    return f"choose one of {', '.join(choices)}{f' ({others})' if others else ''}"


def _wanted(field: dataclasses.Field) -> str:
    return " or ".join(TYPES.get(kind, "a list of whole numbers such as 10,10,5 (or full)") for kind in types_of(field))
