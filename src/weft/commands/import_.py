"""weft import: a graph from elsewhere into a graph directory."""

import argparse
import re
from pathlib import Path

from weft.commands.lists import words
from weft.errors import ConfigError
from weft.graph import (
    EdgeOptions,
    Graph,
    Source,
    TableColumns,
    built_in_names,
    find_source,
    graph_statistics,
    import_graph,
    source_from_tables,
    source_from_toml,
    with_reverses,
    with_self_relation,
)
from weft.report import StageProgress, print_graph

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".zst")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft import`."""
    parser.add_argument(
        "source",
        help=f"a folder of .npy files, an edge table, a .toml file that names tables of several types, a PyG file, ogb:NAME "
        f"or one of: {', '.join(built_in_names())}",
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
    rest.add_argument("--seed", type=int, default=0, help="the seed of that draw (default 0)")
    rest.add_argument(
        "--leave-out", metavar="NAMES", help="arrays of the source that are not to be imported, such as edge_attr,pos"
    )
    rest.add_argument("--root", type=Path, default=Path("data"), help="ogb: where its data sets lie (default data)")


def run(args: argparse.Namespace) -> int:
    """Import, then show what was imported."""
    memory = parse_bytes(args.memory)
    source = _source(args)
    if args.reverse_relations and args.undirected:
        raise ConfigError("--reverse-relations and --undirected are two ways to go back along edges: give one of them")
    if args.reverse_relations:
        source = with_reverses(source)
    if args.self_relation:
        source = with_self_relation(source)
    options = EdgeOptions(args.undirected, args.self_loops, args.drop_duplicates)
    with StageProgress() as progress:
        import_graph(
            source,
            args.out,
            options,
            feature_dtype=args.feature_dtype,
            split=args.split,
            seed=args.seed,
            memory=memory,
            overwrite=args.overwrite,
            progress=progress,
        )
    print_graph(str(args.out), graph_statistics(Graph.open(args.out)), source.left_out)
    return 0


def _source(args: argparse.Namespace) -> Source:
    path, leave_out = Path(args.source), words(args.leave_out or "")
    tables = path.is_file() and path.suffix in (*_TABLES, ".toml")
    if leave_out and tables:
        raise ConfigError("--leave-out is not for tables: of these, only the columns that are named are imported")
    if path.is_file() and path.suffix in _TABLES:
        columns = TableColumns(
            args.src, args.dst, args.weight, args.type, args.id, args.features, args.label, args.split_column
        )
        return source_from_tables(path, args.nodes, columns, args.ids, args.vertices)
    if args.nodes is not None:
        raise ConfigError(
            f"--nodes goes with a table of edges, and {args.source} is none: drop it, or give the edge table"
        )
    return source_from_toml(path) if tables else find_source(args.source, args.root, leave_out)


def parse_bytes(text: str) -> int:
    """'6GiB', '500 MB', '1073741824' as a number of bytes."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(i?B?)\s*", text, re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"memory {text!r} is not a size: write it like 6GiB or 500MB")
    step = 1024 if "i" in match[3].lower() or not match[3] else 1000
    return int(float(match[1]) * step ** " KMGT".index(match[2].upper() or " "))
