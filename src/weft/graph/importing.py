"""A source to a graph directory: edges into lists, features checked and converted a piece at a time, labels and splits."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.errors import ConfigError, InputError
from weft.graph.checks import check_finite
from weft.graph.directory import ArrayWriter, DirectoryWriter, Facts
from weft.graph.edges_to_csr import EdgeChunk, EdgeOptions, ProgressCallback, write_csr
from weft.graph.feature_tables import FeatureTable
from weft.graph.hetero_features import feature_table_names
from weft.graph.source import Source
from weft.graph.values import as_floats, checked_types, clean_labels, clean_split, clean_types
from weft.graph.vertex_names import arrays_of_names
from weft.keys import Stream, generator

_CHUNK = 1 << 22  # values of features that are converted at a time
_FEATURE_TYPES = {"float32": np.float32, "float16": np.float16}


def import_graph(
    source: Source,
    out: Path,
    options: EdgeOptions,
    *,
    feature_dtype: str = "float32",
    split: str | None = None,
    seed: int = 0,
    memory: int = 6 << 30,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> None:
    """Write a source as a graph directory, all or nothing, within about `memory` bytes."""
    if feature_dtype not in _FEATURE_TYPES:
        raise ConfigError(f"feature type {feature_dtype!r} is not possible: choose float32 or float16")
    labels, num_classes = clean_labels(source.labels, source.class_names)
    parts = _split(source, labels, split, seed)
    with DirectoryWriter(out, overwrite=overwrite) as directory:
        expected, of_edges = source.num_edges, source.edge_features
        write_csr(lambda: _edges(source), source.num_vertices, options, directory, memory, progress, expected, of_edges)
        for name, table in zip(_table_names(source), source.features, strict=True):
            writer = directory.array(name, _FEATURE_TYPES[feature_dtype], (table.width,))
            _write_table(table, writer, progress)
        directory.add(vertex_type=clean_types(source.vertex_type), labels=labels, split=parts)
        directory.add(**arrays_of_names(source.names))
        directory.facts = Facts(num_classes, source.class_names, source.vertex_type_names, source.edge_type_names)


def _edges(source: Source) -> Iterator[EdgeChunk]:
    """The edges, their types checked against the relations' names."""
    for chunk in source.edges():
        if chunk.type is not None:
            checked_types("edge", chunk.type, source.edge_type_names)
        yield chunk


def _table_names(source: Source) -> list[str]:
    several = source.vertex_type is not None
    return feature_table_names(len(source.features)) if several else ["features"][: len(source.features)]


def _write_table(table: FeatureTable, writer: ArrayWriter, progress: ProgressCallback | None) -> None:
    first, most = 0, max(1, _CHUNK // max(1, table.width))
    pieces = (rows[at : at + most] for rows in table.rows() for at in range(0, len(rows), most))
    for rows in pieces:
        with np.errstate(over="ignore"):  # too large is infinite, and that is refused
            converted = as_floats(rows, writer.dtype)
        check_finite(converted, first)
        writer.append(converted)
        first += len(rows)
        if progress:
            progress("copying features", first, table.count)
    if first != table.count:
        raise InputError(f"{writer.name} have {first} rows for {table.count} vertices: give one for each, in order")


def _split(source: Source, labels: np.ndarray | None, wanted: str | None, seed: int) -> np.ndarray | None:
    """The source's own split, or a random one of the labelled vertices."""
    vertices = source.num_vertices
    for name, values in (("labels", labels), ("split", source.split)):
        if values is not None and len(values) != vertices:
            raise InputError(f"{name} have {len(values)} rows for {vertices} vertices: give one for each, in order")
    if wanted is None:
        if source.split is None and labels is not None:
            raise InputError(
                "there are labels but no split: name its column or file, or draw one with --split 60/20/20"
            )
        return clean_split(source.split)
    shares = split_shares(wanted)
    if not shares or sum(shares) > 1 + 1e-9:
        raise ConfigError(f"split {wanted!r} is not possible: give train/validation/test in per cent, such as 60/20/20")
    if "." in wanted and abs(sum(shares) - 0.01) < 1e-9:
        in_per_cent = "/".join(f"{10_000 * share:g}" for share in shares)
        raise ConfigError(
            f"split {wanted!r} would be 1% of the vertices: give train/validation/test in per cent, {in_per_cent}"
        )
    known = np.arange(vertices) if labels is None else np.flatnonzero(_labelled(source, labels))
    split = np.full(vertices, 3, dtype=np.uint8)
    order = generator(Stream.PERMUTE, seed).permutation(known)
    for value, part in enumerate(np.split(order, np.rint(np.cumsum(shares) * len(order)).astype(int))[:3]):
        split[part] = value
    return split


def _labelled(source: Source, labels: np.ndarray) -> np.ndarray:
    """Which vertices have labels; of several types of vertices with several labels each, those that have any."""
    if labels.ndim == 1:
        return labels >= 0
    return labels.max(1) > 0 if source.vertex_type is not None else np.ones(len(labels), dtype=bool)


def split_shares(text: str) -> list[float]:
    """The shares to train, validate and test on, as fractions, of text in per cent; none where it is not that."""
    try:
        shares = [float(part) / 100 for part in text.split("/")]
    except ValueError:
        return []
    return shares if len(shares) == 3 and shares[0] > 0 and all(0 <= share <= 1 for share in shares) else []
