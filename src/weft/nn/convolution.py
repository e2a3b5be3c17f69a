"""What a convolution is to Weft: how a PyG class runs on a layer, wherever its edges are (`Convolution`), call by call.

A convolution is one file in nn/conv/. Others use the same door: derive from `Convolution`, name the PyG class that it
serves, and register it (docs/extending.md). What declares nothing runs as a black box, where whole neighbourhoods meet.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing

from weft.errors import ConfigError, ModelError
from weft.nn.dropout import edge_keys, edge_mask
from weft.nn.rows import Pass
from weft.operations import linear
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
    layer: Layer  # the edges, and who computes them
    program: Program
    run: Pass
    edge_weight: bool  # was it given the graph's edge weights?
    edge_type: bool  # and its edge types?
    others: dict[str, object]  # arguments that no fast path knows

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
        """The rows here by a linear layer; where they are slices, these by their part of its matrix, which has no bias."""
        layer = self.layer
        if layer.whole_rows or not is_matrix(module) or module.bias is not None:
            return dense(module, self.whole_rows)
        return linear(layer.real(self.x), layer.share(cast(Tensor, module.weight)))

    def weights(self, edges: Edges, loops: bool = False) -> Tensor | None:
        """The weights of edges, zero for self-loops if these are dropped (`loops`); None where all are one. Made once."""
        dtype, program, given_weights = self.x.dtype, self.program, self.edge_weight

        def make(edges: Edges) -> Tensor | None:
            given = program.edge_values("edge_weight", edges.block).to(dtype) if given_weights else None
            drop = edges.self_edges() if loops else None
            if drop is None or not drop.any():
                return given
            return (~drop).to(dtype) if given is None else given * ~drop

        name = f"weights {given_weights} {loops} {dtype}"
        return edges.block.remembered(name, lambda: edges.from_host(make))

    def types(self, block: Block) -> Tensor:
        """The types of a block's edges; looked up once a block."""
        return block.remembered("types", lambda: self.program.edge_values("edge_type", block))

    def edge_dropout(self) -> int | None:
        """The key of this call's dropout of edges; None where none are dropped. To be asked for once."""
        return self.run.next_dropout() if self.conv.training and self.conv.dropout else None

    def destination_keys(self, edges: Edges) -> Tensor:
        """The keys of the destinations of edges, whoever holds them."""
        return self.program.keys[self.depth + 1] if edges.keys is None else edges.keys

    def edge_keys(self, edges: Edges) -> Tensor:
        """What names each edge, the same on any worker."""
        return edge_keys(self.destination_keys(edges), edges.block.dst(), edges.block.places())

    def kept(self, key: int | None, block: Block, edges: Edges) -> Tensor | None:
        """Dropout of edges by head, keyed by destination and place in its list; `block`: the edges that are gone over."""
        if key is None:
            return None
        keys = self.destination_keys(edges)
        return edge_mask(keys, key, block.dst(), block.places(), self.conv.heads, self.conv.dropout, self.x.dtype)


@dataclass(frozen=True)
class OfPairs:
    """What a layer holds besides of pairs of a relation and a vertex that there are edges of, where columns are sliced."""

    rows: int  # numbers of an own pair that stay
    slices: int = 0  # of all pairs' columns that stay
    of_vertex: int = 0  # numbers that everyone has of each vertex, by relation
    of_edge: int = 0  # bytes that lists by pair have an edge


@dataclass(frozen=True)
class Sliced:
    """What a layer holds where columns are sliced: the columns that are merged, how many slices of them stay, and heads."""

    columns: int
    slices: int = 0
    heads: int = 0
    of_edge: int = 4  # numbers an edge and head: a probability, two shares of gradients, a mask of dropout
    rows: int = 0  # numbers of an own row that stay, beside its own, what is merged of it and what comes out
    pairs: OfPairs | None = None


class Convolution(ABC):
    """Runs one convolution module on layers, with the module's own parameters."""

    module: ClassVar[type[MessagePassing]]  # the PyG class that it serves
    typed: ClassVar[bool] = False  # does it need the types of edges?
    weighted: ClassVar[bool] = True  # does it take edge weights into account, where it is given some?
    takes_columns: ClassVar[bool] = False  # and where these are a column, [edges, 1], to the same effect?
    ignores_types: ClassVar[bool] = False  # is it no different with them?
    ignores: ClassVar[frozenset[str]] = frozenset()  # values of edges that it may be given, and does nothing with
    alongside: ClassVar[frozenset[str]] = frozenset()  # other rows that it is given, by name
    passes_on: ClassVar[bool] = False  # of rows that stay from epoch to epoch, does it make some that stay?
    unrolls: ClassVar[bool] = False  # is it taken apart into hops, each of which runs as a convolution of its own?
    narrower_travels: bool = False  # of inputs and results, for the map may be made before the merge or behind it?
    adds_up: bool = False  # are edges just summed (or averaged), so that each may count for another number?
    # How rows are mixed in decoupled models: gcn, mean, sum, attention, relations; None: it can't be.
    mixing: str | None = None
    as_it_is: "Convolution | None" = None  # a black box of the module, where it was run as that

    def __init__(self, conv: MessagePassing) -> None:
        self.conv = conv

    @property
    def drops_edges(self) -> bool:
        """May it drop edges in training, by their places in their lists? These travel then with edges that are pushed."""
        return bool(getattr(self.conv, "dropout", 0))

    @classmethod
    def check_class(cls) -> None:
        """Refuse a class that could not be used; when it is registered."""
        module = getattr(cls, "module", MessagePassing)  # without one it has no name, which is refused as such
        if not (isinstance(module, type) and issubclass(module, MessagePassing)):
            raise ConfigError(
                f"{cls.__name__}: module = {module!r} is no MessagePassing class: give that which it serves"
            )

    @classmethod
    def serves(cls, conv: MessagePassing) -> bool:
        """Does it know all that this module's options ask for? What it does not serve runs as a black box."""
        return True

    @abstractmethod
    def run(self, call: Call) -> Tensor:
        """The rows of the layer's destinations."""

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Numbers that a row costs that is pulled, and a partial row that is pushed, forward and backward.

        `wide`, `out`: columns in and out. `raw`: numbers of a row as it comes in: inputs need no gradient.
        """
        cost = min(raw, 2 * out) if self.narrower_travels else raw
        return cost, cost

    def sliced(self, wide: int, out: int) -> Sliced:
        """What it holds where columns are sliced (plan tp)."""
        return Sliced(wide, 2 if getattr(self.conv, "aggr", "sum") == "max" else 0)


def dense(module: nn.Module, x: Tensor, plus: Tensor | None = None) -> Tensor:
    """A dense layer on rows, plus other rows; on the fast kernel unless the module does something of its own."""
    if plain_linear(module):
        return linear(x, cast(Tensor, module.weight), cast("Tensor | None", module.bias), plus)
    out = module(x)
    return out if plus is None else out + plus


def plain_linear(module: nn.Module) -> bool:
    """Is it a linear layer that does nothing else?"""
    return type(module) in (nn.Linear, Linear) and does_as_its_class(module)


def is_matrix(module: nn.Module) -> bool:
    """Are its rows products with its weight (and a bias), however that weight is made?"""
    return type(module).forward in (nn.Linear.forward, Linear.forward) and does_as_its_class(module)


def columns_of(module: nn.Module) -> tuple[int, int]:
    """How many columns a matrix gives, and takes: as it was built, for a weight that is made anew steps when it is read."""
    names = ("out_features", "in_features") if isinstance(module, nn.Linear) else ("out_channels", "in_channels")
    return getattr(module, names[0]), getattr(module, names[1])


def does_as_its_class(module: nn.Module) -> bool:
    """Has it no hooks, and no forward of its own?"""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return not any(hooks) and "forward" not in vars(module)
