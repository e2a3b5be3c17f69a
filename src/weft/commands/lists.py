"""Lists on the command line: words and numbers with commas between."""

from weft.errors import ConfigError


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
