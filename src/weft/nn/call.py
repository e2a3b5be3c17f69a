"""A call of a convolution on a layer, and what all convolutions are written with."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing

from weft.errors import ModelError
from weft.nn import functional
from weft.nn.linear import linear
from weft.nn.rows import Pass, edge_keys
from weft.placements import Edges, Layer, Program
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
    def stays(self) -> bool:
        """Are its rows the inputs, as they are, the same in every epoch?"""
        return self.layer.inputs.stay(self.x)

    @cached_property
    def own(self) -> Tensor:
        """The destinations' own rows."""
        return self.layer.own(self.x)

    @property
    def whole_rows(self) -> Tensor:
        """The rows here, for what needs whole ones; refused where they are slices of columns."""
        if not self.layer.whole_rows:
            raise ModelError(
                f"{self.conv} needs whole rows, so its layer can't be placed by columns: place it local, pull or push"
            )
        return self.x

    def mapped(self, module: nn.Module) -> Tensor:
        """The rows here by a linear layer without bias; where they are slices, these by their part of its matrix."""
        layer = self.layer
        if layer.whole_rows:
            return dense(module, self.x)
        return linear(layer.real(self.x), layer.share(cast(Tensor, module.weight)))

    def weights(self, edges: Edges, loops: bool = False) -> Tensor | None:
        """The weights of edges, zero for self-loops if these are dropped (`loops`); None where all are one. Made once."""
        dtype, block = self.x.dtype, edges.block

        def make() -> Tensor | None:
            given = self.program.edge_values("edge_weight", block).to(dtype) if self.edge_weight else None
            drop = edges.self_edges() if loops else None
            if drop is None or not drop.any():
                return given
            return (~drop).to(dtype) if given is None else given * ~drop

        return block.remembered(f"weights {self.edge_weight} {loops} {dtype}", make)

    def types(self, block: Block) -> Tensor:
        """The types of a block's edges; looked up once a block."""
        return block.remembered("types", lambda: self.program.edge_values("edge_type", block))

    def edge_dropout(self) -> int | None:
        """The key of this call's dropout of edges; None where none are dropped. To be asked for once."""
        conv: Any = self.conv
        return self.run.next_dropout() if conv.training and conv.dropout else None

    def kept(self, key: int | None, block: Block, edges: Edges) -> Tensor | None:
        """Dropout of edges by head, keyed by destination and place in its list; `block`: the edges that are gone over."""
        conv: Any = self.conv
        if key is None:
            return None
        keys = self.run.keys[self.depth + 1] if edges.keys is None and self.run.keys is not None else edges.keys
        assert keys is not None
        return edge_mask(keys, key, block.dst(), block.places(), conv.heads, conv.dropout, self.x.dtype)


def edge_mask(
    dst_keys: Tensor, key: int, dst: Tensor, places: Tensor, columns: int, p: float, dtype: torch.dtype
) -> Tensor:
    """Dropout of edges, keyed by destination and place in its list."""
    return functional.dropout_mask(len(dst), columns, p, edge_keys(dst_keys, dst, places), key, dtype)


def dense(module: nn.Module, x: Tensor, plus: Tensor | None = None) -> Tensor:
    """A dense layer on rows, plus other rows; on the fast kernel unless the module does something of its own."""
    if plain_linear(module):
        return linear(x, cast(Tensor, module.weight), cast("Tensor | None", module.bias), plus)
    out = module(x)
    return out if plus is None else out + plus


def plain_linear(module: nn.Module) -> bool:
    """Is it a linear layer that does nothing else?"""
    return type(module) in (nn.Linear, Linear) and not module._forward_hooks and not module._forward_pre_hooks
