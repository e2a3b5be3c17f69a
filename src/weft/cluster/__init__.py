"""Starting workers: several on this machine, and hosts in a sandbox."""

from weft.cluster.launch import launch

__all__ = ["launch"]
