"""The measured cluster, a counted epoch, and the plan that they make fastest."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.planner.allocations import PLANS, Compared, Comparer, Comparison, Flow, owners_in, read_measured
    from weft.planner.answer import STAGES, Answer, Prediction, Sweep
    from weft.planner.cluster import KINDS, MOST_WORKERS, NEVER, Cluster, Host
    from weft.planner.cluster_file import read_cluster, shared, write_cluster
    from weft.planner.fitting import Observation, prediction_error, refined
    from weft.planner.kept import Earlier, KeptCluster, Tried
    from weft.planner.planner import Planner, Scaling, link_sweep, sweep
    from weft.planner.priors import Prior, prior, reference_machine
    from weft.planner.probe import probe_briefly, probe_cluster, probe_cluster_again
    from weft.planner.probe_devices import device_now
    from weft.planner.task import Sampling, Task, Workers
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["probe_briefly", "probe_cluster", "probe_cluster_again", "read_cluster", "write_cluster"]
