"""A batch as training sees it: parts that are computed one after the other, most often one."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from weft.errors import ConfigError
from weft.placements import Program
from weft.sampling import Block
from weft.training.objectives import Targets


@dataclass
class Part:
    """What is computed at once: this worker's program, the rows of its inputs, and whose rows come out."""

    program: Program
    x: Tensor  # [inputs, features]: there until the next part is requested
    targets: Targets
    labels: Tensor | None  # of all vertices
    key: int | None = None  # from which dropout is drawn; None: of evaluation
    torch_key: tuple[int, ...] | None = None  # from which torch itself draws; None: it goes on

    @property
    def seeds(self) -> Tensor:
        """The vertices whose rows the model gives, [n] int64, as the graph numbers them; under a plan, this worker's."""
        return self.targets.ids

    @property
    def y(self) -> Tensor:
        """The labels of the seeds: a class each, int64, or where there may be several 0.0 or 1.0 for each class."""
        if self.labels is None:
            raise ConfigError("this graph has no labels, so a batch has no y: import it with a --labels column")
        chosen = self.labels[self.seeds]
        return (chosen if chosen.dim() == 1 else chosen.to(self.x.dtype)).to(self.x.device)

    @property
    def blocks(self) -> list[Block]:
        """The edges of each layer that this worker computes, that nearest the inputs first."""
        return [layer.here.block for layer in self.program.layers]


class Batch:
    """All workers' batch. Going over it gives its parts; a batch of one part is that part, too.

    Micro-batches and models that migrate have batches of several parts: their gradients add up to the batch's.
    """

    def __init__(self, epoch: int, index: int, size: int, count: int, parts: Iterator[Part]) -> None:
        """`size`: examples of all workers. `count`: how many parts there are, some of which may be none of this worker's."""
        self.epoch, self.index, self.size = epoch, index, size
        self._count, self._parts = count, parts
        self._first: Part | None = None

    def __iter__(self) -> Iterator[Part]:
        if self._first is not None:
            yield self._first
        yield from self._parts

    def finish(self) -> None:
        """Go through parts that were not used: other workers may count on it."""
        for _ in self._parts:
            pass

    @property
    def part(self) -> Part:
        """The only part."""
        if self._first is None:
            self._first = next(self._parts, None) if self._count == 1 else None
        if self._first is None:
            raise ConfigError(
                f"this batch is gone through in {self._count} parts (micro-batches, or models that migrate): compute each "
                f"of them, as in `for part in batch: ...`"
            )
        return self._first

    @property
    def seeds(self) -> Tensor:
        """The vertices whose rows the model gives; under a plan, this worker's."""
        return self.part.seeds

    @property
    def x(self) -> Tensor:
        """The rows of the inputs; they are there until the next batch."""
        return self.part.x

    @property
    def y(self) -> Tensor:
        """The labels of the seeds."""
        return self.part.y

    @property
    def blocks(self) -> list[Block]:
        """The edges of each layer that this worker computes."""
        return self.part.blocks
