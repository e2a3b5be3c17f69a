"""What GSplit trains: fanouts of 20 in three hops, four GPUs; batches as much smaller as the graphs are."""

from papers.bench import Bench
from papers.draws import Draws

FANOUTS = (20, 20, 20)
GRAPHS = ("debian", "communities", "rmat")  # for ogbn-papers100M, ogbn-products, amazon
PARTS = 4
SIZES = (256, 1024, 4096)  # seeds of a batch


def draws(bench: Bench, graph: str, batch_size: int) -> Draws:
    """Batches of a graph."""
    return Draws(bench.graph(graph), FANOUTS, batch_size, PARTS, most=bench.fewer(8))


def batch_size(bench: Bench) -> int:
    """Seeds of a batch, for the paper's 4,096."""
    return bench.fewer(1024)


def sizes(bench: Bench) -> tuple[int, ...]:
    """Seeds of batches, where a sheet has several sizes."""
    return tuple(map(bench.fewer, bench.ends(SIZES)))
