"""Running an unchanged PyG model on a batch's blocks."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.nn.binding import EDGE_ARGUMENTS, Handle, call_model
from weft.nn.call import Call
from weft.nn.conv import BlackBox, convolution_of, convolve
from weft.nn.rows import Pass, Rows
from weft.placements import Program
from weft.sampling import Sample


class BlockModel:
    """A model as a function of a batch: `rows of the inputs, program -> rows of the seeds`.

    The module is used as it is: the same parameters, the same forward, hooks and state_dict. Each convolution runs on the
    block of its depth; everything else sees ordinary rows.
    """

    def __init__(self, model: nn.Module, width: int | None = None) -> None:
        self.model, self._width = model, width  # of the inputs; None: as the model's first layer says
        _check(model)

    def __call__(self, x: Tensor, batch: Program | Sample, key: int | None = None) -> Tensor:
        """The model's rows for the seeds; `key` is the batch's key, from which dropout is drawn."""
        program = Program.of(batch) if isinstance(batch, Sample) else batch
        run = Pass(program.sizes, program.keys, key, program.descend)

        def on_block(conv: MessagePassing, rows: Rows, given: dict[str, Any]) -> Rows:
            if rows.depth >= len(program.layers):
                raise ModelError(_depth_message(rows.depth + 1, len(program.layers), "or more"))
            if rows.depth == 0 and not program.layers[0].whole_rows and rows.data_ptr() != x.data_ptr():
                raise ModelError(
                    "layer 1 is placed by columns, but the model changes its inputs before its first convolution: place "
                    "layer 1 local, pull or push"
                )
            call = make_call(conv, rows.plain(), rows.depth, program, run, given)
            return Rows.of(convolve(call), rows.depth + 1, run)

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
        boxes = {name for name, conv in convs.items() if isinstance(convolution_of(conv), BlackBox)}
        return [
            f"{name or 'model'}: {conv} ({'black box' if name in boxes else 'fast'})" for name, conv in convs.items()
        ]


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


def _check(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing) and getattr(module, "cached", False):
            raise ModelError(
                f"{name}: cached=True keeps one batch's graph for all others; build {module} with cached=False"
            )


def _depth_message(depth: int, blocks: int, more: str = "") -> str:
    return (
        f"the model is {depth} {more + ' ' if more else ''}convolutions deep, but the sample has {blocks} blocks: give one "
        f"fanout for each convolution in sequence"
    )


def _shape(out: Any) -> str:
    return f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
