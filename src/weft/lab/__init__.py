"""What a reader of papers or a tester needs and a user does not: a cluster in a box, studies of locality, AdaGL."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.lab.adagl.links import read_links, write_links
    from weft.lab.adagl.measured_links import MeasuredLinks, measure_links
    from weft.lab.locality_figures import Locality, Micrographs, Misses, locality
    from weft.lab.locality_study import LocalityStudy
    from weft.lab.sandbox import Sandbox, bits_a_second
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["LocalityStudy", "Sandbox", "locality"]
