"""A model taken apart at its convolutions, for inference over the whole graph one layer at a time.

Row-wise parts of a model run on any chunk of vertices; a convolution needs its whole input first. So call k is computed
for all vertices before call k + 1 begins, and between them the model's forward is run again on each chunk, the calls
before k answered from what was computed, call k stopped to hand out its input. This works for residual and
jumping-knowledge models too, holds one chunk at a time, and computes each convolution once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.block_model import EDGE_ARGUMENTS, call_model, make_call
from weft.nn.conv import convolve
from weft.nn.rows import Pass, Rows
from weft.placements import Program
from weft.sampling import Sample


@dataclass
class Pending:
    """A convolution that waits for its whole input: these are a chunk's rows of it."""

    conv: MessagePassing
    inputs: Tensor
    given: dict[str, Any]


class _Suspend(Exception):
    """Leaves the model's forward at the convolution that is due."""

    def __init__(self, pending: Pending) -> None:
        self.pending = pending


class LayerwiseRunner:
    """Runs a model (in eval mode) chunk by chunk, stopping at its convolutions."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def advance(
        self,
        x: Tensor,
        outputs: Sequence[Tensor],
        edge_data: dict[str, bool] | None = None,
        node_type: Tensor | None = None,
    ) -> Pending | Tensor:
        """Run a chunk's rows up to convolution number len(outputs), or to the model's result if there is none.

        `outputs` are the results of the earlier convolutions for the same rows; `node_type` is of these rows, if known.
        """
        run = Pass([len(x)] * 1000)
        calls = iter(range(1000))

        def replay(conv: MessagePassing, rows: Rows, given: dict[str, Any]) -> Rows:
            call = next(calls)
            if call == len(outputs):
                raise _Suspend(Pending(conv, rows.plain(), given))
            return Rows.of(outputs[call], rows.depth + 1, run)

        available = edge_data or dict.fromkeys(EDGE_ARGUMENTS, False)
        try:
            out = call_model(self._model, Rows.of(x, 0, run), replay, available, node_type)
        except _Suspend as stop:
            return stop.pending
        if not isinstance(out, Rows):
            raise ModelError("the model's forward must give a row for each vertex")
        return out.plain()

    @staticmethod
    def convolve(pending: Pending, x: Tensor, sample: Sample) -> Tensor:
        """The pending convolution on a sample of one block, whose sources' input rows are `x`."""
        program = Program.of(sample)
        run = Pass([len(vertices) for vertices in program.vertices], program.keys)
        return convolve(make_call(pending.conv, x, 0, program, run, pending.given))
