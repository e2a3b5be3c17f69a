"""What convolutions ask of a device's kernels, edge by edge; and those for the CPU, and for devices without Triton.

Beside them: who looks what random numbers a model draws.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.operations.arguments import JoinedTerms, Lists, Saved, Scores, Terms, Turned
    from weft.operations.choice import Operations, has_kernels, has_triton, operations_on, why_no_kernels
    from weft.operations.compiled import linear, linear_of_two, linear_pair
    from weft.operations.drawn import DrawnShapes, Draws, drawn_otherwise
    from weft.operations.plain import ends
else:
    __getattr__ = lazy_face(__name__)
