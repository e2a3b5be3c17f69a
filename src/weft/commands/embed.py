"""weft embed: what a trained model makes of every vertex, written under the vertices' own names."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import weft.cluster
import weft.graph
import weft.report
import weft.training
from weft.commands.flags import add_graph, size_given
from weft.config import check_writable, path_here
from weft.errors import ConfigError, StorageError
from weft.threads import usual_threads

if TYPE_CHECKING:
    import numpy as np
    import torch

_ROWS = 1 << 18  # that are written at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft embed`."""
    add_graph(parser)
    parser.add_argument(
        "--model", type=path_here, required=True, help="a trained model, as `weft train --out` saved it"
    )
    parser.add_argument(
        "--out",
        type=path_here,
        required=True,
        help="a .npy or .parquet file (Parquet has the vertices' names); on Ray a folder",
    )
    parser.add_argument(
        "--what",
        choices=("embeddings", "predictions", "probabilities"),
        default="embeddings",
        help="embeddings: the rows that enter the last convolution, or of a model of links those that are scored (default); "
        "predictions: classes",
    )
    parser.add_argument("--threads", type=int, default=0, help="threads (default 0: one for each core that it may use)")
    parser.add_argument(
        "--memory",
        help="what rows of all vertices may take, beyond which they go to temporary files (default 4GiB); on Ray, each "
        "process (default 1GiB)",
    )
    parser.add_argument(
        "--scratch",
        type=path_here,
        metavar="FOLDER",
        help="where those files are (default: TMPDIR)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what it is computed on; auto: a CUDA device, where there is one (default); on Ray processors",
    )
    parser.add_argument(
        "--on",
        choices=("local", "ray"),
        default="local",
        help="ray: on the nodes of a Ray cluster, into a folder of Parquet files that all nodes see",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> int:
    """Infer and write."""
    from weft.exchange import World
    from weft.nn import encoder_of

    sharded = args.on == "ray"
    memory = size_given("memory", args.memory or ("1GiB" if sharded else "4GiB"))
    _check(args, sharded)
    device = weft.training.device_of("cpu" if sharded else args.device, World())
    graph = weft.Graph.open_lists(args.graph)
    trained = weft.training.load_model(args.model, graph)
    if args.what != "embeddings" and not trained.tells_classes:
        of = "links" if trained.settings.of_links else f"task = {trained.settings.task.name!r}"
        raise ConfigError(
            f"--what {args.what}: a model of {of} predicts no classes: write its embeddings, or take its rows from "
            f"Python, weft.infer(model, graph).outputs"
        )
    for flag, given in (("--memory", args.memory), ("--scratch", args.scratch)):
        if given and trained.settings.decoupled:
            raise ConfigError(f"{flag} would have no effect: a decoupled model takes all rows at once; drop it")
    for text in weft.training.unused_by(encoder_of(trained.model), trained.graph, trained.settings.sampling.weighted):
        print(f"note  {text}")
    if trained.edited:
        names = ", ".join(trained.edited)
        print(f"note  the code of {names} was edited since {args.model} was saved: this is by what it is now")
    if trained.otherwise:
        print(
            f"note  {', '.join(trained.otherwise)}: when {args.model} was saved it was otherwise; this is by what it is now"
        )
    if sharded:
        tasks = weft.cluster.tasks_on_ray(args.out, memory, weft.training.infer_task)
        with tasks as run, weft.report.StageProgress() as progress:
            weft.training.embed_by_tasks(graph, args.model, args.what, args.out, run, progress)
    else:
        _write(args.out, _values(args, trained, device, memory), trained, args.what, args.overwrite)
    computed = f"computed on {weft.training.name_of(device)}"
    print(f"wrote {args.what} of {graph.num_vertices:,} vertices to {args.out}, {computed}")
    return 0


def _check(args: argparse.Namespace, sharded: bool) -> None:
    """Refuse what can't be written, or would have no effect."""
    if (args.out.suffix in (".npy", ".parquet")) == sharded:
        must = "it must be a folder, for files of Parquet" if sharded else "the file must end in .npy or .parquet"
        raise ConfigError(f"--out {args.out}: {must}")
    if args.threads < 0:
        raise ConfigError(f"--threads {args.threads}: give how many, or 0 for one for each core that it may use")
    if sharded and args.device == "cuda":
        raise ConfigError("--device cuda: on Ray processors compute; drop it, or --on")
    if sharded and args.scratch:
        raise ConfigError("--scratch: on Ray rows go to files beside --out; drop it, or --on")
    if sharded and args.threads:
        raise ConfigError("--threads: on Ray each task computes by one; drop it, or --on")
    if args.scratch and not args.scratch.is_dir():
        raise ConfigError(f"--scratch {args.scratch} is no folder: make it, or name another")
    if args.out.exists() and not args.overwrite:
        raise StorageError(f"{args.out} exists already: choose another name, or replace it with --overwrite")
    if args.out.exists() and args.out.is_dir() != sharded:
        raise StorageError(f"{args.out} is a {'file' if sharded else 'folder'}: choose another name")
    if args.out.is_dir() and any(file.suffix != ".parquet" for file in args.out.iterdir()):
        raise StorageError(f"{args.out} has other files than Parquet, so it will not be replaced: choose another name")
    check_writable(args.out)


def _values(
    args: argparse.Namespace, trained: weft.training.TrainedModel, device: torch.device, memory: int
) -> np.ndarray:
    """The rows that are written, or told as predictions first."""
    import torch  # here, as help need not wait for it

    from weft.nn import encoder_of

    threads = args.threads or usual_threads()
    torch.set_num_threads(threads)
    dtype = weft.training.dtype_for(trained.settings)
    encoder = encoder_of(trained.model).to(device, dtype)
    inference = weft.training.inferred(encoder, trained.graph, dtype, threads, memory, args.scratch)
    of_outputs = args.what != "embeddings" or trained.settings.of_links
    return inference.outputs if of_outputs else inference.embeddings


def _write(out: Path, rows: np.ndarray, trained: weft.training.TrainedModel, what: str, overwrite: bool) -> None:
    """All or nothing; some rows at a time, for all of them may be more than there is memory."""
    import numpy as np
    import pyarrow.parquet as pq

    graph = trained.graph
    # As the vertices were imported, whatever a partition made of it.
    order = np.arange(graph.num_vertices) if graph.original_ids is None else np.argsort(graph.original_ids)

    with weft.graph.written_beside(out, overwrite) as beside, open(beside, "wb") as file, ExitStack() as ending:
        table: pq.ParquetWriter | None = None
        for first in range(0, len(order), _ROWS):
            some = order[first : first + _ROWS]
            values = np.ascontiguousarray(rows[some])
            if what != "embeddings":
                values = weft.training.told(values, what, trained.several_labels, graph.num_classes)
            if out.suffix == ".npy":
                if not first:
                    shape = (len(order), *values.shape[1:])
                    like = {"descr": values.dtype.str, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, like)
                file.write(values.tobytes())
                continue
            columns = weft.training.table_of(values, some, first, graph, what)
            table = table or ending.enter_context(pq.ParquetWriter(file, columns.schema))
            table.write_table(columns)
