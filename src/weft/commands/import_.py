"""weft import: a graph from elsewhere into a graph directory."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path

import weft.cluster
import weft.graph
import weft.report
from weft.commands.flags import size_given, words
from weft.config import path_here
from weft.errors import ConfigError, WeftError

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".zst")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft import`."""
    parser.add_argument(
        "source",
        help=f"a folder of .npy files, an edge table, a .toml file that names tables of several types, a PyG file, ogb:NAME "
        f"or one of: {', '.join(weft.graph.built_in_names())}",
    )
    parser.add_argument("out", type=path_here, help="the graph directory to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")
    parser.add_argument(
        "--memory",
        help="how much memory the import may use (default 6GiB); on Ray, each of its processes (default 1GiB)",
    )
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
    tables.add_argument("--nodes", help="the vertex table; its order is the order of the vertices")
    tables.add_argument("--src", default="src", help="edge table: the column of sources (default src)")
    tables.add_argument("--dst", default="dst", help="edge table: the column of destinations (default dst)")
    tables.add_argument("--weight", help="edge table: the column of edge weights")
    tables.add_argument("--type", help="edge table: the column of edge types")
    tables.add_argument("--edge-features", help="edge table: the columns of features of edges, such as 'since,f*'")
    tables.add_argument("--id", default="id", help="vertex table: the column of ids (default id)")
    tables.add_argument("--features", help="vertex table: the columns of features, such as 'age,height' or 'f*'")
    tables.add_argument("--label", help="vertex table: the column of labels (several: one column a class, 0 or 1)")
    tables.add_argument("--split-column", help="vertex table: the column that says train, validation, test or unused")
    tables.add_argument("--ids", choices=("positions", "names"), help="integer ids: row numbers, or names to be kept")
    tables.add_argument("--vertices", type=int, help="how many vertices, if there is no vertex table")
    spread = parser.add_argument_group("tables that outgrow a machine")
    spread.add_argument(
        "--on",
        choices=("local", "ray"),
        default="local",
        help="ray: on the nodes of a Ray cluster, from Parquet (a file or a folder of them, by path or address)",
    )
    spread.add_argument("--parts", type=int, help="on Ray: owners, as `weft partition --method range` makes them")
    spread.add_argument("--owner-column", help="on Ray, vertex table: the column of owners, in place of ranges of ids")
    rest = parser.add_argument_group("features and split")
    rest.add_argument(
        "--feature-dtype", choices=("float32", "float16"), default="float32", help="how features are stored"
    )
    rest.add_argument("--split", help="draw a split: train/validation/test in per cent, such as 60/20/20")
    rest.add_argument("--seed", type=int, help="the seed of that draw (default 0)")
    rest.add_argument(
        "--leave-out", metavar="NAMES", help="arrays of the source that are not to be imported, such as edge_attr,pos"
    )
    rest.add_argument("--root", type=path_here, help="ogb: where its data sets lie (default data)")


def run(args: argparse.Namespace) -> int:
    """Import, then show what was imported."""
    if args.reverse_relations and args.undirected:
        raise ConfigError("--reverse-relations and --undirected are two ways to go back along edges: give one of them")
    _check_no_effect(args)
    options = weft.graph.EdgeOptions(args.undirected, args.self_loops, args.drop_duplicates)
    if args.on == "ray":
        return _on_ray(args, options)
    if args.parts is not None or args.owner_column:
        raise ConfigError(
            "--parts and --owner-column go with --on ray: on one machine, run `weft partition` afterwards"
        )
    weft.graph.DirectoryWriter(args.out, overwrite=args.overwrite).check()
    source = _source(args)
    if args.reverse_relations:
        source = weft.graph.with_reverses(source)
    if args.self_relation:
        own_loops = options.self_loops != "remove"
        source = weft.graph.with_self_relation(source, own_loops)
        options = options if own_loops else replace(options, self_loops="keep")  # those that were added
    with weft.report.StageProgress() as progress:
        weft.graph.import_graph(
            source,
            args.out,
            options,
            feature_dtype=args.feature_dtype,
            split=args.split,
            seed=args.seed or 0,
            memory=size_given("memory", args.memory or "6GiB"),
            overwrite=args.overwrite,
            progress=progress,
        )
    weft.report.print_graph(str(args.out), weft.graph.graph_statistics(weft.Graph.open(args.out)), source.left_out)
    return 0


def _check_no_effect(args: argparse.Namespace) -> None:
    """Refuse options that others, or the source, leave without effect."""
    if args.split and args.split_column:
        raise ConfigError("--split draws a split, and --split-column names one that is there: give one of them")
    if args.seed is not None and not args.split:
        raise ConfigError("--seed is of the split that --split draws: give that too, or drop --seed")
    if args.root is not None and not args.source.startswith("ogb:"):
        raise ConfigError(f"--root goes with ogb:NAME, and {args.source} is none: drop it")


def _on_ray(args: argparse.Namespace, options: weft.graph.EdgeOptions) -> int:
    for flag, given in (
        ("--split: random splits are drawn by one process: name a column with --split-column", args.split),
        ("--reverse-relations: write the reverse edges into the table, with a type", args.reverse_relations),
        ("--self-relation: write the loops into the table, with a type", args.self_relation),
        ("--leave-out: of tables, only the columns that are named are imported", args.leave_out),
        ("--edge-features: import the table on one machine, without --on ray", args.edge_features),
    ):
        if given:
            raise ConfigError(f"--on ray does not know {flag}")
    request = weft.graph.ShardRequest(
        args.source,
        args.nodes,
        _columns(args),
        args.ids,
        args.vertices,
        options,
        args.feature_dtype,
        args.parts,
        args.owner_column,
        size_given("memory", args.memory or "1GiB"),
    )
    weft.graph.DirectoryWriter(args.out, overwrite=args.overwrite).check()
    with weft.cluster.tasks_on_ray(args.out, request.memory) as tasks, weft.report.StageProgress() as progress:
        try:
            made = weft.graph.make_shards(request, args.out, tasks, overwrite=args.overwrite, progress=progress)
        except (KeyboardInterrupt, WeftError):
            if weft.graph.steps_of(args.out):
                print("weft: what is done is kept beside the graph to be: the same command goes on", file=sys.stderr)
            raise
    weft.report.print_sharded(str(args.out), made, args.parts)
    return 0


def _columns(args: argparse.Namespace) -> weft.graph.TableColumns:
    named = {field.name: getattr(args, field.name) for field in fields(weft.graph.TableColumns)}
    return weft.graph.TableColumns(**named | {"split": args.split_column})


def _given_for_tables(args: argparse.Namespace) -> str | None:
    """The first option given of those that only one table of edges, with its vertices, listens to."""
    of_edges = ("--src", "--dst", "--weight", "--type", "--edge-features")
    flags = (*of_edges, "--id", "--features", "--label", "--split-column", "--ids", "--vertices")
    usual = {"--src": "src", "--dst": "dst", "--id": "id"}
    values = {flag: getattr(args, flag[2:].replace("-", "_")) for flag in flags}
    return next((flag for flag, value in values.items() if value != usual.get(flag)), None)


def _source(args: argparse.Namespace) -> weft.graph.Source:
    place, leave_out = weft.graph.graph_place(args.source), words(args.leave_out or "")
    kind, there = weft.graph.name_at(place).suffix.lower(), isinstance(place, str) or place.is_file()
    if isinstance(place, str) and kind not in _TABLES:
        raise ConfigError(
            f"{place} is no table that can be read at an address: name a .parquet, .csv, .tsv or .txt file, or copy it here"
        )
    tables = there and kind in (*_TABLES, ".toml")
    if leave_out and tables:
        raise ConfigError("--leave-out is not for tables: of these, only the columns that are named are imported")
    if there and kind in _TABLES:
        nodes = None if args.nodes is None else weft.graph.graph_place(args.nodes)
        return weft.graph.source_from_tables(place, nodes, _columns(args), args.ids, args.vertices)
    if args.nodes is not None and Path(args.source).is_dir():
        raise ConfigError(
            f"{args.source} is a folder, and --nodes goes with one table of edges: name that, or import a folder of Parquet "
            f"files with --on ray"
        )
    if args.nodes is not None:
        raise ConfigError(
            f"--nodes goes with a table of edges, and {args.source} is none: drop it, or give the edge table"
        )
    if given := _given_for_tables(args):
        raise ConfigError(f"{given} goes with tables of edges and vertices, and {args.source} is none: drop it")
    return (
        weft.graph.source_from_toml(Path(args.source))
        if tables
        else weft.graph.find_source(args.source, args.root or Path("data"), leave_out)
    )
