"""Ray clusters for tests, and a graph: skipped with the reason where Ray is not installed."""

import os
import subprocess

import pytest
from ray_nodes import Nodes

from weft.graph import communities
from weft.partition import allocate, write_partitioned


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """A graph in two parts."""
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "g", vertices=2000, edges=20_000, width=16, classes=4)
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, folder / "parts")
    return folder / "parts"


@pytest.fixture(scope="session")
def ray_here():
    """The environment of a driver of a cluster of one node, with four processors."""
    pytest.importorskip("ray.util", reason="Ray is not installed: pip install 'weft-gnn[ray]'")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    nodes = Nodes(lambda command, host, more: subprocess.Popen(command, env=os.environ | more, **quiet))
    try:
        head = nodes.add("127.0.0.2", 29812, cpus=4)
        nodes.wait(head)
        yield nodes.environment(head)
    finally:
        nodes.close()
