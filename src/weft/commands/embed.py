"""weft embed: what a trained model makes of every vertex, written under the vertices' own names."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import weft.graph
import weft.training
from weft.errors import ConfigError, StorageError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft embed`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("--model", type=Path, required=True, help="a trained model, as `weft train --out` saved it")
    parser.add_argument(
        "--out", type=Path, required=True, help="a .npy or .parquet file (Parquet has the vertices' names)"
    )
    parser.add_argument(
        "--what",
        choices=("embeddings", "predictions", "probabilities"),
        default="embeddings",
        help="embeddings: the rows that enter the last convolution, or of a model of links those that are scored (default); "
        "predictions: classes",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads (default: one a core)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what it is computed on; auto: a CUDA device, where there is one (default)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> int:
    """Infer and write."""
    import torch  # here, as help need not wait for it

    from weft.exchange import World
    from weft.nn import encoder_of

    if args.out.suffix not in (".npy", ".parquet"):
        raise ConfigError(f"--out {args.out}: the file must end in .npy or .parquet")
    if args.out.exists() and not args.overwrite:
        raise StorageError(f"{args.out} exists already: choose another name, or replace it with --overwrite")
    device = weft.training.device_of(args.device, World())
    graph = weft.Graph.open(args.graph)
    model, settings = weft.training.load_model(args.model, graph)
    if settings.task.name == "link" and args.what != "embeddings":
        raise ConfigError(f"--what {args.what}: a model of links predicts no classes: write its embeddings")
    torch.set_num_threads(args.threads)
    dtype = torch.float64 if settings.model.dtype == "float64" else torch.float32
    encoder = encoder_of(model).to(device, dtype)
    inference = weft.training.infer(encoder, graph, dtype=dtype, threads=args.threads)
    if args.what == "embeddings":
        values = inference.outputs if settings.task.name == "link" else inference.embeddings
    else:
        shares = weft.training.probabilities(torch.from_numpy(inference.outputs), graph.multi_label)
        predicted = (shares > 0.5).to(torch.uint8) if graph.multi_label else shares.argmax(1).int()
        values = (predicted if args.what == "predictions" else shares).numpy()
    _write(args.out, values, graph, args.what)
    print(f"wrote {args.what} of {len(values):,} vertices to {args.out}, computed on {weft.training.name_of(device)}")
    return 0


def _write(out: Path, values: np.ndarray, graph: weft.Graph, what: str) -> None:
    """All or nothing."""
    import numpy as np
    import pyarrow.parquet as pq

    # As the vertices were imported, whatever a partition made of it.
    order = np.arange(graph.num_vertices) if graph.original_ids is None else np.argsort(graph.original_ids)
    with weft.graph.written_beside(out) as beside, open(beside, "wb") as file:
        if out.suffix == ".npy":
            np.save(file, values[order], allow_pickle=False)
        else:
            pq.write_table(_table(values[order], order, graph, what), file)


def _table(values: np.ndarray, order: np.ndarray, graph: weft.Graph, what: str) -> pa.Table:
    import pyarrow as pa

    columns = {"id": pa.array(range(len(order))) if graph.names is None else graph.names}
    if graph.vertex_type is not None:  # ids may be the same in several types
        kinds = pa.array(graph.vertex_type[order])
        columns["type"] = pa.array(list(graph.vertex_type_names)).take(kinds) if graph.vertex_type_names else kinds
    if values.ndim == 1:
        columns["class"] = pa.array(values)
        if graph.class_names:
            columns["class_name"] = pa.array(list(graph.class_names)).take(pa.array(values))
    else:
        flat = pa.array(values.reshape(-1))
        columns[what] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.table(columns)
