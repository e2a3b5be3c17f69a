"""Raw edges and tables to a graph directory; reading it; generators; built-in data sets."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.graph.addresses import directory_of, graph_place, is_address, name_at, without_passwords
    from weft.graph.checks import check_files
    from weft.graph.column_names import TableColumns
    from weft.graph.csr import range_bounds, ranges, running_sum, sums_by_source, vertex_ranges
    from weft.graph.directory import MANIFEST, DirectoryWriter, read_manifest
    from weft.graph.edges_to_csr import EdgeChunk, EdgeOptions, ProgressCallback
    from weft.graph.folders import BUILT_IN, built_in_names, find_source, from_folder
    from weft.graph.generators import communities, communities_source, rmat
    from weft.graph.graph import OF_EDGES, SPLITS, Graph, edge_arrays
    from weft.graph.hetero_features import Features, HeteroFeatures, arrays_of, shard_rows
    from weft.graph.hetero_tables import source_from_toml
    from weft.graph.importance import Importance
    from weft.graph.importing import import_graph
    from weft.graph.link_split import Links, split_links
    from weft.graph.remote import RemoteGraph
    from weft.graph.self_loops import SelfLoops
    from weft.graph.shards.making import ShardedGraph, make_shards, run_task
    from weft.graph.shards.request import ShardRequest
    from weft.graph.shards.work import Runner, StageRunner, TaskResult, Work, alone_in, do_task
    from weft.graph.source import Source, edges_in_memory, features_in_memory, with_reverses, with_self_relation
    from weft.graph.statistics import GraphStatistics, SkewBin, graph_statistics
    from weft.graph.storage import (
        cache_folder,
        check_free,
        forget_steps,
        hidden_beside,
        named_errors,
        place_of_processes,
        remove_all_leftovers,
        remove_leftovers,
        remove_whole,
        room_for,
        steps_folder,
        steps_of,
        sum_of,
        why_no_cache,
        with_sum,
        without_sum,
        written_beside,
    )
    from weft.graph.tables import owner_column, source_from_tables
    from weft.graph.values import as_stored, whole_numbers
    from weft.graph.vertex_names import arrays_of_names, text_column
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["Graph", "communities", "rmat"]
