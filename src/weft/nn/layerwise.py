"""A model taken apart at its convolutions, for inference over the whole graph one layer at a time.

Row-wise parts of a model run on any chunk of vertices; a convolution needs its whole input first. So call k is computed
for all vertices before call k + 1 begins, and between them the model's forward is run again on each chunk, the calls
before k answered from what was computed, call k stopped to hand out its input. This works for residual and
jumping-knowledge models too, holds one chunk at a time, and computes each convolution once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.devices import device_of_model
from weft.nn.alongside import own_columns
from weft.nn.block_model import convolution_of, convolve
from weft.nn.convolution import Convolution
from weft.nn.depths import edge_values_there
from weft.nn.kept_state import Steps
from weft.nn.rows import Pass, call_model
from weft.placements import Program
from weft.sampling import NeighborSampler, Topology


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


class RowsById(Protocol):
    """Rows of all vertices, wherever they are."""

    def __getitem__(self, some: slice, /) -> np.ndarray:
        """Those of some vertices in a row."""


class Layerwise:
    """A model (in eval mode) one convolution at a time: what comes before it row by row, and then its edges."""

    def __init__(
        self, model: nn.Module, graph: Topology, features: RowsById, dtype: torch.dtype, threads: int = 1
    ) -> None:
        self._model, self._steps, self._convolutions = model, Steps(model), dict[MessagePassing, Convolution]()
        self._graph, self._features, self._dtype = graph, features, dtype
        self._sampler = NeighborSampler(graph, [-1], threads=threads)
        self._device = device_of_model(model)

    def up_to_next(self, some: slice, computed: Sequence[RowsById]) -> Pending | Tensor:
        """The next convolution's inputs for some vertices, by the earlier ones' results; or the model's results."""
        x = self._there(self._features[some]).to(self._dtype)
        earlier = iter([self._there(rows[some]) for rows in computed])
        types = getattr(self._graph, "vertex_type", None)

        def replay(conv: MessagePassing, rows: Tensor, depth: int, given: dict[str, object]) -> Tensor:
            known = next(earlier, None)
            if known is None:
                raise _Suspend(Pending(conv, rows, given))
            return known

        run, there = Pass([len(x)] * 1000), edge_values_there(self._model, x.shape[-1], self._graph)
        try:
            with self._steps.undone():  # it runs again for each chunk, and for each convolution
                return call_model(
                    self._model, x, run, replay, there, None if types is None else self._there(types[some])
                )[0]
        except _Suspend as stop:
            return stop.pending

    def takes_features(self, pending: Pending, some: slice) -> bool:
        """Are a convolution's inputs for some vertices their features, as they are? They need not be written, then."""
        x = self._there(self._features[some]).to(self._dtype)
        same = pending.inputs.dtype == self._dtype and self._dtype in (torch.float32, torch.float64)
        whole = pending.columns == pending.inputs.shape[1] == x.shape[1]
        return same and whole and torch.equal(pending.inputs, x)

    def convolved(self, pending: Pending, some: tuple[int, int], rows: Callable[[Tensor], Tensor]) -> Tensor:
        """A convolution's results for some vertices; `rows`: its inputs by vertex."""
        sample = self._sampler.sample(np.arange(*some), 0, 0)
        x, program = rows(sample.vertices).to(self._device), Program.of(sample).to(self._device)
        run = Pass([len(vertices) for vertices in program.vertices], program.keys)
        known = self._convolutions.setdefault(pending.conv, convolution_of(pending.conv))
        return convolve(pending.conv, x, 0, program, run, pending.given, known)

    def _there(self, rows: np.ndarray) -> Tensor:
        """Rows where the model is."""
        return torch.from_numpy(np.array(rows)).to(self._device)
