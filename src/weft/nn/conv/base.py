"""What a convolution is to Weft: how a PyG class runs on a layer, wherever its edges are. One file each.

A stranger's uses the same door: derive from `Convolution`, name the PyG class that it serves, and register it
(docs/extending.md). What declares nothing runs as a black box (`blackbox.py`), where whole neighbourhoods meet.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.nn.call import REDUCE, Call
from weft.nn.merges import Largest, PartialMerge, Sums


@dataclass(frozen=True)
class Sliced:
    """What a layer holds where columns are sliced: the columns that are merged, how many slices of them stay, and heads."""

    columns: int
    slices: int = 0
    heads: int = 0


class Convolution(ABC):
    """Runs one convolution module on layers, with the module's own parameters."""

    module: ClassVar[type[MessagePassing]]  # the PyG class that it serves
    typed: ClassVar[bool] = False  # does it need the types of edges?
    ignores_types: ClassVar[bool] = False  # is it no different with them?

    def __init__(self, conv: MessagePassing) -> None:
        self.conv: Any = conv

    @classmethod
    def serves(cls, conv: Any) -> bool:
        """Does it know all that this module's options ask for? What it does not serve runs as a black box."""
        return True

    @abstractmethod
    def run(self, call: Call) -> Tensor:
        """The rows of the layer's destinations."""

    @property
    def adds_up(self) -> bool:
        """Are edges just summed (or averaged), so that each may count for another number?"""
        return False

    @property
    def mixing(self) -> str | None:
        """How rows are mixed where the model is decoupled: gcn, mean, sum or attention; None: it can't be."""
        return None

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Numbers that a row costs that is pulled, and a partial row that is pushed, forward and backward.

        `wide`, `out`: columns in and out. `raw`: numbers of a row as it comes in: inputs need no gradient.
        """
        return raw, raw

    def sliced(self, wide: int, out: int) -> Sliced:
        """What it holds where columns are sliced (plan tp)."""
        return Sliced(wide, 2 if getattr(self.conv, "aggr", "sum") == "max" else 0)

    def knows(self, call: Call) -> bool:
        """Is what the convolution was given all that it knows?"""
        return not call.others and (call.edge_type == self.typed or self.ignores_types)


def merge_by(aggr: str) -> PartialMerge:
    """The merge of a PyG aggregation without weights."""
    return Largest() if REDUCE[aggr] == "max" else Sums(REDUCE[aggr])


def cheaper_mapped(call: Call, out: int, wide: int) -> bool:
    """Do rows (or sums of them) that travel cost less behind the dense layer? What needs no gradient travels once."""
    return 2 * out < wide * (2 if call.x.requires_grad else 1)
