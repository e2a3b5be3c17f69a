"""The in-edges of a block's sources besides its own: for a convolution that looks at them, as for neighbours' degrees.

The sources of these edges, whose rows don't matter, have a loop each: what divides by degrees finds none of nought.
"""

import numpy as np
import torch

from weft.errors import ModelError
from weft.graph import edge_arrays, ranges
from weft.nn.convolution import Call
from weft.placements import Edges
from weft.sampling import Block, Numbering, Topology, keys_of


def surroundings(call: Call, block: Block) -> Edges:
    """The edges into all of a block's sources, first its own ones; made once. Sources of the others come last."""

    def make(block: Block) -> Edges:
        graph, layer, program = call.program.graph, call.layer, call.program
        if graph is None:
            raise ModelError(
                f"{call.conv} looks at the edges of neighbours, too, and there is no graph to find them in"
            )
        ids = (layer.src_ids if layer.crosses else program.vertices[call.depth]).numpy()
        first, counts = graph.indptr[ids], graph.indptr[ids + 1] - graph.indptr[ids]
        if not program.made_up and not _are_whole(block, ids, graph):
            raise ModelError(
                f"{call.conv} looks at the edges of neighbours, too, as for their degrees, of which batches draw some: take "
                f"all of them (full_graph = true, or fanouts of -1), or weigh edges before (PyG's GCNNorm) and give it "
                f"their weights; PyG's own GCNConv knows the degrees of the whole graph"
            )
        first, counts = first[block.num_dst :], counts[block.num_dst :]
        at = ranges(first, counts)
        src, beyond = _numbered(ids, graph.indices[at])
        loops = torch.arange(len(ids), len(ids) + len(beyond), dtype=torch.int32)
        ends = np.concatenate([counts.cumsum(), len(at) + 1 + np.arange(len(loops))])
        indptr = torch.cat([block.indptr, block.indptr[-1] + torch.from_numpy(ends)])
        values = {}
        for name, of_all in edge_arrays(graph).items():
            mine, others = program.edge_values(name, block), torch.from_numpy(of_all[at])
            of_loops = torch.full((len(loops), *others.shape[1:]), float(name == "edge_weight")).to(others)  # of type 0
            values[name] = torch.cat([mine, others, of_loops])
        wide = Block(indptr, torch.cat([block.src, torch.from_numpy(src), loops]), len(ids) + len(loops), values=values)
        return Edges(wide, keys=keys_of(graph, np.concatenate([ids, beyond])))

    return block.remembered("surroundings", lambda: block.from_host(make))


def _are_whole(block: Block, ids: np.ndarray, graph: Topology) -> bool:
    """Are the lists of a block's destinations all that the graph has?"""
    into = ids[: block.num_dst]
    first, counts = graph.indptr[into], graph.indptr[into + 1] - graph.indptr[into]
    if not np.array_equal(counts, np.diff(block.indptr.numpy())):
        return False
    return np.array_equal(graph.indices[ranges(first, counts)], ids[block.src.numpy()])


def _numbered(ids: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of sources among the ids and, behind them, those that are others; and these."""
    unique, (of_ids, of_sources) = Numbering(1 << 62, sources.dtype).number(ids.astype(sources.dtype), sources)
    known = int(of_ids.max(initial=-1)) + 1
    place = np.arange(len(unique), dtype=np.int32) + np.int32(len(ids) - known)
    place[of_ids] = np.arange(len(ids), dtype=np.int32)
    return place[of_sources], unique[known:]
