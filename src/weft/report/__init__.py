"""What a person looks at: progress, tables, pages and logs, made from records."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.report.allocations import print_allocations, write_allocations
    from weft.report.plan_page import write_page
    from weft.report.plan_table import print_answer
    from weft.report.plan_text import answer_as_dict
    from weft.report.progress import StageProgress
    from weft.report.run_stages import print_run, read_run
    from weft.report.tables import (
        print_cluster,
        print_findings,
        print_graph,
        print_links,
        print_locality,
        print_partition,
        print_sharded,
        print_traffic,
    )
    from weft.report.training_log import listener_for
else:
    __getattr__ = lazy_face(__name__)
