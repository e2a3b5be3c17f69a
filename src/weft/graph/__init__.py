"""Graphs on disk: importing, the graph directory, generators and built-in data sets."""

from weft.graph.graph import SPLITS, Graph
from weft.graph.loops import SelfLoops
from weft.graph.names import Names

__all__ = ["SPLITS", "Graph", "Names", "SelfLoops"]
