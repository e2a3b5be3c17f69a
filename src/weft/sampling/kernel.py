"""Samplers whose hops are drawn and renumbered by one call of a compiled kernel."""

from weft import _kernels
from weft.sampling.numbering import ARRAY_UP_TO, WIDE
from weft.sampling.sampler import Sampler
from weft.threads import cached_property


class KernelSampler(Sampler):
    """Holds the kernel, with its tables and buffers, for graphs of this size."""

    @cached_property
    def _kernel(self) -> "_kernels.ArraySampler32 | _kernels.HashSampler32 | _kernels.HashSampler64":
        vertices = len(self._graph.indptr) - 1
        if self._graph.indices.dtype == WIDE:
            return _kernels.HashSampler64()
        return _kernels.ArraySampler32(vertices) if vertices <= ARRAY_UP_TO else _kernels.HashSampler32()
