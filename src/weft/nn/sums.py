"""Convolutions that sum their neighbours: GraphSAGE, GIN, GCN, GNN-FiLM.

Each is written as what it is: a linear map of sources, a weight per edge, a merge, a finish by the destination's own row.
Its parameters are the user's module's own.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import ModelError
from weft.nn import crossing
from weft.nn.call import REDUCE, Call, dense, plain_linear
from weft.nn.linear import linear, linear_of_two, linear_pair
from weft.nn.rows import Rows


def sage(call: Call) -> Tensor:
    conv: Any = call.conv
    if call.layer.columns is not None and _project_columns(call):
        out = _sage_columns(call)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out
    layer = call.layer
    pulls = layer.sources is not None and layer.own is None
    crosses = layer.columns is None and (layer.pushed is not None or pulls or layer.slices is not None)
    linear = conv.aggr != "max" and not conv.project and plain_linear(conv.lin_l)
    if crosses and linear and not call.stays and _narrow_first(call, conv.lin_l):
        return _sage_narrow(call)
    x = dense(conv.lin, call.x).relu() if conv.project else call.x
    neighbours, own = call.aggregate(x, REDUCE[conv.aggr])
    if conv.project and conv.root_weight:
        own = call.x_dst
    if conv.root_weight and plain_linear(conv.lin_l) and plain_linear(conv.lin_r) and conv.lin_r.bias is None:
        out = linear_of_two(neighbours, conv.lin_l.weight, own, conv.lin_r.weight, conv.lin_l.bias)
    else:
        out = dense(conv.lin_l, neighbours)
        out = dense(conv.lin_r, own, out) if conv.root_weight else out
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _narrow_first(call: Call, lin: nn.Module) -> bool:
    """Do rows (or sums of them) that cross cost less behind the dense layer? What needs no gradient crosses once."""
    out, wide = cast(Tensor, lin.weight).shape
    return 2 * out < wide * (2 if call.x.requires_grad else 1)


def _sage_narrow(call: Call) -> Tensor:
    """GraphSAGE with its dense layers before the sums, so that narrow rows cross."""
    conv: Any = call.conv
    lin_l, lin_r, reduce = conv.lin_l, conv.lin_r if conv.root_weight else None, REDUCE[conv.aggr]
    if lin_r is not None and call.layer.own is None and plain_linear(lin_r) and lin_r.bias is None:
        x, own = linear_pair(call.x, lin_l.weight, lin_r.weight, call.layer.num_dst, lin_l.bias)
        out = call.aggregate(x, reduce)[0] + own
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out
    out, _ = crossing.aggregate(call.layer, call.comm, linear(call.x, lin_l.weight), reduce, with_own=False)
    out = out if lin_l.bias is None else out + lin_l.bias
    if lin_r is not None:
        out = out + call.layer.own_rows(dense(lin_r, call.x), call.comm)
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _project_columns(call: Call) -> bool:
    """Is it cheaper to send sums of projected slices, forward and backward, than the slices of whole rows, forward?"""
    conv: Any = call.conv
    columns = call.layer.columns
    assert columns is not None
    linear = conv.aggr != "max" and conv.root_weight and conv.lin_r.bias is None
    return linear and plain_linear(conv.lin_l) and conv.lin_l.weight.shape[0] < columns.width


def _sage_columns(call: Call) -> Tensor:
    """Each worker projects its slices of the columns; the products are summed where they were asked for."""
    conv: Any = call.conv
    columns, pushed = call.layer.columns, call.layer.pushed
    assert columns is not None and pushed is not None
    first, end = columns.span
    here, there = crossing.column_slices(call.layer, call.x, REDUCE[conv.aggr])

    def product(slices: Tensor) -> Tensor:
        neighbours, own = (part[:, : end - first] for part in slices.chunk(2, 1))
        return neighbours @ conv.lin_l.weight[:, first:end].T + own @ conv.lin_r.weight[:, first:end].T

    out = product(here) + pushed.route.push(product(there), call.comm)
    return out if conv.lin_l.bias is None else out + conv.lin_l.bias


def gin(call: Call) -> Tensor:
    conv: Any = call.conv
    neighbours, own = call.aggregate(call.x, REDUCE[conv.aggr])
    # The inner network's dropout and normalisation are row-wise parts of the model, as outside of convolutions.
    out = conv.nn(Rows.of(neighbours + (1 + conv.eps) * own, call.depth + 1, call.run))
    return out.plain() if isinstance(out, Rows) else out


def gcn(call: Call) -> Tensor:
    """Degrees are the whole graph's, so that a row does not depend on its batch; sampled sums are scaled to full ones."""
    conv: Any = call.conv
    layer = call.layer
    crosses = layer.pushed is not None or layer.sources is not None or layer.slices is not None
    narrows = _narrow_first(call, conv.lin) if crosses else conv.lin.weight.shape[1] > conv.lin.weight.shape[0]
    if narrows and layer.columns is None and not call.stays:
        out = _gcn_sums(call, dense(conv.lin, call.x))
    else:
        name = f"gcn {conv.normalize} {conv.improved} {conv.add_self_loops} {call.edge_weight}"
        (sums,) = call.once(name, lambda: (_gcn_sums(call, call.x),))
        out = dense(conv.lin, sums)
    return out if conv.bias is None else out + conv.bias


def _gcn_sums(call: Call, x: Tensor) -> Tensor:
    """Rows x, summed into each destination with the weights that the convolution gives to edges."""
    conv: Any = call.conv
    layer = call.layer
    if not conv.normalize:
        weight, push_weight = call.weights(layer.block), _push_weights(call, False)
        return crossing.aggregate(layer, call.comm, x, "sum", weight, push_weight, with_own=False)[0]
    # PyG's own rule: `improved` doubles self-loops only where edges have weights.
    fill = 2.0 if conv.improved and call.edge_weight else 1.0
    at_src, at_dst, own_weight = _gcn_factors(call, fill, conv.add_self_loops)
    x = x * at_src.to(x.dtype)[:, None]
    loops = conv.add_self_loops
    weight = call.weights(layer.block, layer.self_edges if loops else None)
    push_weight = _push_weights(call, loops)
    out, own = crossing.aggregate(layer, call.comm, x, "sum", weight, push_weight)
    out = out * at_dst.to(x.dtype)[:, None]
    return out + own_weight.to(x.dtype)[:, None] * own if loops else out


def _push_weights(call: Call, loops: bool) -> Tensor | None:
    if call.layer.pushed is None:
        return None
    return call.weights(call.layer.pushed.block, call.layer.pushed_self_edges if loops else None)


def _gcn_factors(call: Call, fill: float, loops: bool) -> tuple[Tensor, Tensor, Tensor]:
    """D^-1/2 A D^-1/2 in parts (float64): a factor of each row here, one of each destination, the weight of its own row.

    The own row's weight is meant for rows that have their own factor already.
    """
    program, layer = call.program, call.layer
    if program.graph is None or program.weighted:
        raise ModelError("GCNConv needs uniform sampling from a graph whose degrees are known: drop weighted sampling")

    def inverse(vertices: Tensor) -> tuple[Tensor, Tensor]:
        assert program.graph is not None
        others, own, own_total = program.graph.self_loops.of(vertices, call.edge_weight)
        own = torch.where(own.isnan(), fill, own)
        roots = (others + (own if loops else own_total)).rsqrt()
        return torch.where(roots.isinf(), 0.0, roots), own

    here, there = program.vertices[call.depth : call.depth + 2]
    (at_src, _), (at_dst, own) = inverse(here), inverse(there)
    full = program.graph.self_loops.in_degrees(there)
    return at_src, at_dst * full / layer.degrees.clamp(min=1), own * at_dst


def film(call: Call) -> Tensor:
    conv: Any = call.conv
    x_dst = call.x_dst
    beta, gamma = conv.film_skip(x_dst).split(conv.out_channels, dim=-1)
    out = conv.act(gamma * dense(conv.lin_skip, x_dst) + beta)
    beta, gamma = (part.contiguous() for part in conv.films[0](x_dst).split(conv.out_channels, dim=-1))
    x = dense(conv.lins[0], call.x)
    return out + crossing.film(call.layer, call.comm, x, gamma, beta, REDUCE[conv.aggr])
