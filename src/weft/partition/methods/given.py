"""Owners that a table names: a column of numbers, in the order of the vertices at import."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph, owner_column
from weft.partition.goal import PartitionGoal
from weft.partition.methods import PartitionMethod


@dataclass(frozen=True)
class GivenMethod(PartitionMethod):
    """Each vertex goes where a table's column says."""

    table: str = ""
    column: str = "owner"

    name, by_host, balances = "given", False, False
    help = "owners that a column of the vertex table names; options: table, column (default owner)"

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        if not self.table:
            raise ConfigError(
                "method 'given' needs the table that names owners: give it to `weft partition` (--option "
                "table=nodes.parquet); elsewhere name the directory that this makes, in place of the method"
            )
        owners = owner_column(Path(self.table), self.column, goal.parts)
        if len(owners) != graph.num_vertices:
            raise ConfigError(
                f"{self.table} names {len(owners)} owners for {graph.num_vertices} vertices: give one for each"
            )
        return owners if graph.original_ids is None else owners[graph.original_ids]
