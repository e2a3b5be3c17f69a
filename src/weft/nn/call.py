"""A call of a convolution on a layer, and what all convolutions are written with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing

from weft.exchange import Communicator
from weft.nn import crossing, functional
from weft.nn.linear import linear
from weft.nn.rows import Pass, edge_keys
from weft.parallel.program import Layer, Program
from weft.sampling import Block
from weft.threads import cached_property

REDUCE = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max"}


@dataclass
class Call:
    """One call of a convolution within a forward pass: the rows that are here, the layer, and what else it was given."""

    conv: MessagePassing
    x: Tensor  # [rows here, width]
    depth: int  # of those rows
    program: Program
    run: Pass
    edge_weight: bool = False  # was it given the graph's edge weights?
    edge_type: bool = False  # and its edge types?
    others: dict[str, Any] | None = None  # arguments that no fast path knows

    @property
    def layer(self) -> Layer:
        """The edges, and who computes them."""
        return self.program.layers[self.depth]

    @property
    def comm(self) -> Communicator:
        """The way to the other workers."""
        return self.program.comm

    @cached_property
    def x_dst(self) -> Tensor:
        """The destinations' own rows."""
        return self.layer.own_rows(self.x, self.comm)

    def weights(self, block: Block, loops: Callable[[], Tensor] | None = None) -> Tensor | None:
        """The weights of a block's edges, zero for the loops that are dropped; None where all are one. Made once a block."""
        dtype = self.x.dtype

        def make() -> Tensor | None:
            given = self.program.edge_values("edge_weight", block).to(dtype) if self.edge_weight else None
            drop = None if loops is None else loops()
            if drop is None or not drop.any():
                return given
            return (~drop).to(dtype) if given is None else given * ~drop

        return block.remembered(f"weights {self.edge_weight} {loops is None} {dtype}", make)

    def types(self, block: Block) -> Tensor:
        """The types of a block's edges; looked up once a block."""
        return block.remembered("types", lambda: self.program.edge_values("edge_type", block))

    def aggregate(self, x: Tensor, reduce: str = "sum") -> tuple[Tensor, Tensor]:
        """Rows x, merged into each destination without weights; and the destinations' own."""
        if x is not self.x:
            return crossing.aggregate(self.layer, self.comm, x, reduce)
        merged, own = self.once(reduce, lambda: crossing.aggregate(self.layer, self.comm, x, reduce))
        return merged, own

    @property
    def stays(self) -> bool:
        """Are its rows the inputs, as they are, the same in every epoch?"""
        return self.layer.kept is not None and self.layer.fetched(self.x) and not self.x.requires_grad

    def once(self, name: str, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What `make` gives, without anything that is learned: made in the first epoch only where its rows stay."""
        kept = self.layer.kept
        if kept is None or not self.stays:
            return make()
        if name not in kept:
            with torch.no_grad():
                kept[name] = make()
        return kept[name]


def dense(module: nn.Module, x: Tensor, plus: Tensor | None = None) -> Tensor:
    """A dense layer on rows, plus other rows; on the fast kernel unless the module does something of its own."""
    if plain_linear(module):
        return linear(x, cast(Tensor, module.weight), cast("Tensor | None", module.bias), plus)
    out = module(x)
    return out if plus is None else out + plus


def plain_linear(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, Linear) and not module._forward_hooks and not module._forward_pre_hooks


def drops(call: Call) -> bool:
    """Does an attention convolution drop edges now?"""
    conv: Any = call.conv
    return bool(conv.training and conv.dropout)


def edge_mask(
    call: Call, key: int, dst: Tensor, places: Tensor, columns: int, p: float, dst_keys: Tensor | None = None
) -> Tensor:
    """Dropout of edges, keyed by destination and place in its list."""
    if dst_keys is None:
        assert call.run.keys is not None
        dst_keys = call.run.keys[call.depth + 1]
    return functional.dropout_mask(len(dst), columns, p, edge_keys(dst_keys, dst, places), key, call.x.dtype)
