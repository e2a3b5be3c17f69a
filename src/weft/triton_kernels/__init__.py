"""Kernels in Triton: on a device, what the compiled ones (`_kernels`) do on the CPU; by the names of `operations/choice.py`.

Each is tested against its CPU twin by Triton's interpreter, without a device, and compiled for the devices that it is for.
What comes out does not hang on which thread is first: a row is written by one program in the order of its edges, gradients
of sources go over the transposed lists, and the only atomics are on integers, where order is no matter.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.triton_kernels.attention import attend, attend_backward, head_terms, head_terms_backward
    from weft.triton_kernels.attention_v2 import attend_v2, attend_v2_backward
    from weft.triton_kernels.draws import draw, dropout_mask, number, sample
    from weft.triton_kernels.film_sums import film, film_backward
    from weft.triton_kernels.gather import gather_tiers
    from weft.triton_kernels.shares import edge_shares, edge_shares_backward
    from weft.triton_kernels.sums import edge_dot, max_rows, max_rows_backward, sum_rows
else:
    __getattr__ = lazy_face(__name__)  # Triton takes its time to import
