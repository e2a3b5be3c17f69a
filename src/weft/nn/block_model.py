"""Running an unchanged PyG model on a batch's blocks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import MaxAggregation, MeanAggregation, MessagePassing, SumAggregation

from weft.errors import ModelError
from weft.exchange import Communicator
from weft.graph import edge_arrays
from weft.meter import Meter
from weft.nn.alongside import Alongside
from weft.nn.conv.blackbox import BlackBox
from weft.nn.conv.declared import Declared, split_of
from weft.nn.convolution import Call, Convolution, does_as_its_class
from weft.nn.depths import Joined, Passage, check_can_run, edge_arguments, edge_values_there, passage, walk
from weft.nn.forwards import of_edges, of_vertices
from weft.nn.handles import EDGE_ARGUMENTS, Handle
from weft.nn.kept_state import plain_state
from weft.nn.rows import Pass, call_model, is_foreign
from weft.nn.serving import serving
from weft.placements import Program
from weft.sampling import Sample, Topology

_AGGREGATIONS = {"add": SumAggregation, "sum": SumAggregation, "mean": MeanAggregation, "max": MaxAggregation}
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "update", "edge_update")
_HOOKS = [f"_{step}_forward{when}_hooks" for step in _STEPS for when in ("", "_pre")]


class BlockModel:
    """A model as a function of a batch: `rows of the inputs, program -> rows of the seeds`.

    The module is used as it is: the same parameters, the same forward, hooks and state_dict. Each convolution runs on the
    block of its depth; everything else sees ordinary rows.
    """

    def __init__(self, model: nn.Module, width: int | None = None) -> None:
        """`width`: of the inputs; None: as the model's first layer says."""
        check_can_run(model)
        self.model, self.kind, self._width = model, type(model).__name__, width
        convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
        self._convolutions = {conv: convolution_of(conv) for conv in convs}
        self._graph: object = None  # that was run on last, and whether it has values of edges
        self._has_values = False
        self._passage: tuple[list[bool], list[object], Passage] | None = None  # with what was learned and kept then

    def __call__(self, x: Tensor, batch: Program | Sample, key: tuple[int, ...] | None = None) -> Tensor:
        """The model's rows for the seeds; `key`: the parts of the batch's key, from which dropout is drawn."""
        program = Program.of(batch) if isinstance(batch, Sample) else batch
        layers, graph = program.layers, program.graph
        run = Pass([len(vertices) for vertices in program.vertices], program.keys, key, program.descend)
        run.sliced = not layers[0].whole_rows
        travel = layers[0].crosses and program.comm.size > 1 and torch.is_grad_enabled()
        expected = self._look_ahead() if travel and not x.requires_grad else None

        def on_block(conv: MessagePassing, rows: Tensor, depth: int, given: dict[str, object]) -> Tensor:
            if depth >= len(layers):
                raise ModelError(_depth_message(depth + 1, len(layers), "or more"))
            if not depth and expected is not None:
                rows = self._learned_alike(rows, expected)
            return convolve(conv, rows, depth, program, run, given, self._convolutions.get(conv))

        if graph is not self._graph:
            self._graph, self._has_values = graph, bool(edge_arrays(graph))
        available = edge_values_there(self.model, self._width, graph) if self._has_values else {}
        out, depth = call_model(self.model, x, run, on_block, available, types_of(program))
        if depth != len(layers):
            raise ModelError(_depth_message(depth, len(layers)))
        return out

    def _look_ahead(self) -> Passage:
        """How rows go through the model; looked at again where other parameters are learned."""
        learned = [parameter.requires_grad for parameter in self.model.parameters()]
        if self._passage is None or self._passage[0] != learned:
            found = passage(self.model, self._width)
            self._passage = learned, self._kept(), found
        return self._passage[-1]

    def _kept(self) -> list[object]:
        """What the model keeps, as far as it tells that it has gone on."""
        return [*plain_state(self.model), *(buffer._version for buffer in self.model.buffers())]

    def _learned_alike(self, rows: Tensor, expected: Passage) -> Tensor:
        """Rows of the first convolution that gradients go back to on all workers or on none: what is sent hangs on it."""
        if rows.requires_grad == (0 in expected.learned) or not expected.known:
            return rows
        if not rows.requires_grad:
            return rows.detach().requires_grad_()
        if self._passage is not None and self._passage[1] != self._kept():  # so it may have changed on all workers
            self._passage = None
            return rows
        raise ModelError(
            f"{self.kind} computes with parameters before its first convolution for some rows alone, so that workers "
            f"without such rows would not send the same: let it do so for all, as in x = torch.where(mask, learned, x)"
        )

    @property
    def depth(self) -> int:
        """How many convolutions lie between inputs and outputs: the number of fanouts it needs."""
        return len(walk(self.model, self._width))

    def edge_arguments(self) -> set[str]:
        """Which values of edges its convolutions are given."""
        return edge_arguments(self.model, self._width)

    def use(self, background: Communicator | None, meter: Meter, budget: float | None) -> None:
        """Get ready for another plan. `background`: for exchanges that go on meanwhile. `budget`: bytes of an epoch."""

    def close(self) -> None:
        """End its threads."""

    def kinds(self) -> list[str]:
        """A line for each convolution: what it is, and whether a fast path serves it."""
        convs = {name: module for name, module in self.model.named_modules() if isinstance(module, MessagePassing)}
        kinds = {conv: "black box" if isinstance(of, BlackBox) else "fast" for conv, of in self._convolutions.items()}
        return [f"{name or 'model'}: {conv} ({kinds[conv]})" for name, conv in convs.items()]

    def describe(self) -> str:
        """The layers, in words, and how many have fast paths."""
        kinds = self.kinds()
        others = sum(not line.endswith("(fast)") for line in kinds)
        return f"{self.depth} layers ({len(kinds) - others} fast{f', {others} as black boxes' if others else ''})"


def convolve(
    conv: MessagePassing,
    x: Tensor,
    depth: int,
    program: Program,
    run: Pass,
    given: dict[str, object],
    known: Convolution | None = None,
) -> Tensor:
    """The rows of the layer's destinations, by the convolution that serves the module, which may be known already.

    The handles among what the module is given stand for that layer's edge values.
    """
    if x.is_cpu and torch.is_autocast_enabled("cpu"):
        raise ModelError("kernels on the CPU compute in the model's own type: leave out torch.autocast")
    layer, convolution = program.layers[depth], known or convolution_of(conv)
    if known is not None and not isinstance(known, BlackBox) and _has_steps_of_its_own(conv):
        raise ModelError(
            f"{conv} was given hooks of its message passing, or steps of its own, after weft.parallel: call that again"
        )
    handles = {name: value for name in EDGE_ARGUMENTS if isinstance(value := given.get(name), Handle)}
    as_they_are = {name for name, value in handles.items() if value.is_plainly(name, convolution.takes_columns)}
    weight, types = (name in as_they_are for name in EDGE_ARGUMENTS)
    others = {name: value for name, value in given.items() if name not in as_they_are | convolution.ignores}
    served = (
        others.keys() == convolution.alongside
        and (types == convolution.typed or convolution.ignores_types)
        and weight <= convolution.weighted
    )
    if not served and not isinstance(convolution, BlackBox):
        convolution = BlackBox.instead_of(convolution)
    if program.graph is not None:
        _check_foreign(conv, others, program.graph)
    if layer.here.drawn is not None:
        _check_adds_up(convolution)
    out = convolution.run(Call(conv, x, depth, layer, program, run, weight, types, others))
    if len(out) != layer.num_dst:
        raise ModelError(f"{conv} gave {len(out)} rows for {layer.num_dst} vertices: one row each is needed")
    return out


def _check_foreign(conv: MessagePassing, given: Mapping[str, object], graph: Topology) -> None:
    """Refuse values that a model holds of each edge, or vertex, whose order is another one here; unless all are alike."""
    for name, value in given.items():
        if not is_foreign(value):
            continue
        each_edge, renumbered = len(value) == len(graph.indices), graph.original_ids is not None
        each_vertex = renumbered and len(value) == len(graph.indptr) - 1
        if (each_edge or each_vertex) and not bool((value == value[:1]).all()):
            raise ModelError((of_edges if each_edge else of_vertices)(f"{conv} is given {name}", value))


def convolution_of(conv: MessagePassing) -> Convolution:
    """How a module runs: as it declares, as the convolution that serves it does, or as a black box."""
    if split_of(conv) is not None:
        return Declared(conv)
    kind = serving(conv)
    return kind(conv) if kind is not None and as_its_class(conv) and kind.serves(conv) else BlackBox(conv)


class Met(NamedTuple):
    """A convolution of a model, with the widths of its rows going in and coming out."""

    convolution: Convolution
    wide: int
    out: int
    learned: bool = True  # do gradients go on from it?
    joined: Sequence[Joined] = ()  # rows from before it that are joined with those behind it
    alongside: Mapping[str, Alongside] = MappingProxyType({})  # other rows that it is given, among its own
    of_edges: Mapping[str, Handle] = MappingProxyType({})  # features of edges that it is given, or weights as such
    dtype: torch.dtype = torch.float32  # of its rows


def dtype_of(model: nn.Module) -> torch.dtype:
    """The type of a model's numbers."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def convolutions(model: nn.Module, width: int | None = None) -> list[Met]:
    """How a model's convolutions run, that nearest the inputs first: of each depth the first one."""
    dtype, found = dtype_of(model), list[Met]()
    for conv, depth, wide, out, alongside, handles in walk(model, width):
        of_edges = {name: handle for name, handle in handles.items() if handle.dim() == 2 or handle.column}
        found.append(Met(convolution_of(conv), wide, out, depth > 1, (), alongside, of_edges, dtype))
    return found


def as_its_class(conv: MessagePassing) -> bool:
    """Has it no options or hooks that change its message passing?"""
    plain = conv.flow == "source_to_target" and not conv.explain and conv.decomposed_layers == 1
    return plain and _aggregates_as_it_says(conv) and not _has_steps_of_its_own(conv)


def _aggregates_as_it_says(conv: MessagePassing) -> bool:
    """Or was its aggregation replaced, or what it says of it?"""
    wanted = _AGGREGATIONS.get(conv.aggr) if isinstance(conv.aggr, str) else None
    return wanted is None or (type(conv.aggr_module) is wanted and does_as_its_class(conv.aggr_module))


def _has_steps_of_its_own(conv: MessagePassing) -> bool:
    """Does a step of its message passing have hooks, or is one replaced on the module itself?"""
    of_module = vars(conv)
    return any(of_module.get(name) for name in _HOOKS) or any(step in of_module for step in _STEPS)


def check_adds_up(model: nn.Module) -> None:
    """Refuse a model with a convolution that does not sum (or average) edges that can be weighed."""
    for conv in model.modules():
        if isinstance(conv, MessagePassing):
            _check_adds_up(convolution_of(conv))


def _check_adds_up(convolution: Convolution) -> None:
    if not convolution.adds_up:
        raise ModelError(
            f"{convolution.conv} can't be sampled layer by layer, for its edges don't just add up: set sampler = 'labor' "
            f"(or 'neighbor'), or use SAGEConv (mean or sum), GCNConv, GINConv or a declared split (docs/models.md)"
        )


def drops_edges(model: nn.Module) -> bool:
    """May any of its convolutions drop edges in training?"""
    return any(convolution_of(conv).drops_edges for conv in model.modules() if isinstance(conv, MessagePassing))


def types_of(program: Program) -> Tensor | None:
    """The type of each input row's vertex, where the graph knows types of vertices."""
    types = getattr(program.graph, "vertex_type", None)
    if types is None:
        return None
    return program.from_host(lambda program: torch.from_numpy(types[program.vertices[0].numpy()]))


def _depth_message(depth: int, blocks: int, more: str = "") -> str:
    if not depth:
        return "the model runs no convolution in training mode, so there is nothing to train on a graph's edges"
    return (
        f"the model is {depth} {more + ' ' if more else ''}convolutions deep, but the sample has {blocks} blocks: give one "
        f"fanout for each convolution in sequence"
    )
