"""A convolution that declares nothing: its own forward, where whole neighbourhoods meet."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import AllRowsError, ModelError, WeftError, reason_of
from weft.keys import generator
from weft.nn.alongside import own_forward
from weft.nn.batch_norm import by_running_averages
from weft.nn.conv.relations import check_types
from weft.nn.convolution import Call, Convolution
from weft.nn.depths import by_itself
from weft.nn.dropout import DROPOUTS, OtherDropout, dropped, edge_keys
from weft.nn.forwards import of_edges
from weft.nn.handles import ATTRIBUTES, EDGE_ARGUMENTS, Handle
from weft.nn.row_by_row import Left, keeps_of_rows, left_by, left_otherwise, on_trial, tried_again
from weft.nn.rows import is_foreign
from weft.nn.small_graph import alike
from weft.nn.surroundings import surroundings
from weft.placements import Edges, Merge, SplitLayer
from weft.sampling import Block

_GIVE_EDGES = "give such vertices an edge (`weft import --self-loops add`; --self-relation, where edges have types)"
_JOINING = (torch.cat, torch.concat, torch.concatenate, torch.hstack)


class BlackBox(Convolution):
    """Any MessagePassing class, as it is: on the block as a square graph whose first vertices are the destinations.

    A block has the edges of its destinations only, so the module may look at no others. That is tried once, with what it
    is given.
    """

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__(conv)
        self._further = dict[object, bool]()  # does it look at edges of sources? By what it is given, once tried
        self._numbers_lone = False
        self._whole = set[int]()  # numbers of edges of whole graphs that it was looked at on

    @classmethod
    def instead_of(cls, other: Convolution) -> Convolution:
        """The same module as it is, where the other one does not serve: always the same, so that it is tried once."""
        if other.as_it_is is None:
            other.as_it_is = cls(other.conv)
        return other.as_it_is

    def run(self, call: Call) -> Tensor:
        return call.layer.merge(_OwnForward(call, partial(self._looks_on, call)), call.x)

    def _looks_on(self, call: Call, block: Block, x: Tensor, options: Callable[[], dict[str, object]]) -> bool:
        """Does a module look at edges of sources, too, and are these not all there, as in blocks of a whole graph?

        Refused: one that looks further; or treats vertices without edges by their numbers, as loops up to the last edge
        do, where there are any.
        """
        graph = call.program.graph
        kinds, vertices = getattr(graph, "num_edge_types", 1), getattr(graph, "num_vertices", block.num_dst)
        whole = block.num_src == block.num_dst and (block.num_dst == vertices or not _has_lone(block))
        if whole or not block.num_edges:
            if block.num_edges not in self._whole:
                self._check_held(block, lambda: _OnFew(self.conv, block, x, options(), kinds).is_of_edges(_OWN))
                self._whole.add(block.num_edges)
            return False
        given = frozenset(call.others), call.edge_weight, call.edge_type
        if given not in self._further:
            self._further[given] = self._looked(_OnFew(self.conv, block, x, options(), kinds))
        if self._numbers_lone and _has_lone(block):
            raise AllRowsError(
                f"{self.conv} gives a vertex without in-edges another row where vertices of higher numbers have edges, and "
                f"batches number vertices otherwise",
                _GIVE_EDGES,
            )
        return self._further[given]

    def _check_held(self, block: Block, tried: Callable[[], bool]) -> None:
        """Refuse values of each edge that it holds: it has as many numbers as there are edges, and fails on fewer edges."""
        conv, attributes = self.conv, (named for module in self.conv.modules() for named in vars(module).items())
        for name, value in (*conv.named_parameters(), *conv.named_buffers(), *attributes):
            if not (is_foreign(value) and len(value) == block.num_edges) or bool((value == value[:1]).all()):
                continue
            try:
                tried()
            except WeftError:  # of what the whole graph is no matter for
                return
            except Exception as error:
                raise ModelError(of_edges(f"{conv} holds {name}", value)) from error

    def _looked(self, few: "_OnFew") -> bool:
        """Tried: does it look at edges of sources?"""
        further = not few.is_always_of_edges(_OWN)
        if further and not few.is_always_of_edges(_NEIGHBOURS):
            raise AllRowsError(
                f"{self.conv} looks further than at the edges of each vertex and of its neighbours (at more hops, at edges "
                f"by their sources, at all rows or edges at once, or at the numbers of vertices), which batches don't have, "
                f"nor one worker of several",
                "set full_graph = true with one worker, or build it of one hop",
            )
        with suppress(Exception):  # what fails on vertices without edges is told of where they are met
            self._numbers_lone |= not few.is_of_edges(_LONE)
        return further


def _has_lone(block: Block) -> bool:
    """Has it destinations without edges?"""
    return bool((block.indptr.diff() == 0).any())


_Pairs = tuple[tuple[int, int], ...]  # edges: source and destination


class _Trial(NamedTuple):
    """A small graph whose first vertices must get the same, whatever else there is."""

    compared: int  # vertices: the first ones
    vertices: int
    own: _Pairs  # the edges that they hang on
    others: _Pairs = ()  # that may be there too
    free: int = 0  # of the vertices, the last ones, whose rows don't matter

    def graphs(self) -> Iterator[tuple[int, _Pairs, bool, bool]]:
        """How many vertices there are, the edges, are they numbered backwards, and have the free ones other rows."""
        everything = self.own + self.others
        yield self.vertices, self.own, False, False
        yield self.vertices, everything, False, False
        yield self.vertices, (*self.own, (1, self.vertices - 1)), False, False
        yield 2 * self.vertices, self.own, False, False
        yield self.vertices, everything, True, False
        if self.free:
            yield self.vertices, everything, False, True


class _Alone(_Trial):
    """The same, with vertices that have no edges."""

    def graphs(self) -> Iterator[tuple[int, _Pairs, bool, bool]]:
        further = tuple((src + self.vertices, dst + self.vertices) for src, dst in self.own)
        yield self.vertices, self.own, False, False
        yield 2 * self.vertices, self.own + further, False, False


def _ring(first: int, end: int, steps: tuple[int, ...], of: int) -> _Pairs:
    """Edges into some vertices, from those that are so many steps ahead."""
    return tuple(((dst + step) % of, dst) for dst in range(first, end) for step in steps)


# Of the others, all have more edges than the own, loops among them, and one has very many.
_OWN = _Trial(4, 8, _ring(0, 4, (1, 3), 8), _ring(4, 8, (0, 5, 2, 7), 8) + 8 * _ring(4, 5, (0, 1, 2, 3, 4, 5), 8))
# 0-3 hang on 3-8, these on 9-14 and themselves; and these on all.
_NEIGHBOURS = _Trial(
    4,
    15,
    (*_ring(0, 4, (3, 5), 15), *_ring(4, 9, (6, 1), 15), (12, 5), (13, 7), (14, 7), (6, 6)),
    _ring(9, 15, (0, 2, 4, 5, 8, 10), 15) + 8 * _ring(9, 10, (0, 1, 2, 3, 4, 5), 15),
    6,
)
_LONE = _Alone(4, 4, ((0, 1), (1, 2), (2, 0)))


class _OnFew(NamedTuple):
    """A module that is tried on a few vertices with random rows, as wide as those of a block.

    Does a vertex get the same from it, whether other vertices, and edges to these, are there or not? Nor may it matter in
    which order vertices are numbered, which on a block is another one.
    """

    conv: MessagePassing
    block: Block
    x: Tensor  # [num_src, columns]
    options: dict[str, object]  # what edges and rows come with
    kinds: int  # of edges

    def is_always_of_edges(self, tried: _Trial) -> bool:
        """With other parameters, too, as what is multiplied by nought at first is learned; and in training."""
        alone = self.is_of_edges(tried)
        with tried_again(self.conv):  # it may not run so
            alone = alone and all(self.is_of_edges(tried, training) for training in (False, True))
        return alone

    def is_of_edges(self, tried: _Trial, training: bool = False) -> bool:
        """With edges of few kinds and of many; with values beyond the block's, unless it fails on such."""
        several = {min(self.kinds, 2), self.kinds}
        try:
            return all(self._is_of_edges(tried, kinds, True, training) for kinds in several)
        except Exception:  # its own code's, which may take values for something else, as for places in a table
            return all(self._is_of_edges(tried, kinds, False, training) for kinds in several)

    def _is_of_edges(self, tried: _Trial, kinds: int, beyond: bool, training: bool) -> bool:
        """With edges of all `kinds` in turn, and values that are larger and smaller for the others, if `beyond`.

        In training dropout and batch normalisation are left out, and one that draws other random numbers is not told of.
        """
        conv, x = self.conv, self.x
        rows = torch.from_numpy(generator(0).standard_normal((2 * tried.vertices, *x.shape[1:]))).to(x)

        def forward(count: int, edges: _Pairs, backwards: bool, other_rows: bool) -> tuple[Tensor | None, Left]:
            at = torch.arange(count, device=x.device)  # of each vertex; and the vertex at each place, if backwards
            at = at.flip(0) if backwards else at
            ends = at[torch.tensor(edges).T.to(x.device)]
            by_destination = ends[1].argsort(stable=True)
            own = len(tried.own) if beyond else len(edges)
            given = {name: self._part(of, at, by_destination, kinds, own) for name, of in self.options.items()}
            taken = rows[:count]
            if other_rows:
                taken = torch.cat([taken[: -tried.free], rows[-tried.free :]])
            run = partial(own_forward, conv, taken[at], ends[:, by_destination], given)
            return left_by(conv, lambda: _rows_at(run(), at[: tried.compared]))

        with on_trial(conv, training, x, *DROPOUTS) as drawn:
            (alone, left), *others = (forward(*graph) for graph in tried.graphs())
        if alone is None or (training and drawn.shapes):
            return True
        same = all(rows is not None and alike(alone, rows) for rows, _ in others)
        if drawn.shapes and not same:
            raise ModelError(f"{conv} draws random numbers in eval mode, too: give F.dropout training=self.training")
        for _, beside in others if same else ():
            if (kept := left_otherwise(left, beside)) is not None:
                raise ModelError(keeps_of_rows(conv, kept))
        return same

    def _part(self, value: object, vertices: Tensor, edges: Tensor, kinds: int, own: int) -> object:
        """What some vertices and edges come with, taken from the block's; edges from the number `own` on with others."""
        count = self.block.num_edges
        if not isinstance(value, Tensor) or not value.dim() or len(value) not in (count, len(self.x)):
            return value
        if len(value) != count:
            return value[vertices.to(value.device) % len(value)]
        if not value.is_floating_point():
            return (edges % kinds).to(value)
        least, most = value.amin(0), value.amax(0)
        more = 1 + most - least
        place = edges.to(value.device)
        some, place = value[place % len(value)], place.view(-1, *[1] * (value.dim() - 1))
        others = torch.where(place % 2 == 0, most + more, torch.where(least > 0, least / 7, least - more))
        return torch.where(place < own, some, others)


def _rows_at(out: object, places: Tensor) -> Tensor | None:
    """Some rows of what a module gave; None where that is no tensor, which is refused in a batch."""
    return out[places] if isinstance(out, Tensor) else None


class _OwnForward(Merge):
    """The module's own forward on whole lists; parts can't be joined."""

    def __init__(self, call: Call, looks_on: Callable[[Block, Tensor, Callable[[], dict[str, object]]], bool]) -> None:
        self._call, self._looks_on = call, looks_on

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
        call, here = self._call, edges.block
        edges = edges if here.num_dst else self._made_up(here)
        block = edges.block
        with self._named(block):
            further = here.num_dst > 0 and self._looks_on(block, sources, partial(self._options, edges))
            edges = surroundings(call, block) if further else edges
            options, seen = self._options(edges), edges.block
            # One more where there are as many edges, so that rows and edges are told apart by their number.
            rows = seen.num_src + (seen.num_src == seen.num_edges)
            for name, value in call.others.items():
                if isinstance(value, Tensor) and value.dim() and not isinstance(value, Handle | nn.Parameter):
                    options[name] = _more(value, rows) if len(value) == here.num_src else value
            edge_index = torch.stack([seen.src.long(), seen.dst().long()])
            with _OnBlock(call, edges, here.num_dst, rows):
                out = own_forward(call.conv, _more(sources, rows), edge_index, options)
        if not isinstance(out, Tensor) or len(out) != rows:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ModelError(f"{call.conv} gave {got} for {rows} vertices: a convolution must give one row a vertex")
        return out[: here.num_dst]

    def _made_up(self, block: Block) -> Edges:
        """In place of no edges, of which some modules make errors or NaN: a vertex with two loops, whose row is dropped."""
        call, src = self._call, block.src
        names = {value.stands_for for value in call.others.values() if isinstance(value, Handle)}
        names |= {name for name in EDGE_ARGUMENTS if getattr(call, name)}
        given = {name: call.program.edge_values(name, block) for name in names}
        values = {name: of.new_full((2, *of.shape[1:]), name != "edge_type") for name, of in given.items()}
        ends = torch.tensor([0, 2], device=src.device)
        loops = Block(ends, src.new_zeros(2), max(1, block.num_src), values=values)
        return Edges(loops, keys=ends.new_zeros(1))

    def _options(self, edges: Edges) -> dict[str, object]:
        """What it is given besides rows and edges, of these edges."""
        call, block = self._call, edges.block
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
        return options

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


def _more(rows: Tensor, count: int) -> Tensor:
    """So many rows, the others like the first one; where there is none, as a worker may have no destinations, of ones."""
    if len(rows) == count:
        return rows
    first = rows[:1].detach() if len(rows) else rows.new_ones(1, *rows.shape[1:])  # by which one can divide
    return torch.cat([rows, first.expand(count - len(rows), *rows.shape[1:])])


class _OnBlock(OtherDropout):
    """Functions inside a black box whose result hangs on which rows there are.

    Dropout is keyed: by vertex where a tensor has a row a vertex, by edge where a row an edge, with or without loops that
    were added as PyG adds them; other shapes are left to torch, whose generator the trainer seeds for each batch. Batch
    normalisation takes the statistics of the destinations.
    """

    def __init__(self, call: Call, edges: Edges, destinations: int, rows: int) -> None:
        """`edges`: all that are seen, of which those into the destinations come first."""
        super().__init__()
        self._call, self._edges, self._block = call, edges, edges.block
        self._destinations, self._rows = destinations, rows
        self._joined: Tensor | None = None  # the last list of edges that was put together

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is F.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        out = super().__torch_function__(func, types, args, kwargs)
        if func in _JOINING and out.dim() == 2 and len(out) == 2 and out.dtype == torch.int64:
            self._joined = out
        return out

    def _batch_norm(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Sources that are no destinations lack their neighbours, and may be elsewhere too: they don't count."""
        given = inspect.signature(F.batch_norm).bind(x, *args, **kwargs)
        given.apply_defaults()
        count = self._destinations if len(x) == self._rows else len(x)
        if count == 1 or not self._destinations:  # what is made up has no statistics
            args, kwargs = by_running_averages(self._call.run.not_averaged, x, *args, **kwargs)
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

    def dropped(self, x: Tensor, p: float, inplace: bool) -> Tensor:
        call = self._call
        keys = self._keys(x) if call.run.keys else None
        if (
            keys is None
            and 0 < self._destinations < self._block.num_dst
            and {self._rows, self._block.num_edges} & {*x.shape}
        ):
            raise ModelError(
                f"{call.conv} looks at its neighbours' edges, and drops numbers that are in no row of a vertex or an edge "
                f"({[*x.shape]}), which workers would draw otherwise: build it without dropout"
            )
        if keys is None:
            return torch.dropout(x, p, True)
        return dropped(x, p, keys, call.run.next_dropout(), inplace)

    def _keys(self, x: Tensor) -> Tensor | None:
        """What names the edge, the vertex or the added loop of each row, the same on any worker; None: it can't be told."""
        if self._joined is not None and len(x) == self._joined.shape[1]:
            return self._keys_with_loops(self._joined)
        if len(x) == self._block.num_edges:
            return self._call.edge_keys(self._edges)
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
                of_loops = edge_keys(self._row_keys(), every[0], torch.full_like(every[0], -1))
                return torch.cat([self._call.edge_keys(self._edges)[kept], of_loops])
        return None

    def _row_keys(self) -> Tensor:
        return _more(self._call.program.source_keys(self._call.depth), self._rows)
