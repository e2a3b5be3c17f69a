"""Options of a plan as words, such as seeds=home and cache=5%, and words as options: one is the other's inverse."""

from collections.abc import Iterable, Mapping

from weft.errors import ConfigError
from weft.quantities import size_of

_TRUTH = {"on": True, "off": False}


def words_of(options: Mapping[str, object]) -> list[str]:
    """Each option as a word."""
    return [f"{name}={_said(name, value)}" for name, value in options.items()]


def options_of(words: Iterable[str]) -> dict[str, object]:
    """Words as options, their values as plain data: whether a plan has such options, it says itself."""
    options: dict[str, object] = {}
    for word in words:
        name, is_set, value = word.partition("=")
        if not (name and is_set and value):
            raise ConfigError(f"plan: {word!r} is no option: write it like seeds=home or cache=5%")
        if name in options:
            raise ConfigError(f"plan: {name} is said twice: drop one of them")
        options[name] = _meant(value)
    return options


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "cache" and isinstance(value, float):
        texts = (f"{100 * value:.6g}%" if value <= 1 else f"{value / 1e6:.6g}MB", repr(value))
        return next(text for text in texts if _meant(text) == value)
    return repr(value) if isinstance(value, float) else str(value)


def _meant(text: str) -> object:
    if text in _TRUTH:
        return _TRUTH[text]
    if text.endswith("%") and isinstance(share := _number(text[:-1]), int | float):
        return share / 100
    return size_of(text) or _number(text)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
