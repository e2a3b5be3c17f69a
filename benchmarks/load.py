"""How evenly the full graph's work falls on workers: computed edges and bytes by worker, `halo` beside `tp`.

    python benchmarks/load.py

The shape of NeutronTP's Figures 3 and 10, for a GCN on an R-MAT graph: vertices at owners (parts by METIS, and ranges of
ids with as many vertices each), and slices of columns. Workers are threads of this process, over connections of their own;
bytes are those that a worker sends and gets in an epoch after the first. Edges by slices are counted as the columns' share.
"""

import argparse
import copy
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from weft.exchange import Communicator, Owners, SocketTransport, Traffic
from weft.graph import Graph, rmat
from weft.nn import BlockModel, build, row_costs
from weft.partition import allocate, write_partitioned
from weft.placements import Cooperation
from weft.plan import OF_GRAPH, Plan


def comms(size: int) -> list[Communicator]:
    """A communicator for each worker, over pairs of sockets."""
    ends: list[list[socket.socket | None]] = [[None] * size for _ in range(size)]
    for a in range(size):
        for b in range(a + 1, size):
            ends[a][b], ends[b][a] = socket.socketpair()
    for end in (end for row in ends for end in row if end is not None):
        end.setblocking(False)
    sockets = [[-1 if end is None else end.detach() for end in row] for row in ends]
    return [
        Communicator(rank, size, SocketTransport(sockets[rank], 600.0, range(size)), traffic=Traffic(size))
        for rank in range(size)
    ]


def program_of(graph: Graph, model, plan: Plan, owners: Owners, comm: Communicator):
    costs = row_costs(model, graph.num_features)
    return Cooperation(graph, plan, [-1] * len(plan.layers), owners, comm, costs=costs, places=False).whole_graph()


def epoch(graph: Graph, model, program, rows) -> None:
    out = BlockModel(model)(rows, program, 0)
    labels = torch.from_numpy(graph.labels[program.vertices[-1].numpy()].astype(np.int64))
    cross_entropy(out, labels, reduction="sum").backward()


def loads(graph: Graph, model, plan: Plan, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges that each worker computes in an epoch, and bytes that it sends and gets."""
    owners = Owners(bounds)

    def work(comm: Communicator) -> tuple[int, list[int]]:
        mine = copy.deepcopy(model)
        program = program_of(graph, mine, plan, owners, comm)
        rows = torch.from_numpy(np.array(graph.features[program.vertices[0].numpy()]))
        program.layers[0].inputs = (rows, rows._version)
        epoch(graph, mine, program, rows)
        before = np.array(comm.traffic.sent().get("exchange", [0] * comm.size))
        epoch(graph, mine, program, rows)
        return sum(layer.num_edges for layer in program.layers), np.array(comm.traffic.sent()["exchange"]) - before

    lines = comms(owners.size)
    with ThreadPoolExecutor(owners.size) as pool:
        edges, sent = zip(*pool.map(work, lines), strict=True)
    between = np.array(sent)
    return np.array(edges), between.sum(0) + between.sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = args.data / f"rmat-{args.vertices}-{args.edges}-{args.width}"
    if not folder.is_dir():
        rmat(folder, vertices=args.vertices, edges=args.edges, width=args.width)
    graph, parts = Graph.open(folder), folder.with_name(f"{folder.name}-metis-{args.workers}")
    if not parts.is_dir():
        write_partitioned(graph, allocate(graph, args.workers, "metis", seed=0), args.workers, parts)
    by_metis = Graph.open(parts)
    model = build("gcn", args.width, args.width, graph.num_classes, args.layers)
    ranges = np.linspace(0, graph.num_vertices, args.workers + 1).astype(np.int64)
    halo, tp = OF_GRAPH["halo"](args.layers), OF_GRAPH["tp"](args.layers)
    print(f"{args.vertices:,} vertices, {args.edges:,} edges, GCN of {args.layers} layers, {args.workers} workers")
    print(f"{'':14}{'million edges, by worker':>34}{'max/mean':>10}{'MB, by worker':>34}{'max/mean':>10}{'all MB':>9}")
    for name, of, plan, bounds in (
        ("halo, METIS", by_metis, halo, by_metis.bounds),
        ("halo, ranges", graph, halo, ranges),
        ("tp", graph, tp, ranges),
    ):
        edges, sent = loads(of, model, plan, bounds)
        cells = [f"{'  '.join(f'{value:.2f}' for value in column):>34}" for column in (edges / 1e6, sent / 1e6)]
        evenness = [f"{column.max() / column.mean():10.3f}" for column in (edges, sent)]
        print(f"{name:14}{cells[0]}{evenness[0]}{cells[1]}{evenness[1]}{sent.sum() / 2e6:9.1f}", flush=True)


if __name__ == "__main__":
    main()
