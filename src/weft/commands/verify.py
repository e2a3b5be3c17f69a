"""weft verify: is what is on disk still what was written?"""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import weft.graph
from weft.errors import ConfigError, WeftError
from weft.quantities import as_size

Row = tuple[str, int, str]  # a file, its bytes, and what is wrong with it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft verify`."""
    parser.add_argument(
        "folder", type=weft.graph.graph_place, help="a graph, its parts, a trained model, or a folder of checkpoints"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    """Read all of it, print what was found, and say by the exit code whether it is sound: 0, or 1 where some is damaged."""
    if weft.graph.is_address(args.folder):
        raise ConfigError(
            f"{args.folder} is an address, and `weft verify` reads a disk: `weft info {args.folder} --verify` fetches a "
            f"graph and checks all of it"
        )
    rows = list(_rows(args.folder))
    damaged = [name for name, _, wrong in rows if wrong]
    if args.json:
        print(json.dumps([{"file": name, "bytes": size, "damage": wrong or None} for name, size, wrong in rows]))
    else:
        _show(args.folder, rows, len(damaged))
    return 1 if damaged else 0


def _show(folder: Path, rows: list[Row], damaged: int) -> None:
    width = max(len(name) for name, *_ in rows)
    for name, size, wrong in rows:
        print(f"{name:{width}}  {as_size(size):>10}  {wrong or 'sound'}")
    print(f"{folder}: {f'{damaged} of {len(rows)} are damaged' if damaged else 'all is sound'}")


def _rows(folder: Path) -> Iterator[Row]:
    """All graphs, models and checkpoints in a folder, or below it."""
    found = [(place, rows) for place in _places(folder) if (rows := _rows_at(place))] if folder.is_dir() else []
    if not found:
        raise ConfigError(
            f"{folder} is no graph, trained model or folder of checkpoints, and has none: name a folder that Weft wrote"
        )
    for place, rows in found:
        at = "" if place == folder else f"{place.relative_to(folder)}/"
        yield from ((f"{at}{name}".rstrip("/") or "state", size, wrong) for name, size, wrong in rows)


def _rows_at(place: Path) -> list[Row]:
    """What a folder has; nothing, where it went before all was read, as a run removes its old checkpoints."""
    rows: list[Row] = []
    try:
        rows += _graph_rows(place) if _is_graph(place) else ()
        rows += _checkpoint_rows(place) if _is_checkpoint(place) else ()
    except FileNotFoundError:
        if place.exists():
            raise
    damaged = any(wrong for *_, wrong in rows)
    return [] if damaged and not place.exists() else rows


def _places(folder: Path) -> Iterator[Path]:
    """Folders that Weft wrote, but for hidden ones."""

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    met: set[str] = set()  # links may go in circles
    for at, below, _ in os.walk(folder, onerror=fail, followlinks=True):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if (real := os.path.realpath(at)) in met:
            below.clear()
        elif _is_graph(Path(at)) or _is_checkpoint(Path(at)):
            yield Path(at)
        met.add(real)


def _is_graph(place: Path) -> bool:
    """Other arrays may be anyone's, such as those of `weft embed`."""
    return _has(place, weft.graph.MANIFEST) or _has(place, "indptr.npy")


def _is_checkpoint(place: Path) -> bool:
    return _has(place, "state.*")


def _has(place: Path, name: str) -> bool:
    with suppress(FileNotFoundError):  # it has gone
        return any(place.glob(name))
    return False


def _graph_rows(folder: Path) -> Iterator[Row]:
    """The files of a graph; then whether they fit together, where each by itself is sound."""
    graph, apart = None, ""
    try:
        graph = weft.Graph.mapped(folder)
    except WeftError as error:
        apart = str(error)
    try:
        found = [
            (name, size, str(wrong or "")) for name, size, wrong in weft.graph.check_files(folder, graph, large=True)
        ]
    except WeftError as error:  # the manifest: nothing is known of the arrays
        yield weft.graph.MANIFEST, 0, str(error)
        return
    yield from ((f"{name}.npy", size, wrong) for name, size, wrong in found)
    fit = not apart or any(wrong for *_, wrong in found)
    yield weft.graph.MANIFEST, (folder / weft.graph.MANIFEST).stat().st_size, "" if fit else apart


def _checkpoint_rows(checkpoint: Path) -> Iterator[Row]:
    import weft.training  # needs PyTorch, which reading a graph does not

    yield "", sum(file.stat().st_size for file in checkpoint.iterdir()), weft.training.checkpoint_damage(checkpoint)
