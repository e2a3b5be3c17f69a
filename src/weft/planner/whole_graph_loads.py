"""What workers do in an epoch of the whole graph: as in a batch, but what is made ready once, at the start, is left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.placements import OWNER
from weft.planner.counts import Counts, Key, others
from weft.planner.loads import DecoupledPlan, Load, Loads, Move, PlanLayer, PlanPart, Setting, SlicedPlanLayer
from weft.planner.model_cost import LayerCost, ModelCost
from weft.planner.slice_bench import SliceCosts


@dataclass(frozen=True)
class Seen:
    """What was seen of a model's layers on the whole graph."""

    keeps: bool  # is what the first layer merges made once, as inputs stay?
    sliced: Sequence[SliceCosts | None]  # each layer by column; None: it has no such split
    mixing: Sequence[float]  # what a row and an edge take that are mixed, decoupled,
    mixings: int  # how often they are
    heads: int  # and how many times over


class ReadyOnce(Loads):
    """The load of each part of a plan, its layers at the owners or by column."""

    def __init__(self, counts: Counts, setting: Setting, half: bool, seen: Seen, model: ModelCost, item: int) -> None:
        """`item`: bytes of a number in the model."""
        super().__init__(counts, setting, half)
        self._seen, self._model, self._item = seen, model, item
        self._own = counts.held.sum(1)
        self._edges = float(counts.batch.drawn[Key(0, OWNER)].edges.sum())

    def of(self, part: PlanPart) -> Load:
        if isinstance(part, DecoupledPlan):
            return self._apart(part)
        return self._slice(part.layer) if isinstance(part, SlicedPlanLayer) else self._at_owners(part)

    def _at_owners(self, part: PlanLayer) -> Load:
        """A layer's load without what is done once: drawing, fetching, and merging inputs that stay."""
        load, kept = super().of(part), part.layer == 0 and self._seen.keeps
        ready = ("sample", "fetch", *(["exchange", "compute"] if kept else []))
        for stage in ready:
            load.units[stage].clear()
        load.moves = [move for move in load.moves if move.stage not in ready]
        load.ahead, load.inputs = False, 0.0
        if kept:
            load.sources, load.edges = load.destinations, 0.0 * load.destinations
        return load

    def _slice(self, layer: int) -> Load:
        """A layer by column, as it was seen to run."""
        seen = self._seen.sliced[layer]
        assert seen is not None, f"layer {layer + 1} can't be by column"
        load = self._slices([self._own * each * self._half for each in seen.messages])
        if seen.edge_bytes:
            for _ in range(2):
                self._spread(load, np.full(self._workers, self._edges * seen.edge_bytes / self._workers))
        load.cost = LayerCost(seen.fixed, 0.0, seen.row, seen.edge, 0.0, 0.0, 0.0, 0.0)
        return load

    def _apart(self, part: DecoupledPlan) -> Load:
        """Dense layers on own rows, rows to slices, mixings (of inputs that stay one is made once), and rows again."""
        mixings, heads, layers = self._seen.mixings, self._seen.heads, self._model.layers
        forth_and_back = 4 * heads if self._workers > 1 and mixings else 0
        sent = self._own * self._model.widths[-1] * (self._item * self._half) / self._workers
        load = self._slices([sent] * forth_and_back)
        dense, fixed = sum(cost.source + cost.destination for cost in layers), sum(cost.fixed for cost in layers)
        row, edge = (each * mixings * heads for each in self._seen.mixing)
        load.cost = LayerCost(fixed, dense, row, edge, 0.0, 0.0, 0.0, 0.0)
        load.overlaps = min(1.0, 2 / max(mixings, 1)) * part.overlaps
        return load

    def _slices(self, sent: Sequence[np.ndarray]) -> Load:
        """What all workers do by column; `sent`: in each exchange, by a worker to each other."""
        load = self._empty()
        for each in sent:
            self._spread(load, each)
        load.sources = self._own
        load.destinations = np.full(self._workers, float(self._counts.held.sum()))
        load.edges = np.full(self._workers, self._edges)
        return load

    def _spread(self, load: Load, sent: np.ndarray) -> None:
        """An exchange in which each worker sends so much to each other one."""
        self._move(load, Move("exchange", others(np.repeat(sent[:, None], self._workers, 1))))
