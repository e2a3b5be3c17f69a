"""How a convolution of one's own says that it can be split, so that its edges may be computed wherever their sources are."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.convolution import REDUCE, Call, Convolution
from weft.nn.depths import in_mode
from weft.nn.dropout import DROPOUTS
from weft.nn.row_by_row import as_far_as_it_runs, check_by_row, on_trial, tried_again
from weft.nn.small_graph import off_by, small_graph
from weft.nn.sums import Largest, Sums


@dataclass(frozen=True)
class Split:
    """A convolution as finish(merge over edges of weight x source(x[source]), x[destination]).

    A `MessagePassing` class whose `weft_split()` returns one is split like the convolutions that Weft knows. Its own
    `forward` must compute the same; `check_split` compares the two. `source` and `finish` act on each row by itself;
    dropout in them is fine.
    """

    finish: Callable[[Tensor, Tensor], Tensor]  # merged rows and the destinations' own rows -> results
    source: Callable[[Tensor], Tensor] | None = None  # rows -> what each contributes to its neighbours; None: itself
    merge: str = "sum"  # sum, mean or max

    def __post_init__(self) -> None:
        if self.merge not in REDUCE:
            raise ModelError(f"Split: merge = {self.merge!r} is not possible: choose sum, mean or max")


class Declared(Convolution):
    """Any class whose `weft_split()` says how it can be split."""

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self.adds_up, self._tried = conv.weft_split().merge != "max", set[bool]()

    def run(self, call: Call) -> Tensor:
        split: Split = self.conv.weft_split()  # of parameters as they are now
        layer, depth, by_row = call.layer, call.depth, call.run.by_row
        reduce = REDUCE[split.merge]
        if reduce == "max" and call.edge_weight:
            raise ModelError(f"{call.conv} merges by max, which edge weights can't scale: drop edge_weight")
        merge = Largest() if reduce == "max" else Sums(reduce, call.weights if call.edge_weight else None)
        if split.source is None:
            x, name = call.x, f"{reduce} {call.edge_weight}"
            merged, own = layer.inputs.once(name, x, lambda: layer.merge_with_own(merge, x))
        else:
            merged = layer.merge(merge, by_row(split.source, depth, call.whole_rows))
            own = call.own
        for training in sorted({False, self.conv.training} - self._tried):
            self._tried.add(training)
            _check_by_row(self.conv, own, training)
        return by_row(split.finish, depth + 1, merged, own)


def split_of(conv: MessagePassing) -> Split | None:
    """What the convolution declares."""
    declare = getattr(conv, "weft_split", None)
    if declare is None:
        return None
    found = declare()
    if not isinstance(found, Split):
        raise ModelError(f"{conv}: weft_split() gave a {type(found).__name__}: return a weft.Split")
    return found


def _check_by_row(conv: MessagePassing, like: Tensor, training: bool) -> None:
    """Refuse what mixes rows in a split, or keeps something of them. `like`: rows that it takes.

    Tried on random ones, with its parameters and with others. What draws random numbers, other than by dropout, or does not
    run so by itself, is not tried.
    """
    graph = small_graph(like.shape[1], like.dtype, like.device)

    def tried() -> None:
        split: Split = conv.weft_split()
        with on_trial(conv, training, like, *DROPOUTS) as drawn:
            try:
                said, x = graph.x, graph.x
                if (source := split.source) is not None:
                    said = check_by_row(f"{conv}: source of its split", lambda x: source(x).flatten(1), conv, x)
                merged = graph.merged(said[graph.src], REDUCE[split.merge])
                check_by_row(f"{conv}: finish of its split", split.finish, conv, merged, x)
            except ModelError:
                if not drawn.shapes:
                    raise

    with as_far_as_it_runs():
        tried()
    with tried_again(conv):
        tried()


def check_split(conv: MessagePassing, width: int) -> None:
    """Compare a convolution's split with its own forward on a small random graph; raises a ModelError where they differ.

    Once more with other parameters, as what begins at nought (a bias) is learned, unless they give what is no number, or
    it does not run with them. Refused, too, where the split mixes rows, or keeps something of them.
    """
    _compare(conv, width)
    with tried_again(conv):
        _compare(conv, width, of_numbers=True)
    for training in (False, True):
        _check_by_row(conv, next(conv.parameters(), torch.empty(0)).new_empty(0, width), training)


def _compare(conv: MessagePassing, width: int, of_numbers: bool = False) -> None:
    """`of_numbers`: only where both give numbers."""
    split = split_of(conv)
    if split is None:
        raise ModelError(f"{conv} declares no split: give it a method weft_split() that returns a weft.Split")
    dtype = next((p.dtype for p in conv.parameters()), torch.float32)
    graph = small_graph(width, dtype)
    with torch.no_grad(), in_mode(conv, False):
        wanted = conv(graph.x, graph.edge_index)
        rows = graph.x if split.source is None else split.source(graph.x)
        got = split.finish(graph.merged(rows[graph.src], REDUCE[split.merge]), graph.x)
    if got.shape != wanted.shape:
        raise ModelError(f"{conv}: its split gives rows of shape {tuple(got.shape)}, its forward {tuple(wanted.shape)}")
    error = off_by(got, wanted, 1e-4, of_numbers)
    if error is not None:
        raise ModelError(f"{conv}: its split and its forward differ by up to {error:.3g}: make them compute the same")
