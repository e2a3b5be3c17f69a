"""Convolutions that weigh their neighbours by attention: GAT, GATv2."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.nn import crossing, functional, sliced_attention
from weft.nn.call import Call, dense, drops, edge_mask
from weft.sampling import Block


def _gat_columns(call: Call) -> Tensor:
    """Logits are linear in slices of the columns, so their parts are summed over the workers; then each sums its slice."""
    conv: Any = call.conv
    layer = call.layer
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None
    first, end = columns.span
    x = (call.x[:, : end - first] @ conv.lin.weight[:, first:end].T).view(-1, conv.heads, conv.out_channels)
    parts = torch.cat([(x * conv.att_src).sum(-1), (x * conv.att_dst).sum(-1)], 1)
    a_src, a_dst = crossing.Summed.apply(parts, call.comm).chunk(2, 1)
    assert layer.dst_at is not None and pushed.dst_at is not None
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, drops(call))
    totals = []
    for block, dst_at, keep in zip(blocks, (layer.dst_at, pushed.dst_at), masks(call, blocks), strict=True):
        raw = a_src[block.src.long()] + a_dst[dst_at][block.dst().long()]
        logits = F.leaky_relu(raw, conv.negative_slope)
        totals.append(functional.edge_softmax_aggregate(block, logits, x, keep))
    out = totals[0] + pushed.route.push(totals[1].flatten(1), call.comm).view_as(totals[0])
    return _finish_attention(call, out)


def gat(call: Call) -> Tensor:
    conv: Any = call.conv
    if call.layer.columns is not None:
        return _gat_columns(call)
    x = dense(conv.lin, call.x).view(-1, conv.heads, conv.out_channels)
    layer, slope = call.layer, conv.negative_slope
    if layer.slices is not None:
        return _finish_attention(call, sliced_attention.gat(call, x))
    att_src, att_dst = conv.att_src.squeeze(0), conv.att_dst.squeeze(0)
    sources = layer.gather(x, call.comm)
    if layer.pushed is None:
        block, keep = _attended(call)
        return _finish_attention(call, functional.gat(block, sources, att_src, att_dst, slope, keep))
    own = layer.own_rows(x, call.comm)
    a_src, a_dst = (x * att_src).sum(-1), (own * att_dst).sum(-1)
    a_there = layer.pushed.route.pull(a_dst, call.comm)
    rows, a_rows = (x, a_src) if layer.sources is None else (sources, (sources * att_src).sum(-1))
    if layer.own is not None:
        rows, a_rows = torch.cat([rows, own]), torch.cat([a_rows, (own * att_src).sum(-1)])
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, drops(call))
    keep, keep_there = masks(call, blocks)
    here = functional.attention_part(blocks[0], rows, (a_rows, a_dst), slope, keep)
    there = functional.attention_part(blocks[1], x, (a_src, a_there), slope, keep_there)
    return _finish_attention(call, crossing.merge_attention(layer, call.comm, here, there))


def gatv2(call: Call) -> Tensor:
    conv: Any = call.conv
    layer = call.layer
    shape = (-1, conv.heads, conv.out_channels)
    x = dense(conv.lin_l, call.x).view(shape)
    if layer.slices is not None:
        theirs = x if conv.share_weights else dense(conv.lin_r, call.x).view(shape)
        return _finish_attention(call, sliced_attention.gatv2(call, x, theirs))
    sources = layer.gather(x, call.comm)
    pushed_apart = layer.pushed is not None and layer.own is not None  # own rows are not among the sources here
    own = layer.own_rows(x, call.comm) if conv.share_weights or pushed_apart else None
    to = own if conv.share_weights else dense(conv.lin_r, call.x_dst).view(shape)
    assert to is not None
    att, slope = conv.att.squeeze(0), conv.negative_slope
    if layer.pushed is None:
        block, keep = _attended(call)
        return _finish_attention(call, functional.gatv2(block, sources, to, att, slope, keep))
    to_there = layer.pushed.route.pull(to, call.comm)
    rows = torch.cat([sources, own]) if pushed_apart and own is not None else sources
    blocks = crossing.attention_blocks(layer, conv.add_self_loops, drops(call))
    parts = []
    for block, side, terms, keep in zip(blocks, (rows, x), (to, to_there), masks(call, blocks), strict=True):
        joined = F.leaky_relu(side[block.src.long()] + terms[block.dst().long()], slope)
        parts.append(functional.attention_part(block, side, (joined * att).sum(-1), 1.0, keep))
    return _finish_attention(call, crossing.merge_attention(layer, call.comm, *parts))


def _attended(call: Call) -> tuple[Block, Tensor | None]:
    """The block that attention goes over, with self-loops if the convolution adds them, and its edges' dropout."""
    conv: Any = call.conv
    block = call.layer.block
    looped = block.with_self_loops() if conv.add_self_loops else block
    if not drops(call):
        return looped, None
    places = block.looped_places() if conv.add_self_loops else block.places()
    key = call.run.next_dropout()
    return looped, edge_mask(call, key, looped.dst(), places, conv.heads, conv.dropout)


def masks(call: Call, blocks: tuple[Block, Block]) -> list[Tensor | None]:
    """Dropout of the edges here and of the pushed ones."""
    conv: Any = call.conv
    if not drops(call):
        return [None, None]
    assert call.layer.pushed is not None
    key = call.run.next_dropout()
    return [
        edge_mask(call, key, block.dst(), block.places(), conv.heads, conv.dropout, keys)
        for block, keys in zip(blocks, (None, call.layer.pushed.dst_keys), strict=True)
    ]


def _finish_attention(call: Call, out: Tensor) -> Tensor:
    conv: Any = call.conv
    out = out.flatten(1) if conv.concat else out.mean(1)
    if conv.res is not None:
        out = dense(conv.res, call.x_dst, out)
    return out if conv.bias is None else out + conv.bias
