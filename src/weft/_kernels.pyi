"""Types of the compiled kernels (kernels/*.cpp); kept by hand, checked by tests/unit/test_kernel_stubs.py."""

from numpy import ndarray

def mix64(x: int) -> int: ...

# kernels/sampling.cpp
class ArraySampler32:
    def __init__(self, vertices: int) -> None: ...
    def sample(
        self,
        indptr: ndarray,
        indices: ndarray,
        seeds: ndarray,
        fanouts: list[int],
        keys: list[int],
        original_ids: ndarray | None,
        weights: ndarray | None,
        replace: bool,
        edge_ids: bool,
        first: int,
        threads: int,
    ) -> tuple[ndarray, list[tuple[ndarray, ndarray, int, ndarray | None]]]: ...

class HashSampler32(ArraySampler32):
    def __init__(self) -> None: ...

class HashSampler64(ArraySampler32):
    def __init__(self) -> None: ...
