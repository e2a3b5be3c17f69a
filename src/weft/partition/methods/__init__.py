"""Partition methods: classes with a name, options as fields, and one function; found by `weft.plugins.PARTITION_METHODS`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.plugins import PARTITION_METHODS


class PartitionMethod(ABC):
    """Derive a method from this class, give it a name and a line of help, and write `allocate`.

    Options of its own are the fields of a frozen dataclass, with defaults: `--option NAME=VALUE` sets them. What it takes
    from the goal besides parts, weights, shares and seed is named in `reads`; options of the command that serve only what
    a method does not read are refused.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset()  # of draws, task (or its sampling), its cache, bandwidths (and pairs)
    balances: ClassVar[bool] = True  # does it go by weights and imbalance? If not, flags for them are refused
    library: ClassVar[str] = ""  # the module that must be installed, if any
    needs_training: ClassVar[bool] = False  # training vertices
    by_host: ClassVar[bool] = True  # is it asked for hosts first, and then for each one's workers?
    by_draws: ClassVar[bool] = False  # when chosen automatically: do edges weigh what training draws over them?
    seconds: ClassVar[tuple[float, float]] = (0.0, 0.0)  # of one thread: at the start, and for a million edges
    memory: ClassVar[tuple[float, float]] = (0.0, 0.0)  # bytes for an edge and for a vertex; 0: not measured
    # For each part beyond a few: more seconds for a million edges, and bytes for an edge.
    each_part: ClassVar[tuple[float, float]] = (0.0, 0.0)

    @abstractmethod
    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex, [vertices] int32, from 0 to below `goal.parts`: the same for the same goal."""


def make_method(name: str, options: Mapping[str, Any] | None = None) -> PartitionMethod:
    """The method of this name with its options; words become what an option's default is."""
    kind = PARTITION_METHODS.get(name)
    known: dict[str, Any] = {field.name: field.default for field in fields(kind)} if is_dataclass(kind) else {}
    for option in options or {}:
        if option not in known:
            able = f"its options are {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"method {name!r} has no option {option!r}: {able}")
    needed: list[str] = [field.name for field in fields(kind) if _is_needed(field)] if is_dataclass(kind) else []
    if missing := [option for option in needed if option not in (options or {})]:
        raise ConfigError(f"method {name!r} needs its option {missing[0]}: give it (`weft partition --option`)")
    given = {
        option: _converted(name, option, _kinds(kind, option, known[option]), known[option], value)
        for option, value in (options or {}).items()
    }
    return kind(**given)


def _is_needed(field: "Field[Any]") -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def _kinds(method: type[PartitionMethod], option: str, default: object) -> set[object]:
    """What an option may be: of its default's kind, or of those that its field declares."""
    try:
        declared = get_type_hints(method)[option]
    except NameError:  # a name for type checkers alone
        return {type(default)}
    return {type(default), *(get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,))}


def _converted(method: str, option: str, kinds: set[object], default: object, value: Any) -> Any:
    """A word of the command line as a number, numbers, truth or path, if the option may be one; other values as they are."""
    if not isinstance(value, str):
        return value
    if bool in kinds and value in ("true", "false"):
        return value == "true"
    for number in (int, float):
        if number in kinds:
            with suppress(ValueError):
                return number(value)
    for several in (get_args(kind) for kind in kinds if get_origin(kind) is tuple):
        words = value.split(",")
        if len(words) == len(several) and {int, float}.issuperset(several):
            with suppress(ValueError):
                return tuple(number(word) for number, word in zip(several, words, strict=True))
    if str in kinds:
        return value
    if any(isinstance(kind, type) and issubclass(kind, PurePath) for kind in kinds):
        return Path(value)
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    like = "" if default is MISSING or default is None else f", such as {shown}"
    raise ConfigError(f"option {option}={value} of method {method!r} is not possible: give a value of its kind{like}")
