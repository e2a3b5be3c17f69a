"""GCN: neighbours summed by both ends' degrees, and a linear map."""

from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, MessagePassing

from weft.errors import ModelError
from weft.nn.convolution import Call, Convolution, columns_of, dense, is_matrix
from weft.nn.sums import Sums
from weft.placements import Program
from weft.sampling import Topology


class Gcn(Convolution):
    """GCNConv, by the whole graph's degrees, so a row does not depend on its batch; sampled sums stand for whole ones."""

    module: ClassVar[type] = GCNConv

    takes_columns: ClassVar[bool] = True
    adds_up, narrower_travels, mixing = True, True, "gcn"

    @classmethod
    def serves(cls, conv: GCNConv) -> bool:
        return sums_plainly(conv)

    def run(self, call: Call) -> Tensor:
        """Summed first, or mapped first where rows are narrower then, or what maps them is not just a matrix."""
        conv, layer = self.conv, call.layer
        if not is_matrix(conv.lin) or conv.lin.bias is not None:  # a bias is summed along
            rows = sums_by_degrees(call, dense(conv.lin, call.whole_rows))
            return rows if conv.bias is None else rows + conv.bias
        out, wide = columns_of(conv.lin)
        stay = layer.inputs.stay(call.x)
        narrows = layer.cheaper_mapped(call.x, out, wide) if layer.crosses else wide > out and not stay
        if narrows and layer.whole_rows:
            rows = sums_by_degrees(call, dense(conv.lin, call.x))
        else:
            rows = dense(conv.lin, sums_once(call))
        return rows if conv.bias is None else rows + conv.bias


def sums_plainly(conv: MessagePassing) -> bool:
    """Does it sum, and keep nothing of the first graph for others?"""
    return conv.aggr in ("add", "sum") and not getattr(conv, "cached", False)


def sums_once(call: Call) -> Tensor:
    """The rows here, summed so; of inputs that stay it is done once."""
    conv = call.conv
    name = f"gcn {conv.normalize} {_improved(conv)} {conv.add_self_loops} {call.edge_weight}"
    (sums,) = call.layer.inputs.once(name, call.x, lambda: (sums_by_degrees(call, call.x),))
    return sums


def _improved(conv: MessagePassing) -> bool:
    return getattr(conv, "improved", False)


def sums_by_degrees(call: Call, x: Tensor) -> Tensor:
    """Rows x, summed into each destination with the weights that the convolution gives to edges."""
    conv, layer = call.conv, call.layer
    if not conv.normalize:
        return layer.merge(Sums("sum", call.weights), x)
    loops = conv.add_self_loops
    at_src, at_dst, own_weight = _factors(call, x.dtype)
    out, own = layer.merge_with_own(Sums("sum", lambda edges: call.weights(edges, loops)), x * at_src)
    return out * at_dst + own_weight * own if loops else out * at_dst


def roots_of_degrees(conv: MessagePassing, weighted: bool, graph: Topology, vertices: Tensor) -> tuple[Tensor, Tensor]:
    """By PyG's own rule, of the whole graph: D^-1/2 of vertices, and what the self-loop of each weighs, float64."""
    others, own, own_total = graph.self_loops.of(vertices, weighted)
    own = torch.where(own.isnan(), 2.0 if _improved(conv) and weighted else 1.0, own)  # doubled only with weights
    roots = (others + (own if conv.add_self_loops else own_total)).rsqrt()
    return torch.where(roots.isinf(), 0.0, roots), own


def _factors(call: Call, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """D^-1/2 A D^-1/2 in parts: a factor of each row here, one of each destination, the own row's weight; made once.

    The own row's weight is meant for rows that have their own factor already.
    """
    layer, graph, conv = call.layer, call.program.graph, call.conv
    if graph is None or call.program.weighted:
        raise ModelError(
            f"{conv} needs uniform sampling from a graph whose degrees are known: drop weighted, or choose another "
            f"sampler"
        )

    def look_up(program: Program) -> tuple[Tensor, Tensor, Tensor]:
        here, there = program.vertices[call.depth : call.depth + 2]
        (at_src, _), (at_dst, own) = (roots_of_degrees(conv, call.edge_weight, graph, ids) for ids in (here, there))
        return at_src, at_dst * graph.self_loops.in_degrees(there), own * at_dst

    def make() -> tuple[Tensor, Tensor, Tensor]:  # in float64 up to here
        at_src, at_dst, own = call.program.from_host(look_up)
        at_dst = at_dst / torch.where(layer.degrees > 0, layer.degrees, 1)
        at_src, at_dst, own = (factor.to(dtype)[:, None] for factor in (at_src, at_dst, own))
        return at_src, at_dst, own

    options = f"{_improved(conv)} {conv.add_self_loops} {call.edge_weight}"
    return layer.here.block.remembered(f"gcn {call.depth} {options} {dtype}", make)
