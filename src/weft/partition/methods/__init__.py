"""Partition methods, one file each; found by name through `weft.plugins.PARTITION_METHODS`."""

from weft.partition.methods.method import PartitionMethod, make_method

__all__ = ["PartitionMethod", "make_method"]
