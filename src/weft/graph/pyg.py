"""PyG's `Data` as plain arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import InputError


def arrays_of(data: Any) -> dict[str, Any]:
    """The keyword arguments of Graph.from_arrays for a `Data` object."""
    if getattr(data, "edge_index", None) is None:
        raise InputError(f"{type(data).__name__} has no edge_index: Weft reads PyG's Data with edges as [2, edges]")
    get = lambda name: _numpy(getattr(data, name, None))  # noqa: E731
    weight = get("edge_weight")
    attributes = get("edge_attr")
    if weight is None and attributes is not None and (attributes.ndim == 1 or attributes.shape[1] == 1):
        weight = attributes.reshape(-1)
    return {
        "edge_index": get("edge_index"),
        "num_vertices": int(data.num_nodes),
        "features": get("x"),
        "labels": get("y"),
        "split": _split(get("train_mask"), get("val_mask"), get("test_mask")),
        "edge_weight": weight,
        "edge_type": get("edge_type"),
    }


def load(path: Path) -> Any:
    """A `Data` saved by torch.save, read without running anything that the file says."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    safe = [Data, DataEdgeAttr, DataTensorAttr, BaseStorage, GlobalStorage, NodeStorage, EdgeStorage]
    try:
        with torch.serialization.safe_globals(safe):
            data = torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{path} can't be read safely as a PyG Data ({reason}): save it again with torch.save(data, path)"
        ) from None
    if isinstance(data, tuple | list) and data and isinstance(data[0], Data):
        data = data[0]  # as PyG's in-memory data sets are saved: (data, slices)
    if not isinstance(data, Data):
        raise InputError(
            f"{path} holds a {type(data).__name__}, not a PyG Data: save one graph with torch.save(data, path)"
        )
    return data


def _numpy(value: Any) -> np.ndarray | None:
    return None if value is None else np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def _split(train: np.ndarray | None, validation: np.ndarray | None, test: np.ndarray | None) -> np.ndarray | None:
    if train is None:
        return None
    split = np.full(len(train), 3, dtype=np.uint8)
    for value, mask in ((2, test), (1, validation), (0, train)):
        if mask is not None:
            if mask.ndim == 2:
                raise InputError(
                    f"the masks hold {mask.shape[1]} splits: choose one, data.train_mask = data.train_mask[:, 0]"
                )
            split[mask.astype(bool)] = value
    return split
