"""A model taken apart at its convolutions, for inference over the whole graph one layer at a time.

Row-wise parts of a model run on any chunk of vertices; a convolution needs its whole input first. So call k is computed
for all vertices before call k + 1 begins, and between them the model's forward is run again on each chunk, the calls
before k answered from what was computed, call k stopped to hand out its input. This works for residual and
jumping-knowledge models too, holds one chunk at a time, and computes each convolution once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.nn.alongside import own_columns
from weft.nn.block_model import convolution_of, convolve
from weft.nn.convolution import Convolution
from weft.nn.depths import edge_values_there
from weft.nn.kept_state import Steps
from weft.nn.rows import Pass, call_model
from weft.placements import Program
from weft.sampling import Sample


@dataclass
class Pending:
    """A convolution that waits for its whole input: these are a chunk's rows of it."""

    conv: MessagePassing
    inputs: Tensor
    given: dict[str, object]

    @property
    def columns(self) -> int:
        """Of these, the columns that it convolves: the first ones."""
        return own_columns(self.inputs.shape[1], self.given)


class _Suspend(Exception):
    """Leaves the model's forward at the convolution that is due."""

    def __init__(self, pending: Pending) -> None:
        self.pending = pending


class LayerwiseRunner:
    """Runs a model (in eval mode) chunk by chunk, stopping at its convolutions."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._convolutions = model, dict[MessagePassing, Convolution]()
        self._steps = Steps(model)

    def advance(
        self,
        x: Tensor,
        outputs: Sequence[Tensor],
        graph: object = None,
        node_type: Tensor | None = None,
    ) -> Pending | Tensor:
        """Run a chunk's rows up to convolution number len(outputs), or to the model's result if there is none.

        `outputs` are the results of the earlier convolutions for the same rows; `graph` has the values of edges, if any;
        `node_type` is of these rows, if known.
        """
        run, there = Pass([len(x)] * 1000), edge_values_there(self._model, x.shape[-1], graph)
        calls = iter(range(1000))

        def replay(conv: MessagePassing, rows: Tensor, depth: int, given: dict[str, object]) -> Tensor:
            call = next(calls)
            if call == len(outputs):
                raise _Suspend(Pending(conv, rows, given))
            return outputs[call]

        try:
            with self._steps.undone():  # it runs again for each chunk, and for each convolution
                return call_model(self._model, x, run, replay, there, node_type)[0]
        except _Suspend as stop:
            return stop.pending

    def convolve(self, pending: Pending, x: Tensor, sample: Sample) -> Tensor:
        """The pending convolution on a sample of one block, whose sources' input rows are `x`."""
        program = Program.of(sample).to(x.device)
        run = Pass([len(vertices) for vertices in program.vertices], program.keys)
        known = self._convolutions.setdefault(pending.conv, convolution_of(pending.conv))
        return convolve(pending.conv, x, 0, program, run, pending.given, known)
