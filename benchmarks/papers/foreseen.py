"""What plans would send, by the planner's dry run: counts and bytes.

Nothing is timed, so that these figures are the same on a busy machine.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.graph import Graph
from weft.nn import encoder_of
from weft.plan import Plan, Settings
from weft.planner import KINDS, Cluster, Host, Planner, Prediction
from weft.quantities import bandwidth_of
from weft.training import WhatIf, make_model

_WORK = dict.fromkeys(KINDS, 1e-9) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}  # whatever work takes


def hosts(count: int, link: str, work: Mapping[str, float] = _WORK) -> Cluster:
    """Hosts with a worker each and links of a rate; work takes next to nothing, unless it is said what."""
    rate = bandwidth_of(link)
    if rate is None:
        raise ConfigError(f"link {link!r} is not a rate: give it as 100mbit or 1gbit")
    each = tuple(Host(f"h{number + 1}", rate, 1e12) for number in range(count))
    return Cluster(each, 1e-4, 1e-5, 1e12, dict(work))


def foreseen(
    parts: Path, settings: Mapping[str, Any], plans: Mapping[str, Plan], cluster: Cluster
) -> dict[str, Prediction]:
    """An epoch by each plan on a partitioned graph; plans that can't be are refused."""
    planner = planner_of(parts, settings, cluster.workers)
    found = {name: planner.predict(plan, cluster, name) for name, plan in plans.items()}
    for name, one in found.items():
        if one.excluded is not None:
            raise ConfigError(f"plan {name} {one.excluded}")
    return found


def planner_of(parts: Path, settings: Mapping[str, Any], workers: int) -> Planner:
    """A planner for a model on a partitioned graph; batches are counted once for all models of a depth."""
    sampled = {name: value for name, value in settings.items() if name not in ("model", "hidden", "heads")}
    model = make_model(Settings.of(**settings), Graph.open(parts))
    return _counted(parts, Settings.of(**sampled), workers).of(encoder_of(model))


@lru_cache(maxsize=2)
def _counted(parts: Path, settings: Settings, workers: int) -> Planner:
    """A planner that has counted batches; others of the same depth are made of it."""
    return WhatIf(Graph.open(parts), settings).planner(hosts(workers, "1gbit"), settings.sampling.batch_size * workers)


def megabytes(prediction: Prediction) -> float:
    """What all workers send in an epoch, without the sums of gradients, which are the same for all plans."""
    return sum(sent for stage, sent in prediction.sent.items() if stage != "sync") / 1e6
