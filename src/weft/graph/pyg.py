"""PyG's `Data` and `HeteroData` as sources."""

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weft.errors import InputError, reason_of
from weft.graph.csr import running_sum
from weft.graph.feature_tables import EdgeFeatures, edge_features_in_memory
from weft.graph.source import (
    Source,
    check_left_out,
    edges_in_memory,
    features_by_type,
    features_in_memory,
    labels_of_one_type,
    numbered,
)
from weft.graph.storage import named_errors
from weft.graph.values import as_floats
from weft.scratch import remove_cache_of_torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.storage import BaseStorage


_INSTEAD = "give edge_index, [2, edges], in its place"
_SPLITS_ITSELF = "Weft splits links itself (task = link, link_split): give it the data before RandomLinkSplit"
_WHY_UNUSED = {
    "train_mask": "a split is of the vertices that have labels, y",
    "train_y": "give y of all vertices, -1 where unknown, and train_mask = index_to_mask(train_idx, num_nodes)",
    "edge_label_index": _SPLITS_ITSELF,
}


def source_from_pyg(data: "Data | HeteroData", leave_out: Collection[str] = ()) -> Source:
    """A `Data` or `HeteroData`, which has no other arrays but `leave_out`."""
    if not hasattr(data, "stores"):
        raise InputError(
            f"a graph is made of one PyG Data or HeteroData, not of a {type(data).__name__}: take one, as dataset[0]"
        )
    leave_out = (leave_out,) if isinstance(leave_out, str) else leave_out
    if "adj_t" not in leave_out:
        data = _with_edge_lists(data)
    check_left_out(type(data).__name__, _unused(data, leave_out), leave_out, _WHY_UNUSED)
    if "edge_attr" in leave_out:  # be it features of edges, or weights
        data = copy.copy(data)
        for store in data.stores:
            store.pop("edge_attr", None)
    if hasattr(data, "node_types"):
        return _source_of_types(data)
    if getattr(data, "edge_index", None) is None:
        raise InputError(f"{type(data).__name__} has no edge_index (nor adj_t): give it edges as [2, edges]")
    edge_index = _array(data.edge_index)
    if edge_index.ndim != 2 or len(edge_index) != 2:
        raise InputError(f"Data's edge_index has shape {edge_index.shape}: it needs two rows, sources and destinations")
    labels, guessed = _attribute(data, "y"), "num_nodes" not in data and getattr(data, "x", None) is None
    if guessed and labels is not None and len(labels) > data.num_nodes:
        raise InputError(
            f"Data has {len(labels)} labels, but its edges reach {data.num_nodes} vertices only, and it has no x: set "
            f"data.num_nodes"
        )
    types = _attribute(data, "node_type")  # as `HeteroData.to_homogeneous` gives them, with names beside
    if types is not None and not types.any():
        types = None
    names, kinds = (getattr(data, name, None) for name in ("_node_type_names", "_edge_type_names"))
    of_edges = edge_features_in_memory(_rows_of_attributes(data))
    return Source(
        int(data.num_nodes),
        numbered(edges_in_memory(edge_index, _weights(data), _attribute(data, "edge_type")), of_edges),
        features_by_type(_attribute(data, "x"), types),
        labels,
        _split(data),
        num_edges=edge_index.shape[1],
        vertex_type=types,
        vertex_type_names=tuple(names) if names and types is not None else None,
        edge_type_names=tuple("-".join(kind) for kind in kinds) if kinds and "edge_type" in data else None,
        edge_features=of_edges,
    )


def _with_edge_lists(data: "Data | HeteroData") -> "Data | HeteroData":
    """The same data, where edges that are given as `adj_t` alone (by `ToSparseTensor`, say) are an edge_index."""
    if not any("adj_t" in store and "edge_index" not in store for store in data.stores):
        return data
    vertices, data = data.num_nodes, copy.copy(data)
    if not hasattr(data, "node_types"):
        data.num_nodes = vertices  # which adj_t may be the only one to tell
    for store in data.stores:
        if "adj_t" in store and "edge_index" not in store:
            _unfold(store)
    return data


def _unfold(store: "BaseStorage") -> None:
    """An adjacency, whose rows are destinations, as edge_index; its values as edge_weight, unless all are 1."""
    import torch
    from torch_geometric.typing import SparseTensor
    from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

    if not (isinstance(store.adj_t, SparseTensor) or is_torch_sparse_tensor(store.adj_t)):
        raise InputError(f"adj_t is a {type(store.adj_t).__name__}, no sparse tensor: {_INSTEAD}")
    if getattr(store.adj_t, "layout", None) == torch.sparse_csc:
        raise InputError(f"adj_t is stored by source (CSC), not by destination: {_INSTEAD}, or adj_t.to_sparse_csr()")
    ends, values = to_edge_index(copy.copy(store.adj_t))
    if values is not None and not bool((values == 1).all()):
        if values.dim() != 1 or not values.is_floating_point() or "edge_weight" in store:
            raise InputError(
                f"adj_t has values that are no weights of edges (integers, several each, or beside edge_weight): {_INSTEAD}"
            )
        store.edge_weight = values
    store.edge_index = ends.flip(0)
    del store.adj_t


def _source_of_types(data: "HeteroData") -> Source:
    """Vertices type by type, in the order of the `HeteroData`; each kind of edges is a relation."""
    names = list(data.node_types)
    counts = [_count(data, name) for name in names]
    if not data.edge_types:
        raise InputError("HeteroData has no edges: the graph needs at least one kind of them")
    starts = dict(zip(names, running_sum(counts).tolist(), strict=False))
    labels, split = _labels_of_types(data, names, counts)
    several = len(names) > 1
    tables = _of_one_number_type([_table(data, name, count) for name, count in zip(names, counts, strict=True)])
    parts = [_edges(data, kind, starts) for kind in data.edge_types]
    edge_index = np.concatenate(parts, axis=1)
    relation = np.repeat(np.arange(len(parts), dtype=np.int32), [part.shape[1] for part in parts])
    of_edges = _edge_features_of_types(data)
    return Source(
        sum(counts),
        numbered(edges_in_memory(edge_index, _weights_of_types(data), relation), of_edges),
        features_in_memory(*tables) if any(table.shape[1] for table in tables) else (),
        labels,
        split,
        # As the data numbers them: each type by itself.
        names=pa.array(np.concatenate([np.arange(count) for count in counts])) if several else None,
        num_edges=edge_index.shape[1],
        vertex_type=np.repeat(np.arange(len(names)), counts) if several else None,
        vertex_type_names=tuple(names) if several else None,
        edge_type_names=tuple("-".join(kind) for kind in data.edge_types),
        edge_features=of_edges,
    )


def _unused(data: "Data | HeteroData", leave_out: Collection[str]) -> Iterator[str]:
    """The arrays that are not imported; features of edges may be left out, too."""
    several_stores = hasattr(data, "node_types")
    split = [store for store in data.node_stores if "y" in store] or data.node_stores  # those that may be
    for store in data.stores:
        used = {"x", "y", "edge_index", "edge_type", "node_type"}
        if several_stores:
            used = {"edge_index"} if "edge_index" in store else {"x", "y"} if store._key is not None else set()
        used |= {"edge_attr"} - {*leave_out} | (set() if _attributes_are_weights(store) else {"edge_weight"})
        if "train_mask" in store and any(store is one for one in split):
            used |= {"train_mask", "val_mask", "test_mask"}
        yield from (name for name, value in store.items() if name not in used and getattr(value, "ndim", 0) > 0)


def _count(data: "HeteroData", name: str) -> int:
    """How many vertices of a type there are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns where it does not know, which is an error below
        count = data[name].num_nodes
    if count is None:
        raise InputError(f"HeteroData says nothing of how many vertices {name!r} has: set data[{name!r}].num_nodes")
    return int(count)


def _edges(data: "HeteroData", kind: tuple[str, str, str], starts: dict[str, int]) -> np.ndarray:
    """The edges of a kind between vertices as they are numbered among all types."""
    edge_index = _attribute(data[kind], "edge_index")
    if edge_index is None or edge_index.ndim != 2 or len(edge_index) != 2:
        raise InputError(f"HeteroData's edges {kind} have no edge_index of shape [2, edges]: give them one")
    if edge_index.size and edge_index.dtype.kind not in "iu":
        raise InputError(f"HeteroData's edges {kind}: vertex ids are of type {edge_index.dtype}: they must be integers")
    for row, name in ((0, kind[0]), (1, kind[2])):
        if name not in starts:
            raise InputError(f"HeteroData's edges {kind} name vertices {name!r}, which it does not have: add them")
        ends, count = edge_index[row], int(data[name].num_nodes)
        if len(ends) and not 0 <= ends.min() <= ends.max() < count:
            raise InputError(
                f"HeteroData's edges {kind} run to vertex {ends.max()} (from {ends.min()}), but {name!r} has {count}: "
                f"correct the edges, or set num_nodes"
            )
    return edge_index.astype(np.int64) + np.array([[starts[kind[0]]], [starts[kind[2]]]])


def _table(data: "HeteroData", name: str, count: int) -> np.ndarray:
    """A type's features, of which one a vertex needs no second axis; without any, rows of no width."""
    x = _attribute(data[name], "x")
    if x is None:
        return np.empty((count, 0), dtype=np.float32)
    if x.ndim not in (1, 2) or x.dtype.kind not in "fiub" or len(x) != count:
        raise InputError(
            f"HeteroData's features of {name!r} have shape {x.shape} and type {x.dtype}: they need a row of numbers for "
            f"each of {count} vertices"
        )
    return x if x.ndim == 2 else x[:, None]


def _of_one_number_type(tables: list[np.ndarray]) -> list[np.ndarray]:
    kinds = {table.dtype for table in tables if table.shape[1]}
    return [as_floats(table, np.float16 if kinds == {np.dtype(np.float16)} else np.float32) for table in tables]


def _labels_of_types(
    data: "HeteroData", names: list[str], counts: list[int]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels and split of the one type that has labels; if none has, the split of the one that has one."""
    labelled = [name for name in names if getattr(data[name], "y", None) is not None]
    learned = labelled or [name for name in names if "train_mask" in data[name]]
    if len(learned) > 1:
        raise InputError(
            f"HeteroData has {'labels' if labelled else 'train_mask'} for {' and '.join(learned)}: keep "
            f"{'y' if labelled else 'it'} on the one type that is to be learned"
        )
    if not learned:
        return None, None
    store, at = data[learned[0]], names.index(learned[0])
    where = sum(counts[:at]), counts[at], sum(counts)
    if not labelled:
        return labels_of_one_type(None, _split(store), *where)
    labels = _array(store.y)
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf":
        raise InputError(
            f"HeteroData's labels of {labelled[0]!r} have shape {labels.shape} and type {labels.dtype}: they need a number "
            f"a vertex, or a column a class"
        )
    if len(labels) != counts[at]:
        raise InputError(
            f"HeteroData has {len(labels)} labels for {counts[at]} vertices of {labelled[0]}: give one for each"
        )
    if labels.ndim == 1 or labels.shape[1] == 1:
        labels = labels.reshape(-1).astype(np.float64 if labels.dtype.kind == "f" else np.int64)
    return labels_of_one_type(labels, _split(store), *where)


def _weights_of_types(data: "HeteroData") -> np.ndarray | None:
    """Edge weights of all kinds: 1 for kinds that have none, where others have some."""
    found = [(_weights(data[kind]), data[kind].edge_index.shape[1]) for kind in data.edge_types]
    if all(weights is None for weights, _ in found):
        return None
    for kind, (weights, count) in zip(data.edge_types, found, strict=True):
        if weights is not None and weights.shape != (count,):
            raise InputError(
                f"HeteroData's edges {kind} have weights of shape {list(weights.shape)}: give one for each of {count} edges"
            )
    parts = [np.ones(count) if weights is None else weights for weights, count in found]
    return np.concatenate(parts).astype(np.float32)


def _edge_features_of_types(data: "HeteroData") -> EdgeFeatures | None:
    """Edge attributes of all kinds, which are of one width."""
    found = {kind: _rows_of_attributes(data[kind]) for kind in data.edge_types}
    shapes = {kind: None if rows is None else rows.shape[1:] for kind, rows in found.items()}
    if len({*shapes.values()}) > 1:
        told = ", ".join(f"{kind} {'none' if shape is None else list(shape)}" for kind, shape in shapes.items())
        raise InputError(
            f"HeteroData's kinds of edges differ in the features of their edges, edge_attr ({told}): give all kinds as many "
            f"columns (one column without edge_weight is a weight), or leave edge_attr out"
        )
    for kind, rows in found.items():
        count = data[kind].edge_index.shape[1]
        if rows is not None and len(rows) != count:
            raise InputError(
                f"HeteroData's edges {kind} have {len(rows)} rows of edge_attr for {count} edges: give one for each"
            )
    return edge_features_in_memory(*found.values())


def _rows_of_attributes(store: "BaseStorage | Data") -> np.ndarray | None:
    """Edge attributes that are no weights (of several columns, or beside weights), a row an edge; None: they have none."""
    rows = None if _attributes_are_weights(store) else _attribute(store, "edge_attr")
    if rows is not None and rows.ndim == 1:
        rows = rows[:, None]
    return None if rows is None or (rows.ndim == 2 and not rows.shape[1]) else rows


def source_from_pyg_file(path: Path, leave_out: Collection[str] = ()) -> Source:
    """A `Data` or `HeteroData` that torch.save wrote, read without running anything that the file says."""
    with named_errors(path, "reading"):
        return source_from_pyg(_load(path), leave_out)


def _load(path: Path) -> "Data | HeteroData":
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    remove_cache_of_torch()
    safe = [Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, GlobalStorage, NodeStorage, EdgeStorage]
    try:
        with torch.serialization.safe_globals(safe):
            data = torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} can't be read safely as a PyG Data ({reason_of(error)}): save it again with torch.save(data, path)"
        ) from None
    if isinstance(data, tuple) and len(data) > 1 and isinstance(data[1], Mapping | None):
        data = _of_data_set(path, *data[:3])
    if not isinstance(data, Data | HeteroData):
        raise InputError(
            f"{path} holds a {type(data).__name__}, not a PyG Data: save one graph with torch.save(data, path)"
        )
    return data


def _of_data_set(path: Path, data: object, starts: object, made_of: object = None) -> object:
    """The graph of a data set in memory, as PyG saves them: all graphs' arrays in one, and where each graph's begin."""
    from torch_geometric.data import Data, HeteroData

    graphs = _most_graphs(starts)
    if graphs > 1:
        raise InputError(
            f"{path} holds a data set of {graphs} graphs, each of which has a vertex 0: save one, torch.save(dataset[0], "
            f"path), or all as one, b = Batch.from_data_list(list(dataset)) and torch.save(Data(x=b.x, "
            f"edge_index=b.edge_index, y=b.y), path)"
        )
    if isinstance(data, dict):
        of_types = made_of is HeteroData
        return HeteroData.from_dict(data) if of_types else Data.from_dict(data)
    return data


def _most_graphs(starts: object) -> int:
    """How many graphs a data set has, by where each one's part of each array begins (none is told where it has but one)."""
    if isinstance(starts, Mapping):
        return max(map(_most_graphs, starts.values()), default=0)
    return len(starts) - 1 if isinstance(starts, Sized) else 0


def _attribute(store: "BaseStorage | Data", name: str) -> np.ndarray | None:
    value = getattr(store, name, None)
    return None if value is None else _array(value)


def _array(value: "Tensor | np.ndarray") -> np.ndarray:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    try:
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    except (TypeError, RuntimeError) as error:
        raise InputError(f"an array of PyG's data can't be read ({error}): store it as a dense tensor") from None


def _weights(store: "BaseStorage") -> np.ndarray | None:
    """Edge weights, or edge attributes of one column."""
    if _attributes_are_weights(store):
        return _array(store.edge_attr).reshape(-1)
    weights = _attribute(store, "edge_weight")
    return weights.reshape(-1) if weights is not None and weights.shape[1:] == (1,) else weights


def _attributes_are_weights(store: "BaseStorage | Data") -> bool:
    weight, attributes = getattr(store, "edge_weight", None), _attribute(store, "edge_attr")
    return weight is None and attributes is not None and (attributes.ndim == 1 or attributes.shape[1:2] == (1,))


def _split(store: "BaseStorage") -> np.ndarray | None:
    """The masks as one array."""
    masks = {name: _attribute(store, name) for name in ("test_mask", "val_mask", "train_mask")}
    there = {name: mask[:, 0] if mask.shape[1:] == (1,) else mask for name, mask in masks.items() if mask is not None}
    if "train_mask" not in there:
        return None
    if several := [name for name, mask in there.items() if mask.ndim > 1]:
        one = "; ".join(f"data.{name} = data.{name}[:, 0]" for name in several)
        raise InputError(f"{', '.join(several)} hold several splits, a column each: choose one ({one})")
    shape = there["train_mask"].shape
    split, values = np.full(shape, 3, dtype=np.uint8), {"test_mask": 2, "val_mask": 1, "train_mask": 0}
    for name, mask in there.items():
        if mask.shape != shape:
            raise InputError(f"the masks differ in their number of vertices: {shape} and {mask.shape}")
        if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
            raise InputError(
                f"{name} holds other values than true and false: of ids, "
                f"torch_geometric.utils.index_to_mask(ids, data.num_nodes) makes a mask"
            )
        chosen = mask.astype(bool)
        twice = np.flatnonzero(chosen & (split != 3))
        if len(twice):
            other = next(other for other, value in values.items() if value == split[twice[0]])
            raise InputError(
                f"vertex {twice[0]} (and {len(twice) - 1} more) is in {name} and in {other}: a vertex is of one split, so "
                f"take it out of one of the masks"
            )
        split[chosen] = values[name]
    return split
