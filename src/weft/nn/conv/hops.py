"""Convolutions of several hops, each of which is a layer of its own: sums by both ends' degrees, again and again."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor

from weft.nn.block_model import as_its_class
from weft.nn.conv.blackbox import BlackBox
from weft.nn.conv.gcn import sums_once, sums_plainly
from weft.nn.convolution import Call, Convolution


class DegreeHop(MessagePassing):
    """One hop: GCN's sums, without a map of rows."""

    def __init__(self, owner: str) -> None:
        super().__init__(aggr="add")
        self._owner, self.normalize, self.add_self_loops = owner, True, False

    def __repr__(self) -> str:
        return f"a hop of {self._owner}"

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: OptTensor = None) -> Tensor:
        """As the modules that it is a part of compute it."""
        if self.normalize:
            given = {"add_self_loops": self.add_self_loops, "dtype": x.dtype}
            edge_index, edge_weight = gcn_norm(edge_index, edge_weight, len(x), **given)
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Tensor, edge_weight: OptTensor) -> Tensor:
        """A row, by its edge's weight."""
        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


class HopSums(Convolution):
    """A hop; of inputs that stay it is made once."""

    module: ClassVar[type] = DegreeHop

    takes_columns: ClassVar[bool] = True
    adds_up, narrower_travels = True, True
    passes_on: ClassVar[bool] = True

    def run(self, call: Call) -> Tensor:
        out = sums_once(call)
        if call.layer.inputs.stay(call.x):
            call.program.keep(out, call.depth + 1)
        return out


class Unrolled(Convolution):
    """A convolution whose forward is taken apart into hops, and maps of rows between them.

    So it is as many layers of a plan, each placed like any other, and takes a fanout for each.
    """

    unrolls: ClassVar[bool] = True
    adds_up = True

    @classmethod
    def serves(cls, conv: MessagePassing) -> bool:
        return sums_plainly(conv) and getattr(conv, "K", 1) > 0  # without any hop it is no layer

    @classmethod
    def hop_of(cls, conv: MessagePassing) -> DegreeHop:
        """The module of one hop."""
        return DegreeHop(str(conv))

    @classmethod
    def takes_apart(cls, conv: MessagePassing, hop: DegreeHop) -> bool:
        """May it be taken apart, as it is now? Then the hop is one of it."""
        hop.normalize = getattr(conv, "normalize", True)
        hop.add_self_loops = getattr(conv, "add_self_loops", False)
        return as_its_class(conv) and cls.serves(conv)

    @abstractmethod
    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        """What the module makes of rows; `hop`: rows -> their sums over neighbours."""

    def run(self, call: Call) -> Tensor:
        """In one piece, where it is not taken apart: as it is."""
        return BlackBox.instead_of(self).run(call)
