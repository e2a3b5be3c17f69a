"""A trained model as a folder, and what it says of vertices, as its users get it.

The folder has its parameters, its settings, and what the graph was that it was trained on. A model is of classes, relations
and types of vertices by number; so their names are kept, and held against those of the graph that it is to be applied to.
Its classes it takes along: that graph needs no labels.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from weft.config import typed
from weft.errors import InputError, ModelError, StorageError
from weft.graph import Graph
from weft.nn import (
    NOTHING_BUILT,
    NOTHING_KEPT,
    Built,
    Kept,
    Unlisted,
    encoder_of,
    forward_of,
    make_room,
    takes_types,
)
from weft.plan import Settings
from weft.training import checkpoint
from weft.training.fetching import graph_here
from weft.training.models import dtype_for, make_model
from weft.training.objectives import objective_named, width_by
from weft.training.own_code import code_of, edited

_MANY = 6  # names that an error shows
# Begin the names of tensors that no state_dict has: of what training changes, and as they were built.
_KEPT, _BUILT = "/", ":"


class TrainedModel(NamedTuple):
    """A trained model, and what it is applied to."""

    model: nn.Module
    settings: Settings
    graph: Graph  # with the classes of the model
    several_labels: bool  # may a vertex have several at once?
    edited: list[str]  # classes of the user's own whose code is not what it was when it was saved
    otherwise: list[str]  # what was built with other numbers then

    @property
    def tells_classes(self) -> bool:
        """Are its rows of classes, as wide as its objective wants them?"""
        wide = width_by(objective_named(self.settings), self.graph, self.settings)
        return not self.settings.of_links and 0 < wide == self.graph.num_classes


def save_model(
    folder: Path,
    model: nn.Module,
    settings: Settings,
    graph: Graph,
    kept: Kept = NOTHING_KEPT,
    built: Built = NOTHING_BUILT,
) -> None:
    """Write a trained model, all or nothing; who made it in a file finds the file from any folder.

    A trained model that is there is replaced, and nothing else. `kept`: what it keeps besides its state_dict; `built`:
    what it was built with besides.
    """
    checkpoint.check_place(folder)
    if settings.model.file is not None:
        file, function = settings.model.file
        settings = settings.changed(model=f"{file.absolute()}:{function}")
    known = asdict(graph.facts) | {"edge_types": graph.num_edge_types, "several_labels": graph.multi_label}
    known |= {"weighted": graph.edge_weight is not None, "edge_features": graph.num_edge_features}
    facts = {"settings": settings.flat(), "features": graph.num_features, "classes": graph.num_classes}
    facts |= {"widths": graph.feature_widths, "graph": known}
    facts["code"] = code_of(model)
    facts["attributes"], tensors = kept
    facts["built"] = built.facts
    tensors = {_KEPT + name: tensor for name, tensor in tensors.items()}
    tensors |= {_BUILT + name: tensor for name, tensor in built.tensors.items()}
    checkpoint.save(folder, model.state_dict() | tensors, facts)


def load_model(folder: str | Path, graph: Graph | Data | HeteroData | str | Path) -> TrainedModel:
    """A trained model, built anew for a graph of the same features, and types of edges and vertices by the same numbers."""
    folder = Path(folder)
    if not folder.is_dir():
        raise StorageError(
            f"there is no trained model at {folder}: train one with `weft train ... --out {typed(folder)}`"
        )
    tensors, facts = checkpoint.load(folder, checkpoint.MODEL)
    if "features" not in facts:
        raise StorageError(f"{folder} is a checkpoint and no trained model: name what `weft train --out` saved")
    graph = graph if isinstance(graph, Graph) else graph_here(graph)
    with checkpoint.sensible(folder, checkpoint.MODEL):
        known = facts.get("graph") or {"num_classes": facts["classes"]}  # {...}: as versions before 0.2 saved it
        settings = Settings.restored(facts["settings"], str(folder))
        wanted = _Known(facts["features"], tuple(facts.get("widths", ())), known)
        applied = wanted.on(graph, folder, tells_classes=not settings.of_links)
    model = make_model(settings, applied).to(dtype_for(settings))
    if takes_types(encoder_of(model)):
        wanted.check_relations(graph, applied, folder)
    kept, built = (
        {name.removeprefix(start): tensors.pop(name) for name in list(tensors) if name.startswith(start)}
        for start in (_KEPT, _BUILT)
    )
    make_room(model, tensors)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ModelError(f"the parameters in {folder} do not fit {settings.model.name}: {error}") from None
    with checkpoint.sensible(folder, checkpoint.MODEL):
        others, _ = Unlisted(model, {}).go_on(facts.get("built", {}), built, (facts.get("attributes", []), kept))
    taken = forward_of(encoder_of(model), applied.num_features).edge_arguments()
    if "edge_weight" in taken:
        wanted.check_weights(graph, folder)
    if "edge_features" in taken:
        wanted.check_edge_features(graph, folder)
    several_labels = known.get("several_labels", graph.multi_label)
    return TrainedModel(model, settings, applied, several_labels, edited(facts.get("code", {}), model), others)


def _labels_as(graph: Graph, classes: int, names: tuple[str, ...] | None) -> np.ndarray | None:
    """A graph's labels as a model numbers its classes, by their names: -1 of a class that it does not know."""
    labels, there = graph.labels, graph.class_names
    if labels is None or (there == names and graph.num_classes == classes):
        return labels
    if labels.ndim > 1 or not (there and names):
        return labels if labels.ndim == 1 and graph.num_classes <= classes else None
    of_model = {name: number for number, name in enumerate(names)}
    numbers = [*(of_model.get(name, -1) for name in there), -1]  # the last is of those that are unknown
    return np.array(numbers, labels.dtype)[labels]


class _Known(NamedTuple):
    """What is known of the graph that a model was trained on."""

    features: int
    widths: tuple[int, ...]  # features of vertices by their type, or of all; early versions have none
    graph: dict[str, Any]  # its facts; of early versions only how many classes

    def on(self, graph: Graph, folder: Path, tells_classes: bool) -> Graph:
        """Another graph, as the model takes it; refused where features or types of vertices are others."""
        classes, names = int(self.graph["num_classes"]), self.graph.get("class_names")
        if names and len(names) != classes:
            raise ValueError(f"{len(names)} names of {classes} classes")
        like = "use the graph it was trained for, or one made in the same way"
        if self.features != graph.num_features or self.widths not in ((), graph.feature_widths):
            takes, there = (", ".join(map(str, of)) for of in (self.widths or (self.features,), graph.feature_widths))
            raise ModelError(
                f"the model in {folder} takes {takes} features (by type of vertex, if there are "
                f"several), the graph has {there}: {like}"
            )
        if tells_classes and classes and graph.num_classes > classes and not names:  # 0: labels were of no use to it
            raise ModelError(
                f"the model in {folder} tells {classes} classes, the graph has {graph.num_classes}: {like}"
            )
        _check_names("types of vertices", self.graph.get("vertex_type_names"), graph.vertex_type_names, folder)
        relations = graph.edge_type_names
        if relations is None and graph.edge_type is not None and graph.num_edge_types < self._edge_types(graph):
            relations = tuple(map(str, range(self._edge_types(graph))))  # the last ones have no edge here
        classes_of = names and tuple(names)
        labels = _labels_as(graph, classes, classes_of)
        return replace(graph, labels=labels, num_classes=classes, class_names=classes_of, edge_type_names=relations)

    def check_relations(self, graph: Graph, applied: Graph, folder: Path) -> None:
        """Refuse a graph whose types of edges are others, or have other numbers."""
        _check_names("types of edges", self.graph.get("edge_type_names"), graph.edge_type_names, folder)
        if applied.num_edge_types != self._edge_types(graph):
            raise ModelError(
                f"the model in {folder} knows {self._edge_types(graph)} types of edges, the graph has "
                f"{applied.num_edge_types}: use a graph that has the same ones, or train it on this one"
            )

    def check_weights(self, graph: Graph, folder: Path) -> None:
        """Refuse a graph whose edges have weights where those that a model was trained on had none, or the other way."""
        there = graph.edge_weight is not None
        if self.graph.get("weighted", there) != there:  # early versions do not say
            trained, has = ("with", "none") if not there else ("without", "some")
            raise ModelError(
                f"the model in {folder} was trained {trained} weights of edges, which it takes; the graph has {has}: import "
                f"it {trained} weights, or train the model on this one"
            )

    def check_edge_features(self, graph: Graph, folder: Path) -> None:
        """Refuse a graph whose edges have other features than those that a model was trained on."""
        there = graph.num_edge_features
        if (trained := self.graph.get("edge_features", there)) != there:  # early versions do not say
            raise ModelError(
                f"the model in {folder} was trained with {trained or 'no'} features of each edge, which it takes; the graph "
                f"has {there or 'none'}: import it alike (--edge-features), or train the model on this one"
            )

    def _edge_types(self, graph: Graph) -> int:
        known: int = self.graph.get("edge_types", graph.num_edge_types)
        return known


def _check_names(what: str, known: Sequence[str] | None, there: Sequence[str] | None, folder: Path) -> None:
    """Refuse a graph that has other ones, or has them in another order; where either has no names, numbers count."""
    if known is not None and there is not None and tuple(known) != tuple(there):
        raise ModelError(
            f"the model in {folder} was trained on the {what} {_listed(known)}, the graph has {_listed(there)}: they go by "
            f"their numbers, so import it with the same ones in the same order"
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MANY])
    return f"{shown} and {len(names) - _MANY} more" if len(names) > _MANY else shown


def told(outputs: np.ndarray, what: str, several: bool, classes: int = 1) -> np.ndarray:
    """A model's results as predictions or probabilities; `several`: may a vertex have several labels, of the `classes`?

    Refused where some are no numbers, which a class would not show, and where the model was trained to something else.
    """
    rows = torch.from_numpy(outputs)
    if not several and rows.shape[1] == 1 != classes:
        raise InputError(
            f"the model gives one number a vertex, which is none of {classes} classes: weft.infer(model, graph).outputs are "
            f"these numbers"
        )
    asked = rows
    if what == "probabilities":
        asked = torch.sigmoid(rows) if several else torch.softmax(rows, 1)
    if strange := int(asked.isnan().any(1).sum()):
        raise InputError(
            f"the model's rows of {strange:,} vertices hold nan, or are beyond all numbers: it was trained to none, or the "
            f"graph's features are none (`weft info --verify`)"
        )
    if what == "probabilities":
        return asked.numpy()
    return ((rows > 0).to(torch.uint8) if several else rows.argmax(1).int()).numpy()


def table_of(values: np.ndarray, vertices: np.ndarray, first: int, graph: Graph, what: str) -> pa.Table:
    """Values of some vertices, which were imported one after another; `first`: the first one's place then."""
    ids = pa.array(range(first, first + len(vertices)))
    columns = {"id": ids if graph.names is None else graph.names.slice(first, len(vertices))}
    if graph.vertex_type is not None:  # ids may be the same in several types
        kinds = pa.array(graph.vertex_type[vertices])
        columns["type"] = pa.array(list(graph.vertex_type_names)).take(kinds) if graph.vertex_type_names else kinds
    if values.ndim == 1:
        columns["class"] = pa.array(values)
        if graph.class_names:
            # A model may have more columns than there are classes.
            nameless = int(values.max(initial=-1)) + 1 - len(graph.class_names)
            columns["class_name"] = pa.array([*graph.class_names, *[None] * nameless]).take(pa.array(values))
    else:
        flat = pa.array(values.reshape(-1))
        columns[what] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.table(columns)
