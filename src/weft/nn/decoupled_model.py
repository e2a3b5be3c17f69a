"""Running the decoupled variant of a model on the whole graph, on any number of workers, within a budget of memory."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, RGCNConv

from weft.errors import ModelError
from weft.exchange import Background, Communicator
from weft.graph import edge_arrays
from weft.keys import generators_kept
from weft.meter import Meter
from weft.nn import budget as memory
from weft.nn.activations import Spilled, again, by_rows, kept_by
from weft.nn.block_model import BlockModel, types_of
from weft.nn.coefficients import Coefficients
from weft.nn.decoupled import Decoupled, Dense, Step, Surroundings
from weft.nn.depths import edge_arguments
from weft.nn.handles import ATTRIBUTES, EDGE_ARGUMENTS, FEATURES, Handle
from weft.nn.kept_state import state_kept
from weft.nn.propagate import Course, propagate, resident, zeros_in_file
from weft.nn.row_by_row import check_rows
from weft.nn.rows import Pass, Rows, without_depth
from weft.placements import ROUNDS, EdgeLists, Layer, Program, Rounds, SliceLayer

_SAMPLE = 512  # rows of which it is seen what dense layers keep


class DecoupledModel:
    """The decoupled variant as a function of the whole graph: `rows of this worker's vertices, program -> their results`.

    All workers call it together, and go backward together. Dense layers see this worker's rows only; between the last of
    them and what the model does in the end, rows travel twice.
    """

    def __init__(self, model: Decoupled, entering: Callable[[Tensor], None] | None = None) -> None:
        """`entering`: gets the rows that are about to be mixed."""
        self.model, self._entering = model, entering
        self.kind, self.depth = type(model.model).__name__, model.depth
        self.fit = memory.Fit()
        self.needs: dict[str, int] = {}  # bytes at the peak, by what they are for
        self._background: Background | None = None
        self.use(None, None, None)
        self._spilled: Spilled | None = None
        self._entered: Tensor | None = None  # the inputs, mixed
        self._enter: Callable[[Step], Tensor] | None = None  # makes them; None before there is a program
        self._sends: dict[int, Tensor] = {}  # by the number of relations: shares of those that own vertices send along

    def __call__(self, x: Tensor, program: Program, key: tuple[int, ...] | None = None) -> Tensor:
        """The model's rows for this worker's vertices; `key`: the parts of the epoch's key, from which dropout is drawn."""
        course, coefficients = self._for(program, x)
        self._enter = partial(self._mixed_inputs, x, course, coefficients)
        run = Pass([len(x)], [program.keys[0]], key)

        def through(dense: Dense) -> Tensor:
            dense = dense.made_of(map(without_depth, dense.tensors()))
            if self._entering is not None:
                self._entering(dense.rows)
            return Rows.of(dense.whole(_mixed(dense, course, coefficients, run)), 0, run)

        if self.fit.activations == "again":
            return without_depth(through(self._some_at_a_time(x, program, run)))
        with (self._spilled if torch.is_grad_enabled() else None) or nullcontext():
            return without_depth(self._run(x, program, run, through))

    def edge_arguments(self) -> set[str]:
        """Which values of edges its aggregations are given."""
        return edge_arguments(self.model.model)

    def use(self, background: Communicator | None, meter: Meter | None, budget: float | None) -> None:
        """Get ready for another plan. `budget`: bytes of memory that an epoch may take.

        `background`: for a thread of its own, so that rows travel while this one computes; None: they do not.
        """
        self.close()
        self._ahead, self._meter, self._budget = background, meter, budget
        self._made: tuple[list[Layer], Course, Coefficients] | None = None

    def describe(self) -> str:
        """That it is another model."""
        return f"decoupled (another model): {self.depth} dense layers apart from {self.depth} aggregations"

    def close(self) -> None:
        """End the thread that exchanges."""
        if self._background is not None:
            self._background.close()

    def _mixed_inputs(self, x: Tensor, course: Course, coefficients: Coefficients, step: Step) -> Tensor:
        """The inputs, mixed in the first epoch only."""
        if self._entered is None:
            run = Pass([len(x)])
            with torch.no_grad():
                (self._entered,) = _mixed(Dense(x, [step]), course, coefficients, run)
            course.leave()
        return self._entered

    def _run(
        self, x: Tensor, program: Program, run: Pass, through: Callable[[Dense], Tensor], first: int = 0
    ) -> Tensor:
        """The dense layers on rows x, which begin with this worker's row `first`."""
        there = [name for name in EDGE_ARGUMENTS if getattr(program.graph, name, None) is not None]
        given: dict[str, Tensor] = {name: Handle.of(name) for name in there}
        if (features := getattr(program.graph, FEATURES, None)) is not None:
            given[ATTRIBUTES] = Handle.of(FEATURES, columns=features.shape[1])
        some = slice(first, first + len(x))
        kinds = types_of(program)
        if kinds is not None:
            given["node_type"] = Rows.of(kinds[some].long(), 0, run)

        def enter(step: Step) -> Tensor:
            return Rows.of(x if self._enter is None else self._enter(step)[some], 0, run)

        def sends(relations: int) -> Tensor:
            return self._shares(relations, program)[some].to(x.dtype)

        around = Surroundings(through, enter, sends)
        return self.model.run(Rows.of(x, 0, run), Handle.of("edge_index"), given, around)

    def _shares(self, relations: int, program: Program) -> Tensor:
        """Of own vertices, the shares of relations that they send along; made once."""
        if relations not in self._sends:
            assert program.graph is not None
            layer = _sliced(program)
            lists = EdgeLists(layer.here.block.indptr, layer.here.block.src)
            self._sends[relations] = Coefficients(program.graph, layer.span, program.comm, lists).sends(relations)
        return self._sends[relations]

    def _some_at_a_time(self, x: Tensor, program: Program, run: Pass) -> Dense:
        """The dense layers' results for all rows, of which nothing is kept."""
        last: list[Dense] = []

        def make(first: int, end: int) -> tuple[Tensor, ...]:
            part = Pass([end - first], [program.keys[0][first:end]], run.key)
            dense = self._dense(x[first:end], program, part, first)[0]
            run.dropouts, last[:] = part.dropouts, [dense]
            return dense.tensors()

        found = again(make, len(x), max(self.fit.at_once, 1), self.model)
        return last[0].made_of(found)

    def _dense(self, x: Tensor, program: Program, run: Pass, first: int = 0) -> tuple[Dense, bool]:
        """What the dense layers make of some rows; and whether what comes of their mixing is the model's result."""
        caught: list[tuple[Dense, Tensor]] = []

        def catch(dense: Dense) -> Tensor:
            caught.append((dense, dense.whole(dense.by_head())))
            return caught[-1][1]

        out = self._run(x, program, run, catch, first)
        dense, unmixed = caught[0]
        return dense.made_of(map(without_depth, dense.tensors())), out is unmixed

    def _for(self, program: Program, x: Tensor) -> tuple[Course, Coefficients]:
        """What is made once for a program, and for those that differ in what becomes of its rows alone."""
        if self._made is None or self._made[0] is not program.layers:
            self.close()
            self._entered, self._enter, self._sends = None, None, {}
            self._made = program.layers, *self._make(program, x)
        return self._made[1:]

    def _make(self, program: Program, x: Tensor) -> tuple[Course, Coefficients]:
        layer, graph = _sliced(program), program.graph
        assert graph is not None
        block, slices, files = layer.here.block, layer.span, zeros_in_file
        lists = EdgeLists(block.indptr, block.src)
        chunks = len(slices.chunks) - 1
        count = ROUNDS if chunks == 1 and self._ahead is not None else chunks
        in_files = Coefficients(graph, slices, program.comm, lists, files)

        def rounds(of: EdgeLists) -> Rounds:
            return Rounds(of, slices.bounds, slices.rank, count)

        @cache
        def range_bytes(number: int) -> int:
            both = (Rounds(of, slices.bounds, slices.rank, number) for of in (lists, in_files.turned))
            return max(resident(of, sizes.width, sizes.number) for of in both)

        sizes = self._sizes(program, x)
        in_pieces = self._budget is not None and self._ends_with_mixing(x, program)
        found = memory.fit(sizes, self._budget, count, in_pieces, range_bytes)
        wanted = 0.0 if found else memory.least(sizes, count, in_pieces, range_bytes)
        fit = memory.fitting(found, self._budget, max(program.comm.each(wanted)))
        count = int(max(program.comm.each(fit.rounds)))
        self.fit = replace(fit, rounds=count)
        self.needs = memory.needs(sizes, self.fit, range_bytes(count) if fit.mapped else 0)
        stay = [x, *self.model.parameters(), *self.model.buffers()]
        self._spilled = Spilled(stay) if fit.activations == "files" else None
        coefficients = in_files if fit.mapped else Coefficients(graph, slices, program.comm, lists)
        self._background = Background(program.comm, self._ahead, self._meter)
        turned = lambda: rounds(coefficients.turned)  # noqa: E731 - made when it is needed first: evaluation needs none
        return Course(rounds(lists), turned, self._background, files if fit.mapped else None), coefficients

    def _sizes(self, program: Program, x: Tensor) -> memory.Sizes:
        layer = _sliced(program)
        counts = layer.here.block.num_src, layer.here.block.num_edges, len(x), layer.span.size
        values = bool(edge_arrays(program.graph))
        return sizes_of(self.model, counts, x.shape[1], x.element_size(), values, self._kept_a_row(program, x))

    def _kept_a_row(self, program: Program, x: Tensor) -> int:
        """Bytes that the dense layers keep for the gradient of a row."""
        some = x[:_SAMPLE]
        if not len(some):
            return 0
        run = Pass([len(some)], [program.keys[0][: len(some)]], ())
        stay = [x, *self.model.parameters(), *self.model.buffers()]
        with state_kept(self.model), generators_kept(), torch.enable_grad():
            kept = kept_by(lambda: self._dense(some, program, run), stay)
        return -(-kept // len(some))

    def _ends_with_mixing(self, x: Tensor, program: Program) -> bool:
        """Are the mixed rows the model's results, and do its dense layers take each row by itself?"""
        if not by_rows(self.model):
            return False
        try:
            check_rows(self.model.model, x.shape[1], several=True)  # nor may numbers be drawn for all rows at once
        except ModelError:
            return False
        with state_kept(self.model), generators_kept(), torch.no_grad():
            run = Pass([0], [program.keys[0][:0]], ())
            return self._dense(x[:0], program, run)[1]


def sizes_of(
    model: Decoupled, counts: tuple[int, int, int, int], inputs: int, number: int, values: bool, kept: int = 0
) -> memory.Sizes:
    """What memory depends on. `counts`: vertices, edges, a worker's own vertices, and workers; `number`: bytes of one.

    `values`: have edges some? `kept`: bytes that dense layers keep a row.
    """
    vertices, edges, own, workers = counts
    matrices = [p for p in model.parameters() if p.dim() == 2]
    epsilons = [getattr(module, "eps", None) for module in model.modules()]
    return memory.Sizes(
        vertices=vertices,
        edges=edges,
        own=own,
        workers=workers,
        inputs=inputs,
        columns=model.columns,
        apart=model.heads,
        averaged=model.averaged,
        widest=max((len(p) for p in matrices), default=model.columns),
        kept=kept,
        depth=model.depth,
        number=number,
        values=values,
        attention=model.attentions,
        dropped=sum(conv.heads for conv in model.modules() if isinstance(conv, GATConv) and conv.dropout),
        relations=sum({conv.num_relations for conv in model.modules() if isinstance(conv, RGCNConv)}),
        mixed_inputs=model.enters,
        beside=not model.kinds.isdisjoint({"mean", "attention", "relations"}),
        learned="attention" in model.kinds or any(isinstance(e, Tensor) and e.requires_grad for e in epsilons),
    )


def forward_of(model: nn.Module, width: int) -> BlockModel | DecoupledModel:
    """The forward of a model whose inputs have so many columns: a function of them and this worker's program."""
    return DecoupledModel(model) if isinstance(model, Decoupled) else BlockModel(model, width)


def _sliced(program: Program) -> SliceLayer:
    """The layer that says whose rows and columns are whose."""
    layer = program.layers[0]
    assert isinstance(layer, SliceLayer), "decoupled models run on slices"
    return layer


def _mixed(dense: Dense, course: Course, coefficients: Coefficients, run: Pass) -> list[Tensor]:
    """The rows after all steps, by head. All workers call it, and go backward, together."""
    return [
        propagate(rows.contiguous(), course, mixes) if mixes else rows
        for rows, mixes in zip(dense.by_head(), coefficients.mixes(dense, run), strict=True)
    ]
