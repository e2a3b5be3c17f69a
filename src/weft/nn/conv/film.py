"""GNN-FiLM: neighbours' rows, each scaled and shifted as their destination says, then averaged."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import FiLMConv

from weft.exchange import to_columns, to_owners
from weft.nn import sums
from weft.nn.convolution import REDUCE, Call, Convolution, Sliced, dense, plain_linear
from weft.operations import Lists, operations_on
from weft.placements import Edges, Merge, SliceLayer, SplitLayer, in_ranges, pieces_of
from weft.sampling import Block, BlockRange


class Film(Convolution):
    """FiLMConv with one relation and ReLU."""

    module: ClassVar[type] = FiLMConv
    ignores_types: ClassVar[bool] = True

    @classmethod
    def serves(cls, conv: FiLMConv) -> bool:
        plain = isinstance(conv.in_channels, int) and conv.num_relations == 1 and isinstance(conv.act, torch.nn.ReLU)
        return plain and conv.aggr in ("add", "sum", "mean")

    def run(self, call: Call) -> Tensor:
        """The destination's own row says how edges scale and shift, and is modulated itself."""
        conv, x = self.conv, dense(self.conv.lins[0], call.whole_rows)
        own = call.own
        beta, gamma = _modulation(call, conv.film_skip)
        out = conv.act(gamma * dense(conv.lin_skip, own) + beta)
        beta, gamma = (part.contiguous() for part in _modulation(call, conv.films[0]))
        return out + call.layer.merge(_Modulated(gamma, beta, REDUCE[conv.aggr]), x)

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Mapped rows are pulled; for partial sums also a scale and a shift go to where they are made."""
        return 2 * out, 2 * out + 4 * out

    def sliced(self, wide: int, out: int) -> Sliced:
        """Beside scales and shifts of neighbours there are those of the own row, and what they make of it."""
        return Sliced(out, 3, rows=5 * out)


def _modulation(call: Call, film: torch.nn.Module) -> tuple[Tensor, ...]:
    """How destinations shift and scale; a network of one's own is row by row, as outside of convolutions."""
    own = call.own
    both = film(own) if plain_linear(film) else call.run.by_row(film, call.depth + 1, own)
    return both.split(call.conv.out_channels, dim=-1)


class _Modulated(Merge):
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""

    def __init__(self, gamma: Tensor, beta: Tensor, reduce: str) -> None:
        self._gamma, self._beta, self._reduce = gamma, beta, reduce

    def given(self, own: Tensor) -> Tensor:
        return torch.cat([self._gamma, self._beta], 1)

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        gamma, beta = (part.contiguous() for part in given.chunk(2, 1))
        return (film(edges.block, sources, gamma, beta, "sum"),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """Sums add up; a mean is divided by all edges of a destination."""
        total = here[0] + layer.summed(there[0])
        return total * sums.inverse(layer.degrees, total) if self._reduce == "mean" else total

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        return film(edges.block, sources, self._gamma, self._beta, self._reduce)

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Rows, scales and shifts move to slices."""
        spread = layer.span.spread(x.shape[1])
        columns = [to_columns(part, spread, layer.comm) for part in (x, self._gamma, self._beta)]

        def modulated(piece: BlockRange, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            return film(piece.block, x, gamma[piece.rows], beta[piece.rows], self._reduce)

        return to_owners(in_ranges(pieces_of(layer, x), modulated, *columns), spread, layer.comm)


def film(block: Block, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""
    return _Film.apply(block, x, gamma, beta, reduce == "mean")


class _Film(torch.autograd.Function):
    """Forward: sum (mean) of relu(gamma x + beta). Backward: gamma and beta by destination, x by source."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
        ctx.block, ctx.mean = block, mean
        ctx.save_for_backward(x, gamma, beta)
        return operations_on(x.device).film(Lists(block.indptr, block.src), x, gamma, beta, mean)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        block = ctx.block
        x, gamma, beta = ctx.saved_tensors
        scaled = g * sums.inverse(block.indptr.diff(), g) if ctx.mean else g
        lists, turned = Lists(block.indptr, block.src), block.transposed()
        return None, *operations_on(x.device).film_backward(lists, turned, x, gamma, beta, scaled), None
