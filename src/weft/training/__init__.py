"""Training: loaders, a model under any plan, objectives, evaluation, inference, checkpoints."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.training.checkpoint import check_new, check_place, check_room, checkpoint_damage
    from weft.training.events import EpochEnded, Event, Finished, Notice, Planned, Started, Stepped
    from weft.training.fetching import as_graph
    from weft.training.inference import infer, inferred
    from weft.training.loader import Loader, check_alike, joined
    from weft.training.models import check_plan, dtype_for, make_model, unused_by, variant_of
    from weft.training.objectives import (
        LossObjective,
        Objective,
        Targets,
        VertexObjective,
        names_other_task,
        objective_named,
        of_all_workers,
        set_up,
        wrapped_by,
    )
    from weft.training.objectives.links import LinkObjective
    from weft.training.planning import answer_for_all, planner_for
    from weft.training.rehearsal import measured
    from weft.training.run import Run, parallel
    from weft.training.shards import embed_by_tasks, infer_task
    from weft.training.staging import device_of, name_of
    from weft.training.start import described, expected, measured_cluster, trainer_for
    from weft.training.trained_model import TrainedModel, load_model, save_model, table_of, told
    from weft.training.trainer import Result, Trainer
    from weft.training.what_if import WhatIf, partitioned_anew
else:
    __getattr__ = lazy_face(__name__)

__all__ = [
    "EpochEnded",
    "Event",
    "Finished",
    "LinkObjective",
    "Loader",
    "Objective",
    "Result",
    "Run",
    "Stepped",
    "Targets",
    "Trainer",
    "VertexObjective",
    "infer",
    "load_model",
    "of_all_workers",
    "parallel",
]
