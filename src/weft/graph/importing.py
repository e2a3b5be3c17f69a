"""A source to a graph directory: edges into lists, features checked and converted a piece at a time, labels and splits."""

from pathlib import Path

import numpy as np

from weft.errors import ConfigError, InputError
from weft.graph.edges_to_csr import EdgeOptions, ProgressCallback, write_csr
from weft.graph.graph import check_finite, clean_labels, clean_types
from weft.graph.hetero_features import feature_table_names
from weft.graph.source import FeatureTable, Source
from weft.graph.storage import ArrayWriter, DirectoryWriter, Facts
from weft.graph.vertex_names import arrays_of_names
from weft.keys import Stream, generator

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
    if labels is not None and labels.size and labels.min() < -1:
        raise InputError(f"label {labels.min()} is negative: classes are counted from 0, and -1 means unknown")
    with DirectoryWriter(out, overwrite=overwrite) as directory:
        write_csr(source.edges, source.num_vertices, options, directory, memory, progress, source.num_edges)
        for name, table in zip(_table_names(source), source.features, strict=True):
            writer = directory.array(name, _FEATURE_TYPES[feature_dtype], (table.width,))
            _write_table(table, writer, progress)
        directory.add(vertex_type=clean_types(source.vertex_type), labels=labels, split=parts)
        directory.add(**arrays_of_names(source.names))
        directory.facts = Facts(num_classes, source.class_names, source.vertex_type_names, source.edge_type_names)


def _table_names(source: Source) -> list[str]:
    several = source.vertex_type is not None
    return feature_table_names(len(source.features)) if several else ["features"][: len(source.features)]


def _write_table(table: FeatureTable, writer: ArrayWriter, progress: ProgressCallback | None) -> None:
    first = 0
    for rows in table.rows():
        converted = rows.astype(writer.dtype, copy=False)
        check_finite(converted, first)
        writer.append(converted)
        first += len(rows)
        if progress:
            progress("copying features", first, table.vertices)
    if first != table.vertices:
        raise InputError(f"{writer.name} have {first} rows for {table.vertices} vertices: give one for each, in order")


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
        if source.split is not None and source.split.size and not (0 <= source.split.min() <= source.split.max() <= 3):
            raise InputError(f"split holds {source.split.max()}: use 0 train, 1 validation, 2 test, 3 unused")
        return None if source.split is None else source.split.astype(np.uint8)
    shares = split_shares(wanted)
    if not shares or sum(shares) > 1 + 1e-9:
        raise ConfigError(f"split {wanted!r} is not possible: give train/validation/test in per cent, such as 60/20/20")
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
