"""A model's forward on a batch: coupled, one convolution after the other on its blocks, or decoupled, mixed at the end."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from weft.exchange import Communicator
from weft.graph import Graph
from weft.meter import Meter
from weft.nn import BlockModel, Decoupled, DecoupledModel
from weft.placements import Program


class Forward(ABC):
    """Rows of the inputs and this worker's program to the model's rows here. All workers call it together."""

    kind: str  # the model's class
    depth: int  # convolutions, or aggregations, between inputs and outputs

    @abstractmethod
    def __call__(self, x: Tensor, program: Program, key: int | None = None) -> Tensor:
        """`key`: the batch's, from which dropout is drawn."""

    @abstractmethod
    def describe(self) -> str:
        """The layers, in words."""

    def use(self, background: Communicator | None, meter: Meter, budget: float | None) -> None:
        """Get ready for another plan. `background`: for exchanges that go on meanwhile. `budget`: bytes of an epoch."""

    def close(self) -> None:
        """End its threads."""


class CoupledForward(Forward):
    """The model as it is."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self._run = BlockModel(model, graph.num_features)
        self.kind, self.depth = type(model).__name__, self._run.depth

    def __call__(self, x: Tensor, program: Program, key: int | None = None) -> Tensor:
        """The rows of the program's last vertices."""
        return self._run(x, program, key)

    def describe(self) -> str:
        """How many convolutions have fast paths."""
        kinds = self._run.describe()
        others = sum(not line.endswith("(fast)") for line in kinds)
        return f"{self.depth} layers ({len(kinds) - others} fast{f', {others} as black boxes' if others else ''})"


class DecoupledForward(Forward):
    """The model's decoupled variant: dense layers, and then all aggregations."""

    def __init__(self, model: Decoupled) -> None:
        self._model, self.run = model, DecoupledModel(model)
        self.kind, self.depth = type(model.model).__name__, model.depth

    def use(self, background: Communicator | None, meter: Meter, budget: float | None) -> None:
        """Exchanges go on meanwhile, and an epoch fits the budget."""
        self.run = DecoupledModel(self._model, background, meter, budget=budget)

    def __call__(self, x: Tensor, program: Program, key: int | None = None) -> Tensor:
        """The rows of this worker's vertices."""
        return self.run(x, program, key)

    def describe(self) -> str:
        """That it is another model."""
        return f"decoupled (another model): {self.depth} dense layers apart from {self.depth} aggregations"

    def close(self) -> None:
        """End the thread that exchanges."""
        self.run.close()


def forward_of(model: nn.Module, graph: Graph) -> Forward:
    """The forward of a model that takes a graph's features."""
    return DecoupledForward(model) if isinstance(model, Decoupled) else CoupledForward(model, graph)
