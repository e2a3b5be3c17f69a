"""What a graph holds, in figures: sizes, degrees and their skew, homophily, isolated vertices, splits."""

from typing import NotRequired, TypedDict

import numpy as np

from weft import _kernels
from weft.graph.graph import OF_EDGES, SPLITS, Graph

# The bins of APT's Table 3: shares of the vertices, hottest first.
SKEW_BINS = ((0.0, 0.01), (0.01, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 0.5), (0.5, 1.0))

_AT_ONCE = 1 << 22  # edges whose types are counted together


class SkewBin(TypedDict("_Bounds", {"from": float, "to": float})):
    """Which share of all edges comes from some of the vertices, those that are sources most often first."""

    share: float


class VertexType(TypedDict):
    """How many vertices of a type there are, and how wide their features."""

    vertices: int
    features: int


class GraphStatistics(TypedDict):
    """Figures of a graph."""

    vertices: int
    edges: int
    isolated: int  # vertices without edges
    without_in_edges: int  # vertices, isolated ones too
    self_loops: int
    mean_degree: float  # edges a vertex
    max_in_degree: int
    max_out_degree: int
    skew: list[SkewBin]
    features: int  # columns
    feature_dtype: str | None  # None: it has no features
    classes: int
    empty_classes: int  # of them, such as no vertex is known to have
    multi_label: bool  # may a vertex have several labels?
    edge_weights: bool  # has it any?
    edge_types: int
    edge_features: int  # columns
    homophily: float | None  # of the edges between labelled vertices, the share that joins those of one class
    bytes: int
    vertex_types: NotRequired[dict[str, VertexType]]  # by name
    relations: NotRequired[dict[str, int]]  # edges of each
    split: NotRequired[dict[str, int]]  # vertices of each


def graph_statistics(graph: Graph) -> GraphStatistics:
    """Figures of a graph, as plain data; reads the edges once."""
    in_degrees, uses = np.diff(graph.indptr), np.zeros(graph.num_vertices, dtype=np.int64)
    labels = None if graph.labels is None or graph.multi_label else np.ascontiguousarray(graph.labels, dtype=np.int32)
    loops, same, labelled = _kernels.describe_edges(graph.indptr, graph.indices, labels, uses)
    figures: GraphStatistics = {
        "vertices": graph.num_vertices,
        "edges": graph.num_edges,
        "isolated": int(((in_degrees == 0) & (uses == 0)).sum()),
        "without_in_edges": int((in_degrees == 0).sum()),
        "self_loops": loops,
        "mean_degree": graph.num_edges / graph.num_vertices,
        "max_in_degree": int(in_degrees.max()),
        "max_out_degree": int(uses.max()),
        "skew": _skew(uses),
        "features": graph.num_features,
        "feature_dtype": None if graph.features is None else str(graph.features.dtype),
        "classes": graph.num_classes,
        "empty_classes": graph.num_classes - _met(graph.labels),
        "multi_label": graph.multi_label,
        "edge_weights": graph.edge_weight is not None,
        "edge_types": graph.num_edge_types,
        "edge_features": graph.num_edge_features,
        "homophily": same / labelled if labelled else None,
        "bytes": _bytes(graph),
    }
    if graph.vertex_type is not None:
        figures["vertex_types"] = _vertex_types(graph, graph.vertex_type)
    if graph.edge_type is not None:
        counts = np.zeros(graph.num_edge_types, dtype=np.int64)
        for first in range(0, graph.num_edges, _AT_ONCE):  # as they are counted, they are numbers of eight bytes
            counts += np.bincount(graph.edge_type[first : first + _AT_ONCE], minlength=len(counts))
        names = graph.edge_type_names or tuple(map(str, range(len(counts))))
        figures["relations"] = dict(zip(names, counts.tolist(), strict=True))
    if graph.split is not None:
        figures["split"] = {name: int((graph.split == value).sum()) for name, value in SPLITS.items()}
    return figures


def _met(labels: np.ndarray | None) -> int:
    """How many classes vertices have."""
    if labels is None:
        return 0
    return int(labels.any(0).sum()) if labels.ndim == 2 else int(np.count_nonzero(np.bincount(labels[labels >= 0])))


def _vertex_types(graph: Graph, types: np.ndarray) -> dict[str, VertexType]:
    counts = np.bincount(types, minlength=len(graph.vertex_type_names or ())).tolist()
    names = graph.vertex_type_names or tuple(map(str, range(len(counts))))
    widths = graph.feature_widths if len(graph.feature_widths) > 1 else (graph.num_features,) * len(counts)
    widths += (0,) * (len(counts) - len(widths))  # types that are named, and of which there are none
    return {
        name: {"vertices": count, "features": width} for name, count, width in zip(names, counts, widths, strict=True)
    }


def _skew(uses: np.ndarray) -> list[SkewBin]:
    ordered = np.sort(uses)[::-1]
    sums = np.concatenate([[0], np.cumsum(ordered)])
    total = max(int(sums[-1]), 1)
    at = [[int(np.ceil(bound * len(uses))) for bound in bounds] for bounds in SKEW_BINS]
    return [
        {"from": low, "to": high, "share": float(sums[end] - sums[begin]) / total}
        for (low, high), (begin, end) in zip(SKEW_BINS, at, strict=True)
    ]


def _bytes(graph: Graph) -> int:
    names = ("indptr", "indices", *OF_EDGES, "vertex_type", "features", "labels", "split")
    arrays = (getattr(graph, name) for name in names)
    return sum(array.nbytes for array in arrays if array is not None)
