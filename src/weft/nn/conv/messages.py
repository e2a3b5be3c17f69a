"""Convolutions of one's own, edge by edge: what a source says to a destination, and how what is said is merged.

The easiest way through the door of convolutions. Rows of edges are made and held, so a kernel of one's own is faster and
smaller; but it runs under every placement, and its gradients are torch's.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from weft.errors import ConfigError, ModelError
from weft.keys import key as make_key
from weft.nn import sums
from weft.nn.attention import attention_part, join_by_softmax
from weft.nn.convolution import Call, Convolution
from weft.nn.dropout import OtherDropout, dropped
from weft.nn.kept_state import state_kept
from weft.nn.row_by_row import check_by_row, on_trial, tried_again
from weft.nn.small_graph import SmallGraph, off_by, small_graph
from weft.nn.sums import split_max
from weft.placements import Edges, Merge, SplitLayer
from weft.sampling import Block
from weft.threads import cached_property

_JOINS = ("sum", "mean", "max", "softmax")


class MessageConvolution(Convolution):
    """A convolution as finish(merge over edges of message(prepare(x)[source], describe(x)[destination]), x[destination]).

    Derive from it, set `module` to the PyG class that it serves, and write what differs from the rows themselves. All but
    `message` and `score` act on each row by itself. `self.conv` is the module, whose parameters are used.
    """

    join: ClassVar[str] = "sum"  # of messages: sum, mean, max, or softmax: a mean by the soft-max of `score`
    weighted: ClassVar[bool] = False  # messages know no weights: with some the module runs as it is
    columnwise: ClassVar[bool] = False  # does all of it act on each column by itself, but for `finish`?

    def prepare(self, x: Tensor) -> Tensor:
        """What each row has to say, whoever it is said to."""
        return x

    def describe(self, own: Tensor) -> Tensor:
        """What messages need to know of their destination, [rows, numbers]; nothing, unless this says otherwise."""
        return own[:, :0]

    def message(self, source: Tensor, destination: Tensor) -> Tensor:
        """What is said along each edge, of prepared rows of sources and descriptions of destinations, [edges, columns]."""
        return source

    def score(self, source: Tensor, destination: Tensor) -> Tensor:
        """With join = softmax: how much each edge counts for, before the soft-max, [edges, heads]."""
        raise AssertionError("join = softmax needs a score")

    @abstractmethod
    def finish(self, merged: Tensor, own: Tensor) -> Tensor:
        """The destinations' rows, of merged messages and their own rows."""

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self.adds_up, self._compared = self.join in ("sum", "mean"), set[bool]()

    @property
    def drops_edges(self) -> bool:
        """`message` may, whatever the module's options are called."""
        return True

    @classmethod
    def check_class(cls) -> None:
        """Refuse a join that there is not, and soft-max of nothing."""
        super().check_class()
        if cls.join not in _JOINS:
            raise ConfigError(f"{cls.__name__}: join = {cls.join!r} is not possible: choose one of {', '.join(_JOINS)}")
        if cls.join == "softmax" and cls.score is MessageConvolution.score:
            raise ConfigError(f"{cls.__name__}: join = 'softmax' needs a score(source, destination): write it")

    def run(self, call: Call) -> Tensor:
        if call.layer.whole_rows:
            for training in sorted({False, self.conv.training} - self._compared):
                self._compared.add(training)
                _check_equals_its_module(self, call.x, training)
        x, depth, by_row = (call.x if self.columnwise else call.whole_rows), call.depth, call.run.by_row
        said, own = by_row(self.prepare, depth, x), call.own
        merged = call.layer.merge(_Messages(self, call, by_row(self.describe, depth + 1, own)), said)
        return by_row(self.finish, depth + 1, merged, own)


class _Messages(Merge):
    """Messages of edges, merged; what is dropped of them is keyed by edge."""

    def __init__(self, convolution: MessageConvolution, call: Call, described: Tensor) -> None:
        self._of, self.call, self._described = convolution, call, described
        kind, usual = type(convolution), MessageConvolution
        # Of slices there are prepared rows alone, of which descriptions can't be made.
        both = kind.prepare is not usual.prepare and kind.describe is not usual.describe
        self.columnwise = convolution.columnwise and not both

    def __str__(self) -> str:
        return str(self._of.conv)

    @cached_property
    def dropout_key(self) -> int:
        """The same for all edges, wherever they are computed."""
        if not self._of.conv.training:
            raise ModelError(
                f"{type(self._of).__name__} drops in eval mode, too: give F.dropout training=self.conv.training"
            )
        return self.call.run.next_dropout()

    def given(self, own: Tensor) -> Tensor:
        """Descriptions of the destinations here, which were made of their whole rows."""
        return self._described

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return self._part(edges, sources, given, _ByEdge(self, edges))

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        return self._merged(edges, sources, self._described, _ByEdge(self, edges))

    def over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        """Of slices of columns."""
        return self._merged(edges, sources, self._of.describe(own), _ByEdge(self, None))

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        if self._of.join == "softmax":
            return join_by_softmax(layer, here, there).flatten(1)
        return self._divided(here[0] + layer.summed(there[0]), layer.degrees)

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        if self._of.join != "max":
            return super().split(layer, x)
        given, others = self._described, self._described[:0]
        if given.shape[1]:
            others = layer.to_others(given)
        parts = (layer.here, layer.sources(x), given), (layer.there, x, others)
        (here, _, each), (there, _, each_there) = (self._said(*part, _ByEdge(self, part[0])) for part in parts)
        return split_max(layer, here, there, each, each_there)

    def _merged(self, edges: Edges, sources: Tensor, given: Tensor, dropout: OtherDropout) -> Tensor:
        """The rows of destinations whose edges are all here."""
        if self._of.join == "max":
            said, _, each = self._said(edges, sources, given, dropout)
            return sums.aggregate(each, said, None, "max")
        return self._divided(self._part(edges, sources, given, dropout)[0].flatten(1), edges.totals)

    def _part(self, edges: Edges, sources: Tensor, given: Tensor, dropout: OtherDropout) -> tuple[Tensor, ...]:
        """Of some edges: their sum; or with soft-max their mean, and the log of its sum."""
        said, ends, each = self._said(edges, sources, given, dropout)
        if self._of.join != "softmax":
            return (sums.aggregate(each, said, edges.times(None, said), "sum"),)
        with dropout:
            scores = self._of.score(*ends)
        heads = scores.shape[1]
        return attention_part(each, said.view(len(said), heads, said.shape[1] // heads), scores, 1.0)

    def _said(
        self, edges: Edges, sources: Tensor, given: Tensor, dropout: OtherDropout
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Block]:
        """Messages, both ends of their edges, and a block of which each edge is a source."""
        block = edges.block
        src, dst = block.src.long(), block.dst().long()
        described = given[dst] if given.shape[1] else given.new_empty(len(dst), 0)
        ends = sources.index_select(0, src), described
        each = Block(block.indptr, torch.arange(block.num_edges, dtype=torch.int32, device=src.device), block.num_edges)
        with dropout:
            return self._of.message(*ends), ends, each

    def _divided(self, rows: Tensor, counts: Tensor) -> Tensor:
        return rows * sums.inverse(counts, rows) if self._of.join == "mean" else rows


class _ByEdge(OtherDropout):
    """Of rows of edges: by edge, the same wherever that is computed; others are left to torch.

    Refused of slices of columns, of which each worker has others.
    """

    def __init__(self, messages: _Messages, edges: Edges | None) -> None:
        """`edges`: None: slices of columns."""
        super().__init__()
        self._messages, self._edges, self._calls = messages, edges, 0

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        if self._edges is None:
            raise ModelError(
                f"{self._messages} drops what is said along edges, so its layer can't be placed by columns: place it "
                f"local, pull or push, or choose plan halo"
            )
        if len(x) != self._edges.block.num_edges:
            return torch.dropout(x, p, True)
        self._calls += 1
        key = make_key(self._messages.dropout_key, self._calls)
        return dropped(x, p, self._messages.call.edge_keys(self._edges), key, inplace)


class _Scaled(OtherDropout):
    """As if it were no chance: all is left, and tells by how much is dropped."""

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        return x.mul_(1 + p) if inplace else x * (1 + p)


def _check_equals_its_module(convolution: MessageConvolution, like: Tensor, training: bool) -> None:
    """Compare a convolution with its module's own forward on a small random graph; in training with what both drop.

    Once more with other parameters, as what begins at nought (a bias) is learned, unless they give what is no number, or
    it does not run with them.
    `like`: its rows. A module that does not run so by itself is not tried, nor one that draws other random numbers.
    """
    _compare(convolution, like, training)
    with tried_again(convolution.conv):
        _compare(convolution, like, training, of_numbers=True)


def _compare(convolution: MessageConvolution, like: Tensor, training: bool, of_numbers: bool = False) -> None:
    """`of_numbers`: only where both give numbers."""
    conv, name = convolution.conv, type(convolution).__name__
    graph = small_graph(like.shape[1], like.dtype, like.device)
    with on_trial(conv, training, like) as drawn, _Scaled():
        try:
            with state_kept(conv):
                wanted = type(conv).forward(conv, graph.x.clone(), graph.edge_index)
        except Exception:  # its own code, which may need more than rows and edges
            return
        if drawn.shapes:
            return
        got = _by_parts(convolution, graph)
    if got.shape != wanted.shape:
        raise ModelError(f"{name} gives rows of shape {[*got.shape]}, {conv} itself {[*wanted.shape]}")
    off = off_by(got, wanted, 1e-8 if like.dtype == torch.float64 else 1e-2, of_numbers)
    if off is not None:
        when, remedy = (" in training", "drop alike (F.dropout)") if training else ("", "compute the same")
        raise ModelError(
            f"{name} differs from {conv} itself{when} by up to {off:.3g}: make them {remedy}, or let serves() refuse its "
            f"options"
        )


def _by_parts(convolution: MessageConvolution, graph: SmallGraph) -> Tensor:
    """The rows of all vertices, part by part; refused where one mixes rows, or gives no row for each."""
    x, src, dst = graph
    said, described = _tried(convolution, "prepare", x), _tried(convolution, "describe", x)
    ends = said[src], described[dst]
    each, join = _tried(convolution, "message", *ends), convolution.join
    if join == "softmax":
        scores = _tried(convolution, "score", *ends)
        heads = scores.shape[1]
        if not heads or each.shape[1] % heads:
            raise ModelError(
                f"{type(convolution).__name__}.score gives {heads} heads for messages of {each.shape[1]} columns: heads "
                f"must divide them"
            )
        shares = softmax(scores, dst, num_nodes=len(x))
        each, join = (each.view(len(each), heads, -1) * shares[:, :, None]).flatten(1), "sum"
    return _tried(convolution, "finish", graph.merged(each, join), x)


def _tried(convolution: MessageConvolution, part: str, *rows: Tensor) -> Tensor:
    """What a part of a convolution makes of rows."""
    name = f"{type(convolution).__name__}.{part}"
    return check_by_row(name, getattr(convolution, part), convolution.conv, *rows)
