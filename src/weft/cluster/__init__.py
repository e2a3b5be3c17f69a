"""Starting the workers of a run."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.cluster.checks import Finding, checkup
    from weft.cluster.crew import LOST_OTHERS
    from weft.cluster.launcher import NOT_RESTARTED, Launcher, Recovery, Request, launch, starts_workers
    from weft.cluster.ray_tasks import RayTasks, tasks_on_ray
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["Launcher", "Request"]
