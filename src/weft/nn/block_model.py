"""Running an unchanged PyG model on a batch's blocks."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.conv import BlackBox, convolution_of, convolve
from weft.nn.convolution import Call
from weft.nn.rows import Handle, Pass, Rows
from weft.placements import Program
from weft.sampling import Sample


class BlockModel:
    """A model as a function of a batch: `rows of the inputs, program -> rows of the seeds`.

    The module is used as it is: the same parameters, the same forward, hooks and state_dict. Each convolution runs on the
    block of its depth; everything else sees ordinary rows.
    """

    def __init__(self, model: nn.Module, width: int | None = None) -> None:
        self.model, self._width = model, width  # of the inputs; None: as the model's first layer says
        convs = {name: module for name, module in model.named_modules() if isinstance(module, MessagePassing)}
        for name, conv in convs.items():
            _check(name, conv)
        self._convolutions = {conv: convolution_of(conv) for conv in convs.values()}

    def __call__(self, x: Tensor, batch: Program | Sample, key: int | None = None) -> Tensor:
        """The model's rows for the seeds; `key` is the batch's key, from which dropout is drawn."""
        program = Program.of(batch) if isinstance(batch, Sample) else batch
        run = Pass([len(vertices) for vertices in program.vertices], program.keys, key, program.descend)

        def on_block(conv: MessagePassing, rows: Rows, given: dict[str, Any]) -> Rows:
            if rows.depth >= len(program.layers):
                raise ModelError(_depth_message(rows.depth + 1, len(program.layers), "or more"))
            if rows.depth == 0 and not program.layers[0].whole_rows and rows.data_ptr() != x.data_ptr():
                raise ModelError(
                    "layer 1 is placed by columns, but the model changes its inputs before its first convolution: place "
                    "layer 1 local, pull or push"
                )
            call = make_call(conv, rows.plain(), rows.depth, program, run, given)
            return Rows.of(convolve(call, self._convolutions.get(conv)), rows.depth + 1, run)

        of_rows = _types_of(program)
        out = call_model(self.model, Rows.of(x, 0, run), on_block, _available(program), of_rows)
        if not isinstance(out, Rows):
            raise ModelError(
                f"the model's forward gave {_shape(out)} in place of a row for each vertex: pooling over vertices (or a "
                f"tuple of results) can't be trained by batches of vertices"
            )
        if out.depth != len(program.layers):
            raise ModelError(_depth_message(out.depth, len(program.layers)))
        return out.plain()

    @property
    def depth(self) -> int:
        """How many convolutions lie between inputs and outputs: the number of fanouts it needs."""
        return max(walk(self.model, self._width), default=0)

    def describe(self) -> list[str]:
        """A line for each convolution: what it is, and whether a fast path serves it."""
        convs = {name: module for name, module in self.model.named_modules() if isinstance(module, MessagePassing)}
        kinds = {conv: "black box" if isinstance(of, BlackBox) else "fast" for conv, of in self._convolutions.items()}
        return [f"{name or 'model'}: {conv} ({kinds[conv]})" for name, conv in convs.items()]


def make_call(conv: MessagePassing, x: Tensor, depth: int, program: Program, run: Pass, given: dict[str, Any]) -> Call:
    """A convolution's call on a layer; the handles among its arguments stand for that layer's edge values."""
    of_edges = {name: isinstance(given.get(name), Handle) for name in EDGE_ARGUMENTS}
    others = {name: value for name, value in given.items() if not of_edges.get(name)}
    return Call(conv, x, depth, program, run, **of_edges, others=others or None)


def walk(model: nn.Module, width: int | None = None) -> dict[int, tuple[MessagePassing, int, int]]:
    """The first convolution to each depth, with the widths of its rows going in and coming out.

    Found by a forward whose convolutions do nothing but pass their depth on.
    """
    met: dict[int, tuple[MessagePassing, int, int]] = {}
    first = next((p for p in model.parameters() if p.dim() > 1), None)
    dtype = torch.float32 if first is None else first.dtype
    run = Pass([0] * 1000, [torch.empty(0, dtype=torch.int64)] * 1000, 0)

    def count(conv: MessagePassing, rows: Rows, given: dict[str, Any]) -> Rows:
        sizes = (0, *rows.shape[1:-1], _output_width(conv, rows))
        met.setdefault(rows.depth + 1, (conv, rows.shape[-1], sizes[-1]))
        return Rows.of(torch.empty(sizes, dtype=dtype), rows.depth + 1, run)

    training = model.training
    try:
        with torch.no_grad():
            width = width or _input_width(model)
            model.eval()
            x, everything = torch.empty(0, width, dtype=dtype), dict.fromkeys(EDGE_ARGUMENTS, True)
            out = call_model(model, Rows.of(x, 0, run), count, everything, torch.empty(0, dtype=torch.int64))
    finally:
        model.train(training)
    if not isinstance(out, Rows):
        raise ModelError(f"the model's forward gave {_shape(out)} in place of a row for each vertex")
    return {depth: met[depth] for depth in range(1, out.depth + 1)}


def _input_width(model: nn.Module) -> int:
    for module in model.modules():
        width = getattr(module, "in_channels", getattr(module, "in_features", None))
        if isinstance(width, tuple):
            width = width[0]
        if isinstance(width, int) and width > 0:
            return width
    raise ModelError(
        "can't tell how many features the model takes: give its first layer in_channels or in_features, or set fanouts"
    )


def _output_width(conv: MessagePassing, rows: Rows) -> int:
    """What a convolution makes of its rows: found by running it on one vertex with a self-loop."""
    inner = type(conv).forward
    names = list(inspect.signature(inner).parameters)[3:]
    x = torch.zeros(1, *rows.shape[1:], dtype=rows.dtype)
    options: dict[str, Tensor] = {}
    if "edge_type" in names and hasattr(conv, "num_relations"):
        options["edge_type"] = torch.zeros(1, dtype=torch.int64)
    out = inner(conv, x, torch.zeros(2, 1, dtype=torch.int64), **options)
    return int(out.shape[-1])


def _available(program: Program) -> dict[str, bool]:
    return {name: getattr(program.graph, name, None) is not None for name in EDGE_ARGUMENTS}


def _types_of(program: Program) -> Tensor | None:
    """The type of each input row's vertex, where the graph knows types of vertices."""
    types = getattr(program.graph, "vertex_type", None)
    if types is None:
        return None
    inputs = program.vertices[0]
    return torch.from_numpy(types[inputs.cpu().numpy()]).to(inputs.device)


def _check(name: str, conv: MessagePassing) -> None:
    if getattr(conv, "cached", False):
        raise ModelError(f"{name}: cached=True keeps one batch's graph for all others; build {conv} with cached=False")


def _depth_message(depth: int, blocks: int, more: str = "") -> str:
    return (
        f"the model is {depth} {more + ' ' if more else ''}convolutions deep, but the sample has {blocks} blocks: give one "
        f"fanout for each convolution in sequence"
    )


def _shape(out: Any) -> str:
    return f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"


# What a convolution is given in place of the graph: (module, rows, named arguments) -> rows one deeper.
Convolve = Callable[[MessagePassing, Rows, dict[str, Any]], Rows]


EDGE_ARGUMENTS = ("edge_weight", "edge_type")


def call_model(
    model: nn.Module, x: Rows, convolve: Convolve, available: dict[str, bool], node_type: Tensor | None = None
) -> Any:
    """Run the model's forward on rows, its convolutions answered by `convolve`; `node_type`: of each row, if known."""
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, Tensor] = {
        name: Handle.of(name) for name in EDGE_ARGUMENTS if available.get(name) and name in accepted
    }
    if node_type is not None and "node_type" in accepted:
        given["node_type"] = Rows.of(node_type.long(), x.depth, x.run)
    with _bound(model, convolve):
        return model(x, Handle.of("edge_index"), **given)


def takes_types(model: nn.Module) -> bool:
    """Does the model's forward ask for the types of edges?"""
    return "edge_type" in inspect.signature(model.forward).parameters


@contextmanager
def _bound(model: nn.Module, convolve: Convolve) -> Iterator[None]:
    """While this lasts, the forward of each convolution hands over to `convolve` when it is given the handle."""
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    if not convs:
        raise ModelError(
            f"{type(model).__name__} has no MessagePassing convolution: there is nothing to run on a graph"
        )
    try:
        for conv in convs:
            conv.__dict__["forward"] = _Bound(conv, convolve)
        yield
    finally:
        for conv in convs:
            conv.__dict__.pop("forward", None)


class _Bound:
    """The forward of one convolution for one pass."""

    def __init__(self, conv: MessagePassing, convolve: Convolve) -> None:
        self._conv = conv
        self._convolve = convolve
        self._parameters = list(inspect.signature(type(conv).forward).parameters)[1:]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._parameters, args, strict=False)) | kwargs
        edge_index = next((name for name, value in given.items() if _is_edge_index(value)), None)
        if edge_index is None:  # a convolution inside another's own code, on edges that are real
            return type(self._conv).forward(self._conv, *args, **kwargs)
        del given[edge_index]
        x = given.pop(self._parameters[0])
        if isinstance(x, tuple | list) and len(x) == 2 and x[0] is x[1]:
            x = x[0]
        if not isinstance(x, Rows):
            raise ModelError(
                f"{self._conv} was called with {type(x).__name__} in place of the vertices' rows: pass it the rows that "
                f"came into the model's forward, or what row-wise operations and convolutions made of them"
            )
        return self._convolve(self._conv, x, {name: value for name, value in given.items() if value is not None})


def _is_edge_index(value: Any) -> bool:
    return isinstance(value, Handle) and value.stands_for == "edge_index"
