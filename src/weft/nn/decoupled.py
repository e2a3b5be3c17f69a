"""The decoupled variant of a model: its dense layers first, then as many aggregations. It is another model, and named so.

A convolution maps rows and mixes them with their neighbours'. Decoupled, the maps come first, each vertex by itself, and the
last convolution's rows are then mixed as many times as there were convolutions (APPNP and NeutronTP's decoupled training).
Where the first convolution gets the inputs as they are, its mixing is not put off: inputs don't change, so they are mixed
once, in the first epoch, and only the other convolutions' mixing is left for the end. What learns its mixing (attention), or
maps rows before it (relations' matrices), leaves all of it for the end.

| convolution | its dense part, row by row | how it mixes rows h |
|---|---|---|
| GCNConv | lin(x) + bias | D^-1/2 (A + I) D^-1/2 h |
| SAGEConv (mean) | lin_l(x) + lin_r(x) | mean over neighbours; the last one's lin_r(x) is not mixed, but added in the end |
| GINConv | nn(x) | ((1 + eps) h + sum over neighbours) / (1 + neighbours); inputs without the division |
| GATConv | lin(x), + bias; the last one's heads stay apart | by the attention of lin(x), of each GATConv its own |
| RGCNConv (mean) | x root + bias + the mean of x by the matrix of each relation that the vertex sends along | the mean over
relations of the mean over a relation's neighbours; the last one's x root + bias are not mixed, but added in the end |

So each aggregation weighs edges by what its own convolution makes of its own rows, as NeutronTP has it. The last
convolution's heads are joined or averaged, and its bias is added, after the mixing, as a GATConv does. Each of its heads is
mixed by one head of every attention; by the mean over an attention's heads where these are not as many.

What a model does between its convolutions (activations, dropout, normalisation, residuals) is done between their dense
parts; what it does after the last one is done with the mixed rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, RGCNConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter, softmax

from weft.errors import ModelError
from weft.nn.block_model import convolution_of
from weft.nn.conv.relations import matrices_of, relation_slots
from weft.nn.convolution import is_matrix
from weft.nn.depths import passage, walk
from weft.nn.forwards import arguments_of, taken_by
from weft.nn.handles import ATTRIBUTES, FEATURES, Handle
from weft.nn.links import LinkPredictor
from weft.nn.rows import forward_on, forwards_replaced, without_depth


@dataclass(frozen=True)
class Step:
    """One aggregation: the convolution that it was taken from, how it mixes, and whether by the graph's edge weights."""

    conv: MessagePassing
    kind: str  # gcn, mean, sum, attention or relations; each: the mean of the own row and the neighbours'
    weighted: bool
    first: bool = False  # are these the inputs, mixed before the dense layers?


@dataclass(frozen=True)
class Dense:
    """What the dense part of a model makes of rows."""

    rows: Tensor  # to be mixed
    steps: list[Step]
    scores: Tensor | None = None  # [rows, ...] what attention is made of: of each step by it, what `score_widths` says
    beside: Tensor | None = None  # to be added to what comes of the mixing
    heads: int = 1  # that the rows are made of, each to be mixed by its own attention
    averaged: bool = False  # are mixed heads averaged, or joined?

    @property
    def score_widths(self) -> list[int]:
        """Columns of scores of each step by attention: a number for each end and head."""
        return [2 * step.conv.heads for step in self.steps if step.kind == "attention"]

    def tensors(self) -> tuple[Tensor, ...]:
        """What there is of its rows, scores, and rows beside."""
        return tuple(x for x in (self.rows, self.scores, self.beside) if x is not None)

    def made_of(self, tensors: Iterable[Tensor]) -> "Dense":
        """The same of other tensors, in this order."""
        rest = iter(tensors)
        rows = next(rest)
        scores = None if self.scores is None else next(rest)
        return replace(self, rows=rows, scores=scores, beside=None if self.beside is None else next(rest))

    def by_head(self) -> Sequence[Tensor]:
        """The rows, a tensor for each head."""
        return [self.rows] if self.heads == 1 else self.rows.chunk(self.heads, 1)

    def whole(self, parts: Sequence[Tensor]) -> Tensor:
        """What comes of the rows: their heads, mixed, as one, and what is beside."""
        if self.heads == 1:
            (out,) = parts
        else:
            out = sum(parts[1:], parts[0]) / self.heads if self.averaged else torch.cat(list(parts), 1)
        return out if self.beside is None else out + self.beside


@dataclass(frozen=True)
class Surroundings:
    """What dense layers are told of the graph."""

    propagate: Callable[[Dense], Tensor]  # rows after all steps, with what is beside
    enter: Callable[[Step], Tensor]  # the inputs, mixed by a step of which nothing is learned
    sends: Callable[[int], Tensor]  # [rows, relations]: the share of each relation that the row's vertex sends along


class Decoupled(nn.Module):
    """A model's decoupled variant, with the same parameters: an ordinary module of (x, edge_index)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, conv in model.named_modules():
            if isinstance(conv, MessagePassing):
                kind_of(conv, name)
        self.model = model
        found = walk(model)
        self.depth = len(found)  # aggregations
        first, last = found[0].conv, found[-1].conv
        self.attentions = tuple(one.conv.heads for one in found if isinstance(one.conv, GATConv))
        self.heads = last.heads if isinstance(last, GATConv) else 1  # that they mix by themselves
        self.averaged = isinstance(last, GATConv) and not last.concat
        self.columns = found[-1].out * (self.heads if self.averaged else 1)
        step = Step(first, kind_of(first), False)
        # Are inputs mixed once? If it gets them as they are in training: that eval mode drops none makes no other model.
        self.enters = entering(step) is not None and passage(model, None).as_they_are
        self.kinds = {kind_of(conv) for conv in model.modules() if isinstance(conv, MessagePassing)}

    @classmethod
    def of(cls, model: nn.Module) -> nn.Module:
        """A model's decoupled variant; of a link predictor, that of its encoder. What is decoupled stays as it is."""
        if isinstance(model, LinkPredictor):
            return LinkPredictor(cls.of(model.encoder), model.decoder)
        return model if isinstance(model, cls) else cls(model)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        node_type: Tensor | None = None,
    ) -> Tensor:
        """Rows for the rows of all vertices, in one process."""

        def propagate(dense: Dense) -> Tensor:
            return mixed(dense, edge_index, edge_weight, edge_type)

        def sends(relations: int) -> Tensor:
            assert edge_type is not None
            return shares_sent(edge_index[0], edge_type, len(x), relations).to(x.dtype)

        around = Surroundings(propagate, lambda step: propagate(Dense(x, [step])), sends)
        given = {"edge_weight": edge_weight, "edge_type": edge_type, "node_type": node_type}
        return self.run(x, edge_index, given, around)

    def run(self, x: Tensor, edge_index: Tensor, given: Mapping[str, Tensor | None], around: Surroundings) -> Tensor:
        """The model's forward, its convolutions answered by dense parts; the last one's rows are propagated.

        A first convolution that gets the inputs as they are takes them mixed. `given`: what there is for the model to take.
        """
        weight = given.get("edge_weight")
        given = {ATTRIBUTES: None if weight is None else weight.view(-1, 1)} | {**given}
        answers = _Answers(self.depth, x if self.enters else None, around)
        with forwards_replaced(self.model, lambda conv: _stand_in(conv, answers)):
            out: Tensor = forward_on(self.model, x, edge_index, given)
        return out

    def extra_repr(self) -> str:
        """How many aggregations are apart from the dense layers."""
        return f"dense layers apart from {self.depth} aggregations"


def kind_of(conv: MessagePassing, name: str = "") -> str:
    """How a convolution mixes; refuses those that can't be decoupled."""
    kind = convolution_of(conv).mixing
    if kind is not None:
        return kind
    raise ModelError(
        f"{name + ': ' if name else ''}{conv} can't be decoupled into a map of rows and a linear mixing of them: train with "
        f"plan tp or halo, or use GCNConv, SAGEConv (mean), GINConv, GATConv (without edge features) or RGCNConv (mean)"
    )


class _Answers:
    """What the convolutions of one forward pass give."""

    def __init__(self, depth: int, inputs: Tensor | None, around: Surroundings) -> None:
        """`inputs`: if they are mixed first."""
        self._depth, self._inputs, self._around = depth, inputs, around
        self._called = 0
        self._steps: list[Step] = []
        self._scores: list[Tensor] = []  # of steps by attention

    def answer(self, conv: MessagePassing, x: Tensor, weighted: bool) -> Tensor:
        """The convolution's dense part; after the last one's, all the mixing."""
        if self._called == self._depth:
            raise ModelError(
                f"the model has more convolutions than its {self._depth} in sequence, so some run side by side: only a "
                f"sequence can be decoupled; train with plan tp or halo"
            )
        self._called += 1
        step = Step(conv, kind_of(conv), weighted)
        inputs = self._inputs if self._called == 1 and not x.requires_grad else None
        as_it_is = inputs is not None and x.dtype == inputs.dtype and x.is_set_to(inputs)
        first = entering(step) if as_it_is else None
        if first is not None:
            rows = self._around.enter(first)
        else:
            rows = x
            self._steps.append(step)
        if step.kind == "mean":
            return self._mean(conv, rows, x)
        if step.kind == "relations":
            return self._by_relation(conv, rows)
        dense = _dense_part(conv, step.kind, rows)
        return self._by_heads(conv, dense, x) if isinstance(conv, GATConv) else self._given(dense)

    def _given(self, rows: Tensor, beside: Tensor | None = None, heads: int = 1, averaged: bool = False) -> Tensor:
        """Rows, and what a convolution adds to them; those of the last one are mixed before."""
        if self._called < self._depth:
            return rows if beside is None else rows + beside
        scores = torch.cat(self._scores, 1) if self._scores else None
        return self._around.propagate(Dense(rows, self._steps, scores, beside, heads, averaged))

    def _by_heads(self, conv: GATConv, dense: Tensor, x: Tensor) -> Tensor:
        """The heads' rows as one; those of the last convolution stay apart until they are mixed."""
        self._scores.append(torch.cat([(dense * conv.att_src).sum(-1), (dense * conv.att_dst).sum(-1)], 1))
        residual = None if conv.res is None else conv.res(x)
        beside = _beside(residual, conv.bias, dense.flatten(1) if conv.concat else dense[:, 0])
        apart = conv.concat or self._called == self._depth
        return self._given(dense.flatten(1) if apart else dense.mean(1), beside, conv.heads, not conv.concat)

    def _mean(self, conv: SAGEConv, x: Tensor, x_own: Tensor) -> Tensor:
        x = conv.lin(x).relu() if conv.project else x
        root = conv.lin_r(x_own) if conv.root_weight else None
        if self._called < self._depth:
            out = self._given(conv.lin_l(x), root)
        elif not is_matrix(conv.lin_l):
            raise ModelError(
                f"{conv}: its lin_l is more than a matrix (it has hooks, as of nn.utils.weight_norm, or a forward of its "
                f"own): take torch.nn.utils.parametrizations, or train with plan tp or halo"
            )
        else:  # the bias, too, is not mixed: vertices without neighbours have it
            rows = nn.functional.linear(x, conv.lin_l.weight)
            out = self._given(rows, _beside(root, conv.lin_l.bias, rows))
        return nn.functional.normalize(out, p=2.0, dim=-1) if conv.normalize else out

    def _by_relation(self, conv: RGCNConv, x: Tensor) -> Tensor:
        """Each row by the matrices of the relations that its vertex sends along, for its neighbours will get it by these."""
        added = without_depth(x).new_zeros(len(x), conv.out_channels)
        shares = self._around.sends(conv.num_relations)
        for share, matrix in zip(shares.unbind(1), matrices_of(conv), strict=True):
            at = share.nonzero().flatten()
            added.index_add_(0, at, (share[at, None] * x[at]) @ matrix)
        rows = x.new_zeros(len(x), 1) + added  # which knows whose rows these are
        root = None if conv.root is None else x @ conv.root
        return self._given(rows, _beside(root, conv.bias, rows))


def _beside(root: Tensor | None, bias: Tensor | None, like: Tensor) -> Tensor | None:
    """What is added to mixed rows, if anything."""
    if bias is None:
        return root
    return bias.expand_as(like) if root is None else root + bias


def entering(step: Step) -> Step | None:
    """How a first convolution's inputs are mixed once, for all epochs; None where that is learned, or comes behind a map."""
    conv = step.conv
    learned = conv.eps.requires_grad if step.kind == "sum" else step.kind == "mean" and conv.project
    return None if learned or step.kind in ("attention", "relations") else replace(step, first=True)


def _stand_in(conv: MessagePassing, answers: _Answers) -> Callable[..., Tensor]:
    """A forward that is answered."""
    names = arguments_of(type(conv).forward)

    def forward(*args: Tensor, **kwargs: Tensor) -> Tensor:
        given = dict(zip(names, args, strict=False)) | kwargs
        x, weight = given[names[0]], given.get("edge_weight")
        if isinstance(weight, Handle) and weight.stands_for == FEATURES:
            raise ModelError(
                f"{conv} is given features of edges as their weights, by which it can't be decoupled: give the graph edge "
                f"weights, or train with plan tp or halo"
            )
        return answers.answer(conv, x[0] if isinstance(x, tuple) else x, weight is not None)

    return forward


def _dense_part(conv: MessagePassing, kind: str, x: Tensor) -> Tensor:
    """What a convolution makes of each row by itself; the heads of an attention stay apart."""
    if kind == "sum":
        return conv.nn(x)
    out = conv.lin(x)
    if kind == "attention":
        return out.view(len(x), conv.heads, conv.out_channels)
    return out if conv.bias is None else out + conv.bias


def shares_sent(src: Tensor, types: Tensor, vertices: int, relations: int) -> Tensor:
    """Of each vertex the share of each relation among those that it is a source in, [vertices, relations]."""
    there = torch.zeros(relations * vertices, dtype=torch.float64, device=src.device)
    there[relation_slots(src, types, vertices, relations)] = 1
    there = there.view(relations, vertices).T
    return there.div_(there.sum(1, keepdim=True).clamp(min=1))


def mixed(
    dense: Dense, edge_index: Tensor, edge_weight: Tensor | None = None, edge_type: Tensor | None = None
) -> Tensor:
    """All steps on the rows of all vertices, with PyG's own functions: slow, obvious, on any device."""
    scores = iter(() if dense.scores is None else dense.scores.split(dense.score_widths, 1))
    attended = [
        _attention(step.conv, next(scores), edge_index) if step.kind == "attention" else None for step in dense.steps
    ]
    parts = []
    for head, rows in enumerate(dense.by_head()):
        for step, attention in zip(dense.steps, attended, strict=True):
            if attention is None:
                rows = _mixed_by(step, rows, edge_index, edge_weight if step.weighted else None, edge_type)
            else:
                edges, shares = attention
                rows = _sum(rows, edges, shares[:, head] if step.conv.heads == dense.heads else shares.mean(1))
        parts.append(rows)
    return dense.whole(parts)


def _mixed_by(step: Step, rows: Tensor, edge_index: Tensor, weight: Tensor | None, edge_type: Tensor | None) -> Tensor:
    """One step of which no attention is learned."""
    if step.kind == "gcn":
        return _sum(rows, *_gcn_edges(step.conv, rows, edge_index, weight))
    if step.kind == "mean":
        return scatter(rows[edge_index[0]], edge_index[1], 0, len(rows), "mean")
    if step.kind == "relations":
        means = [
            scatter(rows[edge_index[0, of]], edge_index[1, of], 0, len(rows), "mean")
            for of in (edge_type == relation for relation in range(step.conv.num_relations))
        ]
        there = torch.zeros(len(rows), step.conv.num_relations, dtype=rows.dtype, device=rows.device)
        there[edge_index[1], edge_type] = 1
        return sum(means) / there.sum(1, keepdim=True).clamp(min=1)
    own = 1 + step.conv.eps if step.kind == "sum" else 1
    rows = own * rows + _sum(rows, edge_index, None)
    if step.kind == "each" or not step.first:  # sums of sums would grow with the depth, bounded by nothing
        rows = rows / (1 + torch.bincount(edge_index[1], minlength=len(rows)))[:, None]
    return rows


def _gcn_edges(conv: GCNConv, rows: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if not conv.normalize:
        return edge_index, weight
    return gcn_norm(edge_index, weight, len(rows), conv.improved, conv.add_self_loops, dtype=rows.dtype)


def _attention(conv: GATConv, scores: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """The edges, and what each counts for: its probability, by head."""
    vertices, (of_src, of_dst) = len(scores), scores.chunk(2, 1)
    if conv.add_self_loops:
        edge_index = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=vertices)[0]
    src, dst = edge_index
    logits = nn.functional.leaky_relu(of_src[src] + of_dst[dst], conv.negative_slope)
    shares = softmax(logits, dst, num_nodes=vertices)
    return edge_index, torch.dropout(shares, conv.dropout, conv.training)


def _sum(rows: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
    messages = rows[edge_index[0]]
    messages = messages if weight is None else messages * weight[:, None]
    return scatter(messages, edge_index[1], 0, len(rows), "sum")


def takes_types(model: nn.Module) -> bool:
    """Does the model's forward, or that of the model whose variant it is, ask for the types of edges?"""
    return "edge_type" in taken_by(model.model if isinstance(model, Decoupled) else model)
