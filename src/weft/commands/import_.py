"""weft import: a graph from elsewhere into a graph directory."""

from __future__ import annotations

import argparse
from pathlib import Path

import weft.graph
import weft.report
from weft.commands.flags import add_number, words
from weft.errors import ConfigError
from weft.quantities import size_of

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".zst")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft import`."""
    parser.add_argument(
        "source",
        help=f"a folder of .npy files, an edge table, a .toml file that names tables of several types, a PyG file, ogb:NAME "
        f"or one of: {', '.join(weft.graph.built_in_names())}",
    )
    parser.add_argument("out", type=Path, help="the graph directory to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")
    parser.add_argument("--memory", default="6GiB", help="how much memory the import may use (default 6GiB)")
    edges = parser.add_argument_group("edges")
    edges.add_argument("--undirected", action="store_true", help="add every edge's reverse, each pair once")
    edges.add_argument(
        "--reverse-relations", action="store_true", help="add every edge's reverse, as relations of their own"
    )
    edges.add_argument(
        "--self-relation", action="store_true", help="add a loop at every vertex, as a relation of their own"
    )
    edges.add_argument(
        "--self-loops", choices=("keep", "remove", "add"), default="keep", help="what to do with self-loops"
    )
    edges.add_argument("--drop-duplicates", action="store_true", help="keep each edge once")
    tables = parser.add_argument_group("tables")
    tables.add_argument("--nodes", type=Path, help="the vertex table; its order is the order of the vertices")
    tables.add_argument("--src", default="src", help="edge table: the column of sources (default src)")
    tables.add_argument("--dst", default="dst", help="edge table: the column of destinations (default dst)")
    tables.add_argument("--weight", help="edge table: the column of edge weights")
    tables.add_argument("--type", help="edge table: the column of edge types")
    tables.add_argument("--id", default="id", help="vertex table: the column of ids (default id)")
    tables.add_argument("--features", help="vertex table: the columns of features, such as 'f*' or 'age,height'")
    tables.add_argument("--label", help="vertex table: the column of labels (several: one column a class, 0 or 1)")
    tables.add_argument("--split-column", help="vertex table: the column that says train, validation, test or unused")
    tables.add_argument("--ids", choices=("positions", "names"), help="integer ids: row numbers, or names to be kept")
    tables.add_argument("--vertices", type=int, help="how many vertices, if there is no vertex table")
    rest = parser.add_argument_group("features and split")
    rest.add_argument(
        "--feature-dtype", choices=("float32", "float16"), default="float32", help="how features are stored"
    )
    rest.add_argument("--split", help="draw a split: train/validation/test in per cent, such as 60/20/20")
    add_number(rest, "--seed", 0, "the seed of that draw")
    rest.add_argument(
        "--leave-out", metavar="NAMES", help="arrays of the source that are not to be imported, such as edge_attr,pos"
    )
    rest.add_argument("--root", type=Path, default=Path("data"), help="ogb: where its data sets lie (default data)")


def run(args: argparse.Namespace) -> int:
    """Import, then show what was imported."""
    memory = size_of(args.memory) or size_of(f"{args.memory}iB") or size_of(f"{args.memory}B")  # 6GiB, 6G or bytes
    if not memory:
        raise ConfigError(f"memory {args.memory!r} is not a size: write it like 6GiB or 500MB")
    source = _source(args)
    if args.reverse_relations and args.undirected:
        raise ConfigError("--reverse-relations and --undirected are two ways to go back along edges: give one of them")
    if args.reverse_relations:
        source = weft.graph.with_reverses(source)
    if args.self_relation:
        source = weft.graph.with_self_relation(source)
    options = weft.graph.EdgeOptions(args.undirected, args.self_loops, args.drop_duplicates)
    with weft.report.StageProgress() as progress:
        weft.graph.import_graph(
            source,
            args.out,
            options,
            feature_dtype=args.feature_dtype,
            split=args.split,
            seed=args.seed,
            memory=int(memory),
            overwrite=args.overwrite,
            progress=progress,
        )
    weft.report.print_graph(str(args.out), weft.graph.graph_statistics(weft.Graph.open(args.out)), source.left_out)
    return 0


def _source(args: argparse.Namespace) -> weft.graph.Source:
    path, leave_out = Path(args.source), words(args.leave_out or "")
    tables = path.is_file() and path.suffix in (*_TABLES, ".toml")
    if leave_out and tables:
        raise ConfigError("--leave-out is not for tables: of these, only the columns that are named are imported")
    if path.is_file() and path.suffix in _TABLES:
        columns = weft.graph.TableColumns(
            args.src, args.dst, args.weight, args.type, args.id, args.features, args.label, args.split_column
        )
        return weft.graph.source_from_tables(path, args.nodes, columns, args.ids, args.vertices)
    if args.nodes is not None:
        raise ConfigError(
            f"--nodes goes with a table of edges, and {args.source} is none: drop it, or give the edge table"
        )
    return weft.graph.source_from_toml(path) if tables else weft.graph.find_source(args.source, args.root, leave_out)
