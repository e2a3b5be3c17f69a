"""A convolution that declares nothing: its own forward, where whole neighbourhoods meet."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError, reason_of
from weft.keys import generator
from weft.nn import functional
from weft.nn.alongside import own_forward
from weft.nn.conv.relations import check_types
from weft.nn.convolution import Call, Convolution
from weft.nn.depths import by_itself, in_mode
from weft.nn.handles import ATTRIBUTES, Handle
from weft.nn.kept_state import state_kept
from weft.nn.row_by_row import LeftOut, other_parameters
from weft.nn.rows import by_running_averages
from weft.nn.small_graph import alike
from weft.operations import Draws
from weft.placements import Edges, Merge, SplitLayer
from weft.sampling import Block

_TRIED = 8  # vertices of the graph on which a module is tried
_GIVE_EDGES = "give such vertices an edge (`weft import --self-loops add`; --self-relation, where edges have types)"
_JOINING = (torch.cat, torch.concat, torch.concatenate, torch.hstack)


class BlackBox(Convolution):
    """Any MessagePassing class, as it is: on the block as a square graph whose first vertices are the destinations.

    A block has the edges of its destinations only, so the module may look at no others. That is tried once.
    """

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self._looked = self._numbers_lone = False

    def run(self, call: Call) -> Tensor:
        return call.layer.merge(_OwnForward(call, self._check), call.x)

    def _check(self, block: Block, x: Tensor, options: dict[str, object]) -> None:
        """Refuse a module that looks at edges of sources, unless these are all there: in blocks of a whole graph.

        And one that treats vertices without edges by their numbers, as loops up to the last edge do, where there are any.
        """
        if block.num_src == block.num_dst or not block.num_edges:
            return
        if not self._looked:
            self._look(block, x, options)
            self._looked = True
        if self._numbers_lone and bool((block.indptr.diff() == 0).any()):
            raise ModelError(
                f"{self.conv} gives a vertex without in-edges another row where vertices of higher numbers have edges, and "
                f"batches number vertices otherwise: {_GIVE_EDGES}"
            )

    def _look(self, block: Block, x: Tensor, options: dict[str, object]) -> None:
        alone = _looks_at_own_edges(self.conv, block, x, options)
        # What is multiplied by nought at first is learned; but with other parameters, or in training, it may not run so.
        with other_parameters(self.conv), suppress(Exception):
            alone = alone and all(
                _looks_at_own_edges(self.conv, block, x, options, training) for training in (False, True)
            )
        if not alone:
            raise ModelError(
                f"{self.conv} looks further than at the edges of each vertex (at more hops, at neighbours' degrees, at all "
                f"rows or edges at once, or at the numbers of vertices), which batches don't have, nor one worker of "
                f"several: set full_graph = true with one worker, or build it of one hop without normalisation; GCNConv "
                f"knows degrees"
            )
        with suppress(Exception):  # what fails on vertices without edges is told of where they are met
            self._numbers_lone = not _looks_at_own_edges(self.conv, block, x, options, lone=True)


def _looks_at_own_edges(
    conv: MessagePassing,
    block: Block,
    x: Tensor,
    options: dict[str, object],
    training: bool = False,
    lone: bool = False,
) -> bool:
    """Does a vertex get the same from a module, whether other vertices, and edges to these, are there or not?

    Nor may it matter in which order vertices are numbered, which on a block is another one. Tried on a ring of a few
    vertices with random rows, as wide as those of a block; what edges and rows come with is taken from there, too. The
    others have more edges, and there may be some without any; `lone`: the last one of a few has none. In training dropout
    and batch normalisation are left out, and one that draws other random numbers is not told of.
    """
    vertices, half = torch.arange(_TRIED), _TRIED // 2
    dst = vertices.repeat_interleave(torch.where(vertices < half, 2, 3))
    src = torch.cat([(vertices[:half, None] + torch.tensor([1, 3])).ravel(), torch.arange(3 * half) * 3 + 1]) % _TRIED
    edge_index = torch.stack([src, dst]).to(x.device)
    rows = torch.from_numpy(generator(0).standard_normal((2 * _TRIED, *x.shape[1:]))).to(x)

    def forward(count: int, edges: Tensor, backwards: bool = False) -> Tensor | None:
        at = torch.arange(count, device=x.device)  # of each vertex; and the vertex at each place, if backwards
        at = at.flip(0) if backwards else at
        ends = at[edges]
        by_destination = ends[1].argsort(stable=True)

        def part(value: object) -> object:
            if not isinstance(value, Tensor) or not value.dim() or len(value) not in (block.num_edges, len(x)):
                return value
            chosen = by_destination if len(value) == block.num_edges else at
            return value[chosen.to(value.device) % len(value)]

        given = {name: part(value) for name, value in options.items()}
        out = own_forward(conv, rows[:count][at], ends[:, by_destination], given)
        return out[at][:half] if isinstance(out, Tensor) else None  # what is no tensor is refused in a batch

    left_out = LeftOut(F.batch_norm, F.dropout) if training else nullcontext()
    with torch.no_grad(), in_mode(conv, training), state_kept(conv), Draws() as drawn, left_out:
        if lone:
            own = torch.tensor([[0, 1, 2], [1, 2, 0]], device=x.device)
            alone, *beside = forward(half, own), forward(_TRIED, torch.cat([own, own + half], 1))
        else:
            own = edge_index[:, : 2 * half]
            alone, *beside = (
                forward(_TRIED, own),
                forward(_TRIED, edge_index),
                forward(2 * _TRIED, own),
                forward(_TRIED, edge_index, backwards=True),
            )
    if alone is None or (training and drawn.shapes):
        return True
    return all(other is not None and alike(alone, other) for other in beside)


class _OwnForward(Merge):
    """The module's own forward on whole lists; parts can't be joined."""

    def __init__(self, call: Call, check: Callable[[Block, Tensor, dict[str, object]], None]) -> None:
        self._call, self._check = call, check

    def __str__(self) -> str:
        return str(self._call.conv)

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (self.whole(edges, sources),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        raise AssertionError("black boxes have no parts")

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        """Refused: what it makes of a part of a list means nothing."""
        call = self._call
        raise ModelError(
            f"{call.conv} has no known split, so layer {call.depth + 1} can't be pushed: place it local or pull, where "
            f"whole neighbourhoods meet, or declare its split (docs/models.md)"
        )

    def _of_edges(self, handle: Handle, block: Block) -> Tensor:
        """What a handle stands for, by another name than the graph's; numbers are of the model's type."""
        values = handle.shaped(self._call.program.edge_values(handle.stands_for, block))
        return values.to(self._call.x.dtype) if values.is_floating_point() else values

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        """The module's forward, its dropout keyed."""
        call, block = self._call, edges.block
        edge_index = torch.stack([block.src.long(), block.dst().long()])
        options = {
            name: self._of_edges(value, block) if isinstance(value, Handle) else value
            for name, value in call.others.items()
        }
        if call.edge_weight:
            options["edge_weight"] = call.weights(edges)
        if call.edge_type:
            options["edge_type"] = types = call.types(block).long()
            if isinstance(relations := getattr(call.conv, "num_relations", None), int):
                check_types(types, relations)
        if len(sources) == block.num_edges:  # one row more, so that rows and edges are told apart by how many they are
            sources = _with_another(sources)
            for name, value in call.others.items():
                if isinstance(value, Tensor) and not isinstance(value, Handle | nn.Parameter):
                    options[name] = _with_another(value) if len(value) == block.num_src else value
        with self._named(block):
            self._check(block, sources, options)
            with _OnBlock(call, block, len(sources)):
                out = own_forward(call.conv, sources, edge_index, options)
        if not isinstance(out, Tensor) or len(out) != len(sources):
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ModelError(
                f"{call.conv} gave {got} for {len(sources)} vertices: a convolution must give one row a vertex"
            )
        return out[: block.num_dst]

    @contextmanager
    def _named(self, block: Block) -> Iterator[None]:
        """Some fail on vertices without edges, or without values of edges, by errors that don't say so."""
        try:
            yield
        except (AssertionError, AttributeError, TypeError) as error:
            if (lacking := self._lacking(reason_of(error))) is None:
                raise
            raise ModelError(f"{self._call.conv} {lacking}") from error
        except (IndexError, RuntimeError) as error:
            alone = int((block.indptr.diff() == 0).sum())
            handles = [value for value in self._call.others.values() if isinstance(value, Handle)]
            if any(not handle.column for handle in handles):
                raise ModelError(
                    f"{self._call.conv} failed on a batch, with values of edges that are one number each "
                    f"({reason_of(error)}): if it takes a row of each edge, give it edge_weight.view(-1, 1)"
                ) from error
            if not alone:
                raise
            raise ModelError(
                f"{self._call.conv} failed on a batch in which {alone:,} vertices have no in-edges ({reason_of(error)}): "
                f"take an aggregation that can do without, or {_GIVE_EDGES}"
            ) from error

    def _lacking(self, reason: str) -> str | None:
        """What values of edges it takes and was not given, and what to do; None: it has all."""
        call = self._call
        if not call.edge_type and hasattr(call.conv, "num_relations"):
            return (
                "was called without edge_type: let the model's forward take it, as in forward(self, x, edge_index, "
                "edge_type), and hand it on; the graph's edges need types (`weft import --type`)"
            )
        takes = inspect.signature(type(call.conv).forward).parameters.keys() - call.others.keys()
        name = next((name for name in (ATTRIBUTES, "edge_weight") if name in takes), None)
        if name is None or call.edge_weight:
            return None
        values = Handle.of("edge_weight", column=name == ATTRIBUTES)
        if by_itself(call.conv, call.x.new_zeros(1, call.x.shape[1]), call.others | {name: values}) is None:
            return None
        if getattr(call.program.graph, "edge_weight", None) is None:
            return (
                f"failed without {name} ({reason}), and the graph's edges have no weights: import some (`weft import "
                f"--weight`), or build it so that it needs none (edge_dim=None)"
            )
        return f"failed without {name} ({reason}): let the model's forward take {name}, and hand it on"


def _with_another(rows: Tensor) -> Tensor:
    """One row more, also where there is none: a worker may have no destinations in a batch."""
    return torch.cat([rows, rows[:1] if len(rows) else rows.new_zeros(1, *rows.shape[1:])])


class _OnBlock(TorchFunctionMode):
    """Functions inside a black box whose result hangs on which rows there are.

    Dropout is keyed: by vertex where a tensor has a row a vertex, by edge where a row an edge, with or without loops that
    were added as PyG adds them; other shapes are left to torch, whose generator the trainer seeds for each batch. Batch
    normalisation takes the statistics of the destinations.
    """

    def __init__(self, call: Call, block: Block, rows: int) -> None:
        super().__init__()
        self._call, self._block, self._rows = call, block, rows
        self._joined: Tensor | None = None  # the last list of edges that was put together

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        out = func(*args, **kwargs)
        if func in _JOINING and out.shape[:1] == (2,) and out.dtype == torch.int64:
            self._joined = out
        return out

    def _batch_norm(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Sources that are no destinations lack their neighbours, and may be elsewhere too: they don't count."""
        given = inspect.signature(F.batch_norm).bind(x, *args, **kwargs)
        given.apply_defaults()
        count = self._block.num_dst if len(x) == self._rows else len(x)
        if count == 1:
            args, kwargs = by_running_averages(x, *args, **kwargs)
            return F.batch_norm(*args, **kwargs)
        if count == len(x) or not given.arguments["training"]:
            return F.batch_norm(x, *args, **kwargs)
        own = F.batch_norm(x[:count], *args, **kwargs)
        over = [0, *range(2, x.dim())]
        var, mean = torch.var_mean(x[:count], over, correction=0, keepdim=True)
        others = (x[count:] - mean) * torch.rsqrt(var + given.arguments["eps"])
        weight, bias = given.arguments["weight"], given.arguments["bias"]
        others = others if weight is None else others * weight.view(mean.shape)
        return torch.cat([own, others if bias is None else others + bias.view(mean.shape)])

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        call = self._call
        if not training or p == 0:
            return x
        keys = self._keys(x) if call.run.keys else None
        if keys is None:
            return torch.dropout(x, p, True)
        return functional.dropped(x, p, keys, call.run.next_dropout(), inplace)

    def _keys(self, x: Tensor) -> Tensor | None:
        """What names the edge, the vertex or the added loop of each row, the same on any worker; None: it can't be told."""
        if self._joined is not None and len(x) == self._joined.shape[1]:
            return self._keys_with_loops(self._joined)
        if len(x) == self._block.num_edges:
            return self._edge_keys()
        return self._row_keys() if len(x) == self._rows else None

    def _keys_with_loops(self, joined: Tensor) -> Tensor | None:
        """Of the block's edges, all or those that are no loops, and then a loop for each row."""
        block, rows = self._block, self._rows
        edges, loops = joined[:, : joined.shape[1] - rows], joined[:, -rows:]
        all_edges = torch.stack([block.src.long(), block.dst().long()])
        every = torch.arange(rows, device=all_edges.device).expand(2, rows)
        if not torch.equal(loops, every):
            return None
        for kept in (torch.ones_like(all_edges[0], dtype=torch.bool), all_edges[0] != all_edges[1]):
            if torch.equal(edges, all_edges[:, kept]):
                of_loops = functional.edge_keys(self._row_keys(), every[0], torch.full_like(every[0], -1))
                return torch.cat([self._edge_keys()[kept], of_loops])
        return None

    def _edge_keys(self) -> Tensor:
        block = self._block
        return functional.edge_keys(self._call.run.keys[self._call.depth + 1], block.dst(), block.places())

    def _row_keys(self) -> Tensor:
        keys = self._call.program.source_keys(self._call.depth)
        return keys if len(keys) == self._rows else _with_another(keys)
