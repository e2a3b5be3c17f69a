"""A trained model on disk: its parameters as safetensors, and the settings that built it as JSON."""

from pathlib import Path

from torch import nn

from weft.errors import ModelError, StorageError
from weft.graph import Graph
from weft.plan import Settings
from weft.training import checkpoint
from weft.training.models import make_model


def save_model(folder: Path, model: nn.Module, settings: Settings, graph: Graph) -> None:
    """Write a trained model, all or nothing."""
    facts = {"settings": settings.flat(), "features": graph.num_features, "classes": graph.num_classes}
    checkpoint.save(folder, dict(model.state_dict()), facts)


def load_model(folder: Path, graph: Graph) -> tuple[nn.Module, Settings]:
    """A trained model, built anew for a graph with as many features and classes, and its settings."""
    if not folder.is_dir():
        raise StorageError(f"there is no trained model at {folder}: train one with `weft train ... --out {folder}`")
    tensors, facts = checkpoint.load(folder)
    wanted, there = (facts["features"], facts["classes"]), (graph.num_features, graph.num_classes)
    if wanted != there:
        raise ModelError(
            f"the model in {folder} takes {wanted[0]} features and tells {wanted[1]} classes, the graph has {there[0]} and "
            f"{there[1]}: use the graph it was trained for, or one made in the same way"
        )
    settings = Settings.restored(facts["settings"], str(folder))
    model = make_model(settings, graph)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ModelError(f"the parameters in {folder} do not fit {settings.model.name}: {error}") from None
    return model, settings
