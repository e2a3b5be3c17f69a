"""Links of servers in a file: alpha and beta of each pair, as `weft partition fit` found them."""

import tomllib
from pathlib import Path

import numpy as np

from weft.errors import ConfigError, InputError
from weft.graph import written_beside
from weft.partition import ServerLinks

_HEAD = "# Seconds until the first row, and a row, that a server (line) waits for rows of each other (column), in a batch.\n"


def write_links(path: Path, links: ServerLinks) -> None:
    """Write links to a TOML file."""
    tables = {"alpha": links.alpha, "beta": links.beta}
    with written_beside(path) as beside:
        beside.write_text(_HEAD + "".join(f"{name} = [\n{_lines(values)}]\n" for name, values in tables.items()))


def read_links(path: Path) -> ServerLinks:
    """The links of a TOML file."""
    try:
        found = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        return ServerLinks(*(np.array(found[name], dtype=np.float64) for name in ("alpha", "beta")))
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror}): name a file that `weft partition fit` wrote"
        ) from None
    except (KeyError, ValueError, TypeError, RecursionError, ConfigError) as error:
        raise InputError(f"{path} is no file of links ({error}): let `weft partition fit` write it again") from None


def _lines(values: np.ndarray) -> str:
    return "".join(f"  [{', '.join(f'{value:.6g}' for value in row)}],\n" for row in values.tolist())
