"""Links as what is learned: pairs with negatives for each batch, their loss, and how high links rank in evaluation."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import ClassVar, Self

import numpy as np
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from weft.errors import ConfigError, ModelError, TrainingError
from weft.exchange import Communicator
from weft.graph import SPLITS, Graph, Links, split_links
from weft.keys import Stream, drawing_alone, mix64
from weft.keys import key as make_key
from weft.nn import KeyedDropout, LinkPredictor, Steps, link_loss, loss_terms, make_decoder, state_kept
from weft.plan import Settings
from weft.sampling import Batches, VerticesByType, WholeBatch, batch_negatives, uniform_negatives
from weft.training.objectives.objective import Halves, Objective, Outputs, Targets
from weft.training.objectives.pairs import PairExamples, Pairs, PairTargets, pair_targets, places_in

_SCORES = 1 << 17  # that a worker computes at once
_SURE = 32  # draws a vertex, after which all were drawn: one in e^32 was not


class LinkObjective(Objective):
    """Learns which vertices are linked. Batches are of links, by their places among those of the training split."""

    name: ClassVar[str] = "link"
    help: ClassVar[str] = "which vertices are linked: edges of the graph"
    of_links: ClassVar[bool] = True
    exchanges: ClassVar[bool] = True

    def setup(self, graph: Graph, settings: Settings) -> Self:
        """Split the links; messages go over those of the training split only."""
        self._settings = settings
        self._links = split_links(graph, settings.task.link_split, settings.optimisation.seed)
        self.graph = self._links.messages
        self.metric = {"mrr": "MRR", "hits": f"Hits@{settings.task.hits}", "auc": "AUC"}[settings.task.metric]
        self._here: np.ndarray | None = None  # [vertices] where each original id is now
        if graph.original_ids is not None:
            self._here = _by_original_id(np.arange(graph.num_vertices, dtype=graph.indices.dtype), graph)
            self._here.setflags(write=False)  # so that nobody copies it, to see whether it changes
        self._alike = (
            None if graph.vertex_type is None else VerticesByType.of(_by_original_id(graph.vertex_type, graph))
        )
        # Of splits that were evaluated. A dict of an objective is told to be something that training changes.
        self._vertices: tuple[tuple[str, np.ndarray], ...] = ()
        self._cuts: bool | None = None  # may a decoder of one's own score some pairs at a time?
        return self

    def width(self, graph: Graph, settings: Settings) -> int:
        """As wide as between layers: the decoder makes a score of two such rows."""
        return settings.model.hidden

    def wrapped(self, model: nn.Module, settings: Settings) -> nn.Module:
        """The model with the decoder that the settings name, unless it has one."""
        if isinstance(model, LinkPredictor):
            return model
        return LinkPredictor(
            model, make_decoder(settings.task.decoder, settings.model.hidden, settings.optimisation.seed)
        )

    def describe(self) -> str:
        s = self._settings
        negatives = (
            f"{s.task.num_negatives} negative{'s' if s.task.num_negatives > 1 else ''} each ({s.task.negatives})"
        )
        return f"{self.count('train'):,} links with {negatives}, {s.task.decoder}, {s.task.loss}"

    def count(self, split: str) -> int:
        return len(self._links.parts[split])

    def batches(self, size: int | None) -> Batches | WholeBatch:
        links = np.arange(self.count("train"))
        return WholeBatch(links) if size is None else Batches(links, None, size, self._settings.optimisation.seed)

    def pairs(self, batch: np.ndarray, epoch: int, number: int, chosen: np.ndarray | None = None) -> Pairs:
        """The pairs of a batch of all workers, or of the links at some places in it."""
        s, train = self._settings, self._links.parts["train"]
        chosen = np.arange(len(batch)) if chosen is None else chosen
        if s.task.negatives == "batch":
            when = (s.optimisation.seed, epoch, number)
            drawn = batch_negatives(train, batch, chosen, s.task.num_negatives, when, train, self._alike)
        else:
            drawn = uniform_negatives(
                train, batch[chosen], s.task.num_negatives, (s.optimisation.seed, epoch), train, alike=self._alike
            )
        return self._paired(train, batch[chosen], drawn, make_key(Stream.HEAD, s.optimisation.seed, epoch, number))

    def examples(self, chosen: np.ndarray, epoch: int, batch: int) -> PairExamples:
        """The links of a batch, whose negatives are drawn for those that are needed."""
        task = self._settings.task
        each = 0 if task.negatives == "batch" and len(chosen) == 1 else task.num_negatives
        terms = max(1, loss_terms(len(chosen), each, task.loss))
        return PairExamples(len(chosen), terms, partial(self._heads, chosen), partial(self.pairs, chosen, epoch, batch))

    def _heads(self, batch: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The heads of the links at some places in a batch."""
        return self._ids(self._links.parts["train"].ends(batch[chosen])[0])

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """The loss of this worker's pairs of a batch, summed over its terms."""
        assert isinstance(model, LinkPredictor) and isinstance(targets, PairTargets)
        part = partial(self._loss_of, model, targets)

        if not len(targets):
            return _of_none(model, rows, targets)
        # Back from a span it is gone over all rows, so on the full graph spans grow with them.
        size = max(1, max(_SCORES, len(rows) // 2) // targets.tails.shape[1])
        if len(targets) <= size or not self._may_cut(model, targets, rows):
            return part(rows, 0, len(targets))
        # So many pairs' rows are not kept for the way back, but looked up again.
        spans = [(first, min(first + size, len(targets))) for first in range(0, len(targets), size)]
        losses = [torch.utils.checkpoint.checkpoint(part, rows, *span, use_reentrant=False) for span in spans]
        return torch.stack(losses).sum()

    def _may_cut(self, model: LinkPredictor, targets: PairTargets, rows: Tensor) -> bool:
        """May the decoder score some pairs at a time? Where it makes each score of two rows alone, and keeps nothing."""
        if model.known:
            return True
        if self._cuts is None:
            tried = self._halves(model, targets, rows)
            with drawing_alone(0) as generators, state_kept(model.decoder) as state, torch.no_grad():
                at_first = generators()
                _scores_of(model, targets, rows, 0, 2)
                drew = tried.drew or generators() != at_first
                self._cuts = not (state.has_stepped() or drew) and tried.by_each
        return self._cuts

    def _halves(self, model: LinkPredictor, targets: PairTargets, rows: Tensor) -> Halves:
        count = min(len(targets), max(2, _SCORES // targets.tails.shape[1]))
        return Halves.of(partial(_scores_of, model, targets, rows.detach()), count, model.decoder)

    def _loss_of(self, model: LinkPredictor, targets: PairTargets, rows: Tensor, first: int, end: int) -> Tensor:
        s = self._settings
        return link_loss(_scores_of(model, targets, rows, first, end), s.task.loss, s.task.margin)

    def check_sum(self, model: nn.Module, rows: Tensor, targets: Targets) -> None:
        """Tried on two halves of the links: a decoder scores each pair by itself."""
        assert isinstance(model, LinkPredictor) and isinstance(targets, PairTargets)
        if model.known:
            return
        tried = self._halves(model, targets, rows)
        who = f"decoder {type(model.decoder).__name__}"
        tried.check(who)
        if not tried.by_each:
            raise TrainingError(
                f"{who} gives pairs other scores if other pairs are beside them, but several workers (or micro-batches) "
                f"each have some of a batch: let each score be of its two rows alone, or train on one worker"
            )

    def vertices(self, split: str) -> np.ndarray:
        """The vertices whose rows evaluation needs, in the order of their original ids."""
        known = dict(self._vertices)
        if split not in known:
            count, vertices = self.count(split), self.graph.num_vertices
            surely = self._alike is None and count * self._settings.task.eval_negatives >= _SURE * vertices
            marked = np.full(vertices, surely)
            for at in () if surely else self._pieces(count):
                pairs = self.evaluated(split, at)
                marked[pairs.heads] = marked[pairs.tails] = True
            chosen = np.flatnonzero(marked)
            ids = self.graph.original_ids
            known[split] = chosen if ids is None else chosen[np.argsort(ids[chosen], kind="stable")]
            self._vertices = (*known.items(),)
        return known[split]

    def measure(self, model: nn.Module, split: str, outputs: Outputs, comm: Communicator) -> dict[str, float]:
        """MRR and Hits@k of each link among its own negatives, and AUC with one negative a link.

        `outputs`: vertices and their rows, as far as this worker has them. All workers call this together.
        """
        assert isinstance(model, LinkPredictor)
        task, like = self._settings.task, next(model.parameters(), torch.empty(0))
        if not len(links := self._links.parts[split]):
            raise ConfigError(
                f"no link is in the split {split!r}, so there are no figures of it: choose another link_split"
            )
        held, rows = _joined(outputs, like)
        holders, place = self._holders(held, comm), places_in(held)
        pieces = self._pieces(len(links))
        mine = np.concatenate([at[holders[self._ids(links.ends(at)[0])] == comm.rank] for at in pieces])
        most = int(comm.sum(torch.bincount(torch.tensor([comm.rank]), torch.tensor([len(mine)]), comm.size)).max())
        # Links by twice their rank, whose sum over workers is exact; and the scores of each and of one negative.
        counts, scored = torch.zeros(2 * task.eval_negatives + 3, dtype=torch.int64), [np.empty((0, 2))]
        steps, strange = Steps(model.decoder), 0  # pairs whose scores are no number though their rows are
        for some in self._pieces(most):  # as many as whoever holds most of the heads needs
            drawn = self.evaluated(split, mine[some[0] : some[-1] + 1])
            pairs = pair_targets(drawn, place, len(held), lambda ids: holders[ids], comm, few=True).to(rows.device)
            there = pairs.rows(rows, comm)
            if len(drawn):
                with steps.undone():
                    scores = model.score(*pairs.of(there, 0, len(drawn)))
                strange += 0 if there.isnan().any() else int(scores.isnan().sum())
                counts += torch.bincount((2 * ranks(scores)).long().cpu(), minlength=len(counts))
                scored.append(scores[:, :2].double().cpu().numpy())
        if int(comm.sum(torch.tensor([strange]))):
            raise TrainingError(
                f"decoder {type(model.decoder).__name__} gives nan for pairs of the {split} split, which have no rank then: "
                f"look in it for what has no value at some rows (0 / 0, the root of a negative number)"
            )
        counts, places = comm.sum(counts), torch.arange(len(counts), dtype=torch.float64) / 2
        whole = int(counts.sum())
        links, others = _of_all(np.concatenate(scored), comm).T
        figures = {"MRR": float((counts[2:] / places[2:]).sum()) / whole}
        if task.hits <= task.eval_negatives:  # or every link would be one
            figures[f"Hits@{task.hits}"] = int(counts[places <= task.hits].sum()) / whole
        return figures | {"AUC": auc(links, others, like.dtype)}

    def _pieces(self, links: int) -> Iterable[np.ndarray]:
        """The places of links of evaluation, as many at a time as a worker scores at once."""
        size = max(1, _SCORES // (1 + self._settings.task.eval_negatives))
        for first in range(0, links, size):
            yield np.arange(first, min(first + size, links))

    def evaluated(self, split: str, at: np.ndarray) -> Pairs:
        """Links of a split with the negatives that they are ranked among: the same in every epoch, linked in no split."""
        s, links = self._settings, self._links.parts[split]
        when = (s.optimisation.seed, SPLITS[split])
        drawn = uniform_negatives(links, at, s.task.eval_negatives, when, self._links.all, Stream.EVALUATE, self._alike)
        return self._paired(links, at, drawn)

    def _paired(self, links: Links, at: np.ndarray, drawn: np.ndarray, key: int | None = None) -> Pairs:
        """`key`: of this batch's randomness, in training."""
        heads, own = links.ends(at)
        tails = np.concatenate([own[:, None], drawn], axis=1)
        keys = None
        if key is not None:
            of_heads = mix64(heads.astype(np.uint64) ^ np.uint64(key))
            keys = mix64(of_heads[:, None] ^ tails.astype(np.uint64)).view(np.int64)
        return Pairs(self._ids(heads), self._ids(tails), keys)

    def _ids(self, original: np.ndarray) -> np.ndarray:
        """Where vertices of original ids are in this graph."""
        return original.astype(self.graph.indices.dtype) if self._here is None else self._here[original]

    def _holders(self, held: np.ndarray, comm: Communicator) -> np.ndarray:
        """The worker that has each vertex's row, [vertices]; all tell what they have."""
        holders = np.full(self.graph.num_vertices, comm.rank, dtype=np.uint16)
        told = held.astype(self.graph.indices.dtype, copy=False)
        for worker, of_one in enumerate(comm.gather_arrays([told], "evaluate")[0]):
            holders[of_one] = worker
        holders[held] = comm.rank
        return holders


def _scores_of(model: LinkPredictor, targets: PairTargets, rows: Tensor, first: int, end: int) -> Tensor:
    """The scores of some links. A decoder's dropout is by pair, or by link where it is of heads alone."""
    keys = None if targets.keys is None else targets.keys[first:end]
    with nullcontext() if keys is None else KeyedDropout(0, [keys, keys[:, 0]]):
        return model.score(*targets.of(rows, first, end))


def _of_none(model: LinkPredictor, rows: Tensor, targets: PairTargets) -> Tensor:
    """The loss of a worker that has no links in a batch, by a decoder that may not be made for none."""
    with suppress(ModelError):
        return _scores_of(model, targets, rows, 0, 0).sum()
    return torch.stack([of[:0].sum() for of in (rows, *map(torch.flatten, model.decoder.parameters()))]).sum()


def _by_original_id(values: np.ndarray, graph: Graph) -> np.ndarray:
    if graph.original_ids is None:
        return values
    moved = np.empty_like(values)
    moved[graph.original_ids] = values
    return moved


def _joined(outputs: Outputs, like: Tensor) -> tuple[np.ndarray, Tensor]:
    """Vertices and their rows, in one array and one tensor, `like` another one; of none, one of no columns."""
    ids, rows = [], []
    for vertices, out in outputs:
        ids.append(vertices)
        rows.append(out)
    if not ids:
        return np.empty(0, dtype=np.int64), like.new_empty(0, 0)
    return np.concatenate(ids).astype(np.int64), torch.cat(rows)


def _of_all(scored: np.ndarray, comm: Communicator) -> np.ndarray:
    """All workers' rows of scores, [n, 2] float64."""
    (parts,) = comm.gather_arrays([scored.ravel()], "evaluate")
    return np.concatenate(parts).reshape(-1, 2)


def ranks(scores: Tensor) -> Tensor:
    """The place of each link among its negatives, from 1 on; [links, 1 + negatives], the link first. Ties count half."""
    own, others = scores[:, :1], scores[:, 1:]
    size = torch.maximum(own.abs(), scores.abs().mean(1, keepdim=True)).nan_to_num(posinf=0.0)
    rounding = _rounding(scores.dtype) * size
    same = (others == own) | ((others - own).abs() <= rounding)
    return 1 + (~((others < own) & ~same)).sum(1) - 0.5 * same.sum(1, dtype=torch.float64)


def auc(links: np.ndarray, others: np.ndarray, dtype: torch.dtype = torch.float64) -> float:
    """The chance that a link scores above a pair that is none (the area under the ROC curve); ties count half.

    `dtype`: that the scores were computed in.
    """
    rising = np.sort(others)
    typical = (np.abs(links).mean() + np.abs(others).mean()) / 2
    rounding = _rounding(dtype) * np.nan_to_num(np.maximum(np.abs(links), typical), posinf=0.0)
    below, upto = (
        np.searchsorted(rising, links - rounding).mean(),
        np.searchsorted(rising, links + rounding, side="right").mean(),
    )
    return float(below + upto) / (2 * len(others))


def _rounding(dtype: torch.dtype) -> float:
    """By how much scores that are equal may differ, beside their size.

    Vertices whose inputs are alike, such as those without features, have the same rows but for rounding, which is another
    one in another batch or under another plan.
    """
    return 128 * min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
