"""Running the decoupled variant of a model on the whole graph, on any number of workers."""

from collections.abc import Callable

from torch import Tensor

from weft.exchange import Wire
from weft.exchange.soon import Soon
from weft.meter import Meter
from weft.nn.binding import Handle
from weft.nn.coefficients import Coefficients
from weft.nn.decoupled import Decoupled, Scores, Step
from weft.nn.propagate import Course, propagate
from weft.nn.rows import Pass, Rows
from weft.parallel.program import Program
from weft.parallel.rounds import Lists, Rounds


class DecoupledModel:
    """The decoupled variant as a function of the whole graph: `rows of this worker's vertices, program -> their results`.

    All workers call it together, and go backward together. Dense layers see this worker's rows only; between the last of
    them and what the model does in the end, rows travel twice.
    """

    def __init__(
        self,
        model: Decoupled,
        ahead: Wire | None = None,
        meter: Meter | None = None,
        entering: Callable[[Tensor], None] | None = None,
    ) -> None:
        """`ahead`: a wire for a thread of its own, so that rows travel while this one computes; None: they do not.

        `entering`: is told the rows that are about to be mixed.
        """
        self.model, self._entering = model, entering
        self._ahead, self._meter = ahead, meter
        self._soon: Soon | None = None
        self._made: tuple[Program, Course, Coefficients] | None = None

    def __call__(self, x: Tensor, program: Program, key: int | None = None) -> Tensor:
        """The model's rows for this worker's vertices; `key` is the epoch's key, from which dropout is drawn."""
        course, coefficients = self._for(program)
        run = Pass([len(x)], [program.keys[0]], key)

        def through(rows: Tensor, steps: list[Step], scores: Scores | None) -> Tensor:
            plain = _plain(rows)
            if self._entering is not None:
                self._entering(plain)
            scores = scores and Scores(scores.conv, _plain(scores.src), _plain(scores.dst))
            mixes = coefficients.mixes(steps, scores, plain.dtype, run)
            return Rows.of(propagate(plain, course, mixes), 0, run)

        weighted = getattr(program.graph, "edge_weight", None) is not None
        weight = Handle.of("edge_weight") if weighted else None
        out = self.model.run(Rows.of(x, 0, run), Handle.of("edge_index"), weight, through)
        return _plain(out)

    def close(self) -> None:
        """End the thread that exchanges."""
        if self._soon is not None:
            self._soon.close()

    def _for(self, program: Program) -> tuple[Course, Coefficients]:
        """What is made once for a program."""
        if self._made is None or self._made[0] is not program:
            self.close()
            self._made = program, *self._make(program)
        return self._made[1:]

    def _make(self, program: Program) -> tuple[Course, Coefficients]:
        layer = program.layers[0]
        assert layer.slices is not None and program.graph is not None
        slices = layer.slices
        self._soon = Soon(program.wire, self._ahead, self._meter)
        coefficients = Coefficients(program.graph, slices, program.wire, Lists(layer.block.indptr, layer.block.src))
        chunks = len(slices.chunks) - 1
        count = _ROUNDS if chunks == 1 and self._ahead is not None else chunks

        def rounds(of: Lists) -> Rounds:
            return Rounds(of, slices.bounds, slices.rank, count)

        return Course(rounds(coefficients.lists), lambda: rounds(coefficients.turned), self._soon), coefficients


# Rounds where nothing else says how many: the first one's rows come before anything is computed, the last one's results go
# when all is, so of what travels an eighth is not overlapped.
_ROUNDS = 8


def _plain(x: Tensor) -> Tensor:
    return x.plain() if isinstance(x, Rows) else x
