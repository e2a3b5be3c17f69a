"""What a trained model says of vertices, as its users get it: a table under the names that came in."""

import numpy as np
import pyarrow as pa
import torch

from weft.errors import InputError
from weft.graph import Graph
from weft.training.objectives import probabilities


def told(outputs: np.ndarray, what: str, several: bool, classes: int = 1) -> np.ndarray:
    """A model's results as predictions or probabilities; `several`: may a vertex have several labels, of the `classes`?

    Refused where some are no numbers, which a class would not show, and where the model was trained to something else.
    """
    rows = torch.from_numpy(outputs)
    if not several and rows.shape[1] == 1 != classes:
        raise InputError(
            f"the model gives one number a vertex, which is none of {classes} classes: weft.infer(model, graph).outputs are "
            f"these numbers"
        )
    asked = probabilities(rows, several) if what == "probabilities" else rows
    if strange := int(asked.isnan().any(1).sum()):
        raise InputError(
            f"the model's rows of {strange:,} vertices hold nan, or are beyond all numbers: it was trained to none, or the "
            f"graph's features are none (`weft info --verify`)"
        )
    if what == "probabilities":
        return asked.numpy()
    return ((rows > 0).to(torch.uint8) if several else rows.argmax(1).int()).numpy()


def table_of(values: np.ndarray, vertices: np.ndarray, first: int, graph: Graph, what: str) -> pa.Table:
    """Values of some vertices, which were imported one after another; `first`: the first one's place then."""
    ids = pa.array(range(first, first + len(vertices)))
    columns = {"id": ids if graph.names is None else graph.names.slice(first, len(vertices))}
    if graph.vertex_type is not None:  # ids may be the same in several types
        kinds = pa.array(graph.vertex_type[vertices])
        columns["type"] = pa.array(list(graph.vertex_type_names)).take(kinds) if graph.vertex_type_names else kinds
    if values.ndim == 1:
        columns["class"] = pa.array(values)
        if graph.class_names:
            # A model may have more columns than there are classes.
            nameless = int(values.max(initial=-1)) + 1 - len(graph.class_names)
            columns["class_name"] = pa.array([*graph.class_names, *[None] * nameless]).take(pa.array(values))
    else:
        flat = pa.array(values.reshape(-1))
        columns[what] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.table(columns)
