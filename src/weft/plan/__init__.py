"""What a run is told and what is decided, as data: its settings, and the plan that says where each layer is computed."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.plan.binding import (
        binds,
        check_cache,
        check_device,
        check_loader,
        check_own_model,
        check_same,
        check_variant,
        check_workers,
        plan_named,
        plan_options,
        refuse,
    )
    from weft.plan.groups import (
        DEFAULTS,
        GROUPS,
        PLACES,
        CheckpointSettings,
        EvaluationSettings,
        ModelSettings,
        OptimisationSettings,
        ParallelSettings,
        PlanSettings,
        ReportSettings,
        SamplingSettings,
        TaskSettings,
    )
    from weft.plan.plan import (
        NAMED,
        OF_GRAPH,
        Plan,
        dnp,
        gdp,
        halo,
        leap,
        migrate,
        mixed,
        nfp,
        plan_of,
        snp,
        split,
        tp,
        tp_decoupled,
        usual_seeds,
    )
    from weft.plan.settings import OUR_NAMES, Settings, check_resumed, fixed_settings, flattened, may_change
else:
    __getattr__ = lazy_face(__name__)

__all__ = [
    "CheckpointSettings",
    "EvaluationSettings",
    "ModelSettings",
    "OptimisationSettings",
    "ParallelSettings",
    "Plan",
    "PlanSettings",
    "ReportSettings",
    "SamplingSettings",
    "Settings",
    "TaskSettings",
    "dnp",
    "gdp",
    "halo",
    "leap",
    "mixed",
    "nfp",
    "plan_of",
    "snp",
    "split",
    "tp",
    "tp_decoupled",
]
