"""What a run is told and what is decided, as data: its settings, and the plan that says where each layer is computed."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.plan.named import plan_named
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
        snp,
        split,
        tp,
        tp_decoupled,
    )
    from weft.plan.settings import DEFAULTS, GROUPS, MAY_CHANGE, PLACES, Settings, flattened
else:
    __getattr__ = lazy_face(__name__)
