"""What a person looks at: progress, tables, pages and logs, made from records."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.report.allocation_page import write_allocations
    from weft.report.allocation_table import print_allocations
    from weft.report.cluster_table import print_cluster
    from weft.report.graph_table import print_graph
    from weft.report.locality_table import print_locality
    from weft.report.partition_table import print_partition
    from weft.report.plan_json import answer_as_dict
    from weft.report.plan_page import write_page
    from weft.report.plan_table import print_answer
    from weft.report.progress import StageProgress
    from weft.report.sandbox_table import print_traffic
    from weft.report.training_log import listener_for
else:
    __getattr__ = lazy_face(__name__)
