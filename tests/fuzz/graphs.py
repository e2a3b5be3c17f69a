"""Graphs of every kind of array, small enough to be damaged thousands of times."""

from pathlib import Path

import numpy as np

from weft.graph import Graph, HeteroFeatures, text_column
from weft.partition import write_partitioned


def plain(path: Path) -> None:
    random = np.random.default_rng(1)
    weight = random.random(2000, dtype=np.float32) + np.float32(0.5)
    _graph(random, edge_weight=weight, features=random.standard_normal((200, 6), dtype=np.float32)).save(path)


def typed(path: Path) -> None:
    random = np.random.default_rng(2)
    kinds = np.sort(random.integers(0, 3, 200)).astype(np.uint8)
    tables = tuple(
        random.standard_normal((int((kinds == kind).sum()), width), dtype=np.float32)
        for kind, width in enumerate((5, 3, 0))
    )
    given: dict[str, object] = {
        "features": HeteroFeatures(kinds, tables),
        "vertex_type": kinds,
        "vertex_type_names": ("a", "b", "c"),
    }
    given["edge_features"] = random.standard_normal((2000, 3), dtype=np.float32)
    _graph(random, edge_type=random.integers(0, 2, 2000).astype(np.int32), edge_type_names=("x", "y"), **given).save(
        path
    )


def parts(path: Path) -> None:
    random = np.random.default_rng(3)
    graph = _graph(random, features=random.standard_normal((200, 6), dtype=np.float32))
    names = [f"vertex {number}" for number in range(200)]
    text = np.frombuffer("".join(names).encode(), np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(name) for name in names])])
    object.__setattr__(graph, "names", text_column(text, offsets))
    write_partitioned(graph, random.integers(0, 2, 200), 2, path, shares=(2, 1))


def _graph(random: np.random.Generator, **given: object) -> Graph:
    labels = random.integers(0, 4, 200)
    split = random.integers(0, 4, 200).astype(np.uint8)
    return Graph.from_arrays(random.integers(0, 200, (2, 2000)), num_vertices=200, labels=labels, split=split, **given)


KINDS = {"plain": plain, "typed": typed, "parts": parts}
